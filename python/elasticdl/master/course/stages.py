"""The job's course: find the data, open the plan, train, evaluate, export, finish.

Owns which stage the job is in and what has to be done to get to the next one. Called by
the loop after every event. Adds tasks and asks for checkpoints; must not launch
replicas or wait for anything.

What the end of training asks for (last evaluation, checkpoint, export) counts as done
where it was done at the point that training is at now (`master.course.point`): after a
rewind, or more epochs, it is done again.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from elasticdl.data.reader import Shard
from elasticdl.errors import DataError, ElasticDLError, ExitCode
from elasticdl.job.spec.job import JobType
from elasticdl.job.tasks import ExportTarget, Task, TaskType
from elasticdl.job.words import DataKind, JobState
from elasticdl.master.course.earlier_predictions import remove_earlier
from elasticdl.master.job_state import Job
from elasticdl.master.model import evaluation
from elasticdl.master.model.callbacks import CallbackSet
from elasticdl.master.model.checkpoint_identity import point
from elasticdl.master.model.checkpointing import THE_END
from elasticdl.master.tasks import data_plan, facts, model_facts
from elasticdl.master.tasks.data_plan import SearchStage, Shards

log = logging.getLogger(__name__)

FINAL = ExportTarget.FINAL
NO_EVALUATION = (
    "the model's callbacks do nothing: they look at evaluations, and there are none; "
    "set data.validation"
)
NO_RECORDS = (
    "nothing is evaluated, though job.evaluation asks for it: there are no records for "
    "it; set data.validation"
)


class Stages:
    """Moves one job through its stages: counting, training, evaluation, export, end."""

    def __init__(self, job: Job) -> None:
        """Continue at the stage in the journal."""
        self._job = job
        self._parts = job.parts
        self._exporting = ""  # the point whose export was asked for
        self._refused_since: float | None = None  # the last checkpoint was not written
        self._unsaved = False  # and is not waited for any more

    @property
    def needs_count(self) -> bool:
        """Whether the loop has to count the records, in a thread."""
        return self._parts.data.stage is SearchStage.CHECKING

    def counted(self, result: Shards | DataError) -> None:
        """Take the result of counting."""
        self._parts.data.counted(result)
        self._parts.signals.work()
        self._parts.signals.wake()

    def advance(self, *, now: float) -> None:
        """Advance as many stages as possible now."""
        job = self._job
        if job.ending or job.state.ended:
            return
        if job.callbacks is None or self._parts.data.stage is not SearchStage.READY:
            self._find_data()
            return
        if job.state in (JobState.STARTING, JobState.PREPARING):
            self._open(now=now)
        if job.ending or job.finished:
            return
        if job.state is JobState.FINISHING and self._work_left():
            log.info("a rewind undid some of the training: it goes on")
            job.enter(JobState.RUNNING)
            self._refused_since, self._unsaved = None, False
        if job.state in (JobState.RUNNING, JobState.PAUSED):
            job.enter(JobState.PAUSED if job.spec.paused else JobState.RUNNING)
        self._evaluate(now=now)
        if not self._work_left():
            self._finish(now=now)

    def rewound(self) -> None:
        """Forget the stages of the end after training went back."""
        job, checkpoints = self._job, self._parts.checkpoints
        self._parts.side.drop(TaskType.EXPORT, target=FINAL)
        if checkpoints.newest is None and checkpoints.had_one:
            job.end(JobState.FAILED, checkpoints.nothing_left, ExitCode.STORAGE)

    # -- data ---------------------------------------------------------------------

    def _find_data(self) -> None:
        data, side = self._parts.data, self._parts.side
        if data.stage is SearchStage.PREPARE:
            data.being_prepared()
            self._job.enter(JobState.PREPARING)
            side.add(Task(type=TaskType.PREPARE))
            self._parts.signals.work()
        elif data.stage is SearchStage.ASK:
            data.being_asked()
            for kind in data.kinds:
                path = self._job.spec.data.path_of(kind)
                side.add(Task(type=TaskType.SHARDS, target=kind, source=path))
            self._parts.signals.work()
        elif data.stage is SearchStage.FAILED:
            self._job.end(JobState.FAILED, data.error, ExitCode.DATA)

    def _open(self, *, now: float) -> None:
        job, ledger = self._job, self._parts.ledger
        data = self._parts.data
        callbacks = job.callbacks
        if callbacks is None:
            return
        try:
            callbacks.check(
                export_dir=job.spec.export.dir,
                evaluates=bool(data.shards.get(DataKind.VALIDATION)),
            )
            plan = data_plan.plan_of(
                job.spec,
                data.shards,
                max_steps=callbacks.max_steps,
                began_with=ledger.plan,
            )
            if plan is not None:
                begins = ledger.plan is None
                if begins and job.spec.type is JobType.PREDICT:
                    self._make_room_for_predictions()
                ledger.open_plan(plan)
        except ElasticDLError as error:
            job.end(JobState.FAILED, str(error), error.exit_code)
            return
        shards = {
            str(kind): tuple((s.source, s.start, s.end) for s in of_kind)
            for kind, of_kind in data.shards.items()
        }
        noted = ledger.newest_of(facts.ShardsFact)
        if noted is None:
            ledger.record(facts.StartFact(position=ledger.position()))
        # Other data for validation are taken when the job is launched again.
        if noted is None or noted.shards != shards:
            ledger.record(facts.ShardsFact(shards=shards))
            for kind, of_kind in data.shards.items():
                records = sum(shard.num_records for shard in of_kind)
                log.info("%s data: %d records, %d files", kind, records, len(of_kind))
        validation = data.shards.get(DataKind.VALIDATION, ())
        self._tell_unused(callbacks, validation)
        self._parts.rounds.begin(validation, callbacks, job.act)
        job.enter(JobState.RUNNING, why=_beginning(job) if noted is None else "")
        ledger.record(facts.JobStateFact(state=job.state, time=now))
        self._parts.signals.work()

    def _make_room_for_predictions(self) -> None:
        """Remove what an earlier run wrote. Raises DataError."""
        spec = self._job.spec
        if not spec.prediction_output:
            return  # the job's own folder, which is a new one
        root = Path(spec.data.root)
        shards = self._parts.data.shards[DataKind.PREDICTION]
        sources = (root / shard.source for shard in shards)
        remove_earlier(Path(spec.prediction_output), sources)

    def _tell_unused(self, callbacks: CallbackSet, validation: Sequence[Shard]) -> None:
        job = self._job
        if not job.trains or validation:
            return
        asked = job.spec.evaluation
        if callbacks.callbacks:
            what = NO_EVALUATION
        elif asked.every_steps or asked.every_seconds:
            what = NO_RECORDS
        else:
            return
        job.tell(what)
        log.warning("%s", what)

    # -- evaluation and the end ---------------------------------------------------

    def _wants_final(self) -> bool:
        spec = self._job.spec
        if spec.type is JobType.EVALUATE:
            return True
        at_end = spec.evaluation.at_end or spec.evaluation.at_epoch_end
        return self._job.trains and self._parts.rounds.possible and at_end

    def _work_left(self) -> bool:
        queue = self._parts.ledger.queue
        return queue is not None and not queue.finished

    def _evaluate(self, *, now: float) -> None:
        job = self._job
        if not job.trains or not self._work_left():
            return
        if not job.can_snapshot:
            return
        self._parts.rounds.tick(
            version=job.version, epochs_done=job.epochs_done, now=now
        )

    def _finish(self, *, now: float) -> None:
        """Do the last evaluation, checkpoint and export of a trained model."""
        job = self._job
        job.wait_for_disk(refused=False)  # known further down, in this turn
        # All that an evaluation job does is its last round: that is no ending yet.
        if (
            job.state is not JobState.FINISHING
            and job.spec.type is not JobType.EVALUATE
        ):
            why = _why_finished(job)
            job.enter(JobState.FINISHING, why=why)
            log.info("finishing: %s", why)
        if job.trains and not job.can_snapshot:
            return
        if self._wants_final() and not self._evaluated(now=now):
            return
        if job.trains and not self._checkpointed(now=now):
            return
        rounds = self._parts.rounds
        if rounds.current is not None or rounds.kept.moving:
            return
        if self._wants_export and not self._export_done():
            return
        # Whoever leaves from now on is not replaced, however fast it is.
        job.finish()
        log.info("nothing is left to do; workers may leave")
        self._parts.signals.work()
        self._parts.signals.bump()

    @property
    def _wants_export(self) -> bool:
        return self._job.trains and bool(self._job.spec.export.dir)

    def _evaluated(self, *, now: float) -> bool:
        rounds, job = self._parts.rounds, self._job
        if rounds.current is not None or rounds.kept.moving:
            return False
        measured = job.trains and rounds.has_measured(job.version)
        if measured or rounds.is_up_to_date:
            return True
        rounds.open(
            evaluation.FINAL,
            version=job.version,
            epochs_done=job.epochs_done,
            now=now,
        )
        return False

    def _checkpointed(self, *, now: float) -> bool:
        """Whether all training is in a checkpoint, or waiting for one was given up.

        A disk that refuses is waited for as the journal waits for it; the PS keep
        everything meanwhile.
        """
        checkpoints = self._parts.checkpoints
        if self._unsaved or checkpoints.up_to_date:
            return True
        if checkpoints.refused_end and self._refused_since is None:
            self._refused_since = now
        self._job.wait_for_disk(refused=self._refused_since is not None)
        if checkpoints.busy:
            return False
        waited = 0.0 if self._refused_since is None else now - self._refused_since
        if self._refused_since is not None and waited >= self._patience:
            return self._give_up_saving(waited)
        if not checkpoints.refused_end or checkpoints.schedule.may_hurry(now=now):
            checkpoints.ask(THE_END, now=now)
        return False

    @property
    def _patience(self) -> float:
        return self._job.spec.master.journal_wait_seconds

    def _give_up_saving(self, waited: float) -> bool:
        job, problem = self._job, self._parts.checkpoints.problem
        job.wait_for_disk(refused=False)
        if self._wants_export:
            # The model is saved by that; where to go on from is not.
            self._unsaved = True
            job.tell(f"{problem} (waited {waited:.0f} s)")
            log.error("%s; the model is exported all the same", job.message)
            return True
        way_on = self._parts.checkpoints.nothing_left
        if where := self._parts.checkpoints.resumes_from:
            way_on = (
                "make room there or name another folder, and launch the job again: it "
                f"goes on from {where}"
            )
        job.end(
            JobState.FAILED,
            f"the trained model could not be saved: {problem} (waited {waited:.0f} s); "
            f"{way_on}",
            ExitCode.STORAGE,
        )
        return False

    def _export_done(self) -> bool:
        ledger = self._parts.ledger
        here = point(ledger)
        if any(
            fact.target == FINAL and fact.point == here
            for fact in ledger.all_of(model_facts.ExportFact)
        ):
            return True
        if self._exporting != here:
            self._exporting = here
            self._parts.side.drop(TaskType.EXPORT, target=FINAL)
            rounds = self._parts.rounds
            live = Task(type=TaskType.EXPORT, target=FINAL)
            final = rounds.kept.to_restore() or live
            self._parts.side.add(replace(final, beside=rounds.newest))
            self._parts.signals.work()
        return False


def _beginning(job: Job) -> str:
    """Return which other job's checkpoint this one begins with; "" for none."""
    holder = job.parts.holder
    if not job.trains or not holder.origin.dir:
        return ""
    return f"it begins with version {holder.origin.version}, {holder.origin.dir}"


def _why_finished(job: Job) -> str:
    """Return why nothing more is trained; "" for a job that does not train."""
    queue, plan = job.parts.ledger.queue, job.parts.ledger.plan
    if not job.trains or queue is None or plan is None:
        return ""
    why = "all records are trained"
    if queue.stopped:
        why = job.why_stopped or "early stopping"  # an earlier master knew which
    elif plan.max_steps and queue.done_steps >= plan.max_steps:
        why = f"training.maxSteps ({plan.max_steps}) are made"
        if plan.elastic:  # steps have as many records as there are members
            why = f"the records of training.maxSteps ({plan.max_steps}) are trained"
    return f"{why}; last evaluation and checkpoint"
