"""Frames to one member: in order, at once where the connection takes them."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
from elasticdl.collective.outbox import Outbox
from elasticdl.errors import RpcError


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.settimeout(20)
        yield ours, theirs


def _read(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        found += connection.recv(size - len(found))
    return found


def test_a_small_frame_needs_no_thread(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = ends
    Outbox(ours).send([b"head", b"values"])
    assert _read(theirs, 10) == b"headvalues"


def test_a_piece_of_a_gradient_of_1_mb_needs_no_thread() -> None:
    piece = bytes(range(250)) * 2000
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
        with ours, theirs:
            theirs.settimeout(20)
            Outbox(ours).send([b"head", piece])
            assert _read(theirs, 500_004) == b"head" + piece


def test_what_is_left_of_a_small_frame_does_not_change_with_its_memory(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    """A member may have all that it needs for a step before its piece is sent."""
    ours, theirs = ends
    outbox = Outbox(ours)
    piece = bytearray(b"a" * 1_000_000)
    outbox.send([b"head", piece])  # more than the connection takes at once
    second = bytearray(b"b" * 10)
    outbox.send([second])
    piece[:], second[:] = b"x" * len(piece), b"x" * len(second)
    sending = threading.Thread(target=outbox.send_all)
    sending.start()
    found = _read(theirs, 1_000_014)
    outbox.end()
    sending.join()
    assert found == b"head" + b"a" * 1_000_000 + b"b" * 10


def test_frames_arrive_in_order_also_where_the_connection_is_full(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = ends
    outbox = Outbox(ours)
    frames = [bytes([i % 251]) * size for i, size in enumerate((3, 4096, 700_000) * 9)]
    for frame in frames:
        outbox.send([frame[:2], frame[2:]])
    thread = threading.Thread(target=outbox.send_all)
    thread.start()
    expected = b"".join(frames)
    assert _read(theirs, len(expected)) == expected
    # All that waited is sent: the next small one goes at once again, after it.
    outbox.send([b"last"])
    assert _read(theirs, 4) == b"last"
    outbox.end()
    thread.join()


def test_a_small_frame_that_fits_in_part_goes_on_where_it_was_cut(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = ends
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4608)
    outbox = Outbox(ours)
    frames = [bytes([i]) * 3000 for i in range(50)]
    for frame in frames:
        outbox.send([frame[:7], frame[7:1400], frame[1400:]])
    thread = threading.Thread(target=outbox.send_all)
    thread.start()
    expected = b"".join(frames)
    assert _read(theirs, len(expected)) == expected
    outbox.end()
    thread.join()


def test_a_broken_connection_is_told_by_the_thread(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = ends
    outbox = Outbox(ours)
    theirs.close()
    outbox.send([b"to nobody"])
    with pytest.raises(RpcError, match="broke"):
        outbox.send_all()
