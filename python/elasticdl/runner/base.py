"""The Runner protocol: where replicas run, and what is seen of them.

Owns the words for a replica's life. Called by the master's loop; implemented by
`runner.local.runner` and `runner.kubernetes`. Must not decide what to relaunch: that is
`master.members.relaunch_rules`.
"""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from elasticdl.job.names import Role
from elasticdl.job.words import ExitReason


class Phase(enum.StrEnum):
    """Where a replica is in its life. PENDING -> RUNNING -> SUCCEEDED or FAILED."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(frozen=True)
class ReplicaKey:
    """Which replica."""

    role: Role
    index: int


@dataclass(frozen=True)
class Launch:
    """A replica to start, beyond what the job's specification says."""

    key: ReplicaKey
    generation: int
    cpu: float
    memory: str
    priority: str
    grace_seconds: float
    env: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ObservedReplica:
    """The last state of a replica as the platform saw it.

    `reason` is why it ended, or, of one that runs, why it is being taken away.
    """

    key: ReplicaKey
    generation: int
    phase: Phase
    reason: ExitReason = ExitReason.NONE
    exit_code: int = 0
    pending_reason: str = ""
    since: float = 0.0
    message: str = ""
    pid: int = 0
    memory_limit: int = 0  # bytes above which the platform kills it; 0: it does not


@dataclass(frozen=True)
class Observation:
    """A change, or with `resync` the whole list: replicas not in it are gone."""

    states: tuple[ObservedReplica, ...]
    resync: bool = False


class Runner(Protocol):
    """Starts, stops and watches replicas. Raises PlatformError when refused."""

    async def check(self, launches: Sequence[Launch]) -> None:
        """Dry-run the launches before the first replica of a job is started.

        Raises PlatformError if the platform would refuse one now; the job fails.
        """

    async def start(self, launch: Launch) -> None:
        """Request a replica; it may stay PENDING. Idempotent for a generation."""

    async def stop(self, key: ReplicaKey, *, grace_seconds: float, reason: str) -> None:
        """Send SIGTERM, then SIGKILL after `grace_seconds`; no error if it is gone."""

    def watch(self) -> AsyncIterator[Observation]:
        """Yield the whole list, then changes; the list again after a break."""
