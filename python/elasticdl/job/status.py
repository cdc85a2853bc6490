"""What a job shows of itself: the status while it runs, the report when it ended.

Owns the typed documents that the master writes and the CLI, metrics and tests read.
Must not know how either is displayed.
"""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from elasticdl.job.decision import Decision
from elasticdl.job.words import EndCause, JobState, OutCause, end_cause_of


def _nan_of_null(value: Any) -> Any:
    return math.nan if value is None else value


# JSON has no NaN: null stands for it, in what workers send and in these documents.
Figures = dict[str, Annotated[float, BeforeValidator(_nan_of_null)]]


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ReplicaStatus(_Document):
    """One replica; ended ones are included."""

    name: str
    role: str
    index: int
    generation: int
    state: str  # runner phase, or hung, draining
    reason: str = ""  # why pending, or how it ended
    since: float = 0.0  # Unix seconds
    pid: int = 0
    phase: str = ""  # of a worker: start, train, evaluate ...
    step: int = 0
    steps_per_second: float = 0.0
    step_seconds: float = 0.0  # of a worker: mean of the last steps; 0: not known
    wait_seconds: float = 0.0  # strategy allReduce: for others, of such a step
    step_bytes: int = 0  # strategy allReduce: sent for the gradients of the last step
    loss: float | None = None
    version: int = 0  # of a PS
    memory_bytes: int = 0
    metrics_port: int = 0


class Relaunch(_Document):
    """A replica that ended and what was done about it."""

    replica: str
    reason: str  # in words
    cause: str = ""  # an `EndCause`; "" in documents of earlier versions
    replacement: str  # name, or "" when given up
    time: float
    detail: str = ""
    why_not: str = ""  # why nobody replaces it
    seconds: float | None = (
        None  # until the replacement worked (first lease, first apply)
    )

    @property
    def end_cause(self) -> EndCause:
        """Why the replica ended."""
        return EndCause(self.cause) if self.cause else end_cause_of(self.reason)


class EvaluationResult(_Document):
    """Metrics of one evaluation round."""

    version: int
    metrics: Figures
    records: int
    seconds: float
    time: float
    why: str = ""  # steps, time, epoch end, final


class Replay(_Document):
    """Records that were handed out again, and why."""

    source: str
    start: int
    end: int
    epoch: int
    workers: list[str]
    cause: str


class Progress(_Document):
    """How far the job is."""

    epoch: int = 0  # from 0; the oldest that is not done
    epochs: int = 0  # 0 is endless
    records_per_epoch: int = 0
    records_done: int = 0  # of all epochs, each record counted once an epoch
    tasks_done: int = 0
    tasks_total: int = 0  # 0 is endless
    tasks_leased: int = 0
    tasks_waiting: int = 0
    replayed_records: int = 0
    steps: int = 0
    version: int = 0
    records_per_second: float = 0.0
    eta_seconds: float | None = None  # of the job; None: not known, or endless
    epoch_eta_seconds: float | None = None  # of `epoch`


class GroupOut(_Document):
    """A worker that runs and is in no round."""

    name: str
    cause: OutCause
    seconds: float | None = None  # until it may be in again; None: not known


class GroupStatus(_Document):
    """Who makes steps together (strategy allReduce)."""

    round: int  # 0: none yet
    members: list[str]  # the oldest first; the first one leads
    level: bool  # the leader has the group's state
    why: str
    cause: str = ""  # a `RoundCause`
    since: float  # Unix seconds
    # From the last step of the round before until the first one of this was made; None:
    # no such steps, or not yet.
    change_seconds: float | None = None
    changes_seconds: float = 0.0  # of all changes of rounds
    repairs: int = 0  # rounds that gave members the leader's values: theirs differed
    last: str = ""  # the member that the others wait for, if they do
    out: list[GroupOut] = Field(default_factory=list)


class GrantStatus(_Document):
    """What a controller gave the job."""

    workers: int
    why: str = ""
    by: str = ""
    until: float = 0.0  # Unix seconds


class JobStatus(_Document):
    """The job now."""

    # A master may be newer than the command line that asks it.
    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str
    type: str
    strategy: str
    state: JobState
    ending: str = ""  # the state it is about to end in; `message` says why
    message: str = ""
    started: float
    time: float
    master_generation: int
    master_metrics_port: int = 0
    workers_wanted: int
    workers_min: int = 0
    workers_max: int = 0  # 0: no maximum
    grant: GrantStatus | None = None  # by which `workers_wanted` goes
    # More workers than this many would have nothing to do; None: not known, or no end.
    tasks_left: int | None = None
    progress: Progress = Field(default_factory=Progress)
    replicas: list[ReplicaStatus] = Field(default_factory=list)
    relaunches: list[Relaunch] = Field(default_factory=list)  # the newest
    relaunches_before: int = 0  # older ones, which are not listed
    # Role -> reason -> replicas that ended, of the whole job.
    relaunch_causes: dict[str, dict[str, int]] = Field(default_factory=dict)
    relaunch_counts: dict[str, dict[str, int]] = Field(default_factory=dict)
    group: GroupStatus | None = None  # strategy allReduce
    last_loss: float | None = None
    last_evaluation: EvaluationResult | None = None
    goodput_seconds: dict[str, float] = Field(default_factory=dict)
    checkpoint_version: int | None = None
    checkpoint_age_seconds: float | None = None
    checkpoint_seconds: float | None = None  # how long the newest took
    checkpoint_failures: int = 0
    checkpoint_problem: str = ""  # why the last one was not written
    lost_updates: int = 0
    rewinds: int = 0
    # What this master told of what happened: the newest, and how many before those.
    happened: list[Decision] = Field(default_factory=list)
    happened_before: int = 0


class JobReport(_Document):
    """The final report of a job: `report.json`."""

    name: str
    type: str
    strategy: str
    status: JobState
    message: str
    started: float
    seconds: float
    epochs: int
    steps: int
    version: int
    records: int  # trained, each counted once per epoch
    records_per_second: float
    replayed_records: int
    replays: list[Replay]
    bad_records: list[dict[str, Any]]
    skipped_batches: int
    lost_updates: int
    rewinds: int
    rounds: int = 0  # strategy allReduce: of workers that made steps together
    changes_seconds: float = 0.0  # that changes of these rounds cost
    # Of the model and the data, since this master began.
    warnings: list[str] = Field(default_factory=list)
    repairs: int = 0  # of members that had other values than their leader
    master_restarts: int
    goodput_seconds: dict[str, float]
    goodput: float  # share of worker seconds that trained
    last_loss: float | None
    metrics: Figures  # of the last evaluation
    evaluations: list[EvaluationResult]
    best: EvaluationResult | None = None  # that of the model in `best`, if one was kept
    # That of the final model, where EarlyStopping restores the best one.
    restored: EvaluationResult | None = None
    relaunches: list[Relaunch]  # the newest
    relaunches_before: int = 0  # older ones, which are not listed
    checkpoint: str
    exports: list[str]
    predictions: str = ""
