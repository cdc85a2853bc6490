"""Heartbeats of PS: what they say and are told.

Owns the answers to them. Made by `master.assembly` for jobs that have PS; called by
`master.calls.servicer`. Must not know RPC.
"""

from __future__ import annotations

from elasticdl.job.heartbeats import PsHeartbeat, PsOrders
from elasticdl.job.words import JobState
from elasticdl.master.calls.heartbeats import fall_back, warn
from elasticdl.master.job_state import Job
from elasticdl.master.model.ps_group import PsGroup


class PsHeartbeats:
    """Handles the heartbeats of a job's PS."""

    def __init__(self, job: Job, group: PsGroup) -> None:
        """Handle the heartbeats for this job's PS group."""
        self._job = job
        self._parts = job.parts
        self._group = group

    def take(self, request: PsHeartbeat, *, now: float) -> None:
        """Take a PS's heartbeat. Raises FencedError."""
        member = self._parts.table.require(request.replica)
        status = request.status
        if status.error:
            self._job.end(JobState.FAILED, f"{member.name}: {status.error}")
        if status.unloadable:
            reason = status.unloadable_reason
            fall_back(self._job, member, status.unloadable, reason, now=now)
        warn(self._job, [status.warning], now=now)
        first = self._group.heard(member, status, now=now)
        self._parts.table.heard(member)
        if first:
            self._parts.table.note(member, now=now)
            self._parts.signals.wake()
        if status.pushes:  # of this process: its first gradient is applied
            self._parts.membership.works(member, now=now)
        for done in status.snapshots:
            self._parts.rounds.take(member.key.index, done)
            self._parts.checkpoints.take(member.key.index, done, now=now)
        spec = self._job.spec
        if spec.evaluation.every_steps or spec.checkpoint.every_steps:
            self._parts.signals.wake()

    def reply(self, request: PsHeartbeat) -> PsOrders:
        """Return the answer to a PS's heartbeat. Raises FencedError if it has ended."""
        member = self._parts.table.require(request.replica)
        index = member.key.index
        return PsOrders(
            revision=self._parts.signals.ps_revision,
            quorum=self._group.quorum.number,
            learning_rate_scale=self._job.learning_rate_scale,
            snapshots=(
                *self._parts.rounds.requests(index),
                *self._parts.checkpoints.asks_ps(index),
            ),
            rewind=self._group.rewind,
            restore_dir=self._group.rewind_dir,
            stop=member.drain,
            log_level=str(self._job.spec.log.level),
            awaited_version=self._group.awaited_version(member),
        )
