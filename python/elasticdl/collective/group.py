"""One member of a group: the protocol, its connections and the buffers between them.

Owns the lock around the protocol, its parts (`entering`, `listening`, `sponsoring`) and
what they do together. Called by a worker's main thread, which computes, applies and is
told by `next` what to do. Must not import TensorFlow: a gradient is one float32 array,
a plan and a state are bytes.

A gradient is cut into buckets, and each of these into one part for each member. A
member sends each other one that member's part of its gradient, adds up its own part of
all gradients in the members' order, and sends the sum to all: each value travels twice
in a group of any size. A bucket travels while the next one is computed. Small gradients
of two members take a shorter way (`collective.summing`).
"""

from __future__ import annotations

import logging
import queue
import socket
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from elasticdl.collective import wire
from elasticdl.collective.buffers import (
    Buffers,
    Floats,
    RoundMemory,
    StaleError,
    Values,
)
from elasticdl.collective.collective import Order
from elasticdl.collective.encoding import GradientForm
from elasticdl.collective.entering import Entering, Entrant
from elasticdl.collective.links import Door, Listener
from elasticdl.collective.listening import Listening, Newcomer, Sponsor
from elasticdl.collective.messages import (
    Action,
    Add,
    Apply,
    Begin,
    Compute,
    Entered,
    Follow,
    HandOver,
    Header,
    Message,
    Piece,
    Reduced,
    Round,
    Send,
    Snapshot,
    Take,
)
from elasticdl.collective.protocol import Participant
from elasticdl.collective.rounds import RoundLinks
from elasticdl.collective.sponsoring import Sponsoring, Standpoint
from elasticdl.errors import RpcError

log = logging.getLogger(__name__)


class Member(Protocol):
    """What the group asks of its worker. Called under the group's lock."""

    def plan(self, step: int) -> bytes:
        """Return which records a step has; called while this member leads."""

    def state(self) -> Sequence[wire.Buffer]:
        """Return the whole state as buffers that nobody changes any more."""


