"""What the local platform knows of each process of a job.

Owns the table's rows and what watchers get of them. Used by `runner.local.platform`,
whose lock guards the rows. Must not start or signal anything.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from elasticdl.job import names
from elasticdl.job.names import JobDir, Role
from elasticdl.runner.base import Launch, ObservedReplica, Phase, ReplicaKey
from elasticdl.runner.local.capacity import Claim, ClaimState, rank_of
from elasticdl.runner.local.processes import ChildProcess, Intent

CommandOf = Callable[[Role], Sequence[str]]


def role_command(role: Role) -> Sequence[str]:
    """Return the command line of a role's process.

    `-P`: nothing is imported from the folder that it is started in. The user's model
    zoo is put on the path by workers (`model.user_code`).
    """
    return (sys.executable, "-P", "-m", f"elasticdl.{role}.main")


@dataclass(frozen=True)
class JobPlace:
    """What all processes of a job have in common."""

    job_dir: JobDir
    master_address: str
    token: str = field(repr=False)  # of the job; in the environment, not in `argv`
    environ: Mapping[str, str]  # of the launcher, handed down by its main
    command: CommandOf = role_command
    launch: str = ""  # tells the launcher's processes from those of another launch


@dataclass
class Replica:
    """One generation of a replica; guarded by the platform's lock."""

    launch: Launch
    number: int  # order of arrival
    state: ObservedReplica
    revision: int = 0
    child: ChildProcess | None = None
    intent: Intent = Intent.NONE
    note: str = ""  # why it was stopped
    timer: threading.Timer | None = None

    @property
    def ended(self) -> bool:
        return self.state.phase in (Phase.SUCCEEDED, Phase.FAILED)

    @property
    def holding(self) -> ClaimState:
        if self.child is None:
            return ClaimState.WAITING
        return (
            ClaimState.LEAVING if self.intent is not Intent.NONE else ClaimState.RUNNING
        )


@dataclass(frozen=True)
class TableChange:
    """The states that changed since a watcher's last `revision`."""

    states: tuple[ObservedReplica, ...]
    revision: int
    capacity: float | None


def claim_of(replica: Replica) -> Claim:
    return Claim(
        key=replica.number,
        cpu=replica.launch.cpu,
        rank=rank_of(replica.launch.priority),
        age=replica.number,
        holding=replica.holding,
    )


def is_worker(replica: Replica) -> bool:
    return replica.launch.key.role is Role.WORKER


def name_of(key: ReplicaKey) -> str:
    return names.replica_name(key.role, key.index)
