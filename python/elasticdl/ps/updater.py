"""The Updater protocol: which gradients make which version.

Owns the words that the three policies share (ps/async_updater.py, ps/sync_updater.py:
PS 0 and followers). Chosen once, in ps/main.py. Called by ps/server.py under its lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from elasticdl.job.tasks import Ticket
from elasticdl.ps.parameters import Parameters, Push


@dataclass(frozen=True)
class PushAnswer:
    """The outcome of a push."""

    accepted: bool
    version: int  # of this PS now
    reason: str = ""
    ticket: Ticket | None = None
    staleness: int | None = None  # async: of the gradient, if applied
    duplicate: bool = False


@dataclass(frozen=True)
class Control:
    """Settings that the master may change at any time."""

    quorum: int = 0  # sync: gradients that make a version; 0 is not known yet
    learning_rate_scale: float = 1.0
    revision: int = 0  # of the master's answer that said so


class Updater(Protocol):
    """How gradients become versions. All methods are called under the lock."""

    @property
    def follows(self) -> bool:
        """Whether another PS decides (sync mode, all but PS 0)."""

    @property
    def ticket(self) -> Ticket | None:
        """The ticket of the present version (PS 0 in sync mode)."""

    def push(self, push: Push) -> PushAnswer:
        """Take a gradient; may wait on the lock's condition until it is applied."""

    def advance(self, ticket: Ticket) -> None:
        """Advance to the ticket's version if it is the next one (followers)."""

    def announce(self, snapshot: str) -> None:
        """Name a new snapshot in the next ticket (PS 0, sync)."""

    def control(self, control: Control) -> None:
        """Take new settings from the master."""

    def close(self, error: Exception) -> None:
        """End: a waiting `push` raises `error`."""


Pin = Callable[[str], None]  # takes a snapshot of that id now
NewUpdater = Callable[[Parameters, threading.Condition, Pin, Control], Updater]
