"""Evaluation rounds: opened when due, one at a time, on a pinned version.

Owns the round under way and the results. Called by the loop (ticks), heartbeats
(snapshots) and `master.calls.leasing` (reports). Must not know RPC or launch anything.

A round: the PS pin a snapshot; tasks go out beside training; their metric states are
added; one SUMMARIZE task turns the sums into figures; callbacks see them; where a
callback keeps the model, an EXPORT task writes it aside from the snapshot. Only then
has the round been: one that is given up before leaves no result, and callbacks forget
it, as they forget results of versions that a rewind has undone. A model that was kept
(`kept_models`) stays, as no parameters are left to write the one before it from: the
result that it had stays the one to beat, and the best one that is told.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from elasticdl.data.reader import Shard
from elasticdl.errors import DataError
from elasticdl.job.heartbeats import SnapshotDone, SnapshotRequest
from elasticdl.job.spec.job import JobSpec
from elasticdl.job.status import EvaluationResult
from elasticdl.job.tasks import (
    ExportTarget,
    ModelVersion,
    Task,
    TaskReport,
    TaskType,
)
from elasticdl.master.happenings import Evaluated
from elasticdl.master.model import evaluation
from elasticdl.master.model.callbacks import (
    Action,
    CallbackSet,
    KeepModel,
    ScaleLearningRate,
)
from elasticdl.master.model.checkpoint_identity import point
from elasticdl.master.model.evaluation import EvaluationSchedule
from elasticdl.master.model.evaluation_round import Round
from elasticdl.master.model.kept_models import KeptModels
from elasticdl.master.signals import Signals
from elasticdl.master.tasks import model_facts
from elasticdl.master.tasks.ledger import Ledger
from elasticdl.master.tasks.side_tasks import SideTasks

log = logging.getLogger(__name__)


class Rounds:
    """Evaluation of one job."""

    def __init__(
        self,
        spec: JobSpec,
        ledger: Ledger,
        signals: Signals,
        side: SideTasks,
        *,
        pins: int,
        begins_at: int = 0,
        now: float,
    ) -> None:
        """Restore the results of earlier masters.

        `pins`: how many replicas keep a snapshot for a round; 0: workers evaluate what
        they have. `begins_at`: the version of the checkpoint that the job begins with;
        the job that wrote it has measured the multiples before.
        """
        self._ledger = ledger
        self._signals = signals
        self._side = side
        self._pins = pins
        self._on_action: Callable[[Action], None] = ignore
        self._shards: tuple[Shard, ...] = ()
        self._records_per_task = (
            spec.training.batch_size * spec.training.batches_per_task
        )
        self._export = bool(spec.export.dir)
        self.callbacks = CallbackSet()
        undone = {
            number
            for fact in ledger.all_of(model_facts.UndoneFact)
            for number in fact.rounds
        }
        pasts = ledger.all_of(model_facts.EvaluationFact)
        self._past = deque(
            (past for past in pasts if past.number not in undone),
            # What a restarted master reads back.
            maxlen=model_facts.EvaluationFact.KEPT,
        )
        self.kept = KeptModels(pasts, ledger.all_of(model_facts.ExportFact))
        self._forgotten = ledger.count_of(model_facts.EvaluationFact) - len(pasts)
        epochs = [
            fact.epochs_done
            for fact in ledger.all_of(model_facts.RoundFact)
            if fact.number not in undone
        ]
        epochs += [past.epochs_done for past in self._past]
        self.schedule = EvaluationSchedule(
            spec.evaluation,
            job_started=ledger.started,
            now=now,
            version=max([begins_at, *(past.result.version for past in self._past)]),
            epochs_done=max(epochs, default=0),
        )
        self._number = ledger.generation * 1_000_000
        self._again = ""
        self.current: Round | None = None

    @property
    def possible(self) -> bool:
        """Whether there is validation data."""
        return bool(self._shards)

    @property
    def results(self) -> list[EvaluationResult]:
        """Results, oldest first, without those that a rewind has undone.

        The newest 10,000; the journal has all.
        """
        return [past.result for past in self._past]

    @property
    def count(self) -> int:
        """Number of results, including those no longer kept."""
        return self._forgotten + len(self._past)

    @property
    def newest(self) -> int:
        """The number of the round opened last; those of earlier masters are lower."""
        return self._number

    def say_since(self, time: float) -> None:
        """Report what earlier masters measured after `time` (Unix seconds)."""
        for result in self.results:
            if result.time > time:
                self._signals.diary.say(Evaluated(time=result.time, result=result))

    @property
    def last(self) -> EvaluationResult | None:
        """The newest result."""
        return self._past[-1].result if self._past else None

    @property
    def is_up_to_date(self) -> bool:
        """Whether the newest result covers all training so far."""
        return bool(self._past) and self._past[-1].point == point(self._ledger)

    def has_measured(self, version: int) -> bool:
        """Whether the newest result is of this version, and that says of what.

        A step's records may be reported after a round of the version that it made. A
        model that one worker holds, or a group, is another one with another version.
        """
        mine = not self._pins and bool(self._past)
        return self.is_up_to_date or (mine and self._past[-1].result.version == version)

    def records(self) -> tuple[int, int]:
        """Return the number of evaluated records of the newest round, and its total."""
        total = sum(shard.num_records for shard in self._shards)
        if self.current is not None:
            return self.current.sums.records, total
        return self.last.records if self.last else 0, total

    def begin(
        self,
        shards: Sequence[Shard],
        callbacks: CallbackSet,
        on_action: Callable[[Action], None],
    ) -> None:
        """Set data and callbacks, replay earlier results; rounds may open from now on.

        `on_action` is called with what callbacks want.
        """
        self._on_action = on_action
        self._shards = tuple(shards)
        self.callbacks = callbacks
        self._replay(self._on_action)
        self._move()

    def _replay(self, on_action: Callable[[Action], None] | None = None) -> None:
        """Replay results to new callbacks; pass their actions on if asked to."""
        self.callbacks = self.callbacks.renewed()
        for result, target in self.kept.results():
            self.callbacks.kept(result.metrics, target)
        for result in self.results:
            for action in self.callbacks.on_evaluation(result.metrics):
                if on_action is not None and not isinstance(action, KeepModel):
                    on_action(action)

    def _move(self) -> None:
        """Have the model that is kept as the best one moved to its place."""
        task = self.kept.to_move()
        if task is not None:
            self._side.add(task)
            self._signals.work()

    # -- opening ------------------------------------------------------------------

    def tick(self, *, version: int, epochs_done: int, now: float) -> None:
        """Open a round if one is due and none is in progress."""
        if self.stops_training:
            # Else one that takes longer than the interval would follow the other.
            self.schedule.nobody_trains(now)
        # One model after the other is moved to its place: of two workers the one with
        # the earlier model could come last, or find that the next round removed it.
        if self.current is not None or self.kept.moving or not self.possible:
            return
        why, self._again = self._again, ""
        why = why or (
            self.schedule.due(version=version, epochs_done=epochs_done, now=now) or ""
        )
        if not why:
            return
        if not self._measured(version):
            self.open(why, version=version, epochs_done=epochs_done, now=now)
        elif why != evaluation.TIME:
            self.schedule.opened(version=version, epochs_done=epochs_done, now=now)
            if why == evaluation.EPOCH_END:
                # More may have been trained when a master after this one looks.
                number = self._past[-1].number
                self._ledger.record(
                    model_facts.RoundFact(epochs_done=epochs_done, number=number)
                )
            self._signals.work()  # tasks may have waited for it

    def _measured(self, version: int) -> bool:
        """Whether nothing was trained since the newest result.

        So it is where short epochs end while a round is on its way. The same values
        once more would count for callbacks, as an epoch that made nothing better.
        """
        if self.last is None:
            return False
        if self._pins:
            return version == self.last.version
        # What a worker has itself is measured later than the master hears of it.
        return version <= self.last.version

    def open(self, why: str, *, version: int, epochs_done: int, now: float) -> None:
        """Open a round: pin a snapshot, or begin at once without PS."""
        self._number += 1
        self.schedule.opened(version=version, epochs_done=epochs_done, now=now)
        self.current = Round(
            self._number,
            why,
            now,
            epochs_done,
            version,
            point=point(self._ledger),
        )
        if self._pins:
            self.current.pin(f"eval-{self._number}")
            self._signals.bump_holders()
        else:
            self._start()

    @property
    def stops_training(self) -> bool:
        """Whether a round is under way on what workers have themselves.

        A step between its tasks, or before its model is written, would have them see
        other values.
        """
        return self.current is not None and not self._pins

    def come_first(self, version: int) -> bool:
        """Whether a round is under way, or due, before any more is trained."""
        queue = self._ledger.queue
        if self._pins or not self.possible or queue is None:
            return False
        return self.stops_training or self.schedule.due_behind(queue, version=version)

    def requests(self, index: int) -> list[SnapshotRequest]:
        """Return the snapshots that a PS has to keep for the round."""
        current = self.current
        if current is None or not current.snapshot:
            return []
        if index and 0 not in current.pinned:
            # In sync mode the version comes from PS 0; in async mode it costs one
            # heartbeat, and the shards lie no further apart.
            return []
        ticket = current.ticket if index else None
        return [SnapshotRequest(current.snapshot, ticket=ticket)]

    def take(self, index: int, done: SnapshotDone) -> None:
        """Take a PS's answer that a snapshot is pinned."""
        current = self.current
        if current is None or done.id != current.snapshot:
            return
        if done.error:  # also of one that was pinned, and is given up
            log.warning("evaluation put off: ps-%d: %s", index, done.error)
            self.abort()
            return
        if index in current.pinned:
            return
        current.pinned_by(index, done)
        if index == 0:
            self._signals.bump_holders()
        if len(current.pinned) == self._pins and not current.started:
            self._start()

    def _start(self) -> None:
        current = self.current
        if current is None:
            return
        size = self._records_per_task
        current.start(tasks=sum(-(-s.num_records // size) for s in self._shards))
        self._side.add_lazily(self._tasks(current))
        self._signals.work()

    def _tasks(self, current: Round) -> Iterator[Task]:
        for shard in evaluation.cut(self._shards, self._records_per_task):
            yield self._task(
                current, TaskType.EVALUATION, shard.source, shard.start, shard.end
            )

    def _task(
        self,
        current: Round,
        kind: TaskType,
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
            model=ModelVersion(current.snapshot, current.ticket),
            round=current.number,
        )

    # -- reports ------------------------------------------------------------------

    def done(self, task: Task, report: TaskReport, *, now: float) -> None:
        """Take the report of an EVALUATION, SUMMARIZE or EXPORT task.

        Raises UserCodeError if metric states do not fit each other, and DataError if
        no record was evaluated.
        """
        current = self.current
        if task.move:
            self.kept.moved(task)
        elif current is None or task.round != current.number:
            return
        elif task.type != TaskType.SUMMARIZE and not self._fits(current, report):
            self.abort()
        elif task.type == TaskType.EVALUATION:
            self._evaluated(current, report)
        elif task.type == TaskType.SUMMARIZE:
            self._finish(current, report.results_json, now=now)
        elif current.result is not None and current.written():
            self._complete(current, current.result)

    def _fits(self, current: Round, report: TaskReport) -> bool:
        """Whether a worker had the same version as others that did tasks of the round.

        Who leads a group after one that was lost first trains what that one had leased.
        """
        if self._pins or current.done_with(report.model_version):
            return True
        log.warning(
            "evaluation put off: it began on version %d, and another worker has %d",
            current.own_version,
            report.model_version,
        )
        return False

    def _evaluated(self, current: Round, report: TaskReport) -> None:
        current.sums.add(report.state, records=report.records)
        if not current.task_done():
            return
        if not current.sums.records:
            # Metrics of nothing are zeros, which callbacks would take for the best.
            _, total = self.records()
            raise DataError(
                f"an evaluation had no records: of the {total} of the validation data "
                "none was parsed, or the feed gave none; the bad ones are listed with "
                "their reasons; mend the data or the feed"
            )
        summary = self._task(current, TaskType.SUMMARIZE)
        self._side.add(replace(summary, state=current.sums.state()))
        self._signals.work()

    def _finish(self, current: Round, results_json: str, *, now: float) -> None:
        result = EvaluationResult(
            version=current.version,
            metrics=json.loads(results_json or "{}"),
            records=current.sums.records,
            seconds=round(now - current.since, 3),
            time=now,
            why=current.why,
        )
        actions = self.callbacks.on_evaluation(result.metrics)
        current.act_later([a for a in actions if not isinstance(a, KeepModel)])
        keeps = [a for a in actions if isinstance(a, KeepModel)]
        if not keeps or not self._export:
            self._complete(current, result)
            return
        for keep in keeps:
            log.info("keeping the model of version %d: %s", current.version, keep)
        aside = tuple(dict.fromkeys(keep.target for keep in keeps))
        current.keep(result, aside)
        values = self._task(current, TaskType.EXPORT)
        for target in aside:
            self._side.add(
                self.kept.to_write(
                    target, current.number, values.model, epoch=values.epoch
                )
            )
        self._signals.work()

    def _complete(self, current: Round, result: EvaluationResult) -> None:
        """Finish the round when its last action is done."""
        past = model_facts.EvaluationFact(
            **result.model_dump(),
            number=current.number,
            epochs_done=current.epochs_done,
            point=current.point,
            aside=current.aside,
        )
        self._forgotten += len(self._past) == self._past.maxlen
        self._past.append(past)
        self._ledger.record(past)
        if past.aside:
            self.kept.add(past)
        self._signals.diary.say(Evaluated(time=result.time, result=result))
        log.info(
            "Evaluation metrics[version=%d]: %s",
            current.version,
            evaluation.in_words(result.metrics),
        )
        for action in current.actions:
            self._on_action(action)
        self._close()
        if ExportTarget.BEST in past.aside:
            self._move()

    def _close(self) -> None:
        self.current = None
        self._signals.bump_holders()
        self._signals.work()  # tasks may have waited for it

    def abort(self) -> None:
        """Abort the round: the model that it began on is lost. It opens again later."""
        current = self.current
        if current is None:
            return
        self._side.drop_round(current.number)
        self._again = current.why
        if current.result is not None:
            # Its model is not kept, so it was not the best one: callbacks forget it.
            self._replay()
        self._close()

    def rewound(self, *, version: int, epochs_done: int) -> None:
        """Abort a round whose version training went back behind."""
        self.abort()
        self._again = ""
        self.schedule.rewound(version=version, epochs_done=epochs_done)
        undone = [past for past in self._past if past.result.version > version]
        if undone:
            for past in undone:
                self._past.remove(past)
            numbers = tuple(past.number for past in undone)
            self._ledger.record(model_facts.UndoneFact(rounds=numbers))
            newest = self.kept.newest(ExportTarget.BEST)
            if newest is not None and newest in undone:
                best = newest.result
                log.warning(
                    "the evaluation of version %d was undone; the model that it kept "
                    "stays the best one (%s) until another one beats it",
                    best.version,
                    evaluation.in_words(best.metrics),
                )
            self._on_action(ScaleLearningRate(1.0, "evaluations were undone"))
        # What a result that stays had led to may have been undone.
        self._replay(self._on_action)


def ignore(action: Action) -> None:
    """Do nothing: no action can come before the data are known."""
