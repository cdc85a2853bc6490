"""Evaluation rounds: opened when due, one at a time, on a pinned version.

Owns the round under way and the results. Called by the loop (ticks), heartbeats
(snapshots) and `master.leasing` (reports). Must not know RPC or launch anything.

A round: the PS pin a snapshot; tasks go out beside training; their metric states are
added; one SUMMARIZE task turns the sums into figures; callbacks see them; where a
callback keeps the model, an EXPORT task writes it from the snapshot.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from elasticdl.data.reader import Shard
from elasticdl.job.spec import JobSpec
from elasticdl.job.status import EvaluationResult
from elasticdl.master import evaluation
from elasticdl.master.callbacks import Action, CallbackSet, KeepBest
from elasticdl.master.course import point
from elasticdl.master.evaluation import EvaluationSchedule, MetricSums
from elasticdl.master.ledger import Ledger
from elasticdl.master.side_tasks import SideTasks
from elasticdl.master.signals import Signals
from elasticdl.proto import master_pb2, ps_pb2
from elasticdl.proto.master_pb2 import Task, TaskReport

log = logging.getLogger(__name__)

BEST = "best"


@dataclass
class Round:
    """The round under way."""

    number: int
    why: str
    since: float
    epochs_done: int
    version: int
    snapshot: str = ""
    pinned: dict[int, master_pb2.SnapshotDone] = field(default_factory=dict)
    started: bool = False
    left: int = 0
    sums: MetricSums = field(default_factory=MetricSums)
    keeping: bool = False  # the best model is being exported
    point: str = ""  # of training, when it was opened

    @property
    def ticket(self) -> ps_pb2.Ticket | None:
        """Names the pinned version in sync mode, once PS 0 told it."""
        first = self.pinned.get(0)
        return first.ticket if first and first.HasField("ticket") else None


class Rounds:
    """Evaluation of one job."""

    def __init__(
        self,
        spec: JobSpec,
        ledger: Ledger,
        signals: Signals,
        side: SideTasks,
        *,
        num_ps: int,
        on_action: Callable[[Action], None],
        now: float,
    ) -> None:
        """Take up the results of earlier masters. `on_action`: what callbacks want."""
        self._ledger = ledger
        self._signals = signals
        self._side = side
        self._num_ps = num_ps
        self._on_action = on_action
        self._shards: tuple[Shard, ...] = ()
        self._records_per_task = (
            spec.training.batch_size * spec.training.batches_per_task
        )
        self._export = bool(spec.export.dir)
        self.callbacks = CallbackSet()
        self.results = [EvaluationResult(**n) for n in ledger.notes("evaluation")]
        self._epochs_evaluated = max(
            (n["epochs_done"] for n in ledger.notes("round")), default=0
        )
        self.schedule = EvaluationSchedule(
            spec.evaluation, started=now, epochs_done=self._epochs_evaluated
        )
        self._number = ledger.generation * 1_000_000
        self._again = ""
        self.current: Round | None = None

    @property
    def possible(self) -> bool:
        """Whether there is something to evaluate on."""
        return bool(self._shards)

    @property
    def last(self) -> EvaluationResult | None:
        """The newest result."""
        return self.results[-1] if self.results else None

    def records(self) -> tuple[int, int]:
        """Return how many records the newest round has evaluated, and of how many."""
        total = sum(shard.num_records for shard in self._shards)
        if self.current is not None:
            return self.current.sums.records, total
        return self.last.records if self.last else 0, total

    def begin(self, shards: Sequence[Shard], callbacks: CallbackSet) -> None:
        """Data and callbacks are known: replay what was seen, then rounds may open."""
        self._shards = tuple(shards)
        self.callbacks = callbacks
        for result in self.results:
            for action in callbacks.on_evaluation(result.metrics):
                if not isinstance(action, KeepBest):
                    self._on_action(action)

    # -- opening ------------------------------------------------------------------

    def tick(self, *, version: int, epochs_done: int, now: float) -> None:
        """Open a round if one is due and none is under way."""
        if self.current is not None or not self.possible:
            return
        why, self._again = self._again, ""
        why = why or (
            self.schedule.due(version=version, epochs_done=epochs_done, now=now) or ""
        )
        if why:
            self.open(why, version=version, epochs_done=epochs_done, now=now)

    def open(self, why: str, *, version: int, epochs_done: int, now: float) -> None:
        """Open a round: pin a snapshot, or begin at once where no PS is."""
        self._number += 1
        self.schedule.opened(version=version, epochs_done=epochs_done, now=now)
        self.current = Round(
            self._number, why, now, epochs_done, version, point=point(self._ledger)
        )
        if self._num_ps:
            self.current.snapshot = f"eval-{self._number}"
            self._signals.bump_holders()
        else:
            self._start()

    def requests(self, index: int) -> list[master_pb2.SnapshotRequest]:
        """Return the snapshots that a PS has to keep for the round."""
        current = self.current
        if current is None or not current.snapshot:
            return []
        request = master_pb2.SnapshotRequest(id=current.snapshot)
        if index and 0 not in current.pinned:
            # In sync mode the version comes from PS 0; in async mode it costs one
            # heartbeat, and the shards lie no further apart.
            return []
        if index and current.ticket is not None:
            request.ticket.SetInParent()  # that of version 0 is empty
            request.ticket.CopyFrom(current.ticket)
        return [request]

    def take(self, index: int, done: master_pb2.SnapshotDone) -> None:
        """Take a PS's word that it has pinned a snapshot."""
        current = self.current
        if current is None or done.id != current.snapshot or index in current.pinned:
            return
        if done.error:
            log.warning("evaluation put off: ps-%d: %s", index, done.error)
            self.abort()
            return
        current.pinned[index] = done
        if index == 0:
            current.version = done.version
            self._signals.bump_holders()
        if len(current.pinned) == self._num_ps and not current.started:
            self._start()

    def _start(self) -> None:
        current = self.current
        if current is None:
            return
        current.started = True
        size = self._records_per_task
        current.left = sum(-(-s.num_records // size) for s in self._shards)
        self._side.add_lazily(self._tasks(current))
        self._signals.work()

    def _tasks(self, current: Round) -> Iterator[Task]:
        for shard in evaluation.cut(self._shards, self._records_per_task):
            yield self._task(
                current, master_pb2.EVALUATION, shard.source, shard.start, shard.end
            )

    def _task(
        self,
        current: Round,
        kind: master_pb2.TaskType.ValueType,
        source: str = "",
        start: int = 0,
        end: int = 0,
    ) -> Task:
        return Task(
            type=kind,
            source=source,
            start=start,
            end=end,
            epoch=max(0, current.epochs_done - 1),
            snapshot=current.snapshot,
            ticket=current.ticket,
            round=current.number,
        )

    # -- reports ------------------------------------------------------------------

    def done(self, task: Task, report: TaskReport, *, now: float) -> None:
        """Take the report of an EVALUATION, SUMMARIZE or EXPORT(best) task.

        Raises UserCodeError if metric states do not fit each other.
        """
        current = self.current
        if current is None or task.round != current.number:
            return
        if task.type == master_pb2.EVALUATION:
            records = report.records or task.end - task.start
            current.sums.add(report.state, records=records)
            if not self._num_ps:
                current.version = max(current.version, report.model_version)
            current.left -= 1
            if current.left == 0:
                summary = self._task(current, master_pb2.SUMMARIZE)
                summary.state = current.sums.state()
                self._side.add(summary)
                self._signals.work()
        elif task.type == master_pb2.SUMMARIZE:
            self._finish(current, report.results_json, now=now)
        else:
            self._close()

    def _finish(self, current: Round, results_json: str, *, now: float) -> None:
        result = EvaluationResult(
            version=current.version,
            metrics=json.loads(results_json or "{}"),
            records=current.sums.records,
            seconds=round(now - current.since, 3),
            time=now,
            why=current.why,
        )
        self.results.append(result)
        self._ledger.note("evaluation", **result.model_dump())
        self._ledger.note(
            "round",
            epochs_done=current.epochs_done,
            version=current.version,
            point=current.point,
        )
        log.info(
            "Evaluation metrics[version=%d]: %s",
            current.version,
            evaluation.in_words(result.metrics),
        )
        for action in self.callbacks.on_evaluation(result.metrics):
            if not isinstance(action, KeepBest):
                self._on_action(action)
            elif self._export and not current.keeping:
                log.info("keeping the model of version %d: %s", current.version, action)
                current.keeping = True
                export = self._task(current, master_pb2.EXPORT)
                export.target = BEST
                self._side.add(export)
                self._signals.work()
        if not current.keeping:
            self._close()

    def _close(self) -> None:
        self.current = None
        self._signals.bump_holders()

    def abort(self) -> None:
        """Give the round up (its snapshot is lost with a PS); it opens again later."""
        current = self.current
        if current is None:
            return
        self._side.drop(master_pb2.EVALUATION, master_pb2.SUMMARIZE)
        if current.keeping:
            self._side.drop(master_pb2.EXPORT)
        else:
            self._again = current.why
        self._close()

    def rewound(self, *, version: int, epochs_done: int) -> None:
        """Training went back: the round's version may never come."""
        self.abort()
        self._again = ""
        self.schedule.rewound(version=version, epochs_done=epochs_done)
