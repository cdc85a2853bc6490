"""What a member of the random schedules has, the tasks, and what befalls members."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from elasticdl.worker.group.plan import Outcome, StepPlan, Work, shares

if TYPE_CHECKING:
    from tests.unit.collective.schedules import World

PARTS = 5  # a state has so many, whatever the number of members
RECORDS = 4  # of a step
# Of tasks, in records: one after the other, again and again.
_LENGTHS = (10, 4, 3, 6, 9)


def task_range(number: int) -> tuple[int, int]:
    """Return the records of a task; those of all tasks follow each other."""
    rounds, place = divmod(number, len(_LENGTHS))
    start = rounds * sum(_LENGTHS) + sum(_LENGTHS[:place])
    return start, start + _LENGTHS[place]


def _steps(tasks: int) -> list[tuple[int, int, int]]:
    found = []
    for number in range(tasks):
        first, end = task_range(number)
        found += [
            (number, start, min(start + RECORDS, end))
            for start in range(first, end, RECORDS)
        ]
    return found


STEPS = _steps(500)  # task, start and end of each step: of every schedule


@dataclass
class State:
    """What a member has: per part, how often each record was applied; its `Work`.

    `rounding` stands for what the order of a sum does to floats: it depends on who was
    in each step.
    """

    parts: list[Counter[int]] = field(
        default_factory=lambda: [Counter() for _ in range(PARTS)]
    )
    work: Work = field(default_factory=Work)
    position: int = 0  # the record after the last one
    rounding: int = 0

    def copy(self) -> State:
        parts = [Counter(part) for part in self.parts]
        work = Work.decoded(self.work.encoded())
        return State(parts, work, self.position, self.rounding)

    def key(self) -> Any:
        """Return what is equal in all members of a version.

        Which tasks of no step yet, or reported already, a member knows is not.
        """
        begun = {
            task.task_id: totals
            for lease_id, task in self.work.tasks.items()
            if task.start < (totals := self.work.totals[lease_id]).reached < task.end
        }
        told = {
            task_id: (of.reached, of.records, of.rows, of.steps, of.loss_sum, of.shares)
            for task_id, of in begun.items()
        }
        applied = list(self.work.applied.items())
        return self.parts, self.work.version, applied, told, self.rounding

    def made(self, plan: StepPlan, members: tuple[int, ...]) -> str:
        """Note a step; return what is wrong with it."""
        task_id = self.work.tasks[plan.lease_id].task_id
        step, expected = (task_id, plan.start, plan.end), STEPS[self.work.version]
        taken = shares(plan, members) if members else ()
        records = plan.records
        self.work.made(plan, Outcome(records, records, loss=1.0, shares=taken))
        self.position = plan.end
        self.rounding = hash((self.rounding, step, members))
        return "" if step == expected else f"step {step} is made; expected {expected}"


def random_events(rng: random.Random) -> list[str]:
    """Return what happens to a schedule from outside."""
    most = {"spawn": 3, "leave": 3, "restart": 2, "differ": 1}
    # In the others all who go do so in order: nothing at all may be lost with them.
    if rng.random() < 0.7:
        most |= {"kill": 4, "freeze": 2, "cut": 1}
    events = [e for event, n in most.items() for e in [event] * rng.randint(0, n)]
    rng.shuffle(events)
    return events


def totals(world: World) -> Counter[str]:
    """Return how often what the schedules are about happened."""
    return Counter(
        {
            "losses": world.deaths,
            "records acknowledged": len(world.acknowledged),
            "left in order": world.left,
            "states left to newcomers": world.handed_over,
            "master restarts": world.master.restarts,
            "frozen": world.freezes,
            "back from the dead": world.master.back,
            "connections lost": world.lost_links,
            "kept out": world.master.kept_out,
            "differed": world.master.differed,
            "lost before their report": world.unreported,
            "rounds": world.round.number,
            "went back": world.went_back,
        }
    )
