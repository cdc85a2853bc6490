"""What replicas say of themselves, and what the master orders.

Owns registration, what a worker tells of its model, heartbeats and their answers.
Used by master, workers and PS. Must not know how any of it is encoded:
`rpc.heartbeat_messages` turns these classes into messages, and back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from elasticdl.job.tasks import NOBODY, ReplicaId, Ticket


@dataclass(frozen=True, slots=True)
class PsView:
    """Where the PS are. A worker that meets a PS error waits for a higher revision."""

    revision: int = 0
    addresses: tuple[str, ...] = ()  # by index; "" while a PS is away
    generations: tuple[int, ...] = ()  # by index
    rewind: int = 0  # number of rewinds; requests to PS carry it
    wants_values: tuple[bool, ...] = ()  # by index: it waits for pulled values


@dataclass(frozen=True, slots=True)
class Registration:
    """A replica's announcement that it is up."""

    replica: ReplicaId = NOBODY
    address: str = ""  # PS: host:port it serves on
    metrics_port: int = 0
    pid: int = 0
    unloadable: str = ""  # worker: a restore_dir that it cannot load; name another
    unloadable_reason: str = ""
    version: str = ""  # of its package: another minor version is refused


@dataclass(frozen=True, slots=True)
class RegistrationReply:
    """What a replica needs to begin."""

    master_generation: int = 0
    ps: PsView = PsView()
    restore_dir: str = ""  # PS (and worker of strategy local): checkpoint to load
    handback: bool = (
        False  # PS: no checkpoint to load, wait for values that were pulled
    )
    min_version: int = 0  # PS: versions below were used before it was lost


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What the master must know about a model that a worker has built."""

    replica: ReplicaId = NOBODY
    callbacks_json: str = ""  # list of {"class", ...params}, master/model/callbacks.py
    num_parameters: int = 0
    metric_names: tuple[str, ...] = ()
    order_preserved: bool = False  # feed keeps record order: tasks may be resumed
    custom_reader: bool = False  # the module has its own reader: ask it for the shards


# -- snapshots ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SnapshotRequest:
    """The master asks a PS for a snapshot."""

    id: str = ""
    dir: str = ""  # checkpoint: folder to write to; "": keep in memory
    ticket: Ticket | None = None  # sync, PS other than 0: the version to take


@dataclass(frozen=True, slots=True)
class LocalSnapshot:
    """The master asks the worker that has the model for a checkpoint."""

    id: str = ""  # "": none is wanted
    dir: str = ""
    last: bool = False  # the job stops: no step is made after it


@dataclass(frozen=True, slots=True)
class SnapshotDone:
    """A replica's answer to a request for a snapshot."""

    id: str = ""
    version: int = 0
    ticket: Ticket | None = None  # PS 0, sync: of that version
    file: str = ""  # checkpoint: name of the shard file
    file_bytes: int = 0
    crc32: int = 0
    # Task id -> leading records applied.
    applied: Mapping[int, int] = field(default_factory=dict)
    error: str = ""  # checkpoint: could not be written (disk full ...)
    pinned_only: bool = False  # checkpoint: pinned, still being written
    written_bytes: int = 0  # checkpoint: so many are written so far


# -- workers --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GroupReport:
    """What a worker says of the group that it makes steps with."""

    address: str = ""  # where other members reach it; "": it is not ready
    round: int = 0  # that it is in
    level: bool = False  # it has the group's state in that round
    broken: int = 0  # a round that cannot go on
    lost: int = 0  # number of the member that it lost then; 0: not known
    stateless: bool = False  # nobody in that round has a state
    # Of a newcomer: it has followed the group's steps up to the last few, or gave up.
    copied: bool = False
    differing: tuple[int, ...] = ()  # of the leader: whose state is not as its own
    leaves: bool = False  # it makes no step any more, and goes once it may
    version: int = 0  # of the group's state with which it leaves; 0: it has none


