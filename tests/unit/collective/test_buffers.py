"""The vectors of an exchange: what is kept, and who may write where."""

from __future__ import annotations

import socket

import numpy as np
import pytest
from elasticdl.collective import wire
from elasticdl.collective.buffers import Buffers, RoundMemory
from elasticdl.collective.encoding import Encoding
from elasticdl.collective.messages import HandOver, Piece, Reduced, Round
from numpy.typing import NDArray

SIZE = 64


@pytest.fixture
def buffers() -> Buffers:
    return Buffers(0, [SIZE], Encoding(), 0)


def of(number: int) -> Round:
    return Round(number, (0, 1), (0, 0))


def sent_by_other(buffers: Buffers, memory: RoundMemory, step: int, value: float):
    """Read worker-1's part of a sum, as a thread of the memory's round does."""
    begin, end = memory.bounds[1]
    data = np.full(end - begin, value, np.float32)
    frame = wire.frame(
        wire.Kind.REDUCED, memory.round.number, step=step, part=1, data=[data.data]
    )
    one, other = socket.socketpair()
    with one, other:
        one.sendall(b"".join(bytes(part) for part in frame))
        head = wire.read_head(other)
        meta = bytes(wire.read_bytes(other, head.meta_bytes))
        message = buffers.read(memory, 1, other, head, meta)
    assert isinstance(message, Reduced)
    return message.data


def made(buffers: Buffers, memory: RoundMemory, step: int, value: float) -> HandOver:
    """Make a step whose sum is one value; return what another member is handed."""
    begin, end = memory.bounds[0]
    half = np.full(end - begin, value / 2, np.float32)
    mine = buffers.add(0, 0, (half, half))
    parts = (mine, sent_by_other(buffers, memory, step, value))
    assert buffers.whole(parts).tolist() == [value] * SIZE
    return HandOver(step, b"", parts, (0, 1))


def handed(buffers: Buffers, step: HandOver) -> NDArray[np.float32]:
    return np.frombuffer(bytes(buffers.frame(step)[-1]), np.float32)


def test_a_thread_of_a_round_before_writes_into_no_sum_of_the_present_one(buffers):
    before = buffers.enter(of(1))
    now = buffers.enter(of(2), again=0)
    sent_by_other(buffers, before, 0, 7.0)
    assert not now.result.any()


def test_a_member_that_lacks_the_last_step_gets_its_sum_after_two_losses(buffers):
    step = made(buffers, buffers.enter(of(1)), 4, 3.0)
    again = buffers.enter(of(2), again=5)
    sent_by_other(buffers, again, 5, 9.0)  # of the step under way, lost as well
    buffers.enter(of(3), again=5)
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
    after = buffers.enter(of(2), again=1)
    assert not np.shares_memory(memory.result, after.result)
    step = made(buffers, after, 1, 2.0)
    assert buffers.enter(of(3)).result is after.result
    assert handed(buffers, step).tolist() == [2.0] * SIZE


def test_a_piece_is_read_beside_the_sum(buffers):
    memory = buffers.enter(of(1))
    begin, end = memory.bounds[0]
    piece = np.ones(end - begin, np.float32)
    frame = buffers.frame(Piece(0, 0, piece))
    assert bytes(frame[-1]) == piece.tobytes()
    assert not np.shares_memory(memory.pieces[1, 0], memory.result)
