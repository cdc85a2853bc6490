"""Which records a job goes through: asked of the readers, prepared if missing.

Owns the way from `data` in the specification to shards. Called by
`master.course.stages`. `DataStage` is a pure state machine; `count` opens files and
runs in a thread.

    CHECKING -> READY                       a built-in format, and the files are there
    CHECKING -> PREPARING -> CHECKING       data.prepare makes them, once
    CHECKING -> ASKING -> READY             the module has a reader of its own
    CHECKING -> FAILED                      no reader, and no records
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from pathlib import Path

from elasticdl.data.reader import Metadata, Shard, check_units, open_reader
from elasticdl.errors import DataError
from elasticdl.job.spec.group import ELASTIC, step_records
from elasticdl.job.spec.job import DATA_OF_JOB, JobSpec, JobType
from elasticdl.job.words import DataKind
from elasticdl.master.tasks.queue_plan import QueuePlan

Shards = Mapping[str, tuple[Shard, ...]]


class SearchStage(enum.Enum):
    """State of the search for records."""

    CHECKING = enum.auto()
    PREPARE = enum.auto()  # a task has to be made
    PREPARING = enum.auto()
    UNKNOWN = enum.auto()  # waits for a worker that knows the model module
    ASK = enum.auto()  # tasks have to be made
    ASKING = enum.auto()
    READY = enum.auto()
    FAILED = enum.auto()


def kinds(spec: JobSpec) -> list[DataKind]:
    """Return the kinds of data that a job reads; validation only if it has a path."""
    needed = [DATA_OF_JOB[spec.type]]
    if spec.type is JobType.TRAIN and spec.data.validation:
        needed.append(DataKind.VALIDATION)
    return needed


def count(spec: JobSpec) -> Shards:
    """Return the shards of each kind of data. Raises DataError. Blocks: files."""
    found: dict[str, tuple[Shard, ...]] = {}
    first: tuple[str, Metadata] | None = None
    for kind in kinds(spec):
        reader = open_reader(
            spec.data.path_of(kind),
            data_root=Path(spec.data.root),
            format=spec.data.format,
            params=spec.data.reader_params,
        )
        found[kind] = tuple(reader.shards())
        this = (found[kind][0].source, reader.metadata)
        check_units(first or this, this)
        first = first or this
    return found


class DataStage:
    """Finds the records of one job."""

    def __init__(self, spec: JobSpec, *, known: Shards | None, prepared: bool) -> None:
        """`known`, `prepared`: the findings of an earlier master."""
        self._kinds = kinds(spec)
        self._can_prepare = spec.data.prepare is not None and not prepared
        self.shards: dict[str, tuple[Shard, ...]] = dict(known or {})
        self.stage = SearchStage.READY if self._complete() else SearchStage.CHECKING
        self.error = ""
        self._counted: Shards | None = None
        self._custom: bool | None = None

    @property
    def kinds(self) -> Sequence[DataKind]:
        """The kinds of data that the job reads."""
        return self._kinds

    @property
    def may_prepare(self) -> bool:
        """Whether a worker may be asked to prepare the data."""
        return self._can_prepare and self.stage in (
            SearchStage.CHECKING,
            SearchStage.PREPARE,
        )

    def _complete(self) -> bool:
        return all(kind in self.shards for kind in self._kinds)

    def counted(self, result: Shards | DataError) -> None:
        """Take the result of `count`."""
        if self.stage is not SearchStage.CHECKING:
            return
        if isinstance(result, DataError):
            if self._can_prepare:
                self.stage = SearchStage.PREPARE
                return
            self.error = str(result)
        else:
            self._counted = result
        self.stage = SearchStage.UNKNOWN
        self._decide()

    def prepared(self) -> None:
        """Note that `data.prepare` has run; search again."""
        self._can_prepare = False
        self.stage = SearchStage.CHECKING

    def being_prepared(self) -> None:
        """Note that a worker was asked to run `data.prepare`."""
        self.stage = SearchStage.PREPARING

    def being_asked(self) -> None:
        """Note that a worker was asked to list the user's reader's shards."""
        self.stage = SearchStage.ASKING

    def model_known(self, *, custom_reader: bool) -> None:
        """Note that a worker has loaded the model module."""
        self._custom = custom_reader
        self._decide()

    def _decide(self) -> None:
        if self.stage is not SearchStage.UNKNOWN or self._custom is None:
            return
        if self._custom:
            self.stage = SearchStage.ASK
        elif self._counted is None:
            self.stage = SearchStage.FAILED
        else:
            self.shards.update(self._counted)
            self.stage = SearchStage.READY

    def asked(self, kind: str, shards: Sequence[Shard]) -> None:
        """Take the shards of one kind from the module's reader."""
        if not any(shard.num_records for shard in shards):
            self.error = (
                f"the custom reader found no {kind} records; check data.{kind} and "
                "the reader's create_shards"
            )
            self.stage = SearchStage.FAILED
            return
        self.shards[kind] = tuple(shards)
        if self._complete():
            self.stage = SearchStage.READY


def plan_of(
    spec: JobSpec,
    shards: Shards,
    *,
    max_steps: int,
    began_with: QueuePlan | None = None,
) -> QueuePlan | None:
    """Return the plan of the queue; None if all work is one evaluation.

    `began_with`: the plan of an earlier run of the job. A group's records of a step
    that nobody has set stay those with which the job began.
    """
    if spec.type is JobType.EVALUATE:
        return None
    train = spec.type is JobType.TRAIN
    bounds = [n for n in (spec.training.max_steps, max_steps) if n]
    return QueuePlan(
        shards=shards[DataKind.TRAINING if train else DataKind.PREDICTION],
        batch_size=step_records(spec, began_with.batch_size if began_with else 0),
        batches_per_task=spec.training.batches_per_task,
        epochs=spec.training.epochs if train else 1,
        max_steps=min(bounds, default=0) if train else 0,
        shuffle=spec.data.shuffle and train,
        seed=spec.training.seed,
        elastic=train and spec.training.global_batch_size == ELASTIC,
    )
