"""Which records a step of a group has, and which member takes which: decisions alone.

Owns the division of a step's records, and how far each task of the group is. The member
that leads makes the plans; all members follow them, so that whoever leads next stands
where the one before stood. Pure; must not know leases' deadlines, readers or gradients.

The sequence of steps depends on the tasks alone: not on how many members there are, nor
on when they came and went. So a run that lost members equals one that did not, but for
rounding. No step has records of two tasks, as no batch has with the other strategies.
"""

from __future__ import annotations

import json
import math
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field
from typing import Any

from elasticdl.job.spec.kinds import RateRule
from elasticdl.job.tasks import REMEMBERED_TASKS

_MOST_ASIDE = 64  # tasks: many more than two leaders in turn can differ in


@dataclass(frozen=True)
class GroupTask:
    """A training task that the group was leased."""

    lease_id: int
    task_id: int
    epoch: int
    source: str
    start: int
    end: int
    seed: int
    replay: bool = False


@dataclass(frozen=True)
class StepPlan:
    """Records [start, end) of a task; of none (`lease_id` 0) while there is no task.

    Attributes:
        lease_id: The task's.
        start: First record.
        end: After the last record.
        rate: Learning rate; None leaves it to the optimizer's own schedule.
        held: All tasks of the group, for whoever leads next.
        unit: Members take multiples of so many records, but for the last ones.
        weights: By rank, what each takes of the records; () is the same for all.
        compares: Members say a digest of their state before this step.
    """

    lease_id: int = 0
    start: int = 0
    end: int = 0
    rate: float | None = None
    held: tuple[GroupTask, ...] = ()
    unit: int = 1
    weights: tuple[float, ...] = ()
    compares: bool = False

    @property
    def records(self) -> int:
        """Number of records of all members together."""
        return self.end - self.start

    def encoded(self) -> bytes:
        """Return the plan as bytes; `decoded` reads them."""
        held = [astuple(task) for task in self.held]
        return json.dumps(
            [
                self.lease_id,
                self.start,
                self.end,
                self.rate,
                held,
                self.unit,
                self.weights,
                self.compares,
            ]
        ).encode()

    @staticmethod
    def decoded(raw: bytes) -> StepPlan:
        """Return the plan that `encoded` wrote. Raises ValueError for other bytes."""
        try:
            lease_id, start, end, rate, held, *rest = json.loads(raw)
            tasks = tuple(GroupTask(*task) for task in held)
            unit, weights, compares = rest
        except (TypeError, ValueError) as error:
            raise ValueError(f"got no plan of a step: {error}") from error
        return StepPlan(
            lease_id, start, end, rate, tasks, unit, tuple(weights), compares
        )


@dataclass
class Totals:
    """What the group made of a task so far."""

    reached: int  # the record that comes next
    steps: int = 0
    records: int = 0  # that were read
    # Steps with bad records, [start, end): who reports the task names these.
    bad: list[tuple[int, int]] = field(default_factory=list)
    rows: int = 0  # that were trained
    skipped_rows: int = 0
    skipped_steps: int = 0
    loss_sum: float = 0.0  # of the steps
    reported: bool = False
    shares: dict[int, int] = field(default_factory=dict)  # member -> records it took

    def took(self, shares: Iterable[tuple[int, int]]) -> None:
        """Add who took how many records of a step."""
        for member, records in shares:
            self.shares[member] = self.shares.get(member, 0) + records

    @staticmethod
    def of(tree: Mapping[str, Any]) -> Totals:
        """Return what `asdict` made; JSON has no numbers as keys."""
        shares = {int(member): count for member, count in tree["shares"].items()}
        bad = [(start, end) for start, end in tree["bad"]]
        return Totals(**{**tree, "shares": shares, "bad": bad})


@dataclass(frozen=True)
class Outcome:
    """What all members together made of a step's records."""

    records: int
    rows: int
    loss: float
    skipped: bool = False
    bad: int = 0  # of the records, left out (data.onBadRecord)
    shares: tuple[tuple[int, int], ...] = ()  # member, records of the plan it took


