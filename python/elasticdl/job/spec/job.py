"""The job's specification: frozen, typed models of the `job:` tree.

Owns every field, default, bound and help text of a job (the replicas' part is in
`job.spec.replicas`); the JSON Schema, docs/spec.md and the classic flags are made from
here. Read by every role. Must not know where a job runs or who reads it: it is data.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from elasticdl.job.names import Role
from elasticdl.job.spec.alerts import AlertsSpec
from elasticdl.job.spec.base import (
    MAX_NAME_LENGTH,
    NAME_PATTERN,
    NOT_AT_THE_END,
    PATH_PATTERN,
    QUANTITY_PATTERN,
    CountOrZero,
    DataFormat,
    JobType,
    LogLevel,
    OnBadRecord,
    OnNanLoss,
    PositiveInt,
    PositiveSeconds,
    Recovery,
    Seconds,
    SpecModel,
    Strategy,
    UpdateMode,
)
from elasticdl.job.spec.ending import OnEndSpec
from elasticdl.job.spec.group import needs_of_group
from elasticdl.job.spec.labels import Image
from elasticdl.job.spec.problems import Problem, ProblemsError
from elasticdl.job.spec.replicas import (
    ENV_OF_WORKERS,
    MasterSpec,
    PsSpec,
    ReplicaSpec,
    WorkerSpec,
    names_of_variables,
)
from elasticdl.job.spec.resources import LimitsSpec, ResourcesSpec
from elasticdl.job.spec.strategies import needs_of_local, needs_of_sync
from elasticdl.job.spec.training import AllReduceSpec, TrainingSpec
from elasticdl.job.spec.volumes import VolumeSpec
from elasticdl.job.words import DataKind

__all__ = [
    "MAX_NAME_LENGTH",
    "NAME_PATTERN",
    "PATH_PATTERN",
    "QUANTITY_PATTERN",
    "CheckpointSpec",
    "CountOrZero",
    "DataFormat",
    "DataPrepareSpec",
    "DataSpec",
    "EvaluationSpec",
    "ExportSpec",
    "JobSpec",
    "JobType",
    "LimitsSpec",
    "LogLevel",
    "LogSpec",
    "MasterSpec",
    "ModelSpec",
    "OnBadRecord",
    "OnEndSpec",
    "OnNanLoss",
    "PositiveInt",
    "PositiveSeconds",
    "PsSpec",
    "Recovery",
    "ReplicaSpec",
    "ResourcesSpec",
    "Seconds",
    "Strategy",
    "TasksSpec",
    "TrainingSpec",
    "UpdateMode",
    "VolumeSpec",
    "WorkerSpec",
]


class ModelSpec(SpecModel):
    """Where the model module is and how its functions are called."""

    zoo: str = Field(
        "model_zoo",
        description="Folder of model modules; relative to the current folder here, to "
        "`/` in an image.",
    )
    definition: str = Field(
        "",
        description="`folder.file.function` in the zoo (or `file.function`); the "
        "function returns a Keras model, or is a Model class.",
    )
    files: dict[str, str] = Field(
        default_factory=dict,
        description="Model code inside the values file: file name -> content. Takes "
        "the place of `zoo`.",
    )
    params: dict[str, Any] = Field(
        default_factory=dict, description="Keyword arguments for the model function."
    )
    feed: str = Field("feed", description="Name of the feed function.")
    loss: str = Field("loss", description="Name of the loss function.")
    optimizer: str = Field("optimizer", description="Name of the optimizer function.")
    eval_metrics: str = Field(
        "eval_metrics_fn", description="Name of the metrics function."
    )
    callbacks: str = Field("callbacks", description="Name of the callbacks function.")
    data_reader: str = Field(
        "custom_data_reader",
        description="Name of the custom reader function; empty: ElasticDL's readers, "
        "though the module has one.",
    )
    prediction_outputs_processor: str = Field(
        "PredictionOutputsProcessor",
        description="Name of the output processor class; empty: files in "
        "`predictionOutput`, though the module has one.",
    )
    mixed_precision: bool = Field(
        False, description="Compute in a 16-bit type, keep variables in float32."
    )
    jit_compile: bool = Field(
        False, description="Compile the step with XLA; slower on most CPUs."
    )


class DataPrepareSpec(SpecModel):
    """What creates missing data; exactly one of the two."""

    dataset: str | None = Field(
        None, description="A built-in data set, as `digits` (`elasticdl data make`)."
    )
    command: list[str] | None = Field(
        None, description="A command that writes the data; run once, in the data root."
    )

    @model_validator(mode="after")
    def _one_of_two(self) -> DataPrepareSpec:
        if (self.dataset is None) == (self.command is None):
            raise ProblemsError(
                Problem(
                    "",
                    "neither of them" if self.dataset is None else "both",
                    "exactly one of `dataset` and `command`",
                    "write `dataset: digits`, or a command as a list of words",
                )
            )
        return self


class DataSpec(SpecModel):
    """Which records a job reads and how."""

    root: str = Field(
        ".",
        description="Folder that relative data paths start from: the current folder "
        "here, the mounted claim in a cluster.",
    )
    training: str = Field("", description="File, folder or glob of training records.")
    validation: str = Field("", description="The same for evaluation.")
    prediction: str = Field("", description="The same for prediction.")
    format: DataFormat = Field(
        DataFormat.AUTO, description="`auto` decides by the file's ending and content."
    )
    reader_params: dict[str, Any] = Field(
        default_factory=dict,
        description="For the reader: CSV `delimiter`, `header`, `columns` (names), "
        "`quote`; NumPy `arrays` (`{feature: array}`); Parquet and Arrow `columns` "
        "(those to read); custom readers get all.",
    )
    prepare: DataPrepareSpec | None = Field(
        None, description="Makes the data when it is not there."
    )
    shuffle: bool = Field(
        True, description="Give tasks out in a new seeded order each epoch."
    )
    shuffle_records: bool = Field(
        False, description="Also permute the records inside a task, seeded."
    )
    on_bad_record: OnBadRecord = Field(
        OnBadRecord.FAIL,
        description="`fail` ends the job naming file and record; `skip` lists it in "
        "the report.",
    )

    def path_of(self, kind: DataKind) -> str:
        """Return the path of one kind of data; "" where there is none."""
        return {
            DataKind.TRAINING: self.training,
            DataKind.VALIDATION: self.validation,
            DataKind.PREDICTION: self.prediction,
        }[kind]


# What a job of each type goes through.
DATA_OF_JOB = {
    JobType.TRAIN: DataKind.TRAINING,
    JobType.EVALUATE: DataKind.VALIDATION,
    JobType.PREDICT: DataKind.PREDICTION,
}


class TasksSpec(SpecModel):
    """Size, leases and retries of tasks."""

    lease_seconds: PositiveSeconds = Field(
        600.0,
        description="A task not mentioned by its worker for this long is put back.",
    )
    max_failures: PositiveInt = Field(
        3,
        description="A task that failed so often, as with a reader that raises, fails "
        "the job. What feed, model or loss raise fails it at once; preemption, "
        "eviction and lost workers never count.",
    )


class EvaluationSpec(SpecModel):
    """When to evaluate on the validation data."""

    every_steps: CountOrZero = Field(
        0,
        description="At each multiple of so many model versions, or soon after it "
        "(without PS, once the tasks under way are done); 0 is never.",
    )
    every_seconds: Seconds = Field(
        0.0, description="Interval in seconds, without PS between two; 0 is never."
    )
    start_delay_seconds: Seconds = Field(
        0.0, description="Seconds before the first evaluation by time."
    )
    at_epoch_end: bool = Field(True, description="At the end of each epoch.")
    at_end: bool = Field(True, description="Once, of the final model.")


class CheckpointSpec(SpecModel):
    """Where and when checkpoints are written."""

    dir: str = Field("", description="Folder; empty: `checkpoints` in the job's.")
    every_steps: CountOrZero = Field(
        0,
        description="At each multiple of so many model versions; 0 is never by steps.",
    )
    every_seconds: Seconds = Field(60.0, description="Interval in seconds; 0 is never.")
    keep: CountOrZero = Field(3, description="Newest checkpoints to keep; 0 keeps all.")
    init_from: str = Field(
        "",
        description="A checkpoint (`.../version-N`), or a folder of them (the newest "
        "that can be loaded), to start from: values and slots, not progress in data.",
    )


def _all_formats() -> list[Literal["savedModel", "keras"]]:
    return ["savedModel", "keras"]


class ExportSpec(SpecModel):
    """The exported model for serving."""

    dir: str = Field(
        "",
        description="Folder for the exported model, of this job alone; empty is none.",
    )
    formats: list[Literal["savedModel", "keras"]] = Field(
        default_factory=_all_formats,
        min_length=1,
        description="`savedModel` for serving, `keras` for Python.",
    )


class LogSpec(SpecModel):
    """The roles' logs."""

    level: LogLevel = Field(LogLevel.INFO, description="Lowest level that is logged.")
    file: str = Field(
        "",
        description="File that all roles append the same lines to, in a cluster all "
        "but the master; made if it is missing. One that cannot be written is told of, "
        "and the job goes on.",
    )


