"""What a job's journal holds beside its tasks: one frozen class for each kind.

Owns the list of all kinds, how a stored fact is read, and the stored form of those of
the job, its replicas and its data (names, fields, versions), which is a format on disk;
`master.tasks.model_facts` has those of the model, `master.tasks.fact` what holds for
every kind. Made by the parts of the master, stored by `master.tasks.ledger`, counted by
`master.tasks.notes`, read by whoever takes a master's place and by the audit. Must not
know files, nor what is done with a fact.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from elasticdl.errors import JournalError
from elasticdl.job import status, words
from elasticdl.master.tasks import model_facts
from elasticdl.master.tasks.fact import STATE, VERSION_KEY, Fact, StateFact

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


class JobStateFact(StateFact):
    """The state of the job; for an end also message and exit code."""

    NAME = "job"

    state: words.JobState
    time: float = 0.0
    message: str = ""
    exit_code: int = 0


class SpecificationFact(StateFact):
    """The specification in force, including the accepted live edits."""

    NAME = "spec"

    job: dict[str, Any]


class RestFact(StateFact):
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


class RelaunchCountsFact(StateFact):
    """Number of ended replicas by role, reason and cause."""

    NAME = "relaunches"

    run: int  # number of the run that `counted` is of
    counted: list[float]  # Unix seconds of the ends against maxRestarts
    counts: dict[str, dict[str, int]]  # role -> reason in words -> ends
    # role -> `EndCause` -> ends; None: of before causes and reasons were apart.
    causes: dict[str, dict[str, int]] | None = None


class GoodputFact(StateFact):
    """Seconds of ended workers by cause."""

    NAME = "goodput"

    seconds: dict[str, float]


class GoodputLiveFact(StateFact):
    """Seconds of living workers by cause, so far."""

    NAME = "goodputLive"

    workers: dict[int, dict[str, float]]  # generation -> cause -> seconds


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
    model_facts.ModelFact,
    model_facts.InitFromFact,
    model_facts.BegunFact,
    model_facts.CheckpointFact,
    model_facts.CourseFact,
    model_facts.RewindFact,
    model_facts.RewoundFact,
    model_facts.GroupRoundFact,
    model_facts.LostUpdatesFact,
    model_facts.MissingFact,
    model_facts.ReachedFact,
    model_facts.EvaluationFact,
    model_facts.UndoneFact,
    model_facts.RoundFact,
    model_facts.ExportFact,
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
    name = tree.get("name", JobStateFact.NAME) if kind == STATE else ""
    noted = f"{kind} {name}".strip()
    of = _BY_KIND.get((kind, name))
    if of is None or tree.get(VERSION_KEY, 1) > of.VERSION:
        version = f" in version {tree[VERSION_KEY]}" if VERSION_KEY in tree else ""
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
