"""The job's specification: frozen, typed models of the `job:` tree.

Owns every field, default, bound and help text of a job; the JSON Schema, the chart's
schema, docs/spec.md and the classic flags are generated from here. Read by every
role. Must not know where a job runs or who reads it: it is data.

Keys are camelCase in files and snake_case in Python; `_Model` maps them, once.
"""

from __future__ import annotations

import enum
import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic.alias_generators import to_camel

NAME_PATTERN = r"^[a-z0-9]([-a-z0-9]{0,50}[a-z0-9])?$"
QUANTITY_PATTERN = r"^[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti|P|Pi)?$"

PositiveInt = Annotated[int, Field(ge=1)]
CountOrZero = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(ge=0)]
PositiveSeconds = Annotated[float, Field(gt=0)]


class _Model(BaseModel):
    """Frozen, closed to unknown keys, camelCase outside and snake_case inside."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        populate_by_name=True,
        use_enum_values=False,
    )


class JobType(enum.StrEnum):
    """What a job does."""

    TRAIN = "train"
    EVALUATE = "evaluate"
    PREDICT = "predict"


class Strategy(enum.StrEnum):
    """How workers share the model."""

    PARAMETER_SERVER = "parameterServer"
    LOCAL = "local"


class UpdateMode(enum.StrEnum):
    """How the PS applies gradients."""

    ASYNC = "async"
    SYNC = "sync"


class Recovery(enum.StrEnum):
    """What happens when a PS is lost."""

    AUTO = "auto"
    CONTINUE = "continue"
    REWIND = "rewind"


class OnBadRecord(enum.StrEnum):
    """What to do with a record that cannot be read."""

    FAIL = "fail"
    SKIP = "skip"


class OnNanLoss(enum.StrEnum):
    """What to do when the loss is not a finite number."""

    STOP = "stop"
    SKIP = "skip"


class DataFormat(enum.StrEnum):
    """How records are stored."""

    AUTO = "auto"
    RECORDIO = "recordio"
    TFRECORD = "tfrecord"
    CSV = "csv"
    NUMPY = "numpy"


class LogLevel(enum.StrEnum):
    """Levels of the roles' logs."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class ResourcesSpec(_Model):
    """What one replica asks for. Keys other than cpu and memory go to `extra`."""

    cpu: float = Field(1.0, gt=0, description="CPUs; fractions are allowed.")
    memory: str = Field(
        "4096Mi", pattern=QUANTITY_PATTERN, description="Memory, as `512Mi` or `4Gi`."
    )
    extra: dict[str, str] = Field(
        default_factory=dict,
        description="Other resources by name, as `nvidia.com/gpu: '1'` or "
        "`ephemeral-storage: 1Gi`.",
    )


class ModelSpec(_Model):
    """Where the model module is and how its functions are called."""

    zoo: str = Field(
        "model_zoo",
        description="Folder of model modules; relative to the current folder here, "
        "to `/` in an image.",
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
        "custom_data_reader", description="Name of the custom reader function."
    )
    prediction_outputs_processor: str = Field(
        "PredictionOutputsProcessor", description="Name of the output processor class."
    )
    mixed_precision: bool = Field(
        False, description="Compute in a 16-bit type, keep variables in float32."
    )
    jit_compile: bool = Field(
        False, description="Compile the step with XLA; slower on most CPUs."
    )


class DataPrepareSpec(_Model):
    """What makes the data when it is not there; one of the two."""

    dataset: str | None = Field(
        None, description="A built-in data set, as `digits` (`elasticdl data make`)."
    )
    command: list[str] | None = Field(
        None, description="A command that writes the data; run once, in the data root."
    )

    @model_validator(mode="after")
    def _one_of_two(self) -> DataPrepareSpec:
        if (self.dataset is None) == (self.command is None):
            raise ValueError("give exactly one of `dataset` and `command`")
        return self


