"""What a PS tells of itself: to its metrics, and in heartbeats to the master.

Owns the figures and their form in a heartbeat. Made by ps/server.py, read by
ps/control.py and ps/main.py. Knows nothing of locks or calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import psutil

from elasticdl.job.heartbeats import PsReport, SnapshotDone
from elasticdl.ps.snapshots import Done
from elasticdl.ps.traffic import Usage


@dataclass(frozen=True)
class PsFigures:
    """The figures of a PS for heartbeats and metrics."""

    initialized: bool
    version: int
    nbytes: int
    embedding_rows: Mapping[str, int]  # by variable
    pushes: int
    rejected: int
    staleness_sum: float
    snapshots: Sequence[Done]
    pending: bool  # something is about to change
    rewind: int
    error: str
    unloadable: str = ""  # the folder that could not be loaded; `error` says why
    began_at: int = 0  # version of the values that it began with
    obeyed: int = 0  # revision of the master's answer that was carried out last
    wants_optimizer: bool = False  # loads its checkpoint with that of a worker
    warning: str = ""  # of what the job does not take over from its checkpoint


def report_of(figures: PsFigures, usage: Usage) -> PsReport:
    """Return the figures as a report to the master."""
    sums = usage.traffic.sums()
    return PsReport(
        initialized=figures.initialized,
        version=figures.version,
        bytes=figures.nbytes,
        pushes=figures.pushes,
        rejected=figures.rejected,
        staleness_sum=figures.staleness_sum,
        memory_bytes=psutil.Process().memory_info().rss,
        snapshots=tuple(_told(done) for done in figures.snapshots),
        rewind=figures.rewind,
        error="" if figures.unloadable else figures.error,
        unloadable=figures.unloadable,
        unloadable_reason=figures.error if figures.unloadable else "",
        embedding_rows=sum(figures.embedding_rows.values()),
        received_bytes=sums.received_bytes,
        sent_bytes=sums.sent_bytes,
        calls=sums.calls,
        call_seconds=sums.call_seconds,
        memory_limit_bytes=usage.memory_limit_bytes,
        began_at=figures.began_at,
        obeyed_revision=figures.obeyed,
        wants_optimizer=figures.wants_optimizer,
        warning=figures.warning,
    )


def _told(done: Done) -> SnapshotDone:
    return SnapshotDone(
        id=done.snapshot,
        version=done.version,
        ticket=done.ticket,
        file=done.file.file if done.file else "",
        file_bytes=done.file.bytes if done.file else 0,
        crc32=done.file.crc32 if done.file else 0,
        applied=dict(done.applied),
        error=done.error,
        pinned_only=done.pinned_only,
        written_bytes=done.written,
    )
