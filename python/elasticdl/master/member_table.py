"""The table of members: who belongs to the job now, and what is due about whom.

Owns the members by role and index, their generations and the journaled notes of kind
`replica` that let a restarted master adopt what still runs. Held by
`master.membership`, read by everybody. Must not decide who is replaced.
"""

from __future__ import annotations

from dataclasses import asdict

from elasticdl.errors import FencedError
from elasticdl.job.names import Role, replica_name
from elasticdl.job.quantity import parse_bytes
from elasticdl.job.spec import JobSpec
from elasticdl.master.ledger import Ledger
from elasticdl.master.member import Member, MemberState, Restore
from elasticdl.proto import master_pb2
from elasticdl.runner.base import ReplicaKey

NOT_SEEN_SECONDS = 10.0
_SHOWN_ENDED = 20


class MemberTable:
    """The members of one job."""

    def __init__(self, spec: JobSpec, ledger: Ledger, *, num_ps: int) -> None:
        """Begin without members."""
        self.spec = spec  # replaced when a live edit is taken
        self._ledger = ledger
        self.num_ps = num_ps
        self.members: dict[ReplicaKey, Member] = {}
        self.past: list[Member] = []

    # -- looking ------------------------------------------------------------------

    def workers(self) -> list[Member]:
        """Return the workers that are or will be, oldest first."""
        found = [m for m in self.members.values() if m.is_worker]
        return sorted(found, key=lambda m: m.key.index)

    def ps(self) -> list[Member | None]:
        """Return the PS by index; None where there is none now."""
        return [
            self.members.get(ReplicaKey(Role.PS, index)) for index in range(self.num_ps)
        ]

    def require(self, replica: master_pb2.Replica) -> Member:
        """Return the member that calls. Raises FencedError if it is none (any more)."""
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

    def adopt(self, *, now: float, after: float) -> None:
        """Take up the members that an earlier master of this run (`after`) had."""
        for note in self._ledger.notes("replica"):
            if note["ended"] or note["time"] < after:
                continue
            key = ReplicaKey(Role(note["role"]), note["index"])
            self.members[key] = Member(
                key=key,
                generation=note["generation"],
                priority=note["priority"],
                memory_bytes=note["memory"],
                launch_at=now,
                state=MemberState.LAUNCHED,
                since=now,
                address=note["address"],
                metrics_port=note["metrics_port"],
                pid=note["pid"],
                registered=note["registered"],
                ready=note["ready"],
                initialized=note["initialized"],
                restore=Restore(**note["restore"]) if note["restore"] else None,
                last_heard=now + self.spec.worker.dead_seconds,  # time to find us
                seen=True,
            )

    @property
    def settling(self) -> bool:
        """Whether this master does not know yet who of the earlier one's is there."""
        return any(member.unsettled for member in self.members.values())

    def note(self, member: Member, *, now: float) -> None:
        """Journal what a restarted master must know of a member."""
        self._ledger.note(
            "replica",
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
            restore=asdict(member.restore) if member.restore else None,
            ended=member.state is MemberState.ENDED,
            time=now,
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
    ) -> Member:
        """Make a member; a worker (`key` None) gets the next free index."""
        if key is None:
            key = ReplicaKey(Role.WORKER, self._ledger.next_worker_index())
        of_role = self.spec.worker if key.role is Role.WORKER else self.spec.ps
        member = Member(
            key=key,
            generation=self._ledger.next_generation(),
            priority=priority,
            memory_bytes=memory_bytes or parse_bytes(of_role.resources.memory),
            launch_at=now if at is None else at,
            since=now,
        )
        self.members[key] = member
        self.note(member, now=now)
        return member

    def remove(self, member: Member) -> None:
        """Take a member that ended off the table; it is still shown for a while."""
        del self.members[member.key]
        self.past = [*self.past[1 - _SHOWN_ENDED :], member]

    # -- what is due --------------------------------------------------------------

    def due(self, *, now: float) -> list[Member]:
        """Return the scheduled members whose time has come."""
        return [
            m
            for m in self.members.values()
            if m.state is MemberState.SCHEDULED and m.launch_at <= now
        ]

    def never_seen(self, *, now: float) -> list[Member]:
        """Return members that were asked for and never shown: ask again."""
        return [
            m
            for m in self.members.values()
            if m.state is MemberState.LAUNCHED and now - m.since >= NOT_SEEN_SECONDS
        ]

    def dead(self, *, now: float) -> list[Member]:
        """Return the members that have been silent for too long."""
        bounds = [(m, m.silent_at(self.spec.worker)) for m in self.members.values()]
        return [m for m, at in bounds if at is not None and at <= now]

    def next_time(self) -> float | None:
        """Return when something may be due without a new event."""
        times = [
            m.launch_at
            for m in self.members.values()
            if m.state is MemberState.SCHEDULED
        ]
        times += [m.stop_at for m in self.members.values() if m.stop_at]
        silent = (m.silent_at(self.spec.worker) for m in self.members.values())
        times += [t for t in silent if t is not None]
        times += [
            m.since + NOT_SEEN_SECONDS
            for m in self.members.values()
            if m.state is MemberState.LAUNCHED
        ]
        return min(times, default=None)
