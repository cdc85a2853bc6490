"""What people should hear of a job, found by comparing its status with the one before.

Owns the reasons and the words of notices, and logs why replicas wait, which nobody else
does. Called by `master.publishing`. Must not look at anything but statuses.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from elasticdl.job.status import JobState, JobStatus, Relaunch
from elasticdl.runner.publisher import Notice

log = logging.getLogger(__name__)

_STATES = {
    JobState.RUNNING: "JobRunning",
    JobState.PAUSED: "JobPaused",
    JobState.FINISHING: "JobFinishing",
    JobState.SUCCEEDED: "JobSucceeded",
    JobState.FAILED: "JobFailed",
    JobState.STOPPED: "JobStopped",
}
# By the reason of a relaunch; all others are `ReplicaFailed`.
_ENDINGS = {
    "preempted": "ReplicaPreempted",
    "evicted": "ReplicaEvicted",
    "nodeLost": "ReplicaNodeLost",
    "oomKilled": "ReplicaOOMKilled",
    "stopped from outside": "ReplicaDeleted",
    "killed": "ReplicaKilled",
    "completed": "ReplicaLeft",
    "silent": "ReplicaSilent",
    "hung": "ReplicaHung",
}
_HARMLESS = ("preempted", "evicted", "stopped from outside", "completed")
_MOST_NAMES = 8
# What every pod goes through.
_ON_ITS_WAY = ("ContainerCreating", "PodInitializing")


class Notices:
    """Remembers what was told of one job."""

    def __init__(self) -> None:
        """Nothing was told yet."""
        self._last: JobStatus | None = None
        self._waiting: set[tuple[str, str]] = set()  # replica, first word of why

    def of(self, status: JobStatus) -> list[Notice]:
        """Return what is new; of a restarted master's first status that it took over.

        Many replicas with the same fate make one notice.
        """
        last, self._last = self._last, status
        found = []
        if last is None:
            if status.master_generation > 1:
                number = status.master_generation
                found.append(
                    Notice("MasterStarted", f"master generation {number} goes on")
                )
            told = len(status.relaunches)
        else:
            told = len(last.relaunches)
        found += _relaunched(status.relaunches[told:])
        found += self._pending(status)
        said = last.message if last is not None else ""
        if status.message != said and status.message and not status.ending:
            found.append(Notice("Attention", status.message, warning=True))
        if last is None or status.state is not last.state:
            found += _state(status)
        return found

    def _pending(self, status: JobStatus) -> list[Notice]:
        """Tell why replicas wait, once for each replica and kind of reason."""
        waiting = [
            r
            for r in status.replicas
            if r.state == "pending"
            and r.reason
            and pending_kind(r.reason) not in _ON_ITS_WAY
        ]
        by_reason: dict[str, list[str]] = {}
        for replica in waiting:
            if (replica.name, pending_kind(replica.reason)) not in self._waiting:
                by_reason.setdefault(replica.reason, []).append(replica.name)
        self._waiting |= {(r.name, pending_kind(r.reason)) for r in waiting}
        self._waiting &= {
            (name, kind)
            for name, kind in self._waiting
            if any(r.name == name for r in waiting)
        }
        notices = [
            Notice(pending_kind(reason), f"{_names(who)} waits: {reason}", warning=True)
            for reason, who in by_reason.items()
        ]
        for notice in notices:
            log.warning("%s", notice.message)
        return notices


def pending_kind(reason: str) -> str:
    """Return the platform's word a reason begins with, as `Unschedulable`."""
    word = reason.partition(":")[0]
    return word if word.isalnum() and word[:1].isupper() else "ReplicaPending"


def _relaunched(records: Iterable[Relaunch]) -> list[Notice]:
    by_reason: dict[str, list[Relaunch]] = {}
    for record in records:
        by_reason.setdefault(record.reason, []).append(record)
    return [_relaunch(reason, same) for reason, same in by_reason.items()]


def _relaunch(reason: str, records: list[Relaunch]) -> Notice:
    who = _names([record.replica for record in records])
    new = _names([record.replacement for record in records if record.replacement])
    text = f"{who} ended: {reason}; {f'replaced by {new}' if new else 'not replaced'}"
    if detail := records[-1].detail.strip():
        text += f"\n{detail}"
    return Notice(
        _ENDINGS.get(reason, "ReplicaFailed"), text, warning=reason not in _HARMLESS
    )


def _names(replicas: list[str]) -> str:
    shown = ", ".join(replicas[:_MOST_NAMES])
    more = len(replicas) - _MOST_NAMES
    return f"{shown} and {more} more" if more > 0 else shown


def _state(status: JobStatus) -> list[Notice]:
    reason = _STATES.get(status.state)
    if reason is None:
        return []
    text = f"job {status.name} is {status.state}"
    if status.state.ended:
        text = f"job {status.name} {status.state}"
    if status.message:
        text += f": {status.message}"
    return [Notice(reason, text, warning=status.state is JobState.FAILED)]
