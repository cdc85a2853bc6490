"""Where a job's checkpoints are, so that nobody makes it another place meanwhile.

Owns what is made of `checkpoint.dir`. Called by `master.model.checkpointing`. Must not
write anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from elasticdl.errors import CheckpointError
from elasticdl.job.names import JobDir

_OF_JOBS = ".elasticdl"  # on a claim the folders of all jobs are below one of this name


@dataclass(frozen=True)
class Place:
    """The folder of checkpoints, and that below which no link is followed."""

    directory: Path
    root: Path


def place_of(given: str, job_dir: JobDir) -> Place:
    """Return the place that values give (`checkpoint.dir`), or the job's own.

    Where that is a link, or below one, it is the place where that leads now: workers
    may be able to make it lead elsewhere later. Raises CheckpointError where it leads
    into folders of jobs that the values do not name.
    """
    directory = Path(given or job_dir.checkpoints_dir)
    if directory.is_relative_to(job_dir.root):
        return Place(directory, job_dir.root)
    real = directory.resolve()
    if real == directory.absolute():
        return Place(directory, Path(directory.anchor or "."))
    if _OF_JOBS in real.parts and _OF_JOBS not in directory.parts:
        raise CheckpointError(
            f"job.checkpoint.dir: got {given}, a link to {real}, which is in the "
            "folder of a job, expected no link there: a worker may have made it. "
            "Remove it, or name that folder itself"
        )
    return Place(real, Path(real.anchor))
