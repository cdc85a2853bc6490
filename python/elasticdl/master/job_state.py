"""Everything the master knows of its job, in one place.

Owns the job's state and end, and holds the parts that own the rest. Made by
`master.main`; lent to the loop, the stages, leasing, lost leases and heartbeats, which
all run in one event loop. Must not act: it has no runner.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from elasticdl.errors import ExitCode
from elasticdl.job.names import JobDir
from elasticdl.job.spec.job import JobSpec, JobType
from elasticdl.job.status import JobReport
from elasticdl.job.words import JobState
from elasticdl.master.happenings import JobEntered
from elasticdl.master.members.changes import Changes
from elasticdl.master.members.goodput import Goodput
from elasticdl.master.members.granted import Granted
from elasticdl.master.members.membership import Membership
from elasticdl.master.members.relaunches import Relaunches
from elasticdl.master.members.table import MemberTable
from elasticdl.master.model.callbacks import (
    Action,
    CallbackSet,
    ScaleLearningRate,
    StopTraining,
)
from elasticdl.master.model.checkpointing import Checkpoints
from elasticdl.master.model.evaluation_rounds import Rounds
from elasticdl.master.model.holder import ModelHolder
from elasticdl.master.signals import Signals
from elasticdl.master.tasks import facts, model_facts
from elasticdl.master.tasks.data_plan import DataStage
from elasticdl.master.tasks.eta import Pace
from elasticdl.master.tasks.ledger import Ledger
from elasticdl.master.tasks.side_tasks import SideTasks
from elasticdl.master.tasks.speed import Speed

log = logging.getLogger(__name__)

# Who was refused by storage asks again sooner than that, unless it is back.
STORAGE_QUIET_SECONDS = 30.0
# Who stops a job waits in front of it: so long for a disk, then it resumes from older.
STOP_SECONDS = 60.0


@dataclass(frozen=True)
class JobEnding:
    """How the job ends."""

    state: JobState
    message: str
    exit_code: ExitCode


@dataclass(frozen=True)
class Parts:
    """The parts that own the state of a job."""

    ledger: Ledger
    signals: Signals
    side: SideTasks
    table: MemberTable
    membership: Membership
    granted: Granted
    relaunches: Relaunches
    goodput: Goodput
    holder: ModelHolder
    rounds: Rounds
    changes: Changes
    checkpoints: Checkpoints
    data: DataStage


@dataclass(frozen=True)
class StorageAway:
    """Workers' reports that storage does not answer, since the first one."""

    since: float
    last: float
    words: str


