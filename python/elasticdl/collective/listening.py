"""How a newcomer gets the group's state beside a round: both ends of that connection.

Owns the connection between a newcomer and its sponsor, and the threads that work on it.
Called by `collective.group`. Must not decide what is sent: `collective.feed` does.

The newcomer asks and the sponsor answers, one frame each, so that neither reads while
it writes (TLS), and the sponsor knows what the newcomer has.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass

from elasticdl.collective import wire
from elasticdl.collective.buffers import Buffers, encoded_plan
from elasticdl.collective.links import Door, connect, tune
from elasticdl.collective.messages import HandOver, Snapshot
from elasticdl.errors import RpcError

log = logging.getLogger(__name__)

# A round with the newcomer may begin when there is no newer step; or when it came no
# nearer in so many: a group may be as fast as it is.
_MOST_NO_NEARER = 8
# Or after so many: a group may be nearly as fast.
_MOST_FOLLOWED = 64
# After so many failures in a row the state is handed over in the round, while others
# wait: a sponsor may be busy loading a checkpoint, or steps be faster than the line.
_MOST_FAILURES = 3
_RETRY_SECONDS = 0.5
_NOTHING_YET = -1  # the newcomer asks for a copy


@dataclass(frozen=True)
class Answer:
    """What a sponsor sends next.

    Attributes:
        round: Of the sponsor, when the newcomer began to listen.
        message: None: the newcomer has everything.
        lag: Steps that the group has made beyond this message.
        over: Nothing comes any more: both are in the round that the sponsor is in.
    """

    round: int
    message: Snapshot | HandOver | None = None
    lag: int = 0
    over: bool = False


def serve(
    connection: socket.socket, next_for: Callable[[int | None, bool], Answer]
) -> None:
    """Answer a newcomer until it leaves. Raises RpcError then.

    `next_for` takes the number of steps that the newcomer has, and whether it was told
    that these are all: then it waits for the next one. It raises RpcError where there
    is nothing for it any more.
    """
    level: int | None = None  # what it had when it was told so
    while True:
        head = wire.read_head(connection)
        if head.kind is not wire.Kind.HELLO or head.meta_bytes or head.data_bytes:
            raise RpcError(f"a newcomer sent a frame of kind {head.kind.name.lower()}")
        has = head.step if head.step != _NOTHING_YET else None
        answer = next_for(has, has is not None and has == level)
        level = has if answer.message is None else None
        wire.send(connection, _frame(answer))


def _frame(answer: Answer) -> list[wire.Buffer]:
    message, lag = answer.message, max(0, answer.lag)
    match message:
        case None:
            return wire.frame(wire.Kind.HELLO, answer.round, part=int(answer.over))
        case Snapshot(version, state):
            return wire.frame(
                wire.Kind.SNAPSHOT,
                answer.round,
                step=version,
                part=lag,
                data=list(state),
            )
        case HandOver(step, _, parts):
            return wire.frame(
                wire.Kind.HAND_OVER,
                answer.round,
                step=step,
                part=lag,
                meta=encoded_plan(message),
                data=[memoryview(parts[0]).cast("B")],
            )


@dataclass(frozen=True)
class Newcomer:
    """What listening asks of its group.

    Attributes:
        restarts: Drops what was copied; raises RpcError if this worker listens to
            somebody else by now, or is a member.
        heard: Takes what a sponsor (its number) in a round sent; returns once that is
            in the own state.
        ended: Takes that the connection ended, and whether it is not made again;
            returns whether that is all: this worker enters a round.
    """

    restarts: Callable[[Listening], None]
    heard: Callable[[int, int, Snapshot | HandOver], None]
    ended: Callable[[Listening, bool], bool]


@dataclass(frozen=True)
class Sponsor:
    """Whom to listen to."""

    number: int
    address: str
    round: int


class Listening:
    """A newcomer's thread, which listens to one sponsor until `close`."""

    def __init__(
        self, me: int, sponsor: Sponsor, door: Door, buffers: Buffers, to: Newcomer
    ) -> None:
        """Begin to listen."""
        self.sponsor = sponsor
        self._me = me
        self._door = door
        self._buffers = buffers
        self._to = to
        self._lock = threading.Lock()
        self._connection: socket.socket | None = None
        self._closed = threading.Event()
        self.near = False  # nearly level, or it will not be: the next round may begin
        self.over = False  # nothing comes any more
        threading.Thread(target=self._run, name="group-listen", daemon=True).start()

    def close(self) -> None:
        """Stop listening; returns at once."""
        self._closed.set()
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(OSError):
                # Not that of `ssl`: another thread may be reading.
                socket.socket.shutdown(connection, socket.SHUT_RDWR)

    def _run(self) -> None:
        failures = 0
        while failures < _MOST_FAILURES:
            try:
                self._listen()
                break
            except RpcError as error:
                if self._closed.is_set() or self._to.ended(self, False):
                    return
                failures += 1
                log.info("Listening to member %d: %s", self.sponsor.number, error)
            self._closed.wait(_RETRY_SECONDS)
        self.near = True
        self._to.ended(self, True)

    def _listen(self) -> None:
        sponsor = self.sponsor
        greeting = wire.Greeting(
            sponsor.round, self._me, sponsor.number, wire.Purpose.LISTEN
        )
        found = connect(sponsor.address, greeting, self._door, go_on=lambda: False)
        connection = found.connection
        with connection:
            tune(connection)
            with self._lock:
                if self._closed.is_set():
                    return
                self._connection = connection
            self._to.restarts(self)
            self._follow(connection)

    def _follow(self, connection: socket.socket) -> None:
        """Take what the sponsor sends until it says that it is over."""
        has = _NOTHING_YET
        nearest: int | None = None  # the least lag so far
        followed = no_nearer = 0  # steps, also since then
        while True:
            wire.send(connection, wire.frame(wire.Kind.HELLO, 0, step=has))
            head = wire.read_head(connection)
            meta = bytes(wire.read_bytes(connection, head.meta_bytes))
            if head.kind is wire.Kind.HELLO:
                self.near = True
                if head.part:
                    return
                continue
            message = self._read(connection, head, meta)
            self._to.heard(self.sponsor.number, head.round, message)
            if isinstance(message, Snapshot):
                has = message.version  # an old one: it took its time
                continue
            has, lag = message.step + 1, head.part
            followed, no_nearer = followed + 1, no_nearer + 1
            if nearest is None or lag < nearest:
                nearest, no_nearer = lag, 0
            self.near |= no_nearer >= _MOST_NO_NEARER or followed >= _MOST_FOLLOWED

    def _read(
        self, connection: socket.socket, head: wire.Head, meta: bytes
    ) -> Snapshot | HandOver:
        if head.kind is wire.Kind.SNAPSHOT:
            return self._buffers.read_snapshot(connection, head)
        if head.kind is wire.Kind.HAND_OVER:
            return self._buffers.read_hand_over(connection, head, meta)
        raise RpcError(f"a sponsor sent a frame of kind {head.kind.name.lower()}")
