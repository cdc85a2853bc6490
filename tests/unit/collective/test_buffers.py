"""The vectors of an exchange: what is kept, and who may write where."""

from __future__ import annotations

import socket
import threading

import numpy as np
import pytest
from elasticdl.collective import wire
from elasticdl.collective.buffers import Buffers, RoundMemory
from elasticdl.collective.encoding import DIRECT_BYTES, GradientForm
from elasticdl.collective.messages import HandOver, Piece, Reduced, Round
from elasticdl.errors import RpcError
from numpy.typing import NDArray

SIZE = DIRECT_BYTES // 4 + 64
SMALL = 64


@pytest.fixture
def buffers() -> Buffers:
    return Buffers(0, GradientForm([SIZE]), 0)


def of(number: int) -> Round:
    return Round(number, (0, 1), (0, 0))


def sent_by_other(
    buffers: Buffers,
    memory: RoundMemory,
    step: int,
    value: float,
    kind: wire.Kind = wire.Kind.REDUCED,
    part: int = 1,
):
    """Read what worker-1 sends, as a thread of the memory's round does."""
    begin, end = memory.bounds[part]
    data = np.full(end - begin, value, np.float32)
    frame = wire.frame(
        kind, memory.round.number, step=step, part=part, data=[data.data]
    )
    one, other = socket.socketpair()
    with one, other:
        sending = threading.Thread(target=wire.send, args=(one, frame))
        sending.start()
        head = wire.read_head(other)
        meta = bytes(wire.read_bytes(other, head.meta_bytes))
        try:
            message = buffers.read(memory, 1, other, head, meta)
        finally:
            sending.join()
    assert isinstance(message, Reduced | Piece)
    return message.data


def piece_of_other(buffers: Buffers, memory: RoundMemory, step: int, value: float):
    return sent_by_other(buffers, memory, step, value, wire.Kind.PIECE, part=0)


def made(buffers: Buffers, memory: RoundMemory, step: int, value: float) -> HandOver:
    """Make a step whose sum is one value; return what another member is handed."""
    begin, end = memory.bounds[0]
    half = np.full(end - begin, value / 2, np.float32)
    mine = buffers.add(0, 0, (half, half))
    parts = (mine, sent_by_other(buffers, memory, step, value))
    assert buffers.whole(step, parts).tolist() == [value] * SIZE
    return HandOver(step, b"", parts, (0, 1))


def handed(buffers: Buffers, step: HandOver) -> NDArray[np.float32]:
    return np.frombuffer(bytes(buffers.frame(step)[-1]), np.float32)


def test_a_thread_of_a_round_before_writes_into_no_sum_of_the_present_one(buffers):
    before = buffers.enter(of(1))
    now = buffers.enter(of(2), version=0)
    sent_by_other(buffers, before, 0, 7.0)
    assert not now.results[0].any()


def test_a_member_that_lacks_the_last_step_gets_its_sum_after_two_losses(buffers):
    step = made(buffers, buffers.enter(of(1)), 4, 3.0)
    again = buffers.enter(of(2), version=5)
    sent_by_other(buffers, again, 5, 9.0)  # of the step under way, lost as well
    buffers.enter(of(3), version=5)
    assert handed(buffers, step).tolist() == [3.0] * SIZE


def test_one_vector_has_the_sums_of_all_steps_of_a_round(buffers):
    memory = buffers.enter(of(1))
    first = made(buffers, memory, 0, 1.0)
    assert handed(buffers, first).tolist() == [1.0] * SIZE
    second = made(buffers, memory, 1, 2.0)
    assert handed(buffers, second).tolist() == [2.0] * SIZE
    assert np.shares_memory(first.parts[0], second.parts[0])


def test_after_a_loss_the_next_step_keeps_one_vector_again(buffers):
    memory = buffers.enter(of(1))
    made(buffers, memory, 0, 1.0)
    after = buffers.enter(of(2), version=1)
    assert not np.shares_memory(memory.results[0], after.results[0])
    step = made(buffers, after, 1, 2.0)
    assert buffers.enter(of(3), lingers=True).results[0] is after.results[0]
    assert handed(buffers, step).tolist() == [2.0] * SIZE


def test_a_piece_is_read_beside_the_sum(buffers):
    memory = buffers.enter(of(1))
    begin, end = memory.bounds[0]
    piece = np.ones(end - begin, np.float32)
    frame = buffers.frame(Piece(0, 0, piece))
    assert bytes(frame[-1]) == piece.tobytes()
    assert not np.shares_memory(memory.pieces[1, 0, 0], memory.results[0])


@pytest.fixture
def direct() -> Buffers:
    return Buffers(0, GradientForm([SMALL]), 0)


def test_a_direct_piece_of_the_next_step_changes_neither_sum(direct):
    memory = direct.enter(of(1))
    mine = np.ones(SMALL, np.float32)
    now = piece_of_other(direct, memory, 6, 2.0)
    following = piece_of_other(direct, memory, 7, 5.0)
    first = direct.whole(6, (direct.add(6, 0, (mine, now)),))
    assert first.tolist() == [3.0] * SMALL
    second = direct.whole(7, (direct.add(7, 0, (mine, following)),))
    assert second.tolist() == [6.0] * SMALL
    assert first.tolist() == [3.0] * SMALL


def test_a_member_that_lacks_a_direct_step_gets_its_sum_in_the_next_round(direct):
    memory = direct.enter(of(1))
    mine = np.ones(SMALL, np.float32)
    total = direct.add(4, 0, (mine, piece_of_other(direct, memory, 4, 2.0)))
    direct.whole(4, (total,))
    step = HandOver(4, b"", (total,), (0, 1))
    for lingers, members in ((False, (0, 1)), (True, (0, 1, 2)), (True, (0, 1))):
        after = direct.enter(
            Round(memory.round.number + 1, members, (0,) * len(members)),
            version=5,
            lingers=lingers,
        )
        piece_of_other(direct, memory, 5, 9.0)
        assert not any(result.any() for result in after.results)
        assert handed(direct, step).tolist() == [3.0] * SMALL
        memory = after


def test_two_that_exchange_directly_take_no_sums(direct):
    memory = direct.enter(of(1))
    with pytest.raises(RpcError, match="sent part 0, not its own"):
        sent_by_other(direct, memory, 0, 1.0, part=0)