@dataclass(frozen=True, slots=True)
class GroupFigures:
    """What steps with others cost a worker; for people to look at."""

    round: int = 0  # in which it made its last step
    # From its last step in a round before until the first one here was made; 0: this
    # is its first round.
    change_seconds: float = 0.0
    wait_seconds: float = 0.0  # for others, of a step: mean of the last ones
    step_bytes: int = 0  # sent for the gradients of the last step
    sent_bytes: int = 0  # sent for gradients, since process start


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A worker that makes steps with others."""

    number: int  # its generation, which no other replica of the job has had
    address: str
    since: int  # the first of the rounds that it has been in without a gap


@dataclass(frozen=True, slots=True)
class GroupRound:
    """Who makes steps together, until a member comes or goes."""

    number: int = 0  # 0: none
    members: tuple[GroupMember, ...] = ()  # the oldest first; the first one leads
    begins: bool = False  # nothing has been trained since `restore_dir`
    restore_dir: str = ""  # what it begins with; "": initial values
    step_records: int = 0  # of all members together; 0: not known yet
    waits: bool = False  # for more members: no step is made
    newcomers: bool = False  # others are ready to get the state
    stays: bool = False  # who leaves: nobody else has its state yet
    goes: bool = False  # who leaves: it may


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """The worker's own part of its heartbeat."""

    phase: str = ""  # job.words.WorkerPhase
    step: int = 0  # steps made by this process
    model_version: int = 0
    loss: float = 0.0
    step_seconds: float = 0.0  # mean of the last steps
    # Goodput ledger, by cause, since process start.
    seconds: Mapping[str, float] = field(default_factory=dict)
    memory_bytes: int = 0
    phase_seconds: float = 0.0  # since the last step or change of phase
    lease_ids: tuple[int, ...] = ()  # held; their deadlines are renewed
    snapshots: tuple[SnapshotDone, ...] = ()  # strategy local; repeated until dropped
    ps_versions: tuple[int, ...] = ()  # by PS: newest it answered with, in ps_rewind
    batches: int = 0  # of any task, gone through by this process
    ps_rewind: int = 0  # without versions: nothing was pulled in it yet
    # Of a batch like the one under way; 0 where none is, or it is the first of its
    # kind, which may be traced or compiled: then nobody can say how long it takes.
    usual_seconds: float = 0.0
    group: GroupReport = GroupReport()  # strategy allReduce
    group_figures: GroupFigures = GroupFigures()  # strategy allReduce
    warnings: tuple[str, ...] = ()  # of the user's model and data; each once


@dataclass(frozen=True, slots=True)
class WorkerHeartbeat:
    """A worker's heartbeat."""

    replica: ReplicaId = NOBODY
    worker: WorkerReport = WorkerReport()
    seen_revision: int = 0
    hold_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class WorkerOrders:
    """The answer to a worker's heartbeat."""

    revision: int = 0
    ps: PsView = PsView()
    drain: bool = False  # hand tasks back and leave (scaled down, job stopped)
    learning_rate_scale: float = 0.0  # 1 unless a callback changed it
    log_level: str = ""
    lost_leases: tuple[int, ...] = ()  # held by the caller, given to another: abandon
    local_snapshot: LocalSnapshot = LocalSnapshot()  # strategy local
    active_workers: int = 0
    epoch: int = 0  # oldest epoch still being trained
    group: GroupRound = GroupRound()  # strategy allReduce: the round that it is in
    awaited_version: int = 0  # beat at once when the model has it; 0: none


# -- parameter servers ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PsReport:
    """The PS's own part of its heartbeat."""

    initialized: bool = False
    version: int = 0
    bytes: int = 0
    pushes: int = 0
    rejected: int = 0
    staleness_sum: float = 0.0
    memory_bytes: int = 0
    snapshots: tuple[SnapshotDone, ...] = ()  # repeated until the request is dropped
    rewind: int = 0  # the rewind it has carried out
    error: str = ""  # cannot go on: fails the job
    # For people to look at. Counters count from the start of the process.
    embedding_rows: int = 0  # rows of embedding tables that it holds
    received_bytes: int = 0  # of tensors, pushed
    sent_bytes: int = 0  # of tensors, pulled
    calls: int = 0  # inits, pulls and pushes
    call_seconds: float = 0.0  # of all calls together, without transfer
    memory_limit_bytes: int = 0  # 0: not limited
    unloadable: str = ""  # restore_dir that cannot be loaded: name another
    unloadable_reason: str = ""
    began_at: int = 0  # version of the values that it began with
    obeyed_revision: int = 0  # of the last answer that it has carried out
    wants_optimizer: bool = False  # a worker's: none of restore_dir's can be run
    warning: str = ""  # of what was not taken over from restore_dir


@dataclass(frozen=True, slots=True)
class PsHeartbeat:
    """A PS's heartbeat."""

    replica: ReplicaId = NOBODY
    status: PsReport = PsReport()
    seen_revision: int = 0
    hold_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class PsOrders:
    """The answer to a PS's heartbeat."""

    revision: int = 0
    quorum: int = 0  # sync: gradients that make a version now
    learning_rate_scale: float = 0.0
    snapshots: tuple[SnapshotRequest, ...] = ()  # all wanted; others are dropped
    rewind: int = 0
    restore_dir: str = ""  # to load when rewind is newer than carried out
    stop: bool = False  # job over: leave
    log_level: str = ""
    awaited_version: int = 0  # beat at once when this PS has it; 0: none
