"""What a job's journal holds beside its tasks: one frozen class for each kind.

Owns the stored form of each kind (its name, its fields, its version), which is a format
on disk, and how much of a kind is kept. Made by the parts of the master, stored by
`master.tasks.ledger`, counted by `master.tasks.notes`, read by whoever takes a master's
place and by the audit. Must not know files, nor what is done with a fact.

A field that is added gets a default, which stands for it in journals of before; fields
that this version does not know are passed over, so that an earlier version can go on
with a journal. What means something else than before gets a new `VERSION`: versions
that know only the older one refuse it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from elasticdl.errors import JournalError
from elasticdl.job import status, words
from elasticdl.job.tasks import ExportTarget

# As many of a kind that is listed, the newest.
MOST = 10_000

_STATE = "state"  # the kind of those facts of which a job has one at a time
_VERSION = "v"  # where a stored fact has its version; none is version 1


class Fact(BaseModel):
    """A durable finding or decision of a master that its successor must know."""

    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_inf_nan="constants")

    KIND: ClassVar[str]
    NAME: ClassVar[str] = ""  # that all facts of this class have, beside their kind
    VERSION: ClassVar[int] = 1
    # How much is kept: the newest of each name, one with the sum of a field, or KEPT.
    NEWEST: ClassVar[bool] = False
    SUM: ClassVar[str] = ""
    KEPT: ClassVar[int] = MOST

    @property
    def key(self) -> str | None:
        """The name of which this fact is the newest, for kinds kept by name."""
        return self.NAME or getattr(self, "name", None)

    def tree(self) -> dict[str, Any]:
        """Return the stored form; `read` parses it."""
        tree: dict[str, Any] = {"name": self.NAME} if self.NAME else {}
        if self.VERSION > 1:
            tree[_VERSION] = self.VERSION
        return {**tree, **self.model_dump(mode="json")}

    def plus(self, other: Self) -> Self:
        """Return the sum of two facts, for kinds of which the sum is kept."""
        total = getattr(self, self.SUM) + getattr(other, self.SUM)
        return self.model_copy(update={self.SUM: total})


class _State(Fact):
    """A fact that a job has once; stored under a name of its own."""

    KIND = _STATE
    NEWEST = True


# -- the job --------------------------------------------------------------------------


class RunFact(Fact):
    """A launch of the job has begun."""

    KIND = "run"

    time: float
    before: float = 0.0  # seconds that earlier launches ran


class LaunchFact(Fact):
    """The name of the newest launch."""

    KIND = "launch"
    NEWEST = True

    of: str


class JobStateFact(_State):
    """The state of the job; for an end also message and exit code."""

    NAME = "job"

    state: words.JobState
    time: float = 0.0
    message: str = ""
    exit_code: int = 0


class SpecificationFact(_State):
    """The specification in force, including the accepted live edits."""

    NAME = "spec"

    job: dict[str, Any]


class RestFact(_State):
    """Whether the workers of a paused job were sent home."""

    NAME = "rest"

    resting: bool


class EndToldFact(Fact):
    """`onEnd` was carried out for the end of a run."""

    KIND = "toldEnd"

    run: int


# -- replicas -------------------------------------------------------------------------


class Restore(BaseModel):
    """What a PS, or the worker that holds the model, restores."""

    model_config = ConfigDict(frozen=True)

    dir: str = ""
    handback: bool = False
    min_version: int = 0
    version: int = 0  # of the checkpoint in `dir`
    rewind: int = 0  # it belongs to
    alone: bool = False  # the others go on: what it lacks of theirs is lost


class ReplicaFact(Fact):
    """What is known about a replica. Those of all living replicas are kept."""

    KIND = "replica"
    NEWEST = True

    name: str
    role: str
    index: int
    generation: int
    priority: str
    memory: int  # bytes
    address: str
    metrics_port: int
    pid: int
    registered: bool
    ready: bool
    initialized: bool
    restore: Restore | None
    ended: bool
    time: float
    joined: float = 0.0  # Unix seconds; 0: not yet, or noted before this was


class RelaunchFact(status.Relaunch, Fact):
    """A replica ended, and what was done about it."""

    KIND = "relaunch"
    KEPT = 1_000

    counted: bool  # against maxRestarts

    @property
    def record(self) -> status.Relaunch:
        """Return the fact in the form of the job's status."""
        return status.Relaunch(**self.model_dump(exclude={"counted"}))


