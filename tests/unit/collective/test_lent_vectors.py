"""Vectors that other members read where they are."""

from __future__ import annotations

import errno
import gc
import mmap
import socket

import numpy as np
import pytest
from elasticdl.collective import wire
from elasticdl.collective.buffers import Buffers, StaleError
from elasticdl.collective.encoding import Encoding, GradientForm
from elasticdl.collective.lent_vectors import CACHE_LINE, Reader, Vectors
from elasticdl.collective.messages import Piece, Round
from elasticdl.errors import RpcError
from elasticdl.job.spec.kinds import Compression
from elasticdl.tensor.lent_memory import can_lend

pytestmark = pytest.mark.skipif(not can_lend(), reason="anonymous memory files")


@pytest.fixture
def vectors() -> Vectors:
    return Vectors(lends=True)


@pytest.fixture
def reader(vectors) -> Reader:
    return Reader(vectors)


@pytest.fixture
def ends():
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname())
        other, _ = server.accept()
        with one, other:
            yield one, other


def test_a_part_of_a_vector_is_read_by_whoever_is_told_its_place(
    vectors, reader
) -> None:
    vector = vectors.new(1000)
    vector[:] = np.arange(1000)
    out = np.empty(10, np.float32)
    reader.read(vectors.place(vector[500:510]), out)
    assert list(out) == list(range(500, 510))
    assert vector.ctypes.data % CACHE_LINE == 0


def test_values_that_were_written_over_are_refused(vectors, reader) -> None:
    vector = vectors.new(100)
    place = vectors.place(vector)
    vectors.rewrite(vector)
    with pytest.raises(RpcError, match="other ones by now"):
        reader.read(place, np.empty(100, np.float32))
    reader.read(vectors.place(vector), np.empty(100, np.float32))


def test_what_lies_beyond_a_vector_or_in_no_memory_is_refused(vectors, reader) -> None:
    vector = vectors.new(100)
    place = vectors.place(vector[90:])
    with pytest.raises(RpcError, match="expected"):
        reader.read(place, np.empty(1 << 20, np.float32))
    for wrong in (place[:-1], b"x" * len(place)):
        with pytest.raises(RpcError, match="cannot be read"):
            reader.read(wrong, np.empty(10, np.float32))


def test_a_vector_that_nobody_has_is_let_go(vectors, reader) -> None:
    vector = vectors.new(100)
    place = vectors.place(vector)
    del vector
    gc.collect()
    vectors.new(1)
    with pytest.raises(RpcError, match="cannot be read"):
        reader.read(place, np.empty(100, np.float32))


def test_ordinary_memory_has_no_place() -> None:
    assert Vectors().place(Vectors().new(4)) == b""
    assert Vectors(lends=True).place(np.zeros(4, np.float32)) == b""


def test_members_on_one_machine_alone_are_offered_memory(vectors, ends) -> None:
    class Elsewhere:
        def getpeername(self):
            return ("10.244.0.7", 50003)

    offer = vectors.offer(ends[0])
    assert vectors.can_read(offer)
    assert vectors.offer(Elsewhere()) == b""
    assert Vectors().offer(ends[0]) == b""
    assert not Vectors().can_read(offer)
    assert not vectors.can_read(b"")
    assert not vectors.can_read(b"x" * len(offer))


def test_whoever_has_no_room_for_lent_memory_asks_for_messages(
    vectors, reader, ends, monkeypatch
) -> None:
    offer, place = vectors.offer(ends[0]), vectors.place(vectors.new(100))

    def no_room(*_):
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    with monkeypatch.context() as patched:
        patched.setattr(mmap, "mmap", no_room)
        with pytest.raises(RpcError, match="allocate"):
            reader.read(place, np.empty(100, np.float32))
    assert not vectors.can_read(offer)


def test_a_member_that_is_gone_is_no_reason_to_ask_others_for_messages(
    vectors, reader, ends
) -> None:
    vector = vectors.new(100)
    place = vectors.place(vector)
    del vector
    gc.collect()
    vectors.new(1)
    with pytest.raises(RpcError):
        reader.read(place, np.empty(100, np.float32))
    assert vectors.can_read(vectors.offer(ends[0]))


@pytest.mark.parametrize("form", [Compression.NONE, Compression.BFLOAT16])
def test_values_travel_as_a_place_only_as_they_are(vectors, form) -> None:
    buffers = Buffers(0, GradientForm((64,), Encoding(form, 64)), 100, vectors)
    buffers.enter(Round(1, (0, 1, 2), (1, 1, 1)))
    vector = vectors.new(64)
    lent = buffers.frame(Piece(0, 1, vector[32:]), lends=True)
    sent = buffers.frame(Piece(0, 1, vector[32:]))
    assert sum(map(len, sent[1:])) == Encoding(form, 64).num_bytes(32, 32)
    assert (len(lent) == 1) == (form is Compression.NONE)


def test_a_place_comes_without_values(vectors, ends) -> None:
    one, other = ends
    buffers = Buffers(1, GradientForm((64,)), 100, vectors)
    memory = buffers.enter(Round(1, (0, 1, 2), (1, 1, 1)))
    place = vectors.place(vectors.new(64)[:32])
    frame = wire.frame(wire.Kind.PIECE, 1, part=1, meta=place, data=[bytes(128)])
    wire.send(one, frame)
    head = wire.read_head(other)
    meta = bytes(wire.read_bytes(other, head.meta_bytes))
    with pytest.raises(RpcError, match="expected 0"):
        buffers.read(memory, 0, other, head, meta)
    fine = head._replace(data_bytes=0)
    assert not buffers.read(memory, 0, other, fine, meta).data.values.any()


def test_a_piece_is_added_where_its_member_has_it(vectors, reader) -> None:
    buffers = Buffers(1, GradientForm((64,)), 100, vectors)
    buffers.enter(Round(1, (0, 1, 2), (1, 1, 1)))
    theirs, mine = vectors.new(64), np.full(32, 2.0, np.float32)
    lent = reader.look(vectors.place(theirs[32:]), 32)
    theirs[:] = 1.0
    assert (buffers.add(0, 1, (lent, mine, mine)) == 5.0).all()
    vectors.rewrite(theirs)
    with pytest.raises(StaleError, match="other ones by now") as told:
        buffers.add(0, 1, (lent, mine, mine))
    assert told.value.member == 0
