"""Frames and the handshake on real sockets: what does not fit is refused."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import struct
import threading
from pathlib import Path

import pytest
from elasticdl.collective import wire
from elasticdl.collective.encoding import GradientForm
from elasticdl.collective.group import Group
from elasticdl.collective.links import Door, Listener
from elasticdl.collective.messages import Begin, Broken, Compute, Round
from elasticdl.errors import RpcError

GREETING = wire.Greeting(round=5, sender=1, receiver=0)


@pytest.fixture
def ends():
    one, other = socket.socketpair()
    for end in (one, other):
        end.settimeout(5)
    yield one, other
    one.close()
    other.close()


def shaken(ends, *, mine: str, theirs: str):
    """Greet from one end and answer at the other; return what each raised or got."""
    one, other = ends
    results: list[object] = []

    def greet() -> None:
        try:
            wire.greet(one, GREETING, mine)
            results.append(None)
        except RpcError as error:
            results.append(error)
            one.close()

    thread = threading.Thread(target=greet)
    thread.start()
    try:
        answer: object = wire.greeted(other, theirs, lambda _: False)
    except RpcError as error:
        answer = error
        other.close()
    thread.join()
    return results[0], answer


def test_both_ends_prove_the_token_and_it_is_not_sent(ends) -> None:
    assert shaken(ends, mine="secret", theirs="secret") == (None, GREETING)


def test_a_peer_without_the_token_is_refused_by_both(ends) -> None:
    mine, theirs = shaken(ends, mine="guessed", theirs="secret")
    assert isinstance(mine, RpcError)
    assert isinstance(theirs, RpcError)


def test_a_frame_is_read_as_it_was_sent(ends) -> None:
    one, other = ends
    wire.send(
        one, wire.frame(wire.Kind.PIECE, 3, step=8, part=1, meta=b"m", data=[b"xy"])
    )
    head = wire.read_head(other)
    assert head == wire.Head(wire.Kind.PIECE, 3, 8, 1, 1, 2)
    assert wire.read_bytes(other, 3) == b"mxy"


def test_a_frame_of_another_protocol_is_refused_with_both_numbers(ends) -> None:
    one, other = ends
    raw = bytearray(wire.frame(wire.Kind.HELLO, 1)[0])
    raw[4] = wire.PROTOCOL + 1
    one.sendall(raw)
    with pytest.raises(
        RpcError,
        match=rf"protocol {wire.PROTOCOL + 1}; expected .* protocol {wire.PROTOCOL}",
    ):
        wire.read_head(other)


@pytest.mark.parametrize(
    ("kind", "meta"), [(99, 0), (wire.Kind.HEADER, wire.MOST_META_BYTES + 1)]
)
def test_an_unknown_or_absurd_head_is_refused(ends, kind: int, meta: int) -> None:
    one, other = ends
    one.sendall(
        struct.pack("!4sBBQqIIQ", b"EDLG", wire.PROTOCOL, kind, 1, 0, 0, meta, 0)
    )
    with pytest.raises(RpcError, match="got a frame of kind"):
        wire.read_head(other)


def test_a_frame_that_is_cut_off_is_an_error(ends) -> None:
    one, other = ends
    one.sendall(wire.frame(wire.Kind.HELLO, 1)[0][:7])
    one.close()
    with pytest.raises(RpcError, match="closed the connection"):
        wire.read_head(other)


class Nothing:
    def plan(self, step: int) -> bytes:
        del step
        return b""

    def state(self):
        return [memoryview(b"1234")]


@pytest.fixture
def group():
    made = Group(
        0,
        Nothing(),
        form=GradientForm((64,)),
        door=Door("secret"),
        most_state_bytes=100,
    )
    yield made
    made.close()


@pytest.fixture
def worker_1():
    """Where worker-1 listens: what it is connected to is kept, and never read."""
    made = Listener(Door("secret"), 1, serve=lambda connection, newcomer: None)
    yield made
    made.close()


def joined(group: Group, worker_1: Listener) -> socket.socket:
    """Connect as worker-1 of round 5."""
    members = Round(5, (0, 1), (5, 5), begins=True)
    group.enter(members, {0: "", 1: f"127.0.0.1:{worker_1.port}"})
    connection = socket.create_connection(("127.0.0.1", group.port), timeout=5)
    wire.greet(connection, GREETING, "secret")
    return connection


def order(group: Group):
    return group.next(10)


@pytest.mark.parametrize(
    "sent",
    [
        wire.frame(wire.Kind.HELLO, 4, step=-1),
        wire.frame(wire.Kind.PIECE, 5, step=0, part=0, data=[b"short"]),
        wire.frame(wire.Kind.SNAPSHOT, 5, step=3, data=[bytes(101)]),
        wire.frame(wire.Kind.REDUCED, 5, step=0, part=0, data=[bytes(128)]),
        [b"GET / HTTP/1.1\r\nHost: localhost:50003\r\n\r\n"],
    ],
    ids=["of another round", "too short", "too large", "of another's part", "no frame"],
)
def test_a_member_that_sends_what_does_not_fit_breaks_the_round(
    group, worker_1, sent
) -> None:
    with joined(group, worker_1) as connection:
        wire.send(connection, sent)
        assert order(group) == Broken(5, 1)


def test_logs_call_a_member_by_its_number_and_not_by_another_workers_name(
    group, worker_1, caplog
) -> None:
    """`worker-1` is a name that counts otherwise: often that of whoever wrote it."""
    caplog.set_level("INFO", "elasticdl.collective")
    with joined(group, worker_1):
        pass
    assert order(group) == Broken(5, 1)
    assert "Round 5 lost member 1: " in caplog.text
    assert "worker-" not in caplog.text


def test_who_has_no_token_does_not_get_in_and_disturbs_nobody(group, worker_1) -> None:
    with socket.create_connection(("127.0.0.1", group.port), timeout=5) as stranger:
        stranger.sendall(bytes(54))  # as long as a greeting
        assert stranger.recv(1000) == b""
    with joined(group, worker_1) as connection:
        wire.send(connection, wire.frame(wire.Kind.HELLO, 5, step=-1))
        assert order(group) == Begin(5)
        group.began()
        assert order(group) == Compute(0, b"", 5)


def test_a_round_without_the_others_is_broken_and_a_newer_one_takes_its_place(
    group, worker_1
) -> None:
    address = f"127.0.0.1:{worker_1.port}"
    group.enter(Round(5, (0, 1), (5, 5), begins=True), {0: "", 1: address})
    group.enter(Round(6, (0,), (6,), begins=True), {0: ""})
    assert order(group) == Begin(6)
    group.began()
    assert order(group) == Compute(0, b"", 6)
    assert group.round == 6


def test_strangers_that_take_all_files_keep_nobody_out_for_ever(
    worker_1, caplog
) -> None:
    strangers = [socket.socket() for _ in range(3)]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(one.name) for one in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, hard))
    taken = []
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        for stranger in strangers:
            stranger.connect(("127.0.0.1", worker_1.port))
        looks = 0
        while "cannot be accepted" not in caplog.text and looks < 100:
            threading.Event().wait(0.02)
            looks += 1
    finally:
        for file in taken:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for stranger in strangers:
            stranger.close()
    greeting = wire.Greeting(round=5, sender=0, receiver=1)
    address = ("127.0.0.1", worker_1.port)
    with socket.create_connection(address, timeout=5) as connection:
        wire.greet(connection, greeting, "secret")
        worker_1.take(5, 0, go_on=lambda: True).close()