class RecoveredFact(Fact):
    """A replacement did its first work."""

    KIND = "recovered"
    KEPT = 1_000

    record: int  # number of the relaunch, from 0
    seconds: float  # since the end of the one before


class RelaunchCountsFact(_State):
    """Number of ended replicas by role, reason and cause."""

    NAME = "relaunches"

    run: int  # number of the run that `counted` is of
    counted: list[float]  # Unix seconds of the ends against maxRestarts
    counts: dict[str, dict[str, int]]  # role -> reason in words -> ends
    # role -> `EndCause` -> ends; None: of before causes and reasons were apart.
    causes: dict[str, dict[str, int]] | None = None


class GoodputFact(_State):
    """Seconds of ended workers by cause."""

    NAME = "goodput"

    seconds: dict[str, float]


class GoodputLiveFact(_State):
    """Seconds of living workers by cause, so far."""

    NAME = "goodputLive"

    workers: dict[int, dict[str, float]]  # generation -> cause -> seconds


# -- the model ------------------------------------------------------------------------


class ModelFact(Fact):
    """What the first worker reported of the user's model."""

    KIND = "model"

    callbacks: str  # JSON
    custom_reader: bool
    parameters: int = 0


class InitFromFact(_State):
    """The checkpoint that the job starts from."""

    NAME = "initFrom"

    given: str  # in the values file
    dir: str
    bytes: int = 0
    dropped: tuple[str, ...] = ()  # newer ones that could not be loaded


class BegunFact(Fact):
    """Training has begun: the job has something to lose."""

    KIND = "begun"

    time: float


class CheckpointFact(Fact):
    """The newest checkpoint."""

    KIND = "checkpoint"
    NEWEST = True

    name: str = "newest"
    version: int = 0
    dir: str


class CourseFact(_State):
    """Which checkpoints belong to the job; see `model.checkpoint_identity.Course`."""

    NAME = "course"

    run: str
    unnamed: bool
    rewinds: int
    limits: tuple[tuple[int, int], ...]


class RewindFact(Fact):
    """Training has gone back to a checkpoint, or to the job's beginning (no `dir`)."""

    KIND = "rewind"
    NEWEST = True

    dir: str
    version: int
    cause: str = ""
    time: float = 0.0


class RewoundFact(Fact):
    """All PS have completed a rewind."""

    KIND = "rewound"
    NEWEST = True

    number: int


class GroupMemberFact(BaseModel):
    """A worker in a round of its group."""

    model_config = ConfigDict(frozen=True)

    number: int  # its generation
    index: int
    address: str
    since: int


class GroupRoundFact(_State):
    """The newest round of a group (strategy allReduce).

    A master must not tell a round that its successor does not know: numbers never
    repeat, and members keep their order.
    """

    NAME = "groupRound"

    number: int
    members: tuple[GroupMemberFact, ...]
    begins: bool
    restore_dir: str
    time: float
    why: str
    cause: str = ""  # a `RoundCause`; "": noted before this was
    changes_seconds: float = 0.0  # what the changes of rounds before cost
    repairs: int = 0  # of members that had other values than their leader


class LostUpdatesFact(Fact):
    """A PS came back without this many updates."""

    KIND = "lostUpdates"
    SUM = "count"

    ps: str = ""
    count: int


class MissingFact(Fact):
    """The updates missing in the values of a PS."""

    KIND = "missing"
    NEWEST = True

    name: str  # of the PS
    ranges: tuple[tuple[int, int], ...]  # first and last version


