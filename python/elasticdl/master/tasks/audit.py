"""Proof from the journal: how often each range of records was trained, and by whom.

Owns the verdict. Called by `elasticdl audit` and by fault tests. Believes neither the
task queue nor a worker: what happened to each task is followed event by event
(`master.tasks.audit_tasks`) and compared with the sources' lengths, the plan's steps
and what the workers say that they made of the records. Must not change the journal.

It reads as a stream, and holds some 15 bytes for each task.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from elasticdl.errors import JournalError
from elasticdl.job.names import Role, replica_name
from elasticdl.job.plain import plain
from elasticdl.job.words import JobState
from elasticdl.master.tasks import facts, model_facts
from elasticdl.master.tasks.audit_tasks import DONE, NEW, Range, Tasks
from elasticdl.master.tasks.journal_files import Event, read_events
from elasticdl.master.tasks.queue_plan import QueuePlan


@dataclass(frozen=True)
class Trained:
    """A task that a worker finished. `valid`: no later rewind undid it."""

    task_id: int
    epoch: int
    source: str
    start: int
    end: int
    worker: str
    valid: bool = True


@dataclass(frozen=True)
class Gap:
    """Records [start, end) of a source missing in a finished epoch."""

    epoch: int
    source: str
    start: int
    end: int


@dataclass(frozen=True)
class ReplayCause:
    """Records handed out again, by cause; they may have been trained in part before."""

    cause: str
    tasks: int
    records: int


@dataclass(frozen=True)
class EpochAudit:
    """One epoch: how many records were trained how often."""

    epoch: int
    finished: bool
    records: int  # in the data
    times: dict[int, int]  # trained so often (valid trainings) -> records
    by_worker: dict[str, int]  # records
    undone: int  # records trained and undone by a rewind
    rows: int | None = None  # that `feed` made and were trained; None: not all told
    bad: int = 0  # records left out because they could not be read or parsed
    skipped: int = 0  # rows left out because their loss was not finite

    @property
    def filtered(self) -> int:
        """Records without a row from `feed`; negative if it made additional rows."""
        if self.rows is None:
            return 0
        taken = sum(records for often, records in self.times.items() if often)
        return taken - self.bad - self.skipped - self.rows


@dataclass(frozen=True)
class AuditReport:
    """The whole job."""

    epochs: list[EpochAudit]
    gaps: list[Gap]
    replays: list[ReplayCause]
    late_reports: int  # of leases that had moved on: applied, and done again by others
    master_restarts: int
    rewinds: int
    trained: list[Trained] = field(repr=False)  # only if asked for
    faults: list[str] = field(default_factory=list)  # broken rules, in words
    late_records: int = 0
    lost_updates: int = 0  # that died with a PS in async mode

    @property
    def once(self) -> bool:
        """Whether each record was trained exactly once."""
        again = any(often > 1 for epoch in self.epochs for often in epoch.times)
        out = any(epoch.bad or epoch.skipped or epoch.filtered for epoch in self.epochs)
        lost = self.late_reports or self.lost_updates
        return not (again or out or self.replays or lost)

    @property
    def ok(self) -> bool:
        """Whether no finished epoch missed a record and all rules held."""
        return not self.gaps and not self.faults


@dataclass
class _Count:
    """Counts while reading."""

    trained: list[Trained] | None
    plan: QueuePlan | None = None
    tasks: Tasks | None = None
    holders: dict[int, str] = field(default_factory=dict)
    members: dict[int, int] = field(default_factory=dict)  # generation -> index
    causes: Counter[str] = field(default_factory=Counter)
    cause_records: Counter[str] = field(default_factory=Counter)
    opened: int = 0  # by masters
    launched: int = 0  # whose first master took nobody's place
    rewinds: int = 0
    lost_updates: int = 0
    cut_short: bool = False
    succeeded: bool = False


def audit(journal_dir: Path, *, list_trained: bool = False) -> AuditReport:
    """Read the whole journal. Raises JournalError if it is missing or damaged.

    `list_trained`: keep each finished task, which takes memory.
    """
    if not journal_dir.is_dir():
        raise JournalError(
            f"{journal_dir}: no journal there; was the job ever started?"
        )
    count = _Count([] if list_trained else None)
    for _, event in read_events(journal_dir):
        handler = _HANDLERS.get(event["k"])
        if handler:
            handler(count, event)
    return _report(count)


def _on_open(count: _Count, event: Event) -> None:
    del event
    count.opened += 1


def _on_plan(count: _Count, event: Event) -> None:
    count.plan = QueuePlan.from_json(event["plan"])
    count.tasks = Tasks(count.plan, count.members)


def _on_epochs(count: _Count, event: Event) -> None:
    if count.plan is not None:
        count.plan = replace(count.plan, epochs=event["n"])


def _on_lease(count: _Count, event: Event) -> None:
    if "i" not in event:  # nothing was left to give out
        return
    _tasks(count).lease(event)
    if "c" in event:
        count.causes[event["c"]] += 1
        count.cause_records[event["c"]] += event["b"] - event["a"]
    if count.trained is not None:
        count.holders[event["i"]] = replica_name(Role.WORKER, event["w"])


def _on_done(count: _Count, event: Event) -> None:
    tasks = _tasks(count)
    task_id = tasks.done(event)
    if task_id is not None and count.trained is not None:
        count.trained.append(_trained(count, task_id, *tasks.range_of(task_id)))


def _trained(count: _Count, task_id: int, start: int, end: int) -> Trained:
    tasks = _tasks(count)
    source, _, _ = tasks.grid.portion(tasks.places[task_id])
    worker = count.holders.get(task_id, "?")
    return Trained(task_id, tasks.epoch_of(task_id), source, start, end, worker)


def _on_back(count: _Count, event: Event) -> None:
    _tasks(count).back(event)


def _on_over(count: _Count, event: Event) -> None:
    task_id = _tasks(count).task_of(event["l"])
    if task_id is not None and count.trained is not None:
        count.holders[task_id] = replica_name(Role.WORKER, event["w"])


def _on_rewind(count: _Count, event: Event) -> None:
    count.rewinds += 1
    if not event["p"]:
        return
    position = event["p"]
    count.cut_short = position["stopped"]
    _tasks(count).rewind(event)
    if count.trained is None:
        return
    again = {task["task_id"]: task for task in position["waiting"]}
    count.trained = [
        one if _survives(one, position["cursor"], again) else replace(one, valid=False)
        for one in count.trained
    ]
    for task_id, _source, start, end, _epoch in event["cr"]:
        count.trained.append(_trained(count, task_id, start, end))


def _survives(one: Trained, cursor: int, again: dict[int, Event]) -> bool:
    task = again.get(one.task_id)
    if task is None:
        return one.task_id < cursor
    # Given out again from `start` on: only a prefix credited before is not.
    return bool(one.end <= task["start"])


def _on_stop(count: _Count, event: Event) -> None:
    del event
    count.cut_short = True


def _on_note(count: _Count, event: Event) -> None:
    fact = facts.read(event["kind"], event["data"])
    if isinstance(fact, facts.JobStateFact):
        count.succeeded = fact.state is JobState.SUCCEEDED
    elif isinstance(fact, facts.RunFact):
        count.launched += 1
    elif isinstance(fact, model_facts.LostUpdatesFact):
        count.lost_updates += fact.count
    elif isinstance(fact, model_facts.GroupRoundFact):
        count.members.update({one.number: one.index for one in fact.members})


def _tasks(count: _Count) -> Tasks:
    if count.tasks is None:
        raise JournalError("a task event before the plan: the journal is damaged")
    return count.tasks


_HANDLERS = {
    "open": _on_open,
    "plan": _on_plan,
    "epochs": _on_epochs,
    "lease": _on_lease,
    "done": _on_done,
    "back": _on_back,
    "over": _on_over,
    "rewind": _on_rewind,
    "stop": _on_stop,
    "note": _on_note,
}


def _report(count: _Count) -> AuditReport:
    plan, tasks = count.plan, count.tasks
    epochs: list[EpochAudit] = []
    gaps: list[Gap] = []
    faults: list[str] = []
    if plan is not None and tasks is not None:
        faults = list(tasks.faults)
        # A job that says it succeeded has to have trained all that it was asked for,
        # whatever the queue believed.
        promised = count.succeeded and not count.cut_short
        faults += _too_few_steps(tasks, plan) if promised else []
        look = _Look(tasks, promised, plan)
        for epoch in range(look.epochs):
            one, missed = look.at(epoch)
            epochs.append(one)
            gaps += missed
    # Who reads it may have more rights than the job's code, which can write journals.
    return AuditReport(
        epochs=epochs,
        gaps=[replace(one, source=plain(one.source)) for one in gaps],
        replays=[
            ReplayCause(plain(str(cause)), number, count.cause_records[cause])
            for cause, number in count.causes.most_common()
        ],
        late_reports=tasks.late if tasks else 0,
        master_restarts=max(0, count.opened - max(1, count.launched)),
        rewinds=count.rewinds,
        trained=count.trained or [],
        faults=[plain(one) for one in faults],
        late_records=tasks.late_records if tasks else 0,
        lost_updates=count.lost_updates,
    )


def _too_few_steps(tasks: Tasks, plan: QueuePlan) -> list[str]:
    all_given_out = plan.epochs and tasks.given_out >= plan.epochs * tasks.grid.places
    if not plan.max_steps or all_given_out:
        return []
    steps = tasks.steps()
    if steps >= plan.max_steps:
        return []
    return [
        f"the job succeeded with tasks of {steps} steps, expected {plan.max_steps} "
        "(maxSteps)"
    ]


class _Look:
    """Examines one epoch after another, after all events are counted."""

    def __init__(self, tasks: Tasks, promised: bool, plan: QueuePlan) -> None:
        self._tasks = tasks
        self._plan = plan
        self._promised = promised
        self._per_epoch = tasks.grid.places
        self._lengths = tasks.grid.lengths()
        self._state = np.array(tasks.state, np.uint8)
        self._places = np.array(tasks.places, np.int32)
        self._rows = np.array(tasks.rows, np.int32)
        self._odd: dict[int, list[int]] = {}
        for task_id in tasks.odd:
            self._odd.setdefault(task_id // self._per_epoch, []).append(task_id)
        self._left: dict[int, list[int]] = {}
        for task_id in tasks.left:
            self._left.setdefault(task_id // self._per_epoch, []).append(task_id)
        begun = -(-tasks.given_out // self._per_epoch)
        asked = plan.epochs if promised and not plan.max_steps else 0
        self.epochs = max(begun, asked)

    def at(self, epoch: int) -> tuple[EpochAudit, list[Gap]]:
        """Return the audit of an epoch, and its gaps if it is finished."""
        tasks = self._tasks
        first = epoch * self._per_epoch
        last = min(first + self._per_epoch, len(tasks))
        state = self._state[first:last]
        odd = self._odd.get(epoch, [])
        every = self._promised and not self._plan.max_steps
        every = every and epoch < self._plan.epochs
        cut = any(tasks.odd[task_id].cut for task_id in odd)
        whole = bool(len(state) == self._per_epoch and (state != NEW).all())
        finished = every or (whole and not cut and bool((state == DONE).all()))
        # Tasks that a rewind left to nobody are missed as well.
        passed = tasks.given_out >= first + self._per_epoch
        stray = passed and not cut and bool(np.isin(state, (NEW, DONE)).all())
        times, missed = self._coverage(first, last, odd)
        gaps: list[Gap] = []
        if finished or stray:
            gaps = [Gap(epoch, source, a, b) for source, a, b in missed]
        elif self._promised and self._plan.max_steps:
            gaps = list(self._unfinished(epoch, first, last))
        by_worker = tasks.by_worker.get(epoch, Counter())
        done = state == DONE
        rows = self._rows[first:last][done]
        told = bool(len(rows)) and bool((rows >= 0).all())
        partly = any(tasks.odd[task_id].parts for task_id in odd)
        left = [tasks.left[task_id] for task_id in self._left.get(epoch, [])]
        return (
            EpochAudit(
                epoch=epoch,
                finished=finished or stray,
                records=self._plan.records_per_epoch,
                times=dict(sorted(times.items())),
                by_worker={
                    replica_name(Role.WORKER, worker): records
                    for worker, records in sorted(by_worker.items())
                },
                undone=tasks.undone[epoch],
                rows=int(rows.sum()) if told and not partly else None,
                bad=sum(one.bad for one in left),
                skipped=sum(one.skipped for one in left),
            ),
            gaps,
        )

    def _unfinished(self, epoch: int, first: int, last: int) -> Iterator[Gap]:
        """Yield what a job that succeeded by its steps never got back."""
        waiting = (self._state[first:last] != DONE) & (self._places[first:last] >= 0)
        for task_id in (np.flatnonzero(waiting) + first).tolist():
            source, _, _ = self._tasks.grid.portion(self._tasks.places[task_id])
            yield Gap(epoch, source, *self._tasks.range_of(task_id))

    def _coverage(
        self, first: int, last: int, odd: list[int]
    ) -> tuple[Counter[int], list[tuple[str, int, int]]]:
        """Return how many records were trained how often, and the untrained ranges."""
        tasks, grid = self._tasks, self._tasks.grid
        plain = self._state[first:last] == DONE
        plain[np.array(odd, np.int64) - first] = False
        places = self._places[first:last][plain]
        often = np.bincount(places, minlength=self._per_epoch)
        ranges: dict[int, list[Range]] = {}
        for task_id in odd:
            place = tasks.places[task_id]
            if place >= 0:
                mine = ranges.setdefault(place, [])
                mine += tasks.odd[task_id].parts
                if tasks.state[task_id] == DONE:
                    mine.append(tasks.range_of(task_id))
        whole = np.ones(self._per_epoch, bool)
        whole[list(ranges)] = False
        times: Counter[int] = Counter()
        for number in np.unique(often[whole]).tolist():
            times[number] += int(self._lengths[whole & (often == number)].sum())
        missed = [
            grid.portion(p) for p in np.flatnonzero(whole & (often == 0)).tolist()
        ]
        for place, mine in ranges.items():
            source, start, end = grid.portion(place)
            full = [(start, end)] * int(often[place])
            for a, b, number in _sweep(start, end, [*mine, *full]):
                times[number] += b - a
                if not number:
                    missed.append((source, a, b))
        return times, list(_joined(missed))


def _joined(ranges: list[tuple[str, int, int]]) -> Iterator[tuple[str, int, int]]:
    """Yield the ranges, adjacent ones merged."""
    last: tuple[str, int, int] | None = None
    for source, start, end in sorted(ranges):
        if last is not None and (last[0], last[2]) == (source, start):
            last = (source, last[1], end)
            continue
        if last is not None:
            yield last
        last = (source, start, end)
    if last is not None:
        yield last


def _sweep(
    start: int, end: int, trained: list[Range]
) -> Iterator[tuple[int, int, int]]:
    """Yield (start, end, times) over [start, end), merged where times are equal."""
    steps: Counter[int] = Counter()
    for one_start, one_end in trained:
        steps[max(one_start, start)] += 1
        steps[min(one_end, end)] -= 1
    begin, often = start, 0
    for place in sorted(steps):
        if steps[place] == 0:
            continue
        if place > begin:
            yield begin, place, often
            begin = place
        often += steps[place]
    if begin < end:
        yield begin, end, often


def to_json(report: AuditReport) -> dict[str, Any]:
    """Return the report as plain data, without the list of all trainings."""
    return {
        "ok": report.ok,
        "epochs": [
            {**vars(epoch), "filtered": epoch.filtered} for epoch in report.epochs
        ],
        "gaps": [vars(gap) for gap in report.gaps],
        "faults": report.faults,
        "replays": [vars(one) for one in report.replays],
        "late_reports": report.late_reports,
        "late_records": report.late_records,
        "lost_updates": report.lost_updates,
        "master_restarts": report.master_restarts,
        "rewinds": report.rewinds,
    }