class JobSpec(SpecModel):
    """One training, evaluation or prediction job."""

    name: str = Field(
        pattern=NAME_PATTERN,
        max_length=MAX_NAME_LENGTH,
        description="Name of the job: lower case letters, digits, dashes.",
    )
    type: JobType = Field(JobType.TRAIN, description="What the job does.")
    strategy: Strategy = Field(
        Strategy.PARAMETER_SERVER,
        description="`parameterServer`; `allReduce`: each worker has the whole model, "
        "and all make steps together; or `local`: one worker, no PS.",
    )
    image: Image = Field(
        "", description="Image of all roles; empty runs on this machine."
    )
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = Field(
        "IfNotPresent", description="When the image is pulled."
    )
    namespace: str = Field("", description="Namespace; empty is that of the release.")
    queue: str = Field(
        "",
        pattern=r"^([a-z0-9]([-.a-z0-9]*[a-z0-9])?)?$",
        max_length=63,
        description="Kueue's LocalQueue in which the job and its pods wait for quota.",
    )
    paused: bool = Field(
        False,
        description="Hold: no task is given out until false, and the workers leave "
        "after `worker.pauseSeconds`. The PS stay, and so do workers that hold the "
        "model (`strategy: local`, `allReduce`).",
    )
    model: ModelSpec = Field(description="The model module.")
    data: DataSpec = Field(default_factory=DataSpec, description="The records.")
    training: TrainingSpec = Field(
        default_factory=TrainingSpec, description="How long, in which portions."
    )
    all_reduce: AllReduceSpec = Field(
        default_factory=AllReduceSpec,
        description="With `strategy: allReduce`: what is between the workers.",
    )
    tasks: TasksSpec = Field(
        default_factory=TasksSpec, description="Leases, and how often a task may fail."
    )
    evaluation: EvaluationSpec = Field(
        default_factory=EvaluationSpec, description="When to evaluate."
    )
    checkpoint: CheckpointSpec = Field(
        default_factory=CheckpointSpec, description="State to go on from."
    )
    export: ExportSpec = Field(
        default_factory=ExportSpec, description="The model for serving."
    )
    prediction_output: str = Field(
        "",
        description="Prediction: folder for the default processor's files, which take "
        "the place of an earlier run's; empty is `predictions` in the job's folder.",
    )
    prediction_format: Literal["auto", "parquet", "jsonl"] = Field(
        "auto",
        description="Format of those files; `auto` is Parquet where pyarrow is "
        "installed.",
    )
    master: MasterSpec = Field(
        default_factory=MasterSpec, description="The process that leads the job."
    )
    ps: PsSpec = Field(
        default_factory=PsSpec,
        description="The parameter servers, which hold the model.",
    )
    worker: WorkerSpec = Field(
        default_factory=WorkerSpec, description="The workers, which compute gradients."
    )
    env: dict[str, str] = Field(
        default_factory=dict,
        description="Environment of all roles; `PYTHONPATH` is for workers alone.",
    )
    volumes: list[VolumeSpec] = Field(
        default_factory=list, description="Volumes of all pods."
    )
    log: LogSpec = Field(
        default_factory=LogSpec, description="What the roles' logs hold."
    )
    alerts: AlertsSpec = Field(
        default_factory=AlertsSpec, description="When alerts about this job fire."
    )
    on_end: OnEndSpec = Field(
        default_factory=OnEndSpec, description="Who is told when the job has ended."
    )

    @field_validator("env")
    @classmethod
    def _variables(cls, value: dict[str, str]) -> dict[str, str]:
        return names_of_variables(value)

    @model_validator(mode="after")
    def _complete(self) -> JobSpec:
        problems = [
            *self._name_of_another(),
            *self._files_outside(),
            *self._needs_of_type(),
            *self._needs_of_strategy(),
        ]
        if problems:
            raise ProblemsError(*problems)
        return self

    def _name_of_another(self) -> list[Problem]:
        """Refuse a name that another job's objects in a cluster would have."""
        ending = next((e for e in NOT_AT_THE_END if self.name.endswith(e)), None)
        if ending is None:
            return []
        other = self.name.removesuffix(ending)
        return [
            Problem(
                "name",
                repr(self.name),
                f"another end than `{ending}`: the job `{other}` shows itself in the "
                f"ConfigMap elasticdl-{self.name}",
                "choose another name",
            )
        ]

    def _files_outside(self) -> list[Problem]:
        expected = "a file name inside the model's folder"
        help_ = "take `..` and the leading `/` away"
        return [
            Problem("model.files", repr(name), expected, help_)
            for name in self.model.files
            if name.startswith("/") or ".." in name.split("/")
        ]

    def _needs_of_type(self) -> list[Problem]:
        problems = []
        if not self.model.definition:
            problems.append(
                Problem(
                    "model.definition",
                    "nothing",
                    "the model function, as `folder.file.function`",
                    "add it",
                )
            )
        elif not all(self.model.definition.partition(".")):
            problems.append(
                Problem(
                    "model.definition",
                    repr(self.model.definition),
                    "the model function, as `folder.file.function`",
                    "add the function's name behind the file's",
                )
            )
        origin, value = {
            JobType.TRAIN: ("training", self.data.training),
            JobType.EVALUATE: ("validation", self.data.validation),
            JobType.PREDICT: ("prediction", self.data.prediction),
        }[self.type]
        if not value:
            problems.append(
                Problem(
                    f"data.{origin}",
                    "nothing",
                    f"the records of this {self.type} job",
                    "name a file, a folder or a glob",
                )
            )
        if self.type is not JobType.TRAIN and not self.checkpoint.init_from:
            problems.append(
                Problem(
                    "checkpoint.initFrom",
                    "nothing",
                    f"the checkpoint that this {self.type} job loads",
                    "name a checkpoint (`.../version-N`) or a folder of them",
                )
            )
        return problems

    def _needs_of_strategy(self) -> list[Problem]:
        return [*needs_of_local(self), *needs_of_sync(self), *needs_of_group(self)]

    def document(self) -> dict[str, Any]:
        """Return the job as the `job:` tree, without default values."""
        return self.model_dump(
            by_alias=True, mode="json", exclude_defaults=True, exclude_none=True
        )

    def env_of(self, role: Role) -> dict[str, str]:
        """Return the environment of a role: its own over that of all.

        What is imported from a folder that workers can write is for workers alone.
        """
        own = {
            Role.MASTER: self.master.env,
            Role.PS: self.ps.env,
            Role.WORKER: self.worker.env,
        }[role]
        for_all = dict(self.env)
        if role is not Role.WORKER:
            for_all.pop("PYTHONPATH", None)
            return {**for_all, **own}
        return {**ENV_OF_WORKERS, **for_all, **own}
