"""What a job's journal holds of its model: checkpoints, rounds, evaluations, exports.

Owns the stored form of these kinds (their names, their fields, their versions), which
is a format on disk; `master.tasks.fact` says what holds for every kind. Made mostly by
the rooms `master.model` and `master.calls`, read and listed by `master.tasks.facts`.
Must not know files, nor what is done with a fact.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from elasticdl.job import status
from elasticdl.job.tasks import ExportTarget
from elasticdl.master.tasks.fact import Fact, StateFact


class ModelFact(Fact):
    """What the first worker reported of the user's model."""

    KIND = "model"

    callbacks: str  # JSON
    custom_reader: bool
    parameters: int = 0


class InitFromFact(StateFact):
    """The checkpoint that the job starts from."""

    NAME = "initFrom"

    given: str  # in the values file
    dir: str
    bytes: int = 0
    dropped: tuple[str, ...] = ()  # newer ones that could not be loaded
    version: int = 0


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


class CourseFact(StateFact):
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
    # By PS, with which they went on: parts of an asynchronous checkpoint differ. (): an
    # earlier version noted none.
    versions: tuple[int, ...] = ()


class GroupMemberFact(BaseModel):
    """A worker in a round of its group."""

    model_config = ConfigDict(frozen=True)

    number: int  # its generation
    index: int
    address: str
    since: int


class GroupRoundFact(StateFact):
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


class ReachedFact(Fact):
    """The version that a PS was known to have when it was lost alone."""

    KIND = "reached"
    NEWEST = True

    name: str  # of the PS
    version: int
    rewind: int  # it is of


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
    """Epochs were completed that an evaluation round had measured before."""

    KIND = "round"

    epochs_done: int
    number: int = 0  # of the round; 0: one of before results recorded their epochs


class ExportFact(Fact):
    """A model was exported."""

    KIND = "export"

    target: str
    paths: tuple[str, ...]
    point: str = ""  # of training
    round: int = 0  # whose model was moved there
