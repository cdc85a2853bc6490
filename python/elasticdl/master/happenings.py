"""What happens to a job, said once, by the part that knows it, at the moment it knows.

Owns the happenings, one frozen class for each, and the diary in which they wait until
the loop collects them. Written by the parts of the master, read by
`master.telling.publishing`: it has them counted (`master.members.changes`) and makes
sentences of them (`master.telling.sentences`) for the job's history, the platform's
notices, the status, and so for all who show it. Must not know who reads what is said.

A happening lives as long as its master. What the next one must know is a fact in the
journal (`master.tasks.facts`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from elasticdl.job.decision import Decision
from elasticdl.job.status import EvaluationResult, Relaunch
from elasticdl.job.words import ChangeCause, JobState
from elasticdl.master.live_edits import change_words

# As many, the newest, are in a job's status: who looks each second misses none.
MOST_TOLD = 50


@dataclass(frozen=True, kw_only=True)
class Happening:
    """Something that happened."""

    time: float  # Unix seconds


# -- replicas -------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ReplicaWanted(Happening):
    """The job asked for an additional worker."""

    replica: str
    role: str
    why: ChangeCause


@dataclass(frozen=True, kw_only=True)
class ReplicaWaits(Happening):
    """The platform cannot start a replica now."""

    replica: str
    reason: str  # in the platform's words; the first one says which kind it is

    @property
    def kind(self) -> str:
        """The platform's reason word, for example `Unschedulable`."""
        return self.reason.partition(":")[0]


@dataclass(frozen=True, kw_only=True)
class ReplicaJoined(Happening):
    """A replica started to run."""

    replica: str
    role: str
    waited: float  # seconds since it was asked for


@dataclass(frozen=True, kw_only=True)
class ReplicaWorks(Happening):
    """An additional worker did its first work."""

    replica: str


@dataclass(frozen=True, kw_only=True)
class ReplicaDismissed(Happening):
    """A worker was told to leave without a replacement."""

    replica: str
    role: str
    why: ChangeCause


@dataclass(frozen=True, kw_only=True)
class ReplicaLeft(Happening):
    """A replica that was told to leave has ended."""

    replica: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class ReplicaEnded(Happening):
    """A replica was lost; `record` has the cause and the replacement."""

    record: Relaunch


@dataclass(frozen=True, kw_only=True)
class ReplacementWorks(Happening):
    """The replacement of a lost replica did its first work."""

    record: Relaunch  # with `seconds`


# -- the job --------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class JobEntered(Happening):
    """The job entered another state. `why`: where that is not said elsewhere."""

    state: JobState
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class JobEdited(Happening):
    """An edit of the values file was applied."""

    path: str  # worker.replicas
    old: Any
    new: Any

    def __str__(self) -> str:
        """`worker.replicas: 3 -> 5`."""
        return change_words(self.path, self.old, self.new)


@dataclass(frozen=True, kw_only=True)
class EditRefused(Happening):
    """An edit of the values file was refused."""

    text: str
    change: str = ""  # "" is the whole file


@dataclass(frozen=True, kw_only=True)
class MasterTookOver(Happening):
    """This master took over the job of an earlier one."""

    generation: int


@dataclass(frozen=True, kw_only=True)
class AttentionNeeded(Happening):
    """The message that users have to know is another one than before."""

    message: str


@dataclass(frozen=True, kw_only=True)
class SizeGranted(Happening):
    """A grant changed how many workers the job wants."""

    before: int
    workers: int
    why: str  # as whoever granted it says


@dataclass(frozen=True, kw_only=True)
class GrantEnded(Happening):
    """The grant expired, was taken back, or fits the job no more."""

    before: int
    workers: int  # wanted without one


@dataclass(frozen=True, kw_only=True)
class GrantRefused(Happening):
    """A grant does not hold, or not as it is."""

    text: str


# -- the model ------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class CheckpointWritten(Happening):
    """A checkpoint is complete."""

    version: int
    seconds: float | None  # that it took


@dataclass(frozen=True, kw_only=True)
class CheckpointFailed(Happening):
    """A checkpoint could not be written."""

    problem: str


@dataclass(frozen=True, kw_only=True)
class WentBack(Happening):
    """Training went back to a checkpoint."""

    cause: str
    version: int | None  # of the checkpoint; None: the job's beginning


@dataclass(frozen=True, kw_only=True)
class RoundBegan(Happening):
    """Other workers than before make steps together."""

    number: int
    members: tuple[str, ...]  # names, the leader's first
    why: str


@dataclass(frozen=True, kw_only=True)
class RoundWorks(Happening):
    """The workers of a round made their first step, and others one before it."""

    number: int
    seconds: float  # since the last step of a round before


@dataclass(frozen=True, kw_only=True)
class Evaluated(Happening):
    """A round of evaluation is complete."""

    result: EvaluationResult


class Diary:
    """Happenings since the last collection, and the newest decisions made from them."""

    def __init__(self) -> None:
        """Begin empty."""
        self._said: list[Happening] = []
        self._told: deque[Decision] = deque(maxlen=MOST_TOLD)
        self._count = 0

    def say(self, happening: Happening) -> None:
        """Add a happening."""
        self._said.append(happening)

    def take(self) -> Sequence[Happening]:
        """Return and remove the happenings since the last call, in order."""
        said, self._said = self._said, []
        return said

    def tell(self, decisions: Iterable[Decision]) -> None:
        """Keep the decisions made from happenings, for the job's status."""
        for decision in decisions:
            self._told.append(decision)
            self._count += 1

    @property
    def told(self) -> Sequence[Decision]:
        """The newest decisions, oldest first."""
        return self._told

    @property
    def told_before(self) -> int:
        """Number of decisions of this master that are older than `told`."""
        return self._count - len(self._told)
