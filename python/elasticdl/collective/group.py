"""One member of a group: the protocol, its connections and the buffers between them.

Owns the lock around the protocol, the memory that gradients are received into, and the
thread that enters rounds. Called by a worker's main thread, which computes, applies and
is told by `next` what to do. Must not import TensorFlow: a gradient is one float32
array, a plan and a state are bytes.

A gradient is cut into one part for each member. A member sends each other one that
member's part of its gradient, adds up its own part of all gradients in the members'
order, and sends the sum to all: each value travels twice in a group of any size. The
reduced gradient of the last step is kept, in one of two buffers that take turns, for
a member that may have to be handed it.
"""

from __future__ import annotations

import logging
import queue
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from elasticdl.collective import wire
from elasticdl.collective.links import Links, Listener, connect
from elasticdl.collective.messages import (
    Acknowledge,
    Action,
    Add,
    Apply,
    Begin,
    Broken,
    Compute,
    HandOver,
    Header,
    Hello,
    Message,
    Piece,
    Reduced,
    Round,
    Send,
    Snapshot,
    Stateless,
    Take,
)
from elasticdl.collective.protocol import Participant
from elasticdl.errors import RpcError

log = logging.getLogger(__name__)

Floats = NDArray[np.float32]
Order = Compute | Apply | Take | Begin | Acknowledge | Broken | Stateless
_ROUND_SECONDS = 5.0  # until all members of a round have to be connected
_ALIGNED = 16  # floats: parts begin at cache lines


class _NotReachedError(RpcError):
    """A member of a round was not reached in time."""

    def __init__(self, message: str, member: int) -> None:
        super().__init__(message)
        self.member = member


class Member(Protocol):
    """What the group asks of its worker. Called under the group's lock."""

    def plan(self, step: int) -> bytes:
        """Return which records a step has; called while this member leads."""

    def state(self) -> Sequence[wire.Buffer]:
        """Return the whole state as buffers that stay as they are until `Apply`."""