class DataSpec(_Model):
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
        DataFormat.AUTO, description="`auto` goes by the file's ending and content."
    )
    reader_params: dict[str, Any] = Field(
        default_factory=dict,
        description="For the reader: CSV `delimiter`, `header`; custom readers get all.",
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


class TrainingSpec(_Model):
    """How long to train, in which portions."""

    epochs: CountOrZero = Field(1, description="Passes over the data; 0 is endless.")
    max_steps: CountOrZero = Field(
        0, description="Stop after so many batches of all workers together; 0 is never."
    )
    batch_size: PositiveInt = Field(64, description="Records a worker takes per step.")
    batches_per_task: PositiveInt = Field(
        8, description="A task is this many batches; what a lost worker repeats."
    )
    seed: int = Field(0, description="Seed of task order, row order and initial values.")
    log_loss_steps: PositiveInt = Field(
        100, description="A worker logs its loss every so many steps."
    )
    on_nan_loss: OnNanLoss = Field(
        OnNanLoss.STOP,
        description="`stop` fails the job; `skip` drops the batch's gradient and counts "
        "it in the report.",
    )


class TasksSpec(_Model):
    """Leases on tasks."""

    lease_seconds: PositiveSeconds = Field(
        600.0,
        description="A task whose worker says nothing about it for so long goes back.",
    )
    max_failures: PositiveInt = Field(
        3,
        description="A task whose user code raised so often fails the job. Preemption, "
        "eviction and lost workers never count.",
    )


class EvaluationSpec(_Model):
    """When to evaluate on the validation data."""

    every_steps: CountOrZero = Field(
        0, description="Every so many model versions; 0 is never."
    )
    every_seconds: Seconds = Field(0.0, description="Every so many seconds; 0 is never.")
    start_delay_seconds: Seconds = Field(
        0.0, description="No evaluation by time before so many seconds."
    )
    at_epoch_end: bool = Field(True, description="At the end of each epoch.")
    at_end: bool = Field(True, description="Once, of the final model.")


class CheckpointSpec(_Model):
    """Where and when the state of training is written, to go on from."""

    dir: str = Field(
        "", description="Folder; empty is `checkpoints` in the job's folder."
    )
    every_steps: CountOrZero = Field(
        0, description="Every so many model versions; 0 is never by steps."
    )
    every_seconds: Seconds = Field(60.0, description="Every so many seconds; 0 is never.")
    keep: CountOrZero = Field(3, description="Newest checkpoints to keep; 0 keeps all.")
    init_from: str = Field(
        "",
        description="A checkpoint (`.../version-N`), or a folder of them, to start "
        "from: values and slots, not progress in the data.",
    )


class ExportSpec(_Model):
    """What is left of the model for serving."""

    dir: str = Field("", description="Folder for the exported model; empty is none.")
    formats: list[Literal["savedModel", "keras"]] = Field(
        default_factory=lambda: ["savedModel", "keras"],
        description="`savedModel` for serving, `keras` for Python.",
    )


class ReplicaSpec(_Model):
    """What master, PS and workers have in common."""

    image: str = Field("", description="Image; empty takes `job.image`.")
    resources: ResourcesSpec = Field(
        default_factory=ResourcesSpec, description="What a replica asks for."
    )
    limits: ResourcesSpec | None = Field(
        None, description="What it may not exceed; empty is the request."
    )
    env: dict[str, str] = Field(
        default_factory=dict, description="Environment, for this role alone."
    )


class MasterSpec(ReplicaSpec):
    """The master."""

    resources: ResourcesSpec = Field(
        default_factory=lambda: ResourcesSpec(cpu=0.1, memory="1024Mi"),
        description="What the master asks for.",
    )
    priority: str = Field("", description="Name of its PriorityClass.")
    port: int = Field(
        0, ge=0, le=65535, description="Port it listens on; 0 is any free one (50001 in "
        "a cluster).",
    )
    journal_wait_seconds: Seconds = Field(
        60.0,
        description="When the journal cannot be written (disk full): wait so long for "
        "room before the job fails. Nothing is acknowledged meanwhile.",
    )


class PsSpec(ReplicaSpec):
    """The parameter servers."""

    replicas: PositiveInt = Field(1, description="Number of PS.")
    priority: str = Field("", description="Name of their PriorityClass.")
    mode: UpdateMode = Field(
        UpdateMode.ASYNC,
        description="`async` applies each gradient as it comes; `sync` averages "
        "`gradsToWait` of one version.",
    )
    grads_to_wait: CountOrZero = Field(
        0,
        description="Sync: gradients that make a version; 0 is one of each worker. With "
        "fewer than the workers, the rest are backup workers: the first ones win. Fewer "
        "working workers than this make a version of what there is.",
    )
    staleness_modulation: bool = Field(
        False, description="Async: divide the learning rate by a gradient's staleness."
    )
    max_staleness: CountOrZero = Field(
        0,
        description="Async: refuse a gradient more than so many versions old (the worker "
        "computes it again); 0 is any age.",
    )
    recovery: Recovery = Field(
        Recovery.AUTO,
        description="After the loss of a PS: `continue` from its newest shard, `rewind` "
        "all; `auto` is continue in async and rewind in sync mode.",
    )
    threads: PositiveInt = Field(4, description="Threads that serve requests.")


class WorkerSpec(ReplicaSpec):
    """The workers."""

    replicas: PositiveInt = Field(1, description="Workers wanted.")
    min: CountOrZero = Field(
        0, description="Fewer than this are reported as below minimum; 0 is no minimum."
    )
    max: CountOrZero = Field(
        0, description="`scale` goes no higher; 0 is no maximum."
    )
    priority: str = Field(
        "low",
        description="PriorityClass, or a share as `0.5`: that share of the workers is "
        "`high`, the rest `low`.",
    )
    max_restarts: CountOrZero = Field(
        3,
        description="Crashes of the user's code that are forgiven, all workers together. "
        "Preemption, eviction, lost nodes and kills by hand never count.",
    )
    pull_steps: PositiveInt = Field(
        1, description="Pull dense variables every so many steps, apply locally between."
    )
    pipeline: bool = Field(
        True,
        description="Async: pull and push beside the step, one step stale. Off: in line.",
    )
    threads: CountOrZero = Field(
        0, description="Threads TensorFlow may use; 0 lets it choose."
    )
    heartbeat_seconds: PositiveSeconds = Field(
        1.0, description="How often a replica says that it is alive."
    )
    dead_seconds: PositiveSeconds = Field(
        6.0, description="A replica silent for so long is killed and replaced."
    )
    hang_seconds: PositiveSeconds = Field(
        8.0,
        description="A worker that holds a task and makes no step for so long (or 20 of "
        "its usual steps, if longer) is killed and replaced.",
    )
    start_seconds: PositiveSeconds = Field(
        300.0, description="The same bounds while it starts, traces or restores."
    )
    grace_seconds: PositiveSeconds = Field(
        15.0, description="Time between SIGTERM and SIGKILL."
    )
    max_memory: str = Field(
        "",
        description="An OOM-killed worker comes back with half as much again, up to "
        "this; empty gives up after `maxRestarts`.",
    )

    @field_validator("priority")
    @classmethod
    def _share_or_name(cls, value: str) -> str:
        if re.fullmatch(r"[0-9.]+", value):
            try:
                share = float(value)
            except ValueError:
                raise ValueError(
                    f"got {value!r}, expected a PriorityClass or a share as 0.5"
                ) from None
            if not 0.0 <= share <= 1.0:
                raise ValueError(f"got {value}, expected a share from 0 to 1")
        elif "=" in value:
            raise ValueError(
                f"got {value!r}; the form `high=0.5` is now written `0.5`"
            )
        return value

    @field_validator("max_memory")
    @classmethod
    def _quantity(cls, value: str) -> str:
        if value and not re.fullmatch(QUANTITY_PATTERN, value):
            raise ValueError(f"got {value!r}, expected a quantity as `8Gi`")
        return value

    @model_validator(mode="after")
    def _ordered(self) -> WorkerSpec:
        if self.max and self.replicas > self.max:
            raise ValueError(
                f"replicas is {self.replicas}, more than max {self.max}; raise max or "
                "lower replicas"
            )
        if self.min > self.replicas:
            raise ValueError(
                f"min is {self.min}, more than replicas {self.replicas}; lower min or "
                "raise replicas"
            )
        return self


class VolumeSpec(_Model):
    """One volume, mounted in all pods."""

    claim_name: str = Field("", description="PersistentVolumeClaim.")
    host_path: str = Field("", description="Folder of the node, where allowed.")
    mount_path: str = Field(description="Where it appears.")
    sub_path: str = Field("", description="Folder inside the volume.")
    type: str = Field("", description="Kind of host path, as `Directory`.")

    @model_validator(mode="after")
    def _one_source(self) -> VolumeSpec:
        if bool(self.claim_name) == bool(self.host_path):
            raise ValueError("give exactly one of `claimName` and `hostPath`")
        return self


class LogSpec(_Model):
    """The roles' logs."""

    level: LogLevel = Field(LogLevel.INFO, description="Least level that is written.")
    file: str = Field("", description="Also append to this file.")


class JobSpec(_Model):
    """One training, evaluation or prediction job."""

    name: str = Field(
        pattern=NAME_PATTERN,
        description="Name of the job: lower case letters, digits, dashes.",
    )
    type: JobType = Field(JobType.TRAIN, description="What the job does.")
    strategy: Strategy = Field(
        Strategy.PARAMETER_SERVER,
        description="`parameterServer`, or `local`: one worker, no PS.",
    )
    image: str = Field("", description="Image of all roles; empty runs on this machine.")
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = Field(
        "IfNotPresent", description="When the image is pulled."
    )
    namespace: str = Field("", description="Namespace; empty is that of the release.")
    paused: bool = Field(False, description="Hold: no task is given out until false.")
    model: ModelSpec = Field(description="The model module.")
    data: DataSpec = Field(default_factory=DataSpec, description="The records.")
    training: TrainingSpec = Field(
        default_factory=TrainingSpec, description="How long, in which portions."
    )
    tasks: TasksSpec = Field(default_factory=TasksSpec, description="Leases on tasks.")
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
        description="Prediction: folder for the default processor's files; empty is "
        "`predictions` in the job's folder.",
    )
    prediction_format: Literal["auto", "parquet", "jsonl"] = Field(
        "auto",
        description="Form of those files; `auto` is Parquet where pyarrow is installed.",
    )
    master: MasterSpec = Field(default_factory=MasterSpec, description="The master.")
    ps: PsSpec = Field(default_factory=PsSpec, description="The parameter servers.")
    worker: WorkerSpec = Field(default_factory=WorkerSpec, description="The workers.")
    env: dict[str, str] = Field(
        default_factory=dict, description="Environment of all roles."
    )
    volumes: list[VolumeSpec] = Field(
        default_factory=list, description="Volumes of all pods."
    )
    log: LogSpec = Field(default_factory=LogSpec, description="The roles' logs.")

    @model_validator(mode="after")
    def _complete(self) -> JobSpec:
        problems = []
        if not self.model.definition:
            problems.append("model.definition is empty; name `folder.file.function`")
        needed = {
            JobType.TRAIN: ("training", self.data.training),
            JobType.EVALUATE: ("validation", self.data.validation),
            JobType.PREDICT: ("prediction", self.data.prediction),
        }[self.type]
        if not needed[1]:
            problems.append(f"a {self.type} job needs data.{needed[0]}")
        if self.type is not JobType.TRAIN and not self.checkpoint.init_from:
            problems.append(
                f"a {self.type} job needs checkpoint.initFrom, the checkpoint to load"
            )
        if self.strategy is Strategy.LOCAL and self.worker.replicas != 1:
            problems.append(
                f"strategy local runs one worker, got worker.replicas "
                f"{self.worker.replicas}; use 1 or strategy parameterServer"
            )
        if problems:
            raise ValueError("; ".join(problems))
        return self

    def document(self) -> dict[str, Any]:
        """Return the job as the `job:` tree, defaults left out."""
        return self.model_dump(
            by_alias=True, mode="json", exclude_defaults=True, exclude_none=True
        )


class ValuesFile(_Model):
    """A whole values file: `kind: job` and the `job:` tree.

    Keys beside these two belong to the chart (pod templates, monitoring) and are
    passed through untouched by every command that reads a job.
    """

    model_config = ConfigDict(
        frozen=True, extra="allow", alias_generator=to_camel, populate_by_name=True
    )
    kind: Literal["job"] = Field("job", description="A job; `platform` is not run here.")
    job: JobSpec = Field(description="The job.")
