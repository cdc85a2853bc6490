"""Sets the master's Prometheus metrics from the job's parts.

Called by the loop, in its thread, so that a scrape never sees a half-changed table.
"""

from __future__ import annotations

from collections import Counter

from elasticdl.job.status import JobState
from elasticdl.master.job_state import Job
from elasticdl.metrics.registry import MasterMetrics


class Gauges:
    """Keeps metrics equal to the job."""

    def __init__(self, metrics: MasterMetrics) -> None:
        """Set these metrics."""
        self._metrics = metrics
        self._relaunches = 0
        self._recovered: set[int] = set()
        self._seen: Counter[str] = Counter()

    def update(self, job: Job, *, now: float) -> None:
        """Set all figures."""
        metrics, parts = self._metrics, job.parts
        for state in JobState:
            metrics.job_state.labels(state.value).set(state is job.state)
        metrics.version.set(job.version)
        metrics.workers_wanted.set(job.spec.worker.replicas)
        queue, plan = parts.ledger.queue, parts.ledger.plan
        if queue is not None and plan is not None:
            metrics.epoch.set(queue.epoch)
            metrics.records.set(queue.done_records)
            metrics.records_wanted.set(plan.records_per_epoch * plan.epochs)
            metrics.tasks_leased.set(len(queue.leased))
            metrics.tasks_waiting.set(len(queue.waiting))
        states = Counter(
            (str(m.key.role), m.state.value) for m in parts.table.members.values()
        )
        metrics.replicas.clear()
        for (role, state_name), count in states.items():
            metrics.replicas.labels(role, state_name).set(count)
        for record in parts.relaunches.records[self._relaunches :]:
            role = record.replica.split("-")[0]
            metrics.relaunches.labels(role, record.reason).inc()
        self._relaunches = len(parts.relaunches.records)
        self._observe_recoveries(job)
        metrics.journal_bytes.set(parts.ledger.journal_bytes)
        self._count_up(job)
        if parts.rounds.last:
            for name, value in parts.rounds.last.metrics.items():
                metrics.evaluation_metric.labels(name).set(value)
        if parts.keeper.newest:
            metrics.checkpoint_version.set(parts.keeper.newest.manifest.version)
            metrics.checkpoint_time.set(parts.keeper.newest.manifest.time)
        metrics.goodput.set(parts.goodput.seconds(now=now))

    def _observe_recoveries(self, job: Job) -> None:
        for number, record in enumerate(job.parts.relaunches.records):
            if record.seconds is not None and number not in self._recovered:
                self._recovered.add(number)
                role = record.replica.split("-")[0]
                self._metrics.recovery_seconds.labels(role).observe(record.seconds)

    def _count_up(self, job: Job) -> None:
        metrics, parts = self._metrics, job.parts
        for counter, name, value in (
            (metrics.replayed, "replayed", parts.ledger.replayed_records),
            (metrics.rewinds, "rewinds", parts.ledger.rewinds),
            (metrics.lost_updates, "lost", parts.ps.lost_updates),
            (metrics.evaluations, "evaluations", len(parts.rounds.results)),
            (metrics.checkpoint_failures, "failures", parts.keeper.failures),
        ):
            counter.inc(value - self._seen[name])
            self._seen[name] = value
