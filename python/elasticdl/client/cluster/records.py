"""Which jobs were submitted to clusters from this machine.

Owns the small file that lets `elasticdl status digits` find a job in a cluster without
being told where it is. Called by the CLI. Must not call a cluster.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from elasticdl.files import write_whole

FILE = ".in-clusters.json"  # in the folder of the jobs' folders
_MOST = 200  # Names of older jobs are found with `-n` alone.


@dataclass(frozen=True)
class Record:
    """One job that was submitted."""

    job: str
    namespace: str
    context: str
    submitted: float  # Unix seconds


def read_records(jobs_dir: Path) -> list[Record]:
    """Return the records of submitted jobs, newest first; [] for a broken file."""
    try:
        return [Record(**one) for one in json.loads((jobs_dir / FILE).read_text())]
    except (OSError, ValueError, TypeError):
        return []


def remember(jobs_dir: Path, record: Record) -> None:
    """Put a job first in the records."""
    _write(jobs_dir, [record, *_without(jobs_dir, record)][:_MOST])


def forget(jobs_dir: Path, record: Record) -> None:
    """Remove a job from the records."""
    _write(jobs_dir, _without(jobs_dir, record))


def _without(jobs_dir: Path, record: Record) -> list[Record]:
    same = (record.job, record.namespace, record.context)
    return [
        one
        for one in read_records(jobs_dir)
        if (one.job, one.namespace, one.context) != same
    ]


def _write(jobs_dir: Path, records: Sequence[Record]) -> None:
    jobs_dir.mkdir(parents=True, exist_ok=True)
    text = json.dumps([asdict(one) for one in records], indent=1)
    write_whole(jobs_dir / FILE, text, durable=False)