class Group:
    """A member. `enter`, `close` and the readers may be called from any thread."""

    def __init__(
        self,
        me: int,
        member: Member,
        *,
        form: GradientForm,
        door: Door,
        most_state_bytes: int,
        word: Callable[[], bytes] = bytes,
    ) -> None:
        """Listen for other members.

        Args:
            me: Index of this worker.
            member: Makes plans and copies of the state.
            form: How gradients are cut and travel, of all members alike.
            door: Where to listen, and what others have to prove there.
            most_state_bytes: A state that is larger is refused.
            word: Returns what this member says to the leader with each step.
        """
        self._me = me
        self._door = door
        self._lock = threading.RLock()
        self._buffers = Buffers(me, form, most_state_bytes, door.vectors)
        self._wake = threading.Condition(self._lock)
        # Of its own: threads that wait for rounds are not woken by each step.
        self._went_on = threading.Condition(self._lock)
        self._sponsoring = Sponsoring(
            self._wake,
            tell=self._soon,
            state=member.state,
            stands=self._stands,
            step_bytes=4 * form.size,
        )
        self._participant = Participant(
            me,
            make_plan=member.plan,
            state=member.state,
            kept=self._sponsoring.since,
            buckets=self._buffers.num_buckets,
            direct=form.is_direct,
        )
        self._listening: Listening | None = None
        self._links = RoundLinks()
        self._entry: Round | None = None  # what is copied is waited for
        self._orders: queue.SimpleQueue[Order] = queue.SimpleQueue()
        # Between an Apply or Take and `applied` the protocol hears nothing else.
        self._waits: deque[Callable[[], list[Action]]] = deque()
        self._applying = False
        self._word = word
        self._words: dict[int, bytes] = {}  # of the others in this round, the newest
        self.sent_bytes = 0  # of gradients, to all members of all rounds
        self._closed = False
        self._listener = Listener(door, me, self._sponsoring.serve)
        self._entering = Entering(
            me,
            door,
            self._listener,
            wake=self._wake,
            links=self._links,
            to=Entrant(self._connected, self._lost, self._orders.put),
        )

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

    @property
    def is_last(self) -> bool:
        """Whether this member has the state and knows nobody else who has it."""
        return self._participant.is_last

    @property
    def sponsors(self) -> bool:
        """Whether a newcomer copies this member's state now."""
        return self._sponsoring.is_heard

    # -- for the worker's main thread --------------------------------------------------

    def enter(self, wanted: Round, addresses: Mapping[int, str]) -> None:
        """Enter a round, in a thread; one that is not the newest is ignored."""
        with self._wake:
            before = self._entering.wanted
            newest = before.number if before else self.round
            if wanted.number > newest and self._me in wanted.members:
                self._entering.want(wanted, addresses)
                if not self._copies_for(wanted):
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
            wanted = self._entering.wanted
            if wanted is not None:
                if wanted.number > told.number:
                    return
                self._entering.forget()
            self._entry = None
            old = self._listening
            if old and not old.over and old.sponsor.number in told.members:
                return
            self._stop_listening()
            sponsor = Sponsor(told.leader, addresses[told.leader], told.number)
            self._listening = Listening(
                self._me,
                sponsor,
                self._door,
                self._buffers,
                Newcomer(self._restarts, self._heard, self._ended),
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
        """Hand the own gradient in; it must not change until `Apply`.

        One in lent memory that is exchanged directly not until that of the next step.
        """
        for bucket in range(self._buffers.num_buckets):
            self.has_bucket(step, number, bucket, gradient)

    def has_bucket(self, step: int, number: int, bucket: int, gradient: Floats) -> None:
        """Hand a bucket of the own gradient in; called from any thread.

        It must not change until then; each comes once.
        """
        with self._lock:
            entered = self._participant.round
            if entered is None or entered.number != number:
                return
            parts = self._buffers.parts(gradient, bucket)
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
        """Go on after an `Apply`, a `Follow` or a `Take`; newcomers may keep up."""
        self._sponsoring.pace()
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
            self._went_on.notify_all()

    def leave(self) -> None:
        """Make no step any more: a round that waits for the one under way begins."""
        self._tell(self._participant.leave)

    def close(self) -> None:
        """Leave: all connections end."""
        with self._wake:
            self._closed = True
            self._entering.stop()
            self._stop_listening()
            self._sponsoring.close()
            self._wake.notify_all()
            self._went_on.notify_all()
        self._listener.close()
        self._entering.end()

    # -- rounds ------------------------------------------------------------------------

    def _connected(self, wanted: Round) -> None:
        self._entry = wanted
        if not self._copies_for(wanted):
            self._stop_listening()
            self._enter()

    def _enter(self) -> None:
        """Have the protocol enter a round; `_entered` follows, perhaps later."""
        entered, self._entry = self._entry, None
        if entered is None:
            return
        self._links.drop_before(entered.number)
        self._carry_out(self._participant.enter(entered, later=self._applying))
        self._wake.notify_all()

    def _entered(self, entered: Round, *, lingers: bool) -> None:
        self._links.enter(entered.number)
        if not lingers:
            self._links.leave()
        version = self._participant.version or 0
        memory = self._buffers.enter(entered, version=version, lingers=lingers)
        self._words = {}
        self._sponsoring.entered(entered.members)
        if self._links.present is not None:
            self._links.present.start(partial(self._on_frame, memory))
        self._wake.notify_all()

    def _stop_listening(self) -> None:
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.close()

    def _lost(self, number: int, member: int, why: str) -> None:
        log.info("Round %d lost member %d: %s", number, member, why)
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
                case Entered(entered, lingers):
                    self._entered(entered, lingers=lingers)
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
            action = Apply(action.step, action.plan, (whole,), action.members)
        self._tell_sponsoring(action)
        self._orders.put(action)

    def _tell_sponsoring(self, action: Order) -> None:
        match action:
            case Apply(step, plan, parts, members):
                self._sponsoring.made(HandOver(step, plan, parts, members))
            case Take() | Begin():
                self._sponsoring.other_state()
            case Compute():
                # All members are in the round.
                if self._links.leave():
                    self._wake.notify_all()
                self._sponsoring.joined(self._buffers.round.members)

    def _add(self, step: int, part: int, pieces: tuple[Values, ...]) -> None:
        entered = self._participant.round
        if entered is None:
            return
        try:
            total = self._buffers.add(step, part, pieces)
        except StaleError as error:
            self._lost(entered.number, error.member, str(error))
            return
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
            if self._listening is not listening or self._is_admitted:
                raise RpcError("this worker listens no more")
            self._tell(self._listens_anew)

    def _listens_anew(self) -> list[Action]:
        self._sponsoring.other_state()
        return self._participant.listen()

    @property
    def _is_admitted(self) -> bool:
        """Whether there is a round that this worker enters next."""
        return self._entering.wanted is not None or self._entry is not None

    def _copies_for(self, wanted: Round) -> bool:
        """Whether a sponsor goes on giving what this newcomer needs in a round."""
        listening = self._listening
        return (
            listening is not None
            and not listening.over
            and self._participant.copied
            and listening.sponsor.number in wanted.members
        )

    def _ended(self, listening: Listening, over: bool) -> bool:
        """Enter the round that waits for this; return whether nothing more comes."""
        with self._wake:
            if self._listening is not listening:
                return True
            if not over and not self._is_admitted:
                return False
            listening.over = True
            self._enter()
            return True

    def _heard(self, sponsor: int, number: int, message: Snapshot | HandOver) -> None:
        """Take what a sponsor sent; return when it is in the own state."""
        self._tell(lambda: self._participant.listened(sponsor, number, message))
        with self._went_on:
            self._went_on.wait_for(
                lambda: self._closed or not (self._applying or self._waits)
            )

    # -- frames ------------------------------------------------------------------------

    def _send(self, to: int, message: Message) -> None:
        links = self._links.present
        if links is None:
            return
        if isinstance(message, Header) and message.plan is None:
            message = Header(message.step, word=self._word())
        if isinstance(message, Piece | Reduced):
            self.sent_bytes += self._buffers.num_bytes(message)
        links.send(to, self._buffers.frame(message, lends=links.reads_lent(to)))

    def _on_frame(
        self,
        memory: RoundMemory,
        member: int,
        connection: socket.socket,
        head: wire.Head,
        meta: bytes,
    ) -> None:
        """Take what follows a head. Raises RpcError for a frame that does not fit."""
        message = self._buffers.read(memory, member, connection, head, meta)
        if isinstance(message, Header):
            with self._lock:
                if memory.round is self._buffers.round:
                    self._words[member] = message.word
        self._tell(lambda: self._participant.received(member, head.round, message))