@dataclass
class Work:
    """How far the group is in the tasks that it holds, and the model's version."""

    version: int = 0
    rate: float | None = None  # what the optimizer's was set to last
    tasks: dict[int, GroupTask] = field(default_factory=dict)  # by lease
    totals: dict[int, Totals] = field(default_factory=dict)  # by lease
    applied: OrderedDict[int, int] = field(default_factory=OrderedDict)
    # By lease, of the newest that were put aside. A leader that was lost may have told
    # some members alone that a task was reported: whoever leads next names it again.
    aside: OrderedDict[int, Totals] = field(default_factory=OrderedDict)

    def add(self, tasks: Iterable[GroupTask]) -> None:
        """Add tasks that the group was leased; those it has are left alone."""
        for task in tasks:
            if task.lease_id not in self.tasks:
                self.tasks[task.lease_id] = task
                known = self.aside.pop(task.lease_id, None)
                self.totals[task.lease_id] = known or Totals(reached=task.start)
        self.tasks = dict(sorted(self.tasks.items()))

    def keep(self, leases: Collection[int]) -> None:
        """Put all tasks aside but these."""
        for lease_id in sorted(set(self.tasks) - set(leases)):
            del self.tasks[lease_id]
            self.aside[lease_id] = self.totals.pop(lease_id)
        while len(self.aside) > _MOST_ASIDE:
            self.aside.popitem(last=False)

    def unfinished(self) -> list[GroupTask]:
        """Return the tasks with records that are in no step yet."""
        return [
            task
            for task in self.tasks.values()
            if self.totals[task.lease_id].reached < task.end
        ]

    def finished(self) -> list[GroupTask]:
        """Return the tasks whose records are all in steps that were made."""
        return [
            task
            for task in self.tasks.values()
            if self.totals[task.lease_id].reached >= task.end
        ]

    def plan(self, records: int, *, rate: float | None = None) -> StepPlan:
        """Return the next `records` records of a task, or those that are left of it.

        Asked again before `made`, the answer is the same.
        """
        held = tuple(self.tasks.values())
        task = next(iter(self.unfinished()), None)
        if task is None or records <= 0:
            return StepPlan(held=held)
        start = self.totals[task.lease_id].reached
        end = min(start + records, task.end)
        return StepPlan(task.lease_id, start, end, rate, held)

    def following(self, plan: StepPlan, records: int) -> Iterator[StepPlan]:
        """Yield the plans that will follow one, as far as tasks are known."""
        begins = {plan.lease_id: plan.end} if plan.lease_id in self.tasks else {}
        for task in self.unfinished():
            begins.setdefault(task.lease_id, self.totals[task.lease_id].reached)
        for lease_id, begin in begins.items():
            last = self.tasks[lease_id].end
            for start in range(begin, last, records) if records > 0 else ():
                yield StepPlan(
                    lease_id,
                    start,
                    min(start + records, last),
                    unit=plan.unit,
                    weights=plan.weights,
                )

    def follow(self, plan: StepPlan, *, leads: bool = False) -> None:
        """Take over which tasks the group has, from the member that leads.

        `leads`: this one does. It may have been leased more since the plan was made,
        which is earlier than it is followed where a round changes; then it only takes
        what an earlier leader's plan names.
        """
        if leads and (not plan.lease_id or plan.lease_id in self.tasks):
            return
        self.add(plan.held)
        if not leads:
            self.keep([task.lease_id for task in plan.held])

    def made(self, plan: StepPlan, outcome: Outcome) -> None:
        """Note that a step was made.

        Of records that the feed leaves out altogether nothing is trained: that is no
        step, as it is none in Keras.
        """
        self.rate = self.rate if plan.rate is None else plan.rate
        task, totals = self.tasks.get(plan.lease_id), self.totals.get(plan.lease_id)
        if task is None or totals is None:
            return
        totals.reached = plan.end
        totals.records += outcome.records
        if outcome.bad:
            totals.bad.append((plan.start, plan.end))
        totals.took(outcome.shares)
        if outcome.skipped:
            totals.skipped_steps += 1
            totals.skipped_rows += outcome.rows
        elif outcome.rows:
            totals.steps += 1
            totals.rows += outcome.rows
            totals.loss_sum += outcome.loss
            self.version += 1
        self.applied[task.task_id] = plan.end - task.start
        self.applied.move_to_end(task.task_id)
        if len(self.applied) > REMEMBERED_TASKS:
            self.applied.popitem(last=False)

    def encoded(self) -> bytes:
        """Return all of it as bytes; `decoded` reads them."""
        return json.dumps(
            {
                "version": self.version,
                "rate": self.rate,
                "tasks": [astuple(task) for task in self.tasks.values()],
                "totals": {k: asdict(v) for k, v in self.totals.items()},
                "applied": list(self.applied.items()),
                "aside": {k: asdict(v) for k, v in self.aside.items()},
            }
        ).encode()

    @staticmethod
    def decoded(raw: bytes) -> Work:
        """Return what `encoded` wrote, nothing of it reported.

        Its sender may be lost before its reports arrive. Raises ValueError for other
        bytes.
        """
        try:
            tree = json.loads(raw)
            tasks = [GroupTask(*task) for task in tree["tasks"]]
            totals, aside = (
                [(int(k), Totals.of({**v, "reported": False})) for k, v in of.items()]
                for of in (tree["totals"], tree["aside"])
            )
            return Work(
                tree["version"],
                tree["rate"],
                {task.lease_id: task for task in tasks},
                dict(totals),
                OrderedDict((k, v) for k, v in tree["applied"]),
                OrderedDict(aside),
            )
        except (TypeError, KeyError, ValueError) as error:
            raise ValueError(f"got no state of a group's work: {error}") from error