class Job:
    """The job as its master sees it."""

    def __init__(
        self,
        spec: JobSpec,
        job_dir: JobDir,
        parts: Parts,
        *,
        started: float,
        clock: Callable[[], float],
    ) -> None:
        """`started`: when the first master began; `clock`: Unix seconds, steady."""
        self.job_dir = job_dir
        self.parts = parts
        self.started = started
        self.clock = clock
        # As others have it: for what they have dated (grants).
        self.unix = clock
        # Seconds so far in which the whole master stood still: `clock` leaves them out.
        self.stopped: Callable[[], float] = lambda: 0.0
        self.state = JobState.STARTING
        self.message = ""
        self.why_stopped = ""  # before all records were trained
        self.warnings: list[str] = []  # of workers, of the model and the data
        self.ending: JobEnding | None = None
        self.report: JobReport | None = None  # of its end
        self.callbacks: CallbackSet | None = None  # known with the first model
        self.learning_rate_scale = 1.0
        self.training_over = False
        self.finished = False  # workers may leave
        self.save_refused = False  # the end waits for a disk to take its checkpoint
        self.exports: list[str] = []
        for fact in parts.ledger.all_of(model_facts.ExportFact):
            self.add_exports(fact.paths)
        self.last_loss: float | None = None
        self.fatal_losses = 0  # tasks that ended with a loss that was not finite
        self.last_step_time: float | None = None  # of any worker; Unix seconds
        # What the watchdog goes by: neither is ever taken back.
        self.batches = 0  # heard of, of any task
        self.reports = 0  # of tasks that are done
        self.storage_away: StorageAway | None = None  # the last time, also if over
        self.metrics_port = 0  # of this master, once it serves
        self.speed = Speed()
        self.pace = Pace()
        self._spec = spec

    def leaves_out(
        self, stopped: Callable[[], float], *, unix: Callable[[], float]
    ) -> None:
        """Set how much its clock leaves out so far, and the clock that others have."""
        self.stopped, self.unix = stopped, unix

    @property
    def spec(self) -> JobSpec:
        """The specification in force."""
        return self._spec

    def change_spec(self, spec: JobSpec) -> None:
        """Replace the specification in force (live edits)."""
        self._spec = spec
        self.parts.table.take_spec(spec)
        self.parts.rounds.schedule.take_spec(spec.evaluation)
        self.parts.signals.bump()
        self.parts.signals.work()

    def has_ended(self, ending: JobEnding) -> None:
        """Take over the end that an earlier master recorded."""
        self.state, self.ending = ending.state, ending

    def reported(self, report: JobReport) -> None:
        """Keep what is reported of the end, for those who tell it further."""
        self.report = report

    @property
    def stops(self) -> bool:
        """Whether the job is on its way to be stopped, and may be resumed."""
        return self.ending is not None and self.ending.state is JobState.STOPPED

    def end_with(self, message: str) -> JobEnding:
        """Add a message to the job's end; return the end."""
        before = self.ending or JobEnding(self.state, "", ExitCode.OK)
        self.ending = replace(before, message=message)
        return self.ending

    def finish(self) -> None:
        """Note that nothing is left to do: workers may leave and are not replaced."""
        self.finished = True
        self.parts.membership.let_leave()

    def tell(self, message: str) -> None:
        """Show this message in the status until the job ends."""
        self.message = message

    def wait_for_disk(self, *, refused: bool) -> None:
        """Return whether the end waits for disk space for its checkpoint."""
        self.save_refused = refused

    def serves_metrics(self, port: int) -> None:
        """Note the port of this master's metrics."""
        self.metrics_port = port

    def take_callbacks(self, callbacks: CallbackSet) -> None:
        """Note the callbacks of the first model that was built."""
        self.callbacks = callbacks

    def hear_of_batches(self, count: int, *, step_time: float | None) -> None:
        """Count `count` more batches; `step_time` is that of the newest step."""
        self.batches += count
        if step_time is not None:
            self.last_step_time = step_time

    def count_report(self) -> None:
        """Count a finished task."""
        self.reports += 1

    def take_loss(self, loss: float) -> None:
        """Note the loss of a finished training task."""
        self.last_loss = loss

    def count_fatal_loss(self, loss: float) -> None:
        """Count a task that failed because of this loss."""
        self.fatal_losses += not math.isfinite(loss)

    def add_exports(self, paths: Sequence[str]) -> None:
        """Note the paths of an exported model."""
        self.exports += [path for path in paths if path not in self.exports]

    def storage_refused(self, who: str, why: str, *, now: float) -> None:
        """Note that a worker handed a task back because storage does not answer."""
        away = self.storage_away
        goes_on = away is not None and now - away.last < STORAGE_QUIET_SECONDS
        since = away.since if away is not None and goes_on else now
        self.storage_away = StorageAway(since, now, f"{who}: {why}")

    def storage_trouble(self, *, now: float) -> str:
        """Return a message about storage that the job waits for; "" if none.

        Also empty once it has been so for master.journalWaitSeconds: no worker can say
        for certain that it will ever be back.
        """
        away = self.storage_away
        patience = self._spec.master.journal_wait_seconds
        if away is None or now - away.last >= STORAGE_QUIET_SECONDS:
            return ""
        if now - away.since >= patience:
            return ""
        return (
            f"storage has not answered for {now - away.since:.0f} s, its tasks are "
            f"tried again ({away.words})"
        )

    @property
    def trains(self) -> bool:
        """Whether this is a training job."""
        return self._spec.type is JobType.TRAIN

    def records(self) -> tuple[int, int]:
        """Return how many records are done, and how many others are leased."""
        queue = self.parts.ledger.queue
        if queue is not None:
            return queue.done_records, queue.leased_records
        done, _ = self.parts.rounds.records()
        return done, self.parts.side.leased_records

    @property
    def version(self) -> int:
        """The newest known version of the model."""
        return self.parts.holder.version

    def act(self, action: Action) -> None:
        """Carry out an action of a callback."""
        if isinstance(action, StopTraining):
            log.info("%s", action.reason)
            self.why_stopped = action.reason
            self.parts.ledger.stop_leasing(now=self.clock())
            self.parts.signals.wake()
        elif isinstance(action, ScaleLearningRate):
            log.info("learning rate times %g: %s", action.scale, action.reason)
            self.learning_rate_scale = action.scale
            self.parts.signals.bump()

    @property
    def may_train(self) -> bool:
        """Whether training tasks may be leased now."""
        return not (
            self.ending
            or self._spec.paused
            or self.parts.holder.rewinding
            or self.parts.ledger.queue is None
            or self.state.ended
            or (self.trains and self.parts.rounds.come_first(self.version))
        )

    @property
    def can_snapshot(self) -> bool:
        """Whether the model's present state is known and can be pinned or written."""
        parts = self.parts
        if not self.trains or parts.ledger.queue is None:
            return False
        return parts.holder.known and self.joined

    @property
    def joined(self) -> bool:
        """Whether a worker has found that the model, whoever has it, is the job's.

        PS that have loaded a checkpoint have the model that wrote it, until a worker
        has brought the job's to all of them, and asks for tasks.
        """
        has_own = self.parts.checkpoints.schedule.version is not None
        return has_own or self.parts.table.num_at_work > 0 or any(self.records())

    @property
    def nonfinite_losses(self) -> int:
        """Batches with a loss that was not finite, skipped or fatal."""
        skipped = self.parts.ledger.all_of(facts.SkippedFact)
        return self.fatal_losses + sum(fact.batches for fact in skipped)

    @property
    def epochs_done(self) -> int:
        """Number of completed epochs."""
        queue = self.parts.ledger.queue
        return queue.epoch if queue is not None and self.trains else 0

    def enter(self, state: JobState, *, why: str = "") -> None:
        """Enter another state."""
        if state is not self.state:
            self.state = state
            entered = JobEntered(time=self.clock(), state=state, why=why)
            self.parts.signals.diary.say(entered)

    def end(
        self, state: JobState, message: str, exit_code: ExitCode = ExitCode.JOB_FAILED
    ) -> None:
        """Set the job's end; the first call counts. The loop carries it out."""
        if self.ending is not None or self.state.ended:
            return
        self.ending = JobEnding(state, message, exit_code)
        self.parts.membership.let_leave()
        if state is JobState.FAILED:
            log.error("the job fails: %s", message)
        elif state is JobState.STOPPED:
            log.info("the job stops: %s", message)
            self.parts.ledger.hurry(STOP_SECONDS)
        self.parts.signals.bump()
        self.parts.signals.work()
