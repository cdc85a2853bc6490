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
    """Something that happened. `reason` is one CamelCase word, for machines."""

    reason: str
    message: str
    warning: bool = False


class Publisher(Protocol):
    """Shows status, report and notices. Never raises and never makes anyone wait."""

    @property
    def period_seconds(self) -> float:
        """How often it wants to hear the status at most; infinite: never."""

    @property
    def history_period_seconds(self) -> float:
        """The same for the history, which is larger."""

    def status(self, document: str) -> None:
        """Show this status (JSON of JobStatus) in place of the one before."""

    def headline(self, state: str, message: str) -> None:
        """Show the state in one word, and what there is to say of it, often nothing."""

    def history(self, document: bytes) -> None:
        """Show this history (gzip of lines of job/history.py) in its place."""

    def notice(self, notice: Notice) -> None:
        """Tell what happened; may be left out when there is too much of it."""

    async def close(self, *, status: str, report: str) -> None:
        """Show the last status, the last history and the report, if there is one.

        Waits for it, but not for ever.
        """


class NoPublisher:
    """Shows nothing: on one machine the CLI asks the master."""

    period_seconds = math.inf
    history_period_seconds = math.inf

    def status(self, document: str) -> None:
        """Forget it."""

    def headline(self, state: str, message: str) -> None:
        """Forget it."""

    def history(self, document: bytes) -> None:
        """Forget it; the job's folder has it."""

    def notice(self, notice: Notice) -> None:
        """Forget it; it is in the log."""

    async def close(self, *, status: str, report: str) -> None:
        """Nothing to wait for."""


@dataclass(frozen=True)
class Platform:
    """What a master needs of the place where its replicas run."""

    runner: Runner
    publisher: Publisher = field(default_factory=NoPublisher)
