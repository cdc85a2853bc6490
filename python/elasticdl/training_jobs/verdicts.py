"""What is to be done about a TrainingJob: the decisions of `training_jobs.reconcile`.

Owns their classes. Made by `reconcile` and `changes`, carried out by
`training_jobs.controller`, told by `training_jobs.telling`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any

from elasticdl.job.values.defaults import PlatformDefaults
from elasticdl.job.values.document import ValuesFile
from elasticdl.training_jobs.resource import Made

Json = dict[str, Any]


class Reason(enum.StrEnum):
    """Why a TrainingJob is not, or not yet, what it says: reasons of conditions."""

    INVALID = "Invalid"  # the specification is wrong
    NAME_TAKEN = "NameTaken"  # somebody else has a job of that name
    NOT_ALLOWED = "NotAllowed"  # the platform of its namespace refuses it
    IMMUTABLE = "Immutable"  # the edit may not be made while the job runs
    NOT_RENDERED = "NotRendered"  # Helm gave no answer in time
    MISSING = "Missing"  # something that its pods name is not there
    WAITING = "Waiting"  # objects of an earlier one are still being removed
    NOT_APPLIED = "NotApplied"  # the API server refused an object


@dataclass(frozen=True)
class Refused:
    """Nothing is made or changed. `message` has a sentence a line."""

    reason: Reason
    message: str


@dataclass(frozen=True)
class Settled:
    """Everything is there."""

    made: Made


@dataclass(frozen=True)
class Submit:
    """Render the chart with these values, and apply what comes of it."""

    values: ValuesFile
    platform: PlatformDefaults
    made: Made  # but for the objects


@dataclass(frozen=True)
class Edit:
    """Change the specification of a job alone: its pods stay as they were rendered."""

    values: ValuesFile
    made: Made
    patch: Json = field(repr=False)  # of its ConfigMap


Decision = Refused | Settled | Submit | Edit


class Verb(enum.StrEnum):
    """What is done with one object."""

    APPLY = "apply"
    CREATE = "create"  # once: it is random, and those that run know the first one
    DELETE = "delete"


@dataclass(frozen=True)
class Step:
    """One call to the API server."""

    verb: Verb
    path: str
    body: Json = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Changes:
    """The steps to be taken, in this order, and what is there after them."""

    steps: tuple[Step, ...]
    made: Made
