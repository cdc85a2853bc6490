"""One member of a group: the protocol, its connections and the buffers between them.

Owns the lock around the protocol, the connections, and the
thread that enters rounds. Called by a worker's main thread, which computes, applies and
is told by `next` what to do. Must not import TensorFlow: a gradient is one float32
array, a plan and a state are bytes.

A gradient is cut into buckets, and each of these into one part for each member. A
member sends each other one that member's part of its gradient, adds up its own part of
all gradients in the members' order, and sends the sum to all: each value travels twice
in a group of any size. A bucket travels while the next one is computed.
"""

from __future__ import annotations

import logging
import queue
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from elasticdl.collective import wire
from elasticdl.collective.buffers import Buffers, Floats
from elasticdl.collective.encoding import Encoding
from elasticdl.collective.links import Door, Links, Listener, connect
from elasticdl.collective.listening import Listening, Newcomer, Sponsor
from elasticdl.collective.messages import (
    Acknowledge,
    Action,
    Add,
    Apply,
    Begin,
    Broken,
    Compute,
    Follow,
    HandOver,
    Header,
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
from elasticdl.collective.sponsoring import Sponsoring, Standpoint
from elasticdl.errors import RpcError

log = logging.getLogger(__name__)

_Connections = dict[int, socket.socket]
Order = Compute | Apply | Follow | Take | Begin | Acknowledge | Broken | Stateless
_ROUND_SECONDS = 5.0  # until all members of a round have to be connected


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
        ends: Sequence[int],
        door: Door,
        most_state_bytes: int,
        encoding: Encoding | None = None,
        word: Callable[[], bytes] = bytes,
    ) -> None:
        """Listen for other members.

        Args:
            me: Index of this worker.
            member: Makes plans and copies of the state.
            ends: Where the buckets of a gradient end, in floats; the last is its size.
            door: Where to listen, and what others have to prove there.
            most_state_bytes: A state that is larger is refused.
            encoding: How gradients travel; None: as they are.
            word: Returns what this member says to the leader with each step.
        """
        self._me = me
        self._door = door
        self._lock = threading.RLock()
        self._buffers = Buffers(me, ends, encoding or Encoding(), most_state_bytes)
        self._wake = threading.Condition(self._lock)
        self._sponsoring = Sponsoring(
            self._wake,
            tell=self._soon,
            state=member.state,
            stands=self._stands,
            step_bytes=4 * ends[-1],
        )
        self._participant = Participant(
            me,
            make_plan=member.plan,
            state=member.state,
            kept=self._sponsoring.since,
            buckets=self._buffers.num_buckets,
        )
        self._listening: Listening | None = None
        self._links: Links | None = None
        self._next_links: Links | None = None  # of a round that is not entered yet
        self._orders: queue.SimpleQueue[Order] = queue.SimpleQueue()
        # Between an Apply or Take and `applied` the protocol hears nothing else.
        self._waits: deque[Callable[[], list[Action]]] = deque()
        self._applying = False
        self._word = word
        self._words: dict[int, bytes] = {}  # of the others in this round, the newest
        self.sent_bytes = 0  # of gradients, to all members of all rounds
        self._wanted: tuple[Round, Mapping[int, str]] | None = None
        self._closed = False
        self._listener = Listener(door, me, self._sponsoring.serve)
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
    def copied(self) -> bool:
        """Whether a newcomer is nearly level, so that it may become a member.

        Also where it gave up: then it gets the whole state in its first round.
        """
        listening = self._listening
        return listening is not None and listening.near

    @property
    def words(self) -> Mapping[int, bytes]:
        """What each other member of the round has said last. Asked by `plan`."""
        return self._words

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
                self._stop_listening()
                self._wake.notify_all()
                self._listener.wake()

    def listen(self, told: Round, addresses: Mapping[int, str]) -> None:
        """Get a copy of the state beside a round that this worker is not in.

        Its leader is listened to; or whoever is already, if it is in the round.
        """
        with self._wake:
            if self._closed or told.number <= self.round:
                return
            if self._wanted is not None:
                if self._wanted[0].number > told.number:
                    return
                self._wanted = None
            old = self._listening
            if old is not None and old.sponsor.number in told.members:
                return
            self._stop_listening()
            sponsor = Sponsor(told.leader, addresses[told.leader], told.number)
            self._listening = Listening(
                self._me,
                sponsor,
                self._door,
                self._buffers,
                Newcomer(self._restarts, self._heard),
            )

    def next(self, seconds: float) -> Order | None:
        """Return what to do next; None if there is nothing in that time.

        `Apply.parts` is one array: the reduced gradient, valid until the step after the
        next. After `Apply`, `Follow` and `Take` call `applied`, after `Begin` `began`,
        and after `Compute` `computed`.
        """
        try:
            return self._orders.get(timeout=seconds)
        except queue.Empty:
            return None

    def computed(self, step: int, number: int, gradient: Floats) -> None:
        """Hand the own gradient in; it must not change until `Apply`."""
        for bucket in range(self._buffers.num_buckets):
            self.has_bucket(step, number, bucket, gradient)

    def has_bucket(self, step: int, number: int, bucket: int, gradient: Floats) -> None:
        """Hand a bucket of the own gradient in; called from any thread.

        It must not change until `Apply`; each comes once.
        """
        with self._lock:
            entered = self._participant.round
            if entered is None or entered.number != number:
                return
            parts = self._buffers.parts(gradient, bucket, len(entered.members))
        self._tell(
            lambda: self._participant.computed(step, number, parts, bucket=bucket)
        )

    def alone(self, step: int, number: int) -> bool:
        """Begin a step in one go, if nobody else is in round `number`.

        Then `made_alone` has to be called: a newer round waits for it.
        """
        with self._lock:
            # Newcomers that listen need the gradient.
            if self._applying or self._sponsoring.active:
                return False
            if not self._participant.alone(step, number):
                return False
            self._applying = True
            return True

    def made_alone(self, step: int, plan: bytes) -> None:
        """Go on after a step that was made in one go."""
        with self._lock:
            self._participant.made_alone(step, plan)
        self.applied()

    def applied(self) -> None:
        """Go on after an `Apply`, a `Follow` or a `Take`."""
        self._go_on(self._participant.applied)

    def began(self) -> None:
        """Go on after a `Begin`: the own state is the one with which all begin."""
        self._go_on(self._participant.began)

    def not_begun(self) -> None:
        """Go on after a `Begin` that was not possible: a newer round is on its way."""
        self._go_on(self._participant.not_begun)

    def _go_on(self, call: Callable[[], list[Action]]) -> None:
        with self._lock:
            self._applying = False
            self._carry_out(call())
            while self._waits and not self._applying:
                self._carry_out(self._waits.popleft()())
            self._wake.notify_all()

    def close(self) -> None:
        """Leave: all connections end."""
        with self._wake:
            self._closed = True
            self._stop_listening()
            self._sponsoring.close()
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
            self._begin(wanted, *connections)

    def _leave_links(self) -> None:
        with self._lock:
            left = [links for links in (self._links, self._next_links) if links]
            self._links = self._next_links = None
        for links in left:
            links.close()

    def _connections(
        self, wanted: Round, addresses: Mapping[int, str]
    ) -> tuple[_Connections, _Connections]:
        """Return a connection to each other member, and one from each.

        All members try the others in the same order, so that all of them name the same
        one that does not answer.
        """
        until = time.monotonic() + _ROUND_SECONDS

        def go_on() -> bool:
            late = time.monotonic() > until
            return not late and self._wanted is None and not self._closed

        self._listener.drop_before(wanted.number)
        others = [member for member in wanted.members if member != self._me]
        outgoing: _Connections = {}
        incoming: _Connections = {}
        member = -1
        try:
            for member in others:
                greeting = wire.Greeting(wanted.number, self._me, member)
                outgoing[member] = connect(
                    addresses[member], greeting, self._door, go_on=go_on
                )
            for member in others:
                incoming[member] = self._listener.take(
                    wanted.number, member, go_on=go_on
                )
        except (RpcError, KeyError) as error:
            for connection in (*outgoing.values(), *incoming.values()):
                connection.close()
            raise _NotReachedError(str(error), member) from error
        return outgoing, incoming

    def _begin(
        self, wanted: Round, outgoing: _Connections, incoming: _Connections
    ) -> None:
        number = wanted.number
        links = Links(
            outgoing,
            incoming,
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
        self._buffers.enter(wanted)
        self._words = {}
        links.start()
        return self._participant.enter(wanted)

    def _stop_listening(self) -> None:
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.close()

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
                case _:
                    self._order(action)

    def _order(self, action: Order) -> None:
        """Have the main thread carry an action out."""
        if isinstance(action, Apply | Follow | Take | Begin):
            self._applying = True
        if isinstance(action, Apply):
            whole = self._buffers.whole(action.step, action.parts)
            action = replace(action, parts=(whole,))
        self._tell_sponsoring(action)
        self._orders.put(action)

    def _tell_sponsoring(self, action: Order) -> None:
        match action:
            case Apply(step, plan, parts, members):
                self._sponsoring.made(HandOver(step, plan, parts, members))
            case Take() | Begin():
                self._sponsoring.other_state()
            case Compute():
                entered = self._participant.round
                self._sponsoring.joined(entered.members if entered else ())

    def _add(self, step: int, part: int, pieces: tuple[Floats, ...]) -> None:
        entered = self._participant.round
        if entered is None:
            return
        total = self._buffers.add(step, part, pieces)
        self._carry_out(self._participant.added(step, entered.number, part, total))

    # -- newcomers ---------------------------------------------------------------------

    def _stands(self) -> Standpoint:
        participant = self._participant
        return Standpoint(participant.version, self.round)

    def _soon(self, call: Callable[[], None]) -> None:
        def and_nothing_else() -> list[Action]:
            call()
            return []

        self._tell(and_nothing_else)

    def _restarts(self, listening: Listening) -> None:
        """Drop what was copied. Raises RpcError if this is not listened to any more."""
        with self._lock:
            if self._listening is not listening:
                raise RpcError("this worker listens no more")
            self._tell(self._listens_anew)

    def _listens_anew(self) -> list[Action]:
        self._sponsoring.other_state()
        return self._participant.listen()

    def _heard(self, sponsor: int, number: int, message: Snapshot | HandOver) -> None:
        """Take what a sponsor sent; return when it is in the own state."""
        self._tell(lambda: self._participant.listened(sponsor, number, message))
        with self._wake:
            self._wake.wait_for(
                lambda: self._closed or not (self._applying or self._waits)
            )

    # -- frames ------------------------------------------------------------------------

    def _send(self, to: int, message: Message) -> None:
        entered = self._participant.round
        if self._links is None or entered is None:
            return
        if isinstance(message, Header) and message.plan is None:
            message = replace(message, word=self._word())
        frame = self._buffers.frame(message, entered)
        if isinstance(message, Piece | Reduced):
            self.sent_bytes += sum(memoryview(part).nbytes for part in frame[1:])
        self._links.send(to, frame)

    def _on_frame(
        self,
        wanted: Round,
        member: int,
        connection: socket.socket,
        head: wire.Head,
        meta: bytes,
    ) -> None:
        """Take what follows a head. Raises RpcError for a frame that does not fit."""
        message = self._buffers.read(wanted, member, connection, head, meta)
        if isinstance(message, Header):
            with self._lock:
                self._words[member] = message.word
        self._tell(lambda: self._participant.received(member, head.round, message))
