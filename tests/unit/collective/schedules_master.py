"""The master of the random schedules: the real rules, with what members said.

Rounds come from `rendezvous.decide`, and who may go from `rendezvous.may_go`, called
as `master.model.group_holder` does. Over a restart it keeps what the journal has: the
newest round, the leases, and that something is trained. All else was said, and is said
again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from elasticdl.job.heartbeats import GroupMember, GroupReport, GroupRound
from elasticdl.job.words import RoundCause
from elasticdl.master.model.rendezvous import (
    Formed,
    Present,
    Standing,
    decide,
    is_last,
    may_go,
)
from elasticdl.worker.group.plan import GroupTask

from tests.unit.collective.schedules_state import task_range

if TYPE_CHECKING:
    from tests.unit.collective.schedules import World

_SILENT_SECONDS = 15.0
_SETTLE_SECONDS = 3.0  # for which a master that restarted hears before it decides


@dataclass
class Said:
    """What a worker has said of its group."""

    ready_at: float
    report: GroupReport
    broken_at: float = 0.0
    level_in: int = 0


@dataclass(frozen=True)
class Reply:
    """Answer to a call for tasks: the reports that arrived, and tasks."""

    arrived: tuple[int, ...] = ()
    tasks: tuple[GroupTask, ...] = ()


class Master:
    """Forms rounds, lets members go, and leases tasks to whoever leads."""

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
        self.said: dict[int, Said] = {}
        self.free: set[int] = set()
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
        self.said, self.free = {}, set()
        self.back_at = self.world.now + seconds
        self.settles_until = self.back_at + _SETTLE_SECONDS
        self.heard_at = dict.fromkeys(self.alive, self.back_at)
        if self.formed is not None:
            before = self.formed
            self.formed = Formed(
                before.round, before.at, before.why, before.cause, before.names
            )

    # -- what workers say --------------------------------------------------------------

    def hear(self, number: int, report: GroupReport, version: int) -> GroupRound | None:
        """Take a worker's word; return what it is answered."""
        now = self.world.now
        self.alive.add(number)
        self.heard_at[number] = now
        self._note(number, report)
        if report.leaves:
            self._let_go()
        if version and self.formed and number == self.formed.round.leader:
            self.begun = True
        return self._round_of(number)

    def _note(self, number: int, report: GroupReport) -> None:
        now = self.world.now
        said = self.said.setdefault(number, Said(now, report))
        if report.broken != said.report.broken:
            said.broken_at = now
        if report.level or report.version:
            said.level_in = report.round
        said.report = report

    def _round_of(self, number: int) -> GroupRound | None:
        formed = self.formed
        if formed is None:
            return None
        goes = number in self.free
        members = zip(formed.round.members, formed.round.since, strict=True)
        return GroupRound(
            formed.round.number,
            tuple(GroupMember(m, f"at {m}", since) for m, since in members),
            formed.round.begins,
            "",
            newcomers=bool(self.said.keys() - set(formed.round.members)),
            stays=not goes and self._leaves(number),
            goes=goes,
        )

    def lost(self, number: int) -> None:
        """Count a worker out: it ended, or was silent for long."""
        self.alive.discard(number)
        self.said.pop(number, None)
        self.free.discard(number)

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
        standings = self._standings()
        if not standings:
            return
        if self._nobody_has_it(standings):
            self.world.went_back = True
            return
        formed = decide(
            self.formed, standings, begins=not self.begun, now=self.world.now
        )
        if formed is not None:
            self.kept_out += formed.cause is RoundCause.LEFT_OUT
            self.differed += formed.cause is RoundCause.DIFFERED
            self.formed = formed
            self.world.formed(formed.round)
        self._let_go()

    def _nobody_has_it(self, standings: Iterable[Standing]) -> bool:
        if self.formed is None or not self.begun:
            return False
        number = self.formed.round.number
        here = {one.worker for one in standings}
        stayed = [m for m in self.formed.round.members if m in here]
        words = [self.said[m].report for m in stayed if m in self.said]
        return not stayed or any(w.stateless and w.broken == number for w in words)

    def _standings(self) -> list[Standing]:
        found = []
        differing = self._differing()
        for number in sorted(self.alive):
            said = self.said.get(number)
            if said is None and self._is_in(number):
                said = Said(0.0, GroupReport())
            stays = not self._leaves(number)
            if said is None or not (stays or is_last(number, self._present())):
                continue
            found.append(
                Standing(
                    number,
                    ready_at=said.ready_at,
                    broken=said.report.broken,
                    broken_at=said.broken_at,
                    lost=said.report.lost or -1,
                    copied=said.report.copied,
                    differs=number in differing,
                )
            )
        return found

    def _is_in(self, number: int) -> bool:
        return self.formed is not None and number in self.formed.round.members

    def _differing(self) -> Collection[int]:
        said = self.said.get(self.formed.round.leader) if self.formed else None
        if said is None or self.formed is None:
            return ()
        here = said.report.round == self.formed.round.number
        return said.report.differing if here else ()

    # -- members that leave ------------------------------------------------------------

    def _leaves(self, number: int) -> bool:
        said = self.said.get(number)
        return said is not None and said.report.leaves

    def _present(self) -> list[Present]:
        return [
            Present(
                number,
                has_state=self._has_state(number),
                leaves=self._leaves(number),
                let_go=number in self.free,
            )
            for number in sorted(self.alive & self.said.keys())
        ]

    def _has_state(self, number: int) -> bool:
        if self.formed is None or not self._is_in(number):
            return False
        entered = self.formed.round
        since = entered.since[entered.members.index(number)]
        level = self.said[number].level_in >= since
        return level and number not in self._differing()

    def may_go(self, number: int) -> bool:
        """Whether a member that leaves may go now."""
        saved = self._is_saved(self.said[number].report.version)
        return may_go(number, self._present(), saved=saved)

    def _is_saved(self, version: int) -> bool:
        return version <= max(0, self.saved)

    def _let_go(self) -> None:
        for number in sorted(self.alive & self.said.keys()):
            leaves = self._leaves(number) and number not in self.free
            if leaves and self.may_go(number):
                self.free.add(number)

    def asks_to_save(self) -> int | None:
        """Return the leader, if it is the only one with the state, and leaves."""
        leader = self.formed.round.leader if self.formed else 0
        said = self.said.get(leader)
        if said is None or not said.report.leaves:
            return None
        saved = self._is_saved(said.report.version)
        return leader if not saved and is_last(leader, self._present()) else None

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
