"""What every job can be asked, wherever it runs: the view, the handle, the rules.

Owns the one interface of local and cluster jobs. Implemented by `client.local.job` and
`client.cluster.job`; used by the CLI and by notebooks. Must not know where a job runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from elasticdl.client.scaling import Scaled, Scaling
from elasticdl.job.folder import Condition
from elasticdl.job.history import History
from elasticdl.job.names import Role
from elasticdl.job.status import JobReport, JobStatus
from elasticdl.runner.base import ReplicaKey


@dataclass(frozen=True)
class JobView:
    """A job at one moment: its status while it runs, then its report."""

    name: str
    condition: Condition
    status: JobStatus | None = None
    report: JobReport | None = None
    note: str = ""  # why a running job shows no status, or why one does not begin
    place: str = ""  # of a job in a cluster: `namespace ml`
    submitted: float = 0.0  # of a job in a cluster, Unix seconds


class JobHandle(Protocol):
    """One job, here or in a cluster."""

    @property
    def name(self) -> str:
        """The job's name."""

    @property
    def place(self) -> str:
        """Where it is: "" here, `namespace ml` in a cluster."""

    def view(self) -> JobView:
        """Return status or report; an unreachable master is noted, not an error."""

    def history(self) -> History:
        """Return samples and decisions so far; a large history in a cluster is thinned.

        Empty for a job whose master has not begun.
        """

    def stop(self, reason: str = "elasticdl stop") -> None:
        """Ask for a clean end; does not wait for it."""

    def scale(self, wanted: Scaling) -> Scaled:
        """Change the number of workers, or pause or resume the job.

        Nothing is written if the result would not be valid. Raises JobError when the
        job does not run, SpecError when it cannot have that.
        """

    def logs(
        self,
        replica: str,
        *,
        tail: int | None = None,
        follow: bool = False,
        previous: bool = False,
    ) -> Iterator[str]:
        """Yield lines of a replica's log; with `follow` until it has ended.

        Raises NotFoundError with the replicas that have one.
        """

    def wait(self, timeout_seconds: float | None = None) -> JobReport | None:
        """Wait until the job no longer runs; return its report, None without one."""


def parse_replica(text: str) -> ReplicaKey | None:
    """Return the key of `worker-3`, `ps-0` or `master`; None for any other text."""
    if text == Role.MASTER:
        return ReplicaKey(Role.MASTER, 0)
    match = re.fullmatch(r"(master|ps|worker)-(\d+)", text)
    return ReplicaKey(Role(match[1]), int(match[2])) if match else None
