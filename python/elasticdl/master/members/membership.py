"""Who belongs to the job: members wanted, launched, heard of, ended and replaced.

Owns the table of members and keeps it equal to what the platform shows. Called by the
master's loop (observations, ticks) and heartbeats. Decides with `relaunch_rules` and
`scale`; the loop carries out. Must not call the runner or know of RPC.

The table is journaled as notes of kind `replica`, so that a restarted master adopts
what still runs; whatever the platform then does not show is gone.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from elasticdl.job.names import Role
from elasticdl.job.spec.job import JobSpec
from elasticdl.job.words import (
    ChangeCause,
    EndCause,
    ExitReason,
    ReplicaState,
    WorkerPhase,
)
from elasticdl.master.happenings import (
    Diary,
    ReplicaDismissed,
    ReplicaJoined,
    ReplicaLeft,
    ReplicaWaits,
    ReplicaWanted,
    ReplicaWorks,
)
from elasticdl.master.members import scale
from elasticdl.master.members.goodput import Goodput
from elasticdl.master.members.member import Member
from elasticdl.master.members.relaunch_rules import (
    GiveUp,
    ReplicaEnding,
    StartReplacement,
    cause_of,
    in_words,
)
from elasticdl.master.members.relaunches import Relaunches
from elasticdl.master.members.scale import Seat
from elasticdl.master.members.table import MemberTable
from elasticdl.master.tasks import facts
from elasticdl.master.tasks.ledger import Ledger
from elasticdl.runner.base import Observation, ObservedReplica, Phase, ReplicaKey

log = logging.getLogger(__name__)

# What every pod goes through.
_ON_ITS_WAY = ("ContainerCreating", "PodInitializing")
_TAKEN_AWAY = (ExitReason.PREEMPTED, ExitReason.EVICTED)
_PHASES = {
    Phase.PENDING: ReplicaState.PENDING,
    Phase.RUNNING: ReplicaState.RUNNING,
}


@dataclass(frozen=True)
class Departure:
    """A member that ended or counts as dead; its tasks are to be put back."""

    member: Member
    reason: str
    give_up: GiveUp | None = None


@dataclass(frozen=True)
class Stop:
    """A replica that the platform has to end."""

    key: ReplicaKey
    grace_seconds: float
    reason: str


class Membership:
    """The members of one job."""

    def __init__(
        self,
        table: MemberTable,
        ledger: Ledger,
        relaunches: Relaunches,
        goodput: Goodput,
        diary: Diary,
    ) -> None:
        """Begin with the members in the table."""
        self.table = table
        self._ledger = ledger
        self._diary = diary
        self._goodput = goodput
        self._relaunches = relaunches
        self.hangs = 0  # in a row, without a finished task between
        self.leaving = False  # nobody is replaced any more
        self._planned: tuple[int, int, JobSpec] | None = None
        self._awaited: set[str] = set()  # asked for in nobody's place, no work done

    def let_leave(self) -> None:
        """Replace no replica from now on: the job is over."""
        self.leaving = True

    def nobody_hangs(self) -> None:
        """Reset the count of hangs in a row after a finished task."""
        self.hangs = 0

    # -- what the platform shows --------------------------------------------------

    def observe(
        self, observation: Observation, *, now: float
    ) -> tuple[list[Departure], list[Stop]]:
        """Apply an observation; return departed members and replicas to stop."""
        departures, stops = [], []
        shown = set()
        for state in observation.states:
            member = self.table.members.get(state.key)
            if member is None or member.generation != state.generation:
                newer = member is None or state.generation > member.generation
                if newer and state.phase in _PHASES:
                    stops.append(Stop(state.key, 0.0, "unknown to the master"))
                continue
            shown.add(state.key)
            departure = self._take(member, state, now=now)
            if departure:
                departures.append(departure)
        if observation.resync:
            departures += self._missing(shown, now=now)
        return departures, stops

    def _take(
        self, member: Member, state: ObservedReplica, *, now: float
    ) -> Departure | None:
        member.show(pid=state.pid, reason=state.pending_reason)
        if state.phase not in _PHASES:
            return self.ended(
                member,
                state.reason,
                exit_code=state.exit_code,
                message=state.message,
                memory_limit=state.memory_limit,
                now=now,
            )
        # It may have registered before the platform told that it runs.
        if member.state not in (_PHASES[state.phase], ReplicaState.RUNNING):
            self._enter(member, _PHASES[state.phase], now=now)
        going = state.phase is Phase.RUNNING and state.reason
        if going and member.is_worker and not (member.drain or self.leaving):
            self._taken_away(member, state.reason, now=now)
        return None

    def _taken_away(self, member: Member, reason: ExitReason, *, now: float) -> None:
        """Replace a worker that the platform is removing, without waiting for its end.

        It hands back its tasks meanwhile, and its end is not looked into any more.
        """
        ending = ReplicaEnding(
            role=member.key.role,
            reason=reason,
            lived_seconds=now - member.since,
            memory_bytes=member.memory_bytes,
        )
        member.take_away()
        self._decide(member, ending, now=now)

    def runs(self, member: Member, *, now: float) -> None:
        """Note that a replica says itself that it runs, before the platform does."""
        member.show(pid=member.pid, reason=member.reason)
        if member.state is not ReplicaState.RUNNING:
            self._enter(member, ReplicaState.RUNNING, now=now)

    def _enter(self, member: Member, state: ReplicaState, *, now: float) -> None:
        member.enter(state, now=now)
        if state is ReplicaState.RUNNING and member.join(now=now):
            self.table.note(member, now=now)  # the next master does not tell it again
            self._say_joined(member, waited=max(0.0, now - member.wanted_since))
        if member.is_worker:
            self._mark_presence(member, now=now)

    def _mark_presence(self, member: Member, *, now: float) -> None:
        if member.state is ReplicaState.RUNNING:
            self._goodput.present(member.generation, now=now)
        else:
            self._goodput.absent(
                member.generation, preempted=member.after_preemption, now=now
            )

    def _missing(self, shown: set[ReplicaKey], *, now: float) -> list[Departure]:
        """End the members missing in a complete list (their event was lost, D14)."""
        # One that was asked for while the list was made may not be in it yet.
        gone = [m for k, m in self.table.members.items() if k not in shown and m.seen]
        ended = (self.ended(m, ExitReason.DELETED, now=now) for m in gone)
        return [departure for departure in ended if departure]

    def heard(
        self, member: Member, seconds: Mapping[str, float], *, now: float
    ) -> None:
        """Take a worker's seconds by cause."""
        self._goodput.heard(member.generation, seconds)
        if self._goodput.is_due(now=now):
            live = self._goodput.live(now=now)
            self._ledger.record(facts.GoodputLiveFact(workers=live))

    # -- ending -------------------------------------------------------------------

    def give_up_on(self, member: Member, cause: EndCause, *, now: float) -> Departure:
        """Count a silent or hanging member as dead, replace it; the loop kills it."""
        member.give_up(cause)
        self.hangs += cause is EndCause.HUNG
        departure = self.ended(member, ExitReason.KILLED, now=now)
        return departure or Departure(member, cause)

    def ended(
        self,
        member: Member,
        reason: ExitReason,
        *,
        now: float,
        exit_code: int = 0,
        message: str = "",
        memory_limit: int = 0,
    ) -> Departure | None:
        """Record the end of a member and schedule its replacement if it needs one."""
        if member.state is ReplicaState.ENDED:
            return None
        ran = member.state is ReplicaState.RUNNING
        lived = now - member.since if ran else 0.0
        ending = ReplicaEnding(
            role=member.key.role,
            reason=reason,
            exit_code=exit_code,
            message=message,
            cause=member.lost_by,
            lived_seconds=lived,
            memory_bytes=member.memory_bytes,
            memory_limit=memory_limit,
            used_bytes=member.used_bytes,
            ready=member.came_through,
        )
        member.end(reason, now=now)
        self._awaited.discard(member.name)
        self.table.remove(member)
        if member.is_worker:
            self._goodput.ended(member.generation, now=now)
            self._ledger.record(facts.GoodputFact(seconds=self._goodput.closed()))
        self.table.note(member, now=now)
        if self.leaving or member.drain:
            member.explain(member.why_it_goes or in_words(reason))
            log.info("%s left: %s", member.name, member.reason)
            if ran and not member.end_said:
                self._diary.say(
                    ReplicaLeft(time=now, replica=member.name, reason=member.reason)
                )
            return Departure(member, member.reason)
        decision = self._decide(member, ending, now=now)
        give_up = decision if isinstance(decision, GiveUp) else None
        return Departure(member, decision.reason, give_up=give_up)

    def _decide(
        self, member: Member, ending: ReplicaEnding, *, now: float
    ) -> StartReplacement | GiveUp:
        decision = self._relaunches.decide(
            member, ending, spec=self.table.spec, now=now
        )
        member.explain(decision.reason)
        replacement = None
        if isinstance(decision, StartReplacement):
            replacement = self._replace(member, ending, decision, now=now)
        self._relaunches.book(
            member,
            decision,
            cause=cause_of(ending),
            replacement=replacement,
            detail=ending.message,
            now=now,
        )
        return decision

    def say_since(self, time: float) -> None:
        """Report who joined after `time` (Unix seconds) under an earlier master."""
        for member in self.table.members.values():
            if member.joined > time:
                self._say_joined(member, waited=0.0)

    def _say_joined(self, member: Member, *, waited: float) -> None:
        self._diary.say(
            ReplicaJoined(
                time=member.joined,
                replica=member.name,
                role=str(member.key.role),
                waited=waited,
            )
        )

    # -- coming and leaving ----------------------------------------------------

    def plan(self, *, workers: int, now: float) -> list[Stop]:
        """Schedule missing members, drain superfluous ones; return whom to stop."""
        planned = (self.table.version, workers, self.table.spec)
        if self.leaving or planned == self._planned:
            return []
        before = self._planned[1] if self._planned else None
        self._planned = planned
        for index, member in enumerate(self.table.ps()):
            if member is None:
                self.table.schedule(
                    ReplicaKey(Role.PS, index),
                    priority=self.table.spec.ps.priority,
                    now=now,
                )
        grant, tasks = self.table.grant, self.table.tasks_left
        # Everybody is without a task now and then: only where they run out does that
        # say who is of no use.
        runs_out = grant is not None and tasks is not None and tasks < grant.workers
        seats = [
            Seat(
                m.key.index,
                m.priority,
                running=m.state is ReplicaState.RUNNING,
                idle=runs_out and m.phase == WorkerPhase.IDLE,
                leaves=m.worker is not None and m.worker.group.leaves,
                has_state=m.worker is not None and m.worker.group.level,
            )
            for m in self.table.workers()
            if not m.drain
        ]
        change = scale.resize(
            seats,
            wanted=workers,
            priority=self.table.spec.worker.priority,
            leave=grant.leave if grant else (),
        )
        role = str(Role.WORKER)
        why = self._why_more(before, any_there=bool(seats))
        for priority in change.start:
            new = self.table.schedule(None, priority=priority, now=now)
            self._awaited.add(new.name)
            wanted = ReplicaWanted(time=now, replica=new.name, role=role, why=why)
            self._diary.say(wanted)
        stops = []
        for index in change.drain:
            member = self.table.members[ReplicaKey(Role.WORKER, index)]
            cause = self._why_fewer(workers)
            left = ChangeCause.SHRUNK if workers else ChangeCause.PAUSED
            gone = ReplicaDismissed(time=now, replica=member.name, role=role, why=left)
            self._diary.say(gone)
            stops += self.drain(member, cause, now=now)
        return stops

    def _why_fewer(self, workers: int) -> str:
        """Return why workers leave, in words; the number that stays may be 0."""
        if not workers:
            return "the job is paused"
        grant = self.table.grant
        return f"scaled down: {grant.why}" if grant and grant.why else "scaled down"

    @staticmethod
    def _why_more(before: int | None, *, any_there: bool) -> ChangeCause:
        """Return why workers are added; `before`: number wanted at the last plan."""
        if before is None and not any_there:
            return ChangeCause.STARTED
        return ChangeCause.RESUMED if before == 0 else ChangeCause.GROWN

    def say_who_waits(self, *, now: float) -> None:
        """Report why replicas wait, once for each replica and kind of reason."""
        for member in self.table.pending():
            if member.drain or not member.reason:
                continue
            waits = ReplicaWaits(time=now, replica=member.name, reason=member.reason)
            if waits.kind in _ON_ITS_WAY or waits.kind in member.waits_said:
                continue
            member.waits_said.add(waits.kind)
            self._diary.say(waits)

    def works(self, member: Member, *, now: float) -> None:
        """Note a member's first work, which ends the cost of its start."""
        if member.name in self._awaited:
            self._awaited.discard(member.name)
            self._diary.say(ReplicaWorks(time=now, replica=member.name))
        self._relaunches.works(member.name, now=now)

    def drain(self, member: Member, cause: str, *, now: float) -> list[Stop]:
        """Tell a worker to hand back its tasks and leave; else stop it."""
        grace = self.table.spec.worker.grace_seconds
        member.dismiss(cause)
        if member.state is ReplicaState.SCHEDULED:
            self.ended(member, ExitReason.DELETED, now=now)
            return []
        if not member.registered:
            return [Stop(member.key, grace, cause)]
        member.kill_at(now + grace)
        return []

    def launched(self, member: Member, *, now: float) -> None:
        """Note a launch before the platform is asked for it."""
        self._enter(member, ReplicaState.LAUNCHED, now=now)

    def _replace(
        self,
        member: Member,
        ending: ReplicaEnding,
        decision: StartReplacement,
        *,
        now: float,
    ) -> Member | None:
        wanted = self.table.wanted
        staying = [m for m in self.table.workers() if not m.drain]
        if member.is_worker and len(staying) >= wanted:
            return None
        return self.table.schedule(
            None if member.is_worker else member.key,
            priority=member.priority,
            memory_bytes=decision.memory_bytes or member.memory_bytes,
            at=now + decision.delay_seconds,
            after_preemption=ending.reason in _TAKEN_AWAY,
            now=now,
        )

    def overdue(self, *, now: float) -> list[Stop]:
        """Return the workers that were told to leave and have not in time."""
        late = self.table.overdue(now=now)
        for member in late:
            member.kill_at(0.0)
        return [Stop(m.key, 1.0, m.why_it_goes) for m in late]
