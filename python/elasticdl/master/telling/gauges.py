"""Sets the master's Prometheus metrics from the job's status and parts.

Called when somebody asks for `/metrics`, in the event loop's thread, so that a scrape
never sees a half-changed table and a job that nobody scrapes pays nothing. Counters
are set to what the job has counted: they go on with a restarted master.
"""

from __future__ import annotations

from collections import Counter

from elasticdl.job.names import Role, role_of
from elasticdl.job.status import JobStatus
from elasticdl.job.words import NOT_YET_RUNNING, EndCause, JobState, ReplicaState
from elasticdl.master.job_state import Job
from elasticdl.master.telling import status
from elasticdl.master.telling.alarms import Alarms, see
from elasticdl.master.telling.notices import pending_kind
from elasticdl.metrics.registry import MasterMetrics

_ASKED_FOR = "Starting"


class Gauges:
    """Sets the master's metrics from the job."""

    def __init__(self, job: Job, metrics: MasterMetrics) -> None:
        """Set these metrics from this job."""
        self._job = job
        self.metrics = metrics
        self._recovered: set[int] = set()
        self._alarms = Alarms()

    def update(self, *, now: float) -> None:
        """Set all metrics."""
        built = status.build(self._job, now=now)
        self._progress(built)
        self._replicas(built)
        self._membership(built)
        self._group(built)
        self._checkpoints(built)
        self._alerts(now=now)

    def _progress(self, built: JobStatus) -> None:
        metrics, job, progress = self.metrics, self._job, built.progress
        metrics.job_info.set({(built.name, built.type, built.strategy): 1})
        for state in JobState:
            metrics.job_state.labels(state.value).set(state is built.state)
        metrics.version.set(progress.version)
        metrics.epoch.set(progress.epoch)
        metrics.steps.set(progress.steps)
        metrics.last_step_time.set_one(job.last_step_time)
        metrics.records.set(progress.records_done)
        metrics.records_wanted.set(progress.records_per_epoch * progress.epochs)
        metrics.replayed.set_one(progress.replayed_records)
        metrics.tasks_done.set(progress.tasks_done)
        metrics.tasks_planned.set(progress.tasks_total)
        metrics.tasks_leased.set(progress.tasks_leased)
        metrics.tasks_waiting.set(progress.tasks_waiting)
        metrics.loss.set_one(built.last_loss)
        metrics.nonfinite_losses.set_one(job.nonfinite_losses)
        metrics.eta.set_one(progress.eta_seconds)
        metrics.epoch_eta.set_one(progress.epoch_eta_seconds)
        metrics.evaluations.set_one(job.parts.rounds.count)
        last = built.last_evaluation
        metrics.evaluation_metric.set_by(last.metrics if last else {})
        metrics.goodput.set_by(built.goodput_seconds)

    def _replicas(self, built: JobStatus) -> None:
        metrics, spec = self.metrics, self._job.spec.worker
        metrics.workers_wanted.set(built.workers_wanted)
        grant = built.grant
        metrics.workers_granted.set_one(grant.workers if grant else None)
        metrics.grants_refused.set_one(self._job.parts.granted.refusals)
        metrics.workers_min.set(spec.min)
        metrics.workers_max.set(spec.max)
        living = [r for r in built.replicas if r.state != ReplicaState.ENDED]
        metrics.replicas.set(Counter((r.role, r.state) for r in living))
        metrics.pending_replicas.set(
            Counter(
                (r.role, pending_kind(r.reason) if r.reason else _ASKED_FOR)
                for r in living
                if r.state in NOT_YET_RUNNING
            )
        )
        metrics.worker_last_step.set_by(
            {
                str(member.key.index): member.worker.step_seconds
                for member in self._job.parts.table.workers()
                if member.alive and member.worker and member.worker.step
            }
        )

    def _membership(self, built: JobStatus) -> None:
        metrics, parts = self.metrics, self._job.parts
        records, endings = built.relaunches, built.relaunch_causes
        metrics.relaunches.set(parts.relaunches.counts)
        changes = parts.changes.with_endings(records, endings)
        metrics.membership_changes.set(changes.counts)
        metrics.membership_time.set_by(changes.times)
        metrics.membership_cost.set_by(changes.costs)
        metrics.preemptions.set_by(
            {
                str(role): endings.get(role, {}).get(EndCause.PREEMPTED, 0)
                for role in (Role.PS, Role.WORKER)
            }
        )
        metrics.master_restarts.set_one(status.master_restarts(self._job))
        metrics.rewinds.set_one(built.rewinds)
        metrics.lost_updates.set_one(built.lost_updates)
        before = built.relaunches_before
        self._recovered = {n for n in self._recovered if n >= before}
        for number, record in enumerate(records, before):
            if record.seconds is not None and number not in self._recovered:
                self._recovered.add(number)
                role = role_of(record.replica)
                metrics.recovery_seconds.labels(role).observe(record.seconds)

    def _group(self, built: JobStatus) -> None:
        group, metrics = built.group, self.metrics
        if group is None:
            return
        index = {one.name: str(one.index) for one in built.replicas}
        metrics.group_out.set_by(Counter(str(one.cause) for one in group.out))
        if not group.round:
            return
        metrics.group_round.set_by({group.cause or "": group.round})
        metrics.group_time.set_one(group.since)
        metrics.group_change.set_one(group.change_seconds)
        metrics.group_changes.set_one(group.changes_seconds)
        metrics.group_repairs.set_one(group.repairs)
        metrics.group_rank.set_by(
            {
                index[name]: place
                for place, name in enumerate(group.members)
                if name in index
            }
        )
        members = [one for one in built.replicas if one.name in group.members]
        at_it = [one for one in members if one.state != ReplicaState.ENDED]
        metrics.group_wait.set_by({str(r.index): r.wait_seconds for r in at_it})
        metrics.group_step_bytes.set_by({str(r.index): r.step_bytes for r in at_it})

    def _checkpoints(self, built: JobStatus) -> None:
        metrics, checkpoints = self.metrics, self._job.parts.checkpoints
        newest = checkpoints.newest
        metrics.checkpoint_version.set_one(built.checkpoint_version)
        metrics.checkpoint_time.set_one(newest.manifest.time if newest else None)
        metrics.checkpoint_duration.set_one(checkpoints.newest_seconds)
        spec = self._job.spec
        trains = self._job.trains
        metrics.checkpoint_interval.set(
            spec.checkpoint.every_seconds if trains else 0.0
        )
        metrics.checkpoint_failures.set_one(checkpoints.failures)
        metrics.journal_bytes.set(self._job.parts.ledger.journal_bytes)

    def _alerts(self, *, now: float) -> None:
        metrics, job, alarms = self.metrics, self._job, self._alarms
        alarms.update(see(job), now=now)
        metrics.state_seconds.set(alarms.state_seconds)
        metrics.stalled_seconds.set(alarms.stalled_seconds)
        metrics.unsaved_seconds.set(alarms.unsaved_seconds)
        metrics.alert_thresholds.set_by(
            job.spec.alerts.model_dump(by_alias=True, exclude_none=True)
        )
        ledger = job.parts.ledger
        metrics.journal_blocked.set(ledger.blocked_seconds)
        free, size = ledger.volume or (None, None)
        metrics.volume_free.set_one(free)
        metrics.volume_size.set_one(size)
