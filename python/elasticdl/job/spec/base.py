"""What the models of the specification share: their base, small types, enumerations.

Owns the mapping of names (camelCase in files, snake_case in Python); the closed sets of
words are in `job.spec.kinds`. Used by `job.spec.job` and `job.spec.replicas` alone;
others import from there.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from elasticdl.job.spec.kinds import (
    DataFormat,
    JobType,
    LogLevel,
    OnBadRecord,
    OnNanLoss,
    Recovery,
    Strategy,
    UpdateMode,
)

__all__ = [
    "EXACT",
    "MAX_NAME_LENGTH",
    "NAME_PATTERN",
    "NOT_AT_THE_END",
    "OBJECT_OR_NONE_PATTERN",
    "OBJECT_PATTERN",
    "PATH_PATTERN",
    "QUANTITY_PATTERN",
    "SUB_PATH_PATTERN",
    "CountOrZero",
    "DataFormat",
    "JobType",
    "LogLevel",
    "OnBadRecord",
    "OnNanLoss",
    "PositiveInt",
    "PositiveSeconds",
    "Recovery",
    "Seconds",
    "SpecModel",
    "Strategy",
    "UpdateMode",
]

NAME_PATTERN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
# `elasticdl-<job>-master` is the name of a Service, which ends at 63 characters.
MAX_NAME_LENGTH = 46
# Ends of the names of the ConfigMaps in which a job shows its status and history.
NOT_AT_THE_END = ("-status", "-history")
PATH_PATTERN = "^/"
# Name of an object of Kubernetes, a class or a claim: a DNS subdomain.
OBJECT_PATTERN = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
OBJECT_OR_NONE_PATTERN = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$"
# Relative, and not out of the volume again.
SUB_PATH_PATTERN = r"^([A-Za-z0-9_][-.A-Za-z0-9_]*(/[A-Za-z0-9_][-.A-Za-z0-9_]*)*)?$"
QUANTITY_PATTERN = r"^[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti|P|Pi)?$"

# Helm, and whatever else reads JSON, keeps no larger number as it was written.
EXACT = 2**53 - 1
PositiveInt = Annotated[int, Field(ge=1, le=EXACT)]
CountOrZero = Annotated[int, Field(ge=0, le=EXACT)]
Seconds = Annotated[float, Field(ge=0)]
PositiveSeconds = Annotated[float, Field(gt=0)]


class SpecModel(BaseModel):
    """Base of all specification models: frozen, no unknown keys, camelCase outside."""

    # Whether a field with null says something, and not the same as one left out.
    null_is_a_value: ClassVar[bool] = False

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        ser_json_inf_nan="constants",
        alias_generator=to_camel,
        populate_by_name=True,
        use_enum_values=False,
    )
