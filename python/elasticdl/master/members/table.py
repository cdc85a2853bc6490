"""The table of members: who belongs to the job now, and what is due about whom.

Owns the members by role and index, their generations and the journaled notes of kind
`replica` that let a restarted master adopt what still runs. Held by
`master.members.membership`, read by everybody. Must not decide who is replaced.

Members tell of their changes, and the table keeps by what they are looked for: neither
a call nor a turn of the loop goes through all of them, unless somebody came, left or is
overdue.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator

from elasticdl.errors import FencedError
from elasticdl.job.grant import Grant
from elasticdl.job.names import Role, replica_name
from elasticdl.job.spec.job import JobSpec
from elasticdl.job.spec.quantity import parse_bytes
from elasticdl.job.tasks import ReplicaId
from elasticdl.job.words import ReplicaState
from elasticdl.master.members.member import Member
from elasticdl.master.members.scale import wanted_workers
from elasticdl.master.tasks import facts
from elasticdl.master.tasks.ledger import Ledger
from elasticdl.runner.base import ReplicaKey

# Platforms show a replica that they were asked for within a second or two.
NOT_SEEN_SECONDS = 10.0
_SHOWN_ENDED = 20  # As many ended replicas as fit a screen of `status`.

# When a member joined of which only that is known.
_LONG_AGO = 1.0


class MemberTable:
    """The members of one job."""

    def __init__(self, spec: JobSpec, ledger: Ledger, *, ps_seats: int) -> None:
        """Begin without members."""
        self.spec = spec  # replaced when a live edit is taken
        self.grant: Grant | None = None  # in force (master.members.granted)
        self.tasks_left: int | None = None  # None: not known, or no end of them
        self._ledger = ledger
        self.ps_seats = ps_seats
        self.members: dict[ReplicaKey, Member] = {}
        self.past: list[Member] = []
        self.version = 0  # grows when somebody comes, goes or changes state
        self.orders = False  # somebody is to leave and was not told yet
        self._workers: dict[int, Member] = {}  # oldest first
        self._by_state: dict[ReplicaState, dict[int, Member]] = {
            state: {} for state in ReplicaState
        }
        self._draining: dict[int, Member] = {}
        self._active: set[int] = set()
        self._at_work: set[int] = set()
        self._suspects: dict[int, Member] = {}
        self._silence_from = -math.inf  # nobody counts as dead before

    # -- looking ------------------------------------------------------------------

    @property
    def workers_so_far(self) -> int:
        """Number of workers that the job ever had; their indexes are below it."""
        return self._ledger.workers_so_far

    @property
    def wanted(self) -> int:
        """Number of workers that the job is to have, if it does not rest."""
        return wanted_workers(self.spec, self.grant, tasks_left=self.tasks_left)

    def go_by(self, grant: Grant | None) -> None:
        """Take the grant that is in force; None: `worker.replicas` counts."""
        self.grant = grant

    def no_more_than(self, tasks_left: int | None) -> None:
        """Take how many tasks are left: more workers have nothing to do."""
        self.tasks_left = tasks_left

    def workers(self) -> list[Member]:
        """Return the present and scheduled workers, oldest first."""
        return list(self._workers.values())

    @property
    def num_active(self) -> int:
        """Number of workers that run and have built the model."""
        return len(self._active)

    @property
    def num_at_work(self) -> int:
        """Number of workers that make progress."""
        return len(self._at_work)

    @property
    def num_workers(self) -> int:
        """Number of present and scheduled workers."""
        return len(self._workers)

    def ps(self) -> list[Member | None]:
        """Return the PS by index; None for a missing one."""
        return [
            self.members.get(ReplicaKey(Role.PS, index))
            for index in range(self.ps_seats)
        ]

    def require(self, replica: ReplicaId) -> Member:
        """Return the calling member. Raises FencedError if it is not one."""
        key = ReplicaKey(Role(replica.role), replica.index)
        member = self.members.get(key)
        if member is None or member.generation != replica.generation:
            known = f"{member.generation}" if member else "none"
            raise FencedError(
                f"{replica_name(key.role, key.index)}: got generation "
                f"{replica.generation}, expected {known}; it was replaced, leave"
            )
        return member

    # -- beginning ----------------------------------------------------------------

    def adopt(self, *, now: float) -> None:
        """Adopt the members of an earlier master of this run."""
        noted = self._ledger.all_of(facts.ReplicaFact)
        for fact in sorted(noted, key=lambda fact: fact.index):
            key = ReplicaKey(Role(fact.role), fact.index)
            member = Member(
                key=key,
                generation=fact.generation,
                priority=fact.priority,
                memory_bytes=fact.memory,
                launch_at=now,
                wanted_since=now,
                state=ReplicaState.LAUNCHED,
                since=now,
                address=fact.address,
                metrics_port=fact.metrics_port,
                pid=fact.pid,
                registered=fact.registered,
                ready=fact.ready,
                initialized=fact.initialized,
                restore=fact.restore,
                last_heard=now + self.spec.worker.dead_seconds,  # time to find us
                seen=True,
                # Before the time was noted whoever registered had joined.
                joined=fact.joined or (_LONG_AGO if fact.registered else 0.0),
            )
            self._add(member)

    @property
    def settling(self) -> bool:
        """Whether members of an earlier master may still be unheard of."""
        launched = self._by_state[ReplicaState.LAUNCHED]
        return any(member.unsettled for member in launched.values())

    def take_spec(self, spec: JobSpec) -> None:
        """Use another specification (live edits)."""
        self.spec = spec

    def take_orders(self) -> bool:
        """Return once whether members are to be told to leave."""
        orders, self.orders = self.orders, False
        return orders

    def pending(self) -> list[Member]:
        """Return the members that the platform cannot start now."""
        return list(self._by_state[ReplicaState.PENDING].values())

    def note(self, member: Member, *, now: float) -> None:
        """Journal what a restarted master must know about a member."""
        self._ledger.record(
            facts.ReplicaFact(
                name=member.name,
                role=str(member.key.role),
                index=member.key.index,
                generation=member.generation,
                priority=member.priority,
                memory=member.memory_bytes,
                address=member.address,
                metrics_port=member.metrics_port,
                pid=member.pid,
                registered=member.registered,
                ready=member.ready,
                initialized=member.initialized,
                restore=member.restore,
                ended=member.state is ReplicaState.ENDED,
                joined=member.joined,
                time=now,
            )
        )

    # -- coming and going ---------------------------------------------------------

    def schedule(
        self,
        key: ReplicaKey | None,
        *,
        priority: str,
        now: float,
        at: float | None = None,
        memory_bytes: int = 0,
        after_preemption: bool = False,
    ) -> Member:
        """Create a member; a worker (`key` None) gets the next free index."""
        if key is None:
            key = ReplicaKey(Role.WORKER, self._ledger.next_worker_index())
        of_role = self.spec.worker if key.role is Role.WORKER else self.spec.ps
        member = Member(
            key=key,
            generation=self._ledger.next_generation(),
            priority=priority,
            memory_bytes=memory_bytes or parse_bytes(of_role.resources.memory),
            launch_at=now if at is None else at,
            wanted_since=now,
            after_preemption=after_preemption,
            since=now,
        )
        self._add(member)
        self.note(member, now=now)
        return member

    def remove(self, member: Member) -> None:
        """Remove an ended member; it is still shown for a while."""
        del self.members[member.key]
        member.watch(None)
        for of_state in self._by_state.values():
            of_state.pop(member.generation, None)
        if member.is_worker:
            del self._workers[member.key.index]
        for numbers in (self._active, self._at_work):
            numbers.discard(member.generation)
        for members in (self._draining, self._suspects):
            members.pop(member.generation, None)
        self.version += 1
        self.past = [*self.past[1 - _SHOWN_ENDED :], member]

    def _add(self, member: Member) -> None:
        self.members[member.key] = member
        if member.is_worker:
            self._workers[member.key.index] = member  # the highest index so far
        member.watch(self._changed)
        self._changed(member, "state")

    def _changed(self, member: Member, what: str) -> None:
        """Update the indexes after a change of one member."""
        number = member.generation
        if what != "worker":
            self.version += 1
            for state, of_state in self._by_state.items():
                if state is member.state:
                    of_state[number] = member
                else:
                    of_state.pop(number, None)
            if member.drain:
                self.orders = self.orders or number not in self._draining
                self._draining[number] = member
            self.heard(member)
        if member.is_worker:
            _keep(self._active, number, member.ready and member.alive)
            _keep(self._at_work, number, member.at_work)

    def heard(self, member: Member) -> None:
        """Update when a member that was just heard of counts as silent."""
        at = member.silent_at(self.spec.worker)
        if at is not None and at < self._silence_from:
            self._silence_from = at

    def suspect(self, member: Member) -> None:
        """Note a member whose own figures suggest a hang."""
        self._suspects[member.generation] = member

    # -- what is due --------------------------------------------------------------

    def due(self, *, now: float) -> list[Member]:
        """Return the scheduled members that are due."""
        scheduled = self._by_state[ReplicaState.SCHEDULED].values()
        return [m for m in scheduled if m.launch_at <= now]

    def never_seen(self, *, now: float) -> list[Member]:
        """Return launched members that the platform never showed."""
        launched = self._by_state[ReplicaState.LAUNCHED].values()
        return [m for m in launched if now - m.since >= NOT_SEEN_SECONDS]

    def overdue(self, *, now: float) -> list[Member]:
        """Return the workers that should have left by now."""
        return [m for m in self._draining.values() if m.stop_at and m.stop_at <= now]

    def take_suspects(self) -> list[Member]:
        """Return and forget the suspected members."""
        found, self._suspects = self._suspects, {}
        return list(found.values())

    def dead(self, *, now: float) -> list[Member]:
        """Return the members that have been silent for too long.

        Looks at all of them when one may be; that is about twice in the time in which
        a silent one counts as dead.
        """
        if now < self._silence_from:
            return []
        bounds = [(m, m.silent_at(self.spec.worker)) for m in self.members.values()]
        times = [at for _, at in bounds if at is not None and at > now]
        self._silence_from = min(times, default=math.inf)
        return [m for m, at in bounds if at is not None and at <= now]

    def excuse(self, seconds: float, *, now: float) -> None:
        """Exclude these seconds from every member's silence.

        After a time in which any other process would count as dead all begin anew:
        their calls have failed, and they have to find the master again.
        """
        if seconds >= self.spec.worker.dead_seconds:
            seconds = math.inf
        for member in self.members.values():
            heard = max(member.last_heard, member.since) + seconds
            member.heard(now=max(member.last_heard, min(now, heard)))
        self._silence_from = -math.inf

    def put_off_stops(self, seconds: float) -> None:
        """Give so many seconds more to those that are to leave."""
        for member in self._draining.values():
            if member.stop_at:
                member.kill_at(member.stop_at + seconds)

    @contextlib.contextmanager
    def answering(
        self, replica: ReplicaId, clock: Callable[[], float]
    ) -> Iterator[None]:
        """Let a replica not be silent while its call waits for the journal.

        It is heard when it has the answer, or has given the call up.
        """
        member = self.require(replica)
        member.unanswered += 1
        try:
            yield
        finally:
            member.unanswered -= 1
            member.heard(now=clock())
            self.heard(member)

    def next_time(self) -> float | None:
        """Return when something may be due without a new event."""
        times = [self._silence_from]
        scheduled, launched = ReplicaState.SCHEDULED, ReplicaState.LAUNCHED
        times += [m.launch_at for m in self._by_state[scheduled].values()]
        times += [m.stop_at for m in self._draining.values() if m.stop_at]
        times += [m.since + NOT_SEEN_SECONDS for m in self._by_state[launched].values()]
        first = min(times)
        return first if math.isfinite(first) else None


def _keep(numbers: set[int], number: int, wanted: bool) -> None:
    if wanted:
        numbers.add(number)
    else:
        numbers.discard(number)
