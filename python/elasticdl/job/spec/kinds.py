"""The closed sets of words in a specification.

Owns the enumerations. `job.spec.job` hands them on; only what has to start at once,
without pydantic (the command line), imports from here.
"""

from __future__ import annotations

import enum


class JobType(enum.StrEnum):
    """What a job does."""

    TRAIN = "train"
    EVALUATE = "evaluate"
    PREDICT = "predict"


class Strategy(enum.StrEnum):
    """How workers share the model."""

    PARAMETER_SERVER = "parameterServer"
    LOCAL = "local"
    ALL_REDUCE = "allReduce"


class Compression(enum.StrEnum):
    """How gradients travel between the workers of a group."""

    NONE = "none"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


class ShareRule(enum.StrEnum):
    """How the records of a step are divided over the workers of a group."""

    EVEN = "even"
    SPEED = "speed"


class RateRule(enum.StrEnum):
    """How the learning rate follows the number of workers of a group."""

    NONE = "none"
    LINEAR = "linear"
    SQRT = "sqrt"


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
    PARQUET = "parquet"
    ARROW = "arrow"


class LogLevel(enum.StrEnum):
    """Levels of the roles' logs."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
