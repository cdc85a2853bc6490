"""Where a job shows itself to people who do not ask its master.

Owns the protocol, the one that shows nothing, and the pair of it and a Runner that a
master is given. Called by `master.telling.publishing`; implemented by
`runner.kubernetes`. Must not know what a status or a history says.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Protocol

from elasticdl.runner.base import Runner


@dataclass(frozen=True)
class Notice:
    """An Event. `reason` is one CamelCase word, for machines."""

    reason: str
    message: str
    warning: bool = False


class Publisher(Protocol):
    """Publishes status, report and notices. Never raises and never blocks."""

    @property
    def period_seconds(self) -> float:
        """Seconds between two statuses; infinite: none wanted."""

    @property
    def history_period_seconds(self) -> float:
        """Seconds between two histories, which are larger."""

    def status(self, document: str) -> None:
        """Publish this status (JSON of JobStatus)."""

    def headline(self, state: str, message: str) -> None:
        """Publish the state in one word, and a message that is often empty."""

    def history(self, document: bytes) -> None:
        """Publish this history (gzip of lines of job/history.py)."""

    def notice(self, notice: Notice) -> None:
        """Publish a notice; may be dropped if there are too many."""

    async def close(self, *, status: str, report: str) -> None:
        """Publish the last status, the last history and the report, if there is one.

        Waits for it, but not for ever.
        """


class NoPublisher:
    """Publishes nothing: on one machine the command line asks the master."""

    period_seconds = math.inf
    history_period_seconds = math.inf

    def status(self, document: str) -> None:
        """Do nothing."""

    def headline(self, state: str, message: str) -> None:
        """Do nothing."""

    def history(self, document: bytes) -> None:
        """Do nothing; the job's folder has it."""

    def notice(self, notice: Notice) -> None:
        """Do nothing; the log has it."""

    async def close(self, *, status: str, report: str) -> None:
        """Do nothing."""


@dataclass(frozen=True)
class Platform:
    """The services of the place where replicas run, for a master."""

    runner: Runner
    publisher: Publisher = field(default_factory=NoPublisher)
