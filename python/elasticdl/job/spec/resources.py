"""What one replica asks of a machine, and may take at most: CPUs, memory, devices.

Owns the forms of amounts of resources. Used by the replicas of a specification. Must
not know which replica asks.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field, WithJsonSchema, field_validator

from elasticdl.job.spec.base import QUANTITY_PATTERN, SpecModel
from elasticdl.job.spec.labels import LABEL_KEY_PATTERN, schema_of
from elasticdl.job.spec.problems import Problem, ProblemsError
from elasticdl.job.spec.quantity import is_whole, parse_bytes

# Less cannot hold a process; it is mostly a number without its unit.
_LEAST_MEMORY = 16 * 2**20


def is_device(name: str) -> bool:
    """Whether Kubernetes counts it in whole ones, and lends none beyond the request."""
    return "/" in name and "kubernetes.io/" not in name


def _others_alone(extra: dict[str, str]) -> dict[str, str]:
    problems = [
        Problem(name, amount, f"it in `{name}` beside `extra`", "move it one level up")
        for name, amount in extra.items()
        if name in ("cpu", "memory")
    ]
    problems += [
        Problem(name, "no domain", "one, as in `nvidia.com/gpu`", "write the full name")
        for name in extra
        if not re.search(r"/|^(cpu|memory|ephemeral-storage|hugepages-.+)$", name)
    ]
    problems += [
        Problem("", repr(name), "the name of a resource", "as `nvidia.com/gpu`")
        for name in extra
        if not re.search(LABEL_KEY_PATTERN, name)
    ]
    problems += [
        Problem(name, repr(amount), "a quantity", "write it as `1` or `8Gi`")
        for name, amount in extra.items()
        if not re.search(QUANTITY_PATTERN, amount)
    ]
    problems += [
        Problem(name, repr(amount), "a whole number", "devices are not divided")
        for name, amount in extra.items()
        if is_device(name) and not is_whole(amount)
    ]
    if problems:
        raise ProblemsError(*problems)
    return extra


Extra = Annotated[
    dict[str, str],
    AfterValidator(_others_alone),
    WithJsonSchema(schema_of(LABEL_KEY_PATTERN)),
]


class ResourcesSpec(SpecModel):
    """What one replica asks for. Keys other than cpu and memory go to `extra`."""

    cpu: float = Field(1.0, gt=0, description="CPUs; fractions are allowed.")
    memory: str = Field(
        "4096Mi", pattern=QUANTITY_PATTERN, description="Memory, as `512Mi` or `4Gi`."
    )
    extra: Extra = Field(
        default_factory=dict,
        description="Other resources by name, as `nvidia.com/gpu: '1'` or "
        "`ephemeral-storage: 1Gi`.",
    )

    @field_validator("memory")
    @classmethod
    def _is_room_for_a_process(cls, value: str) -> str:
        if parse_bytes(value) < _LEAST_MEMORY:
            expected = "at least 16Mi"
            raise ProblemsError(Problem("", value, expected, "write it as `4Gi`"))
        return value


class MasterResourcesSpec(ResourcesSpec):
    """Resources of the master, which computes nothing."""

    cpu: float = Field(0.1, gt=0, description="CPUs; fractions are allowed.")
    memory: str = Field(
        "1024Mi", pattern=QUANTITY_PATTERN, description="Memory, as `512Mi` or `4Gi`."
    )


class LimitsSpec(SpecModel):
    """Upper limits of one replica; an absent limit equals the request."""

    cpu: float | None = Field(None, gt=0, description="CPUs; empty is the request.")
    memory: str | None = Field(
        None, pattern=QUANTITY_PATTERN, description="Memory; empty is the request."
    )
    extra: Extra = Field(default_factory=dict, description="Other resources by name.")

    @field_validator("memory")
    @classmethod
    def _is_an_amount(cls, value: str | None) -> str | None:
        parse_bytes(value or "")
        return value
