"""What the models of the specification share: their base, small types, enumerations.

Owns the mapping of names (camelCase in files, snake_case in Python) and the closed
sets of words. Used by `job.spec` and `job.replicas` alone; others import from there.
"""

from __future__ import annotations

import enum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

NAME_PATTERN = r"^[a-z0-9]([-a-z0-9]{0,50}[a-z0-9])?$"
QUANTITY_PATTERN = r"^[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti|P|Pi)?$"

PositiveInt = Annotated[int, Field(ge=1)]
CountOrZero = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(ge=0)]
PositiveSeconds = Annotated[float, Field(gt=0)]


class SpecModel(BaseModel):
    """Frozen, closed to unknown keys, camelCase outside and snake_case inside."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        ser_json_inf_nan="constants",
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
