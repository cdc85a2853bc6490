"""Tasks on their way from the master to a worker, and reports on the way back.

Owns what a lease and a report say, and the ways to name a version of the model. Used by
master, workers and PS. Must not know how any of it is encoded: `rpc.task_messages`
turns these classes into messages, and back.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum

# Tasks of which whoever has the model remembers how many leading records are in it. A
# checkpoint's position is that of when it was asked for, and the model goes on until
# its copy is made: as long as a slow disk needs for a folder, with tasks of one step.
REMEMBERED_TASKS = 4096


class TaskType(IntEnum):
    """What is to be done."""

    UNSPECIFIED = 0
    TRAINING = 1
    EVALUATION = 2
    PREDICTION = 3
    EXPORT = 4  # write the final (or best) model
    PREPARE = 5  # run data.prepare
    SHARDS = 6  # list the shards of a custom reader
    SUMMARIZE = 7  # turn merged metric states into results


class ExportTarget(StrEnum):
    """Which model an EXPORT task is about."""

    FINAL = "final"
    BEST = "best"  # of ModelCheckpoint; its place is the folder of this name
    RESTORED = "restored"  # of EarlyStopping(restore_best_weights): the final one later


class TaskOutcome(IntEnum):
    """The result of a task."""

    UNSPECIFIED = 0
    DONE = 1
    FAILED = 2  # user code raised: counts against tasks.maxFailures
    RETURNED = 3  # handed back undone (shutdown, fenced by PS): does not count


@dataclass(frozen=True, slots=True)
class ReplicaId:
    """The caller's identity. A replica of an older generation is fenced."""

    role: str = ""  # job.names.Role
    index: int = 0
    generation: int = 0  # given at launch, unique in a job


NOBODY = ReplicaId()  # the client that makes a call says who it is


@dataclass(frozen=True, slots=True)
class Ticket:
    """The tasks behind a version (sync mode): PS 0 writes it, the other PS follow."""

    version: int
    push_ids: tuple[str, ...] = ()  # in the order in which they are added up
    snapshots: tuple[str, ...] = ()  # to take before applying
    rate_scale: float = 1.0  # learning rate factor; the master's may change meanwhile


@dataclass(frozen=True, slots=True)
class ModelVersion:
    """A version of the model: the newest, or that of a snapshot."""

    # "": the newest; AVERAGE (checkpoint/layout.py): the averages of a model whose
    # training is over, where the optimizer keeps some; else one that PS have pinned.
    snapshot: str = ""
    ticket: Ticket | None = None  # of a pinned snapshot, sync mode


LIVE = ModelVersion()


@dataclass(frozen=True, slots=True)
class Task:
    """A leased task."""

    task_id: int = 0
    lease_id: int = 0  # unique in the job, never used twice
    type: TaskType = TaskType.UNSPECIFIED
    source: str = ""  # file (or the custom reader's shard name)
    start: int = 0  # first record in the source
    end: int = 0  # one past the last
    epoch: int = 0  # from 0
    seed: int = 0  # for shuffleRecords
    model: ModelVersion = LIVE  # EVALUATION, EXPORT: whose values are used
    state: bytes = b""  # SUMMARIZE: merged metric states
    target: str = ""  # EXPORT: ExportTarget; SHARDS: "training", ...
    round: int = 0  # EVALUATION, SUMMARIZE, EXPORT of a round's model
    replay: bool = False  # was leased before: seconds count as replay
    move: bool = False  # EXPORT: the round's model lies aside, move it to its place
    # EXPORT of a round's model: that of this round stays aside. Of the final one: none
    # stays up to this round; those that still lie there are of masters that were lost.
    beside: int = 0
    # EXPORT: when the job's journal began, in ms since 1970. A job that is begun anew
    # under the same name has a later one, and other rounds of the same numbers.
    life: int = 0


@dataclass(frozen=True, slots=True)
class SkippedRecord:
    """A record that could not be read or fed, and was left out."""

    source: str = ""
    record: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ShardInfo:
    """A shard that a custom reader listed."""

    source: str = ""
    start: int = 0
    end: int = 0


@dataclass(frozen=True, slots=True)
class RecordShare:
    """Records of a task that one member of a group took."""

    worker: int = 0  # its generation
    records: int = 0


@dataclass(frozen=True, slots=True)
class TaskReport:
    """A worker's report on a leased task."""

    task_id: int = 0
    lease_id: int = 0
    outcome: TaskOutcome = TaskOutcome.UNSPECIFIED
    error: str = ""  # FAILED: last traceback
    records: int = 0  # that the reader gave of the range, bad ones too
    steps: int = 0
    loss: float = 0.0  # mean over the task
    model_version: int = 0
    bad_records: tuple[SkippedRecord, ...] = ()
    state: bytes = b""  # EVALUATION: metric states to add
    results_json: str = ""  # SUMMARIZE: {"accuracy": 0.9}; EXPORT: {"paths": [...]}
    shards: tuple[ShardInfo, ...] = ()  # SHARDS
    skipped_batches: int = 0  # onNanLoss: skip
    fatal: bool = False  # FAILED: more tries are useless (NaN loss, bad data)
    exit_code: int = 0  # FAILED: kind of error, errors.ExitCode; 0: not known
    rows: int | None = None  # DONE, training: that `feed` made and were trained
    skipped_rows: int = 0  # onNanLoss: skip: rows of the batches left out
    shares: tuple[RecordShare, ...] = ()  # DONE, strategy allReduce


@dataclass(frozen=True, slots=True)
class LeaseRequest:
    """Reports of finished tasks, and the number of new tasks wanted."""

    replica: ReplicaId = NOBODY
    reports: tuple[TaskReport, ...] = ()
    want: int = 0  # 0 only reports
    wait_seconds: float = 0.0
    # As in heartbeats: what is reported is in the PS at these versions.
    ps_versions: tuple[int, ...] = ()
    ps_rewind: int = 0
    # Who takes another worker's tasks over is given what it holds and does not name.
    resumes: bool = False
    held: tuple[int, ...] = ()  # leases


@dataclass(frozen=True, slots=True)
class ReportResult:
    """The master's answer to a report."""

    lease_id: int = 0
    accepted: bool = False  # False: the lease had moved on; the ledger has a replay
    reason: str = ""


@dataclass(frozen=True, slots=True)
class LeaseReply:
    """New tasks, and the answers to the reports."""

    tasks: tuple[Task, ...] = ()
    results: tuple[ReportResult, ...] = ()
    finished: bool = False  # no task will come any more: leave
    # The caller should call no more often than once in so many seconds: its share of
    # the calls that the master has time for. Async: tasks and reports of that time go
    # together.
    call_seconds: float = 0.0
    # What workers have themselves is being evaluated: whoever makes steps waits.
    steps_wait: bool = False
