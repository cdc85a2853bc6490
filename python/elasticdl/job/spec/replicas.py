"""The part of the specification that says what runs: master, PS, workers.

Owns numbers, priorities, restart and heartbeat bounds of the replicas.
Imported through `job.spec.job`. Must not know where replicas run.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Self

from pydantic import (
    BeforeValidator,
    Field,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from elasticdl.job.spec.base import (
    OBJECT_OR_NONE_PATTERN,
    QUANTITY_PATTERN,
    CountOrZero,
    PositiveInt,
    PositiveSeconds,
    Recovery,
    Seconds,
    SpecModel,
    UpdateMode,
)
from elasticdl.job.spec.labels import Image
from elasticdl.job.spec.problems import Problem, ProblemsError
from elasticdl.job.spec.quantity import bytes_or_zero, parse_bytes
from elasticdl.job.spec.resources import (
    LimitsSpec,
    MasterResourcesSpec,
    ResourcesSpec,
    is_device,
)

# A vocabulary that a model module makes of a set has the same order in all workers of
# all jobs: else each trains the rows of an embedding for other words.
ENV_OF_WORKERS = {"PYTHONHASHSEED": "0"}

_CLASS_FORM = "lower case letters, digits, `-` and `.`, no dash at the ends"
# Whatever a maximum says: a grant is a text that anybody may have written.
MOST_WORKERS = 100_000


def _number_as_text(value: Any) -> Any:
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return str(value) if plain else value


# People write a share without quotes, which is a number in YAML.
NameOrShare = Annotated[
    str,
    BeforeValidator(_number_as_text),
    WithJsonSchema({"type": ["string", "number"]}),
]


def names_of_variables(env: dict[str, str]) -> dict[str, str]:
    """Return an environment. Raises ProblemsError for an invalid variable name."""
    for name in env:
        if not re.fullmatch(r"[-._a-zA-Z][-._a-zA-Z0-9]*", name):
            expected = "the name of a variable"
            help_ = "letters, digits and `_`, not a digit first"
            raise ProblemsError(Problem("", repr(name), expected, help_))
    return env


def _below(resource: str, limit: str, request: str) -> Problem:
    return Problem(
        f"limits.{resource}",
        limit,
        f"at least resources.{resource}, {request}",
        f"raise it, or lower resources.{resource}",
    )


def _unequal(device: str, limit: str, request: str) -> Problem:
    return Problem(
        f"limits.extra.{device}",
        limit,
        f"as many as resources.extra.{device}, {request}: no device is lent twice",
        "leave it out",
    )


class ReplicaSpec(SpecModel):
    """What master, PS and workers have in common."""

    image: Image = Field("", description="Image of this role; empty takes `job.image`.")
    resources: ResourcesSpec = Field(
        default_factory=ResourcesSpec, description="What a replica asks for."
    )
    limits: LimitsSpec | None = Field(
        None, description="What it may not exceed; empty is the request."
    )
    env: dict[str, str] = Field(
        default_factory=dict, description="Environment, for this role alone."
    )

    @field_validator("env")
    @classmethod
    def _variables(cls, value: dict[str, str]) -> dict[str, str]:
        return names_of_variables(value)

    @model_validator(mode="after")
    def _limits_hold_the_request(self) -> Self:
        if self.limits is None:
            return self
        most, asked = self.limits, self.resources
        problems = []
        if most.cpu is not None and most.cpu < asked.cpu:
            problems.append(_below("cpu", f"{most.cpu:g}", f"{asked.cpu:g}"))
        if most.memory and parse_bytes(most.memory) < parse_bytes(asked.memory):
            problems.append(_below("memory", most.memory, asked.memory))
        problems += [
            _below(f"extra.{name}", amount, asked.extra[name])
            for name, amount in most.extra.items()
            if bytes_or_zero(amount) < bytes_or_zero(asked.extra.get(name))
        ]
        problems += [
            _unequal(name, amount, asked.extra[name])
            for name, amount in most.extra.items()
            if is_device(name)
            and bytes_or_zero(amount) > bytes_or_zero(asked.extra.get(name, amount))
        ]
        if problems:
            raise ProblemsError(*problems)
        return self


class MasterSpec(ReplicaSpec):
    """The master."""

    resources: MasterResourcesSpec = Field(
        default_factory=MasterResourcesSpec,
        description="What the master asks for.",
    )
    limits: LimitsSpec | None = Field(
        None,
        description="What it may not exceed; empty is the request, but one CPU at "
        "least: it needs little, except while it starts.",
    )
    priority: str = Field(
        "high",
        pattern=OBJECT_OR_NONE_PATTERN,
        description="Name of its PriorityClass; empty is the cluster's default. Below "
        "the workers' it would be pushed out before them.",
    )
    port: int = Field(
        0,
        ge=0,
        le=65535,
        description="Port it listens on; 0 is any free one (50001 in a cluster).",
    )
    journal_wait_seconds: Seconds = Field(
        1800.0,
        description="When storage is away (a full disk, a file server that moves): "
        "wait so long for it before the job fails. Nothing is acknowledged meanwhile. "
        "The last checkpoint is waited for as long, that of a stop for a minute.",
    )


class PsSpec(ReplicaSpec):
    """The parameter servers."""

    replicas: int = Field(1, ge=1, le=10_000, description="Number of PS.")
    priority: str = Field(
        "high",
        pattern=OBJECT_OR_NONE_PATTERN,
        description="Name of their PriorityClass; empty is the cluster's default. "
        "Below the workers' they would be pushed out before them.",
    )
    mode: UpdateMode = Field(
        UpdateMode.ASYNC,
        description="`async` applies each gradient as it comes; `sync` averages "
        "`gradsToWait` of one version.",
    )
    grads_to_wait: CountOrZero = Field(
        0,
        description="Sync: gradients that make a version; 0 is one of each worker. "
        "With fewer than the workers, the rest are backup workers: the first ones "
        "win. Fewer working workers than this make a version of what there is.",
    )
    staleness_modulation: bool = Field(
        False, description="Async: divide the learning rate by a gradient's staleness."
    )
    max_staleness: CountOrZero = Field(
        0,
        description="Async: refuse a gradient more than this many versions old (the "
        "worker computes it again); 0 is any age.",
    )
    recovery: Recovery = Field(
        Recovery.AUTO,
        description="After the loss of a PS: `continue` from its newest shard (async "
        "alone), `rewind` all; `auto` is continue in async and rewind in sync mode.",
    )
    threads: PositiveInt = Field(4, description="Threads that serve requests.")

    @model_validator(mode="after")
    def _waits_in_sync_mode_alone(self) -> PsSpec:
        # The classic flag's 1 says the same as async mode does.
        if self.mode is UpdateMode.ASYNC and self.grads_to_wait > 1:
            got, expected = str(self.grads_to_wait), "0 with ps.mode async"
            help_ = "set ps.mode: sync, or leave it out"
            raise ProblemsError(Problem("gradsToWait", got, expected, help_))
        return self

    @model_validator(mode="after")
    def _sync_goes_back_together(self) -> PsSpec:
        # One that came back alone would never be at the others' version again.
        if self.mode is UpdateMode.SYNC and self.recovery is Recovery.CONTINUE:
            expected = "`auto` or `rewind` with ps.mode sync"
            help_ = "all PS have one version there; leave it out, or set ps.mode: async"
            raise ProblemsError(Problem("recovery", "continue", expected, help_))
        return self


class WorkerSpec(ReplicaSpec):
    """The workers."""

    replicas: int = Field(1, ge=1, le=MOST_WORKERS, description="Workers wanted.")
    min: CountOrZero = Field(
        0, description="Fewer than this are reported as below minimum; 0 is no minimum."
    )
    max: CountOrZero = Field(
        0,
        description="`scale` goes no higher; 0 is no maximum. Where it is above `min`, "
        "a controller of the platform decides how many there are between both; "
        "`replicas` is the number where nobody decides.",
    )
    elastic: bool = Field(
        True,
        description="False: no controller changes the number of workers, whatever "
        "`min` and `max` say.",
    )
    priority: NameOrShare = Field(
        "low",
        description="PriorityClass, or a share as `0.5`: that share of the workers is "
        "`high`, the rest `low`.",
    )
    max_restarts: CountOrZero = Field(
        3,
        description="Crashes of the user's code that are forgiven within an hour, all "
        "workers together. Preemption, eviction, lost nodes and kills by hand never "
        "count; but a task at which ten workers in a row are killed fails the job.",
    )
    pull_steps: PositiveInt = Field(
        1,
        description="Pull dense variables every so many steps, apply locally between.",
    )
    pipeline: bool = Field(
        True,
        description="Async: pull and push beside the step, one step stale. Off: in "
        "line.",
    )
    threads: CountOrZero = Field(
        0,
        description="Threads TensorFlow may compute in; 0 is as many as the container "
        "may use CPUs, without such a limit as many as it sees.",
    )
    heartbeat_seconds: PositiveSeconds = Field(
        1.0, description="Seconds between two heartbeats of a replica."
    )
    dead_seconds: PositiveSeconds = Field(
        6.0, description="A replica silent for this long is killed and replaced."
    )
    hang_seconds: PositiveSeconds = Field(
        8.0,
        description="A worker whose batch takes so long (or 20 times what batches of "
        "its size usually take there, if longer) is killed and replaced.",
    )
    start_seconds: PositiveSeconds = Field(
        300.0,
        description="The same where nobody knows how long it takes: while it starts, "
        "traces or compiles a batch of a new size, waits for its feed or its records, "
        "exports. Each batch that the feed makes begins it anew, and so does each MiB "
        "that the worker reads or writes.",
    )
    grace_seconds: PositiveSeconds = Field(
        15.0, description="Time between SIGTERM and SIGKILL."
    )
    pause_seconds: Seconds = Field(
        5.0,
        description="Workers of a paused job that had nothing to do for so long leave, "
        "and their CPUs are free; they come back when it goes on. With `strategy: "
        "local` or `allReduce` workers stay: they hold the model.",
    )
    memory_limit_max: str = Field(
        "",
        description="An OOM-killed worker comes back with half as much again, up to "
        "this; empty gives up after `maxRestarts`.",
    )

    @property
    def takes_part(self) -> bool:
        """Whether a controller may decide the number of workers."""
        return self.elastic and self.max > max(1, self.min)

    @property
    def bounds(self) -> tuple[int, int]:
        """The fewest and most workers that may be granted, where it takes part."""
        return max(1, self.min), min(self.max, MOST_WORKERS)

    @field_validator("priority")
    @classmethod
    def _share_or_name(cls, value: str) -> str:
        expected = "a PriorityClass, or a share of `high` workers from 0 to 1"
        if "=" in value:
            form = f"write `{value.partition('=')[2]}` for `{value}`"
            raise ProblemsError(Problem("", repr(value), expected, form))
        if re.fullmatch(r"[0-9.]+", value) and not _is_share(value):
            raise ProblemsError(Problem("", repr(value), expected, "write it as `0.5`"))
        if not _is_share(value) and not re.search(OBJECT_OR_NONE_PATTERN, value):
            raise ProblemsError(Problem("", repr(value), expected, _CLASS_FORM))
        return value

    @field_validator("memory_limit_max")
    @classmethod
    def _quantity(cls, value: str) -> str:
        if value and not re.fullmatch(QUANTITY_PATTERN, value):
            raise ProblemsError(
                Problem("", repr(value), "a quantity", "write it as `8Gi` or `512Mi`")
            )
        parse_bytes(value)
        return value

    @model_validator(mode="after")
    def _ordered(self) -> WorkerSpec:
        problems = []
        if self.max and self.replicas > self.max:
            problems.append(
                Problem(
                    "replicas",
                    str(self.replicas),
                    f"at most worker.max, {self.max}",
                    "raise worker.max or lower worker.replicas",
                )
            )
        if self.min > self.replicas:
            problems.append(
                Problem(
                    "min",
                    str(self.min),
                    f"at most worker.replicas, {self.replicas}",
                    "lower worker.min or raise worker.replicas",
                )
            )
        if self.dead_seconds <= self.heartbeat_seconds:
            problems.append(
                Problem(
                    "deadSeconds",
                    f"{self.dead_seconds:g}",
                    f"more than worker.heartbeatSeconds, {self.heartbeat_seconds:g}",
                    "several times it, or every replica counts as dead",
                )
            )
        if problems:
            raise ProblemsError(*problems)
        return self


def _is_share(text: str) -> bool:
    try:
        return 0.0 <= float(text) <= 1.0
    except ValueError:
        return False
