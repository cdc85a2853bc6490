"""The master of the random schedules: the real rules over the real words of members.

Rounds come from `rendezvous.decide`, what was said and who may go from `Gathering`, as
in `master.model.group.holder`. Over a restart it keeps what the journal has: the newest
round, the leases, and that something is trained. All else was said, and is said again.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from elasticdl.job.heartbeats import GroupMember, GroupReport, GroupRound
from elasticdl.job.words import RoundCause
from elasticdl.master.model.group.gathering import Gathering, Here
from elasticdl.master.model.group.rendezvous import Formed, decide
from elasticdl.worker.group.plan import GroupTask

from tests.unit.collective.schedules_state import task_range

if TYPE_CHECKING:
    from tests.unit.collective.schedules import World

_SILENT_SECONDS = 15.0
_SETTLE_SECONDS = 3.0  # for which a master that restarted hears before it decides


@dataclass(frozen=True)
class Reply:
    """Answer to a call for tasks: the reports that arrived, and tasks."""

    arrived: tuple[int, ...] = ()
    tasks: tuple[GroupTask, ...] = ()


class Master:
    """Forms rounds, lets members go, and leases tasks to whoever leads."""

    gathering = Gathering

    def __init__(self, world: World) -> None:
        self.world = world
        # What a restarted master knows: the journal, and which workers run.
        self.formed: Formed | None = None
        self.begun = False  # something is trained
        self.leases: dict[int, GroupTask] = {}
        self.accepted: set[int] = set()  # records of tasks that were reported
        self.next_task, self.next_lease = 0, 1
        self.saved = -1  # steps with records in the newest checkpoint
        self.alive: set[int] = set()
        self.fenced: set[int] = set()  # were silent for long: nothing of them counts
        # What it heard.
        self.words = self.gathering(self._here)
        self.heard_at: dict[int, float] = {}
        self.back_at = self.settles_until = self.ticks_at = 0.0
        # How often these happened.
        self.restarts = self.back = self.kept_out = self.differed = 0

    # -- restarts ----------------------------------------------------------------------

    @property
    def away(self) -> bool:
        """Whether no word arrives."""
        return self.world.now < self.back_at

    def restart(self, seconds: float) -> None:
        """Forget what was said; come back in so many seconds."""
        self.restarts += 1
        self.words = self.gathering(self._here)
        self.back_at = self.world.now + seconds
        self.settles_until = self.back_at + _SETTLE_SECONDS
        self.heard_at = dict.fromkeys(self.alive, self.back_at)
        if self.formed is not None:
            before = self.formed
            self.formed = Formed(
                before.round, before.at, before.why, before.cause, before.names
            )
            self.words.forms(before.round)

    # -- what workers say --------------------------------------------------------------

    def hear(self, number: int, report: GroupReport, version: int) -> GroupRound | None:
        """Take a worker's word; return what it is answered."""
        now = self.world.now
        self.alive.add(number)
        self.heard_at[number] = now
        self.words.hear(number, report, now=now)
        if report.leaves:
            self.words.let_go(self._is_saved)
        if version and self.formed and number == self.formed.round.leader:
            self.begun = True
        return self._round_of(number)

    def _here(self) -> list[Here]:
        return [Here(number) for number in sorted(self.alive)]

    def _round_of(self, number: int) -> GroupRound | None:
        formed = self.formed
        if formed is None:
            return None
        goes = self.words.may_go(number)
        members = zip(formed.round.members, formed.round.since, strict=True)
        return GroupRound(
            formed.round.number,
            tuple(GroupMember(m, f"at {m}", since) for m, since in members),
            formed.round.begins,
            "",
            newcomers=self.words.has_newcomers,
            stays=not goes and self.words.leaves(Here(number)),
            goes=goes,
        )

    def lost(self, number: int) -> None:
        """Count a worker out: it ended, or was silent for long."""
        self.alive.discard(number)
        self.words.lost(number)

    def _find_silent(self) -> None:
        for number in sorted(self.alive):
            heard = self.heard_at.setdefault(number, self.world.now)
            if self.world.now - heard > _SILENT_SECONDS:
                self.fenced.add(number)
                self.lost(number)

    # -- rounds ------------------------------------------------------------------------

    def tick(self) -> None:
        """Form the next round if it is time for one."""
        self.ticks_at = self.world.now + self.world.rng.choice((0.1, 0.3, 1.0))
        if self.world.now < self.settles_until:
            return
        self._find_silent()
        standings = self.words.standings()
        if not standings:
            return
        if self.begun and self.words.nobody_has_it(standings):
            self.world.went_back = True
            return
        formed = decide(
            self.formed, standings, begins=not self.begun, now=self.world.now
        )
        if formed is not None:
            self.kept_out += formed.cause is RoundCause.LEFT_OUT
            self.differed += formed.cause is RoundCause.DIFFERED
            self.formed = formed
            self.words.forms(formed.round)
            self.world.formed(formed.round)
        self.words.let_go(self._is_saved)

    def _is_saved(self, version: int) -> bool:
        return version <= max(0, self.saved)

    def asks_to_save(self) -> int | None:
        """Return the leader, if it is the only one with the state, and leaves."""
        if self.formed is None or not self.words.has_to_save(self._is_saved):
            return None
        return self.formed.round.leader

    # -- tasks -------------------------------------------------------------------------

    def call(
        self,
        number: int,
        held: Collection[int],
        reports: Collection[int],
        *,
        wants: bool,
    ) -> Reply:
        """Take reports, and lease a task, or those that the caller does not name.

        These were leased to whoever led before, and belong to the one who leads now.
        """
        if self.formed is None or number != self.formed.round.leader:
            return Reply(tuple(reports))
        for lease_id in reports:
            task = self.leases.pop(lease_id, None)
            if task is not None:
                self.begun = True
                self.accepted.update(range(task.start, task.end))
        if not wants:
            return Reply(tuple(reports))
        others = [one for lease_id, one in self.leases.items() if lease_id not in held]
        return Reply(tuple(reports), tuple(others) or (self._lease(),))

    def _lease(self) -> GroupTask:
        number, lease_id = self.next_task, self.next_lease
        self.next_task, self.next_lease = number + 1, lease_id + 1
        start, end = task_range(number)
        task = GroupTask(lease_id, number, 0, "source", start, end, 0)
        self.leases[lease_id] = task
        return task
