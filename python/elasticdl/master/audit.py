"""Proof from the journal: how often each range of records was trained, and by whom.

Owns the count. Called by `elasticdl audit` and by fault tests. Independent of the task
queue on purpose: it counts ranges against the sources' lengths, so that a mistake in
the queue shows here. Must not change the journal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from elasticdl.errors import JournalError
from elasticdl.job.names import Role, replica_name
from elasticdl.master.journal_files import Event, read_events
from elasticdl.master.task_queue import Plan


@dataclass(frozen=True)
class Trained:
    """One task that a worker finished. `valid`: not undone by a later rewind."""

    task_id: int
    epoch: int
    source: str
    start: int
    end: int
    worker: str
    valid: bool = True


@dataclass(frozen=True)
class Gap:
    """Records [start, end) of a source that a finished epoch missed."""

    epoch: int
    source: str
    start: int
    end: int


@dataclass(frozen=True)
class ReplayCause:
    """Records given out again, by cause."""

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


@dataclass(frozen=True)
class AuditReport:
    """The whole job."""

    epochs: list[EpochAudit]
    gaps: list[Gap]
    replays: list[ReplayCause]
    late_reports: int
    master_restarts: int
    rewinds: int
    trained: list[Trained] = field(repr=False)

    @property
    def ok(self) -> bool:
        """Whether no finished epoch missed a record."""
        return not self.gaps


@dataclass
class _Count:
    """What has been read so far."""

    plan: Plan | None = None
    tasks_per_epoch: int = 0
    leases: dict[int, Event] = field(default_factory=dict)
    trained: list[Trained] = field(default_factory=list)
    given_out: dict[int, int] = field(default_factory=dict)  # epoch -> tasks
    outstanding: dict[int, Event] = field(default_factory=dict)  # task -> lease
    causes: Counter[str] = field(default_factory=Counter)
    cause_records: Counter[str] = field(default_factory=Counter)
    cursor: int = 0
    late: int = 0
    opened: int = 0
    rewinds: int = 0
    cut_short: bool = False
    succeeded: bool = False


def audit(journal_dir: Path) -> AuditReport:
    """Read the whole journal. Raises JournalError if it is missing or damaged."""
    if not journal_dir.is_dir():
        raise JournalError(
            f"{journal_dir}: no journal there; was the job ever started?"
        )
    count = _Count()
    for _, event in read_events(journal_dir):
        handler = _HANDLERS.get(event["k"])
        if handler:
            handler(count, event)
    return _report(count)


def _on_open(count: _Count, event: Event) -> None:
    del event
    count.opened += 1


def _on_plan(count: _Count, event: Event) -> None:
    count.plan = plan = Plan.from_json(event["plan"])
    size = plan.batch_size * plan.batches_per_task
    count.tasks_per_epoch = sum(-(-s.num_records // size) for s in plan.shards)


def _on_epochs(count: _Count, event: Event) -> None:
    if count.plan is not None:
        count.plan = replace(count.plan, epochs=event["n"])


def _on_lease(count: _Count, event: Event) -> None:
    if "i" not in event:  # nothing was left to give out
        return
    count.leases[event["l"]] = event
    count.outstanding[event["i"]] = event
    count.cursor = max(count.cursor, event["i"] + 1)
    if "c" in event:
        count.causes[event["c"]] += 1
        count.cause_records[event["c"]] += event["b"] - event["a"]


def _on_done(count: _Count, event: Event) -> None:
    lease = count.leases.pop(event["l"], None)
    if lease is None or "late" in event:
        count.late += 1
        return
    count.outstanding.pop(lease["i"], None)
    count.trained.append(
        Trained(
            lease["i"],
            lease["e"],
            lease["s"],
            lease["a"],
            lease["b"],
            replica_name(Role.WORKER, lease["w"]),
        )
    )


def _on_rewind(count: _Count, event: Event) -> None:
    """What is after the position is undone, but for the prefixes in the parameters."""
    count.rewinds += 1
    position = event["p"]
    again = {task["task_id"]: task for task in position["waiting"]}
    holders = {one.task_id: one.worker for one in count.trained}
    holders.update(
        (lease["i"], replica_name(Role.WORKER, lease["w"]))
        for lease in count.leases.values()
    )
    count.trained = [
        one if _survives(one, position["cursor"], again) else replace(one, valid=False)
        for one in count.trained
    ]
    count.leases.clear()  # reports of them count no more
    for task_id, source, start, end, epoch in event["cr"]:
        worker = holders.get(task_id, "?")
        count.trained.append(Trained(task_id, epoch, source, start, end, worker))
    count.cursor = event["cu"]
    count.outstanding = {task_id: {"e": epoch} for task_id, epoch in event["wt"]}


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
    if event["kind"] == "state" and event["data"].get("state") == "succeeded":
        count.succeeded = True


_HANDLERS = {
    "open": _on_open,
    "plan": _on_plan,
    "epochs": _on_epochs,
    "lease": _on_lease,
    "done": _on_done,
    "rewind": _on_rewind,
    "stop": _on_stop,
    "note": _on_note,
}


def _report(count: _Count) -> AuditReport:
    plan = count.plan
    epochs: list[EpochAudit] = []
    gaps: list[Gap] = []
    if plan is not None:
        open_epochs = {lease["e"] for lease in count.outstanding.values()}
        for epoch in _epochs(count, plan):
            whole = count.cursor >= (epoch + 1) * count.tasks_per_epoch
            # A job that says it succeeded has to have trained every epoch it was
            # asked for, whatever the queue believed.
            promised = (
                count.succeeded
                and not count.cut_short
                and not plan.max_steps
                and epoch < plan.epochs
            )
            finished = promised or (whole and epoch not in open_epochs)
            mine = [t for t in count.trained if t.epoch == epoch]
            times, missed = _coverage(plan, [t for t in mine if t.valid])
            if finished and not (plan.max_steps and not whole):
                gaps += [Gap(epoch, s, a, b) for s, a, b in missed]
            by_worker: Counter[str] = Counter()
            for one in mine:
                by_worker[one.worker] += one.end - one.start
            epochs.append(
                EpochAudit(
                    epoch=epoch,
                    finished=finished,
                    records=plan.records_per_epoch,
                    times=dict(sorted(times.items())),
                    by_worker=dict(sorted(by_worker.items())),
                    undone=sum(t.end - t.start for t in mine if not t.valid),
                )
            )
    return AuditReport(
        epochs=epochs,
        gaps=gaps,
        replays=[
            ReplayCause(cause, tasks, count.cause_records[cause])
            for cause, tasks in count.causes.most_common()
        ],
        late_reports=count.late,
        master_restarts=max(0, count.opened - 1),
        rewinds=count.rewinds,
        trained=count.trained,
    )


def _epochs(count: _Count, plan: Plan) -> Iterable[int]:
    seen = -(-count.cursor // count.tasks_per_epoch) if count.tasks_per_epoch else 0
    promised = plan.epochs if count.succeeded and not count.cut_short else 0
    return range(max(seen, 0 if plan.max_steps else promised))


def _coverage(
    plan: Plan, trained: list[Trained]
) -> tuple[Counter[int], list[tuple[str, int, int]]]:
    """Return how many records were trained how often, and the ranges never trained."""
    by_source: dict[str, list[Trained]] = {}
    for one in trained:
        by_source.setdefault(one.source, []).append(one)
    times: Counter[int] = Counter()
    missed = []
    for shard in plan.shards:
        mine = by_source.get(shard.source, [])
        for start, end, often in _sweep(shard.start, shard.end, mine):
            times[often] += end - start
            if not often:
                missed.append((shard.source, start, end))
    return times, missed


def _sweep(
    start: int, end: int, trained: list[Trained]
) -> Iterator[tuple[int, int, int]]:
    """Yield (start, end, times) over [start, end), neighbours of equal times merged."""
    steps: Counter[int] = Counter()
    for one in trained:
        steps[max(one.start, start)] += 1
        steps[min(one.end, end)] -= 1
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
        "epochs": [vars(epoch) for epoch in report.epochs],
        "gaps": [vars(gap) for gap in report.gaps],
        "replays": [vars(one) for one in report.replays],
        "late_reports": report.late_reports,
        "master_restarts": report.master_restarts,
        "rewinds": report.rewinds,
    }