@dataclass(frozen=True)
class StepSize:
    """How many records a step has, and what the rate is multiplied by.

    Attributes:
        each: Records of each member; 0: a step's records do not depend on them.
        rule: How the learning rate follows the number of members.
    """

    each: int = 0
    rule: RateRule = RateRule.NONE

    def records(self, told: int, members: int) -> int:
        """Return a step's records; `told`: those that it had as the job began."""
        return self.each * members if self.each and told else told

    def scale(self, told: int, members: int) -> float:
        """Return by what the rate is multiplied for this number of members."""
        if self.rule is RateRule.NONE or not told or not members:
            return 1.0
        times = self.records(told, members) / told
        return times if self.rule is RateRule.LINEAR else math.sqrt(times)


def divide(records: int, weights: Sequence[float]) -> list[int]:
    """Divide a number of records by weights (largest remainder); earlier ones win ties.

    Every member computes the same from the same weights. Raises ValueError for weights
    that are no shares.
    """
    total = sum(weights)
    if not weights or min(weights) < 0 or total <= 0:
        raise ValueError(f"got the weights {list(weights)}; expected shares above 0")
    exact = [records * weight / total for weight in weights]
    counts = [int(share) for share in exact]
    by_rest = sorted(range(len(exact)), key=lambda i: (counts[i] - exact[i], i))
    for i in by_rest[: records - sum(counts)]:
        counts[i] += 1
    return counts


def shares(plan: StepPlan, members: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Return how many records of a step each of these members takes."""
    counts = _counts(plan, len(members))
    return tuple((m, n) for m, n in zip(members, counts, strict=True) if n)


def share(plan: StepPlan, rank: int, members: int) -> tuple[int, int]:
    """Return the records [start, end) of a step that the member of a rank takes."""
    counts = _counts(plan, members)
    start = plan.start + sum(counts[:rank])
    return start, start + counts[rank]


def _counts(plan: StepPlan, members: int) -> list[int]:
    """Return by rank how many records of a step a member takes."""
    whole, rest = divmod(plan.records, plan.unit)
    weights = plan.weights if len(plan.weights) == members else [1.0] * members
    counts = [units * plan.unit for units in divide(whole + bool(rest), weights)]
    if rest:  # what is no whole unit is the last records
        last = max(rank for rank, count in enumerate(counts) if count)
        counts[last] -= plan.unit - rest
    return counts