class Group:
    """A member. `enter`, `close` and the readers may be called from any thread."""

    def __init__(
        self,
        me: int,
        member: Member,
        *,
        size: int,
        token: str,
        host: str = "127.0.0.1",
        most_state_bytes: int,
    ) -> None:
        """Listen for other members.

        Args:
            me: Index of this worker.
            member: Makes plans and copies of the state.
            size: Floats of a gradient.
            token: The job's.
            host: To listen on.
            most_state_bytes: A state that is larger is refused.
        """
        self._me = me
        self._token = token
        self._size = size
        self._most_state_bytes = most_state_bytes
        self._lock = threading.RLock()
        self._participant = Participant(me, make_plan=member.plan, state=member.state)
        self._listener = Listener(host, token, me)
        self._links: Links | None = None
        self._next_links: Links | None = None  # of a round that is not entered yet
        self._orders: queue.SimpleQueue[Order] = queue.SimpleQueue()
        # Between an Apply or Take and `applied` the protocol hears nothing else.
        self._waits: deque[Callable[[], list[Action]]] = deque()
        self._applying = False
        self._results = [np.zeros(size, np.float32) for _ in range(2)]
        self._pieces: dict[int, Floats] = {}
        self.sent_bytes = 0  # of gradients, to all members of all rounds
        self._wanted: tuple[Round, Mapping[int, str]] | None = None
        self._wake = threading.Condition(self._lock)
        self._closed = False
        self._thread = threading.Thread(
            target=self._enter_rounds, name="group-rounds", daemon=True
        )
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that other members connect to."""
        return self._listener.port

    @property
    def version(self) -> int | None:
        """Steps in the own state; None while there is none that counts."""
        return self._participant.version

    @property
    def level(self) -> bool:
        """Whether this member has the group's state in the present round."""
        return self._participant.level

    @property
    def round(self) -> int:
        """Number of the round that this member is in; 0 before the first."""
        entered = self._participant.round
        return entered.number if entered is not None else 0

    # -- for the worker's main thread --------------------------------------------------

    def enter(self, wanted: Round, addresses: Mapping[int, str]) -> None:
        """Enter a round, in a thread; one that is not the newest is ignored."""
        with self._wake:
            newest = self._wanted[0].number if self._wanted else self.round
            if wanted.number > newest and self._me in wanted.members:
                self._wanted = wanted, dict(addresses)
                self._wake.notify_all()
                self._listener.wake()

    def next(self, seconds: float) -> Order | None:
        """Return what to do next; None if there is nothing in that time.

        `Apply.parts` is one array: the reduced gradient, valid until the step after the
        next. After `Apply` and `Take` call `applied`, after `Begin` `began`, and after
        `Compute` `computed`.
        """
        try:
            return self._orders.get(timeout=seconds)
        except queue.Empty:
            return None

    def computed(self, step: int, number: int, gradient: Floats) -> None:
        """Hand the own gradient in; it must not change until `Apply`."""
        with self._lock:
            entered = self._participant.round
            if entered is None or entered.number != number:
                return
            parts = tuple(gradient[a:b] for a, b in self._bounds(len(entered.members)))
        self._tell(lambda: self._participant.computed(step, number, parts))

    def alone(self, step: int, number: int) -> bool:
        """Begin a step in one go, if nobody else is in round `number`.

        Then `made_alone` has to be called: a newer round waits for it.
        """
        with self._lock:
            if self._applying or not self._participant.alone(step, number):
                return False
            self._applying = True
            return True

    def made_alone(self, step: int, plan: bytes) -> None:
        """Go on after a step that was made in one go."""
        with self._lock:
            self._participant.made_alone(step, plan)
        self.applied()

    def applied(self) -> None:
        """Go on after an `Apply` or a `Take`."""
        self._go_on(self._participant.applied)

    def began(self) -> None:
        """Go on after a `Begin`: the own state is the one with which all begin."""
        self._go_on(self._participant.began)

    def _go_on(self, call: Callable[[], list[Action]]) -> None:
        with self._lock:
            self._applying = False
            self._carry_out(call())
            while self._waits and not self._applying:
                self._carry_out(self._waits.popleft()())

    def close(self) -> None:
        """Leave: all connections end."""
        with self._wake:
            self._closed = True
            self._wake.notify_all()
        self._listener.close()
        self._thread.join()
        self._leave_links()

    # -- rounds ------------------------------------------------------------------------

    def _enter_rounds(self) -> None:
        while True:
            with self._wake:
                while self._wanted is None and not self._closed:
                    self._wake.wait()
                if self._closed or self._wanted is None:
                    return
                (wanted, addresses), self._wanted = self._wanted, None
            self._leave_links()
            try:
                connections = self._connections(wanted, addresses)
            except _NotReachedError as error:
                if self._wanted is None:  # else it is over: there is a newer one
                    log.warning("Round %d cannot begin: %s", wanted.number, error)
                    self._orders.put(Broken(wanted.number, error.member))
                continue
            self._begin(wanted, connections)

    def _leave_links(self) -> None:
        with self._lock:
            left = [links for links in (self._links, self._next_links) if links]
            self._links = self._next_links = None
        for links in left:
            links.close()

    def _connections(
        self, wanted: Round, addresses: Mapping[int, str]
    ) -> dict[int, socket.socket]:
        until = time.monotonic() + _ROUND_SECONDS

        def go_on() -> bool:
            late = time.monotonic() > until
            return not late and self._wanted is None and not self._closed

        self._listener.drop_before(wanted.number)
        rank = wanted.members.index(self._me)
        found: dict[int, socket.socket] = {}
        member = -1
        try:
            for member in wanted.members[:rank]:
                greeting = wire.Greeting(wanted.number, self._me, member)
                found[member] = connect(
                    addresses[member], greeting, self._token, go_on=go_on
                )
            for member in wanted.members[rank + 1 :]:
                found[member] = self._listener.take(wanted.number, member, go_on=go_on)
        except (RpcError, KeyError) as error:
            for connection in found.values():
                connection.close()
            raise _NotReachedError(str(error), member) from error
        return found

    def _begin(self, wanted: Round, connections: dict[int, socket.socket]) -> None:
        number = wanted.number
        links = Links(
            connections,
            on_frame=lambda *frame: self._on_frame(wanted, *frame),
            on_lost=lambda member, why: self._lost(number, member, why),
        )
        with self._lock:
            self._next_links = links
            # Perhaps later: a step that is being applied belongs to the round before.
            self._tell(lambda: self._entered(wanted, links))

    def _entered(self, wanted: Round, links: Links) -> list[Action]:
        if self._next_links is not links:
            return []  # a newer round is on its way
        self._links, self._next_links = links, None
        begin, end = self._bounds(len(wanted.members))[wanted.members.index(self._me)]
        self._pieces = {
            member: np.empty(end - begin, np.float32)
            for member in wanted.members
            if member != self._me
        }
        links.start()
        return self._participant.enter(wanted)

    def _lost(self, number: int, member: int, why: str) -> None:
        log.info("Round %d lost worker-%d: %s", number, member, why)
        self._tell(lambda: self._participant.lost(member, number))

    # -- the protocol ------------------------------------------------------------------

    def _tell(self, call: Callable[[], list[Action]]) -> None:
        with self._lock:
            if self._applying:
                self._waits.append(call)
            else:
                self._carry_out(call())

    def _carry_out(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Send(to, message):
                    self._send(to, message)
                case Add(step, part, pieces):
                    self._add(step, part, pieces)
                case Apply(step, plan, parts):
                    self._applying = True
                    self._orders.put(Apply(step, plan, (self._whole(step, parts),)))
                case Take() | Begin():
                    self._applying = True
                    self._orders.put(action)
                case Compute() | Acknowledge() | Broken() | Stateless():
                    self._orders.put(action)

    def _whole(self, step: int, parts: tuple[Any, ...]) -> Floats:
        whole = self._results[step % 2]
        if len(parts) == 1 and parts[0] is not whole:
            np.copyto(whole, parts[0])
        return whole

    def _add(self, step: int, part: int, pieces: tuple[Floats, ...]) -> None:
        entered = self._participant.round
        if entered is None:
            return
        number = entered.number
        begin, end = self._bounds(len(entered.members))[part]
        total = self._results[step % 2][begin:end]
        if len(pieces) == 1:
            np.copyto(total, pieces[0])
        else:
            np.add(pieces[0], pieces[1], out=total)
        for piece in pieces[2:]:
            np.add(total, piece, out=total)
        self._carry_out(self._participant.added(step, number, total))

    def _bounds(self, parts: int) -> list[tuple[int, int]]:
        step = -(-self._size // parts)
        step = -(-step // _ALIGNED) * _ALIGNED
        return [
            (min(i * step, self._size), min((i + 1) * step, self._size))
            for i in range(parts)
        ]

    # -- frames ------------------------------------------------------------------------

    def _send(self, to: int, message: Message) -> None:
        if self._links is None:
            return
        if isinstance(message, Piece | Reduced):
            self.sent_bytes += message.data.nbytes
        self._links.send(to, self._frame(message))

    def _frame(self, message: Message) -> list[wire.Buffer]:
        number = self.round
        match message:
            case Hello(version):
                said = -1 if version is None else version
                return wire.frame(wire.Kind.HELLO, number, step=said)
            case Header(step, plan):
                return wire.frame(
                    wire.Kind.HEADER,
                    number,
                    step=step,
                    part=0 if plan is None else 1,
                    meta=plan or b"",
                )
            case HandOver(step, plan, _):
                whole = _bytes(self._results[step % 2])
                return wire.frame(
                    wire.Kind.HAND_OVER, number, step=step, meta=plan, data=[whole]
                )
            case Snapshot(version, state):
                return wire.frame(
                    wire.Kind.SNAPSHOT, number, step=version, data=list(state)
                )
            case Piece(step, part, data):
                return wire.frame(
                    wire.Kind.PIECE, number, step=step, part=part, data=[_bytes(data)]
                )
            case Reduced(step, part, data):
                return wire.frame(
                    wire.Kind.REDUCED, number, step=step, part=part, data=[_bytes(data)]
                )

    def _on_frame(
        self,
        wanted: Round,
        member: int,
        connection: socket.socket,
        head: wire.Head,
        meta: bytes,
    ) -> None:
        """Read what follows a head. Raises RpcError for a frame that does not fit."""
        if head.round != wanted.number:
            raise RpcError(f"got a frame of round {head.round} in {wanted.number}")
        message = self._read(wanted, member, connection, head, meta)
        self._tell(lambda: self._participant.received(member, head.round, message))

    def _read(
        self,
        wanted: Round,
        member: int,
        connection: socket.socket,
        head: wire.Head,
        meta: bytes,
    ) -> Message:
        step = head.step
        match head.kind:
            case wire.Kind.HELLO:
                return Hello(None if step < 0 else step)
            case wire.Kind.HEADER:
                return Header(step, meta if head.part else None)
            case wire.Kind.HAND_OVER:
                whole = self._results[step % 2]
                self._fill(connection, head, whole)
                return HandOver(step, meta, (whole,))
            case wire.Kind.SNAPSHOT:
                return Snapshot(step, self._read_state(connection, head))
            case wire.Kind.PIECE:
                self._fill(connection, head, self._pieces[member])
                return Piece(step, head.part, self._pieces[member])
            case wire.Kind.REDUCED:
                part = self._part_of(wanted, member, head)
                self._fill(connection, head, part)
                return Reduced(step, head.part, part)

    def _read_state(self, connection: socket.socket, head: wire.Head) -> bytearray:
        if head.data_bytes > self._most_state_bytes:
            raise RpcError(
                f"got a state of {head.data_bytes} bytes; expected at most "
                f"{self._most_state_bytes}"
            )
        return wire.read_bytes(connection, head.data_bytes)

    def _part_of(self, wanted: Round, member: int, head: wire.Head) -> Floats:
        bounds = self._bounds(len(wanted.members))
        if head.part >= len(bounds) or wanted.members[head.part] != member:
            raise RpcError(f"worker-{member} sent part {head.part}, not its own")
        begin, end = bounds[head.part]
        return self._results[head.step % 2][begin:end]

    def _fill(self, connection: socket.socket, head: wire.Head, target: Floats) -> None:
        if head.data_bytes != target.nbytes:
            raise RpcError(
                f"got {head.data_bytes} bytes of {head.kind.name.lower()}; expected "
                f"{target.nbytes}: do all workers have the same model?"
            )
        wire.read_into(connection, _bytes(target))


def _bytes(array: Floats) -> memoryview:
    return array.data.cast("B") if array.size else memoryview(b"")