class EvaluationFact(status.EvaluationResult, Fact):
    """An evaluation round with its result; older journals have the result only."""

    KIND = "evaluation"

    number: int = 0
    epochs_done: int = 0
    point: str = ""  # of training, when it was opened; "" is not known
    kept: bool = False  # its model was written to `best` at once (older journals)
    aside: tuple[ExportTarget, ...] = ()  # what its model was written aside for

    @property
    def result(self) -> status.EvaluationResult:
        """Return the fact in the form of the job's status."""
        fields = status.EvaluationResult.model_fields
        return status.EvaluationResult(**self.model_dump(include=set(fields)))


class UndoneFact(Fact):
    """A rewind undid these evaluation rounds."""

    KIND = "undone"

    rounds: tuple[int, ...]


class RoundFact(Fact):
    """An evaluation round was opened; obsolete, results record this now."""

    KIND = "round"

    epochs_done: int


class ExportFact(Fact):
    """A model was exported."""

    KIND = "export"

    target: str
    paths: tuple[str, ...]
    point: str = ""  # of training
    round: int = 0  # whose model was moved there


# -- the data -------------------------------------------------------------------------


class PreparedFact(Fact):
    """The user's module prepared the data."""

    KIND = "prepared"

    time: float


class ShardsFact(Fact):
    """The sources of the data and their records."""

    KIND = "shards"

    # `DataKind` -> source, first record, end
    shards: dict[str, tuple[tuple[str, int, int], ...]]


class StartFact(Fact):
    """The queue's position before the first task; see `TaskQueue.position`."""

    KIND = "start"

    position: dict[str, Any]


class BadRecordFact(Fact):
    """A record that could not be read or parsed."""

    KIND = "badRecord"
    KEPT = 1_000

    source: str
    record: int
    reason: str


class SkippedFact(Fact):
    """Batches skipped because their loss was not finite."""

    KIND = "skipped"
    SUM = "batches"

    worker: str = ""
    batches: int


KINDS: tuple[type[Fact], ...] = (
    RunFact,
    LaunchFact,
    JobStateFact,
    SpecificationFact,
    RestFact,
    EndToldFact,
    ReplicaFact,
    RelaunchFact,
    RecoveredFact,
    RelaunchCountsFact,
    GoodputFact,
    GoodputLiveFact,
    ModelFact,
    InitFromFact,
    BegunFact,
    CheckpointFact,
    CourseFact,
    RewindFact,
    RewoundFact,
    GroupRoundFact,
    LostUpdatesFact,
    MissingFact,
    EvaluationFact,
    UndoneFact,
    RoundFact,
    ExportFact,
    PreparedFact,
    ShardsFact,
    StartFact,
    BadRecordFact,
    SkippedFact,
)

_BY_KIND: Mapping[tuple[str, str], type[Fact]] = {
    (of.KIND, of.NAME): of for of in KINDS
}


def read(kind: str, tree: Mapping[str, Any]) -> Fact:
    """Return the fact with this stored form.

    Raises JournalError if this version does not know its kind or cannot read it.
    """
    # The first journals had one fact of this kind, the job's state, without a name.
    name = tree.get("name", JobStateFact.NAME) if kind == _STATE else ""
    noted = f"{kind} {name}".strip()
    of = _BY_KIND.get((kind, name))
    if of is None or tree.get(_VERSION, 1) > of.VERSION:
        version = f" in version {tree[_VERSION]}" if _VERSION in tree else ""
        raise JournalError(
            f"the journal notes {noted!r}{version}, which this version does not know: "
            "another version of ElasticDL wrote it; go on with that version"
        )
    try:
        return of.model_validate(tree)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise JournalError(
            f"the journal notes {noted!r}, which cannot be read: {first['msg']} "
            f"at {place}; it is damaged, or another version of ElasticDL wrote it"
        ) from error
