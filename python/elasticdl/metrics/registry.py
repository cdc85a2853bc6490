"""Every Prometheus metric of ElasticDL: name, unit and help, declared once.

Owns the names that dashboards and alerts are written against. Each process makes one
of `MasterMetrics`, `PsMetrics`, `WorkerMetrics`, with a registry of its own, so that
tests may run many in one process. Labels have few values: indices, causes, states,
never ids of tasks or files. Knows nothing of where figures come from.

`elasticdl_..._total` counts, `_seconds` and `_bytes` are units, no suffix is a gauge.
"""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from elasticdl.metrics.ledger import CAUSES

# From a local PS to a slow network with a large model.
_CALL_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
_STEP_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_RECOVERY_BUCKETS = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0)
_STALENESS_BUCKETS = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)


class _CauseSeconds(Collector):
    """A counter of seconds by cause whose values are set, not added up here."""

    def __init__(self, registry: CollectorRegistry, name: str, text: str) -> None:
        self._name = name
        self._text = text
        self._seconds: dict[str, float] = {}
        registry.register(self)

    def set(self, seconds: Mapping[str, float]) -> None:
        """Replace the values by a ledger's `seconds()`."""
        self._seconds = dict(seconds)

    def collect(self) -> list[Metric]:
        family = CounterMetricFamily(self._name, self._text, labels=["cause"])
        for cause, seconds in self._seconds.items():
            family.add_metric([cause], seconds)
        return [family]


class MasterMetrics:
    """What the master shows."""

    def __init__(self) -> None:
        """Make a fresh registry; every series that is known exists from the start."""
        self.registry = registry = CollectorRegistry()
        self.job_state = Gauge(
            "elasticdl_job_state",
            "1 for the state the job is in (job/status.py: JobState), else 0.",
            ["state"],
            registry=registry,
        )
        self.epoch = Gauge(
            "elasticdl_job_epoch",
            "Oldest epoch that is not done, from 0.",
            registry=registry,
        )
        self.version = Gauge(
            "elasticdl_job_model_version", "Model version of PS 0.", registry=registry
        )
        self.records = Gauge(
            "elasticdl_job_records_done",
            "Records done in all epochs, each counted once an epoch.",
            registry=registry,
        )
        self.records_wanted = Gauge(
            "elasticdl_job_records_wanted",
            "Records of all epochs; 0 when endless.",
            registry=registry,
        )
        self.replayed = Counter(
            "elasticdl_job_replayed_records_total",
            "Records given out again because a lease was lost.",
            registry=registry,
        )
        self.tasks_leased = Gauge(
            "elasticdl_tasks_leased", "Tasks that workers hold now.", registry=registry
        )
        self.tasks_waiting = Gauge(
            "elasticdl_tasks_waiting",
            "Tasks that came back and wait for a worker.",
            registry=registry,
        )
        self.task_reports = Counter(
            "elasticdl_task_reports_total",
            "Reports by outcome: done, failed, returned, expired, late.",
            ["outcome"],
            registry=registry,
        )
        self.task_seconds = Histogram(
            "elasticdl_task_seconds",
            "Time from lease to report of a finished task.",
            buckets=(0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0),
            registry=registry,
        )
        self.replicas = Gauge(
            "elasticdl_replicas",
            "Replicas by role and state (running, pending, ...).",
            ["role", "state"],
            registry=registry,
        )
        self.workers_wanted = Gauge(
            "elasticdl_workers_wanted", "Workers the job asks for.", registry=registry
        )
        self.relaunches = Counter(
            "elasticdl_relaunches_total",
            "Replicas that were replaced, by role and reason.",
            ["role", "reason"],
            registry=registry,
        )
        self.recovery_seconds = Histogram(
            "elasticdl_recovery_seconds",
            "Time from the loss of a replica until its replacement worked.",
            ["role"],
            buckets=_RECOVERY_BUCKETS,
            registry=registry,
        )
        self.rewinds = Counter(
            "elasticdl_rewinds_total",
            "Times that all PS and the queue went back to a checkpoint.",
            registry=registry,
        )
        self.lost_updates = Counter(
            "elasticdl_lost_updates_total",
            "Updates lost with a PS that went on from an older checkpoint.",
            registry=registry,
        )
        self.evaluations = Counter(
            "elasticdl_evaluations_total", "Finished rounds.", registry=registry
        )
        self.evaluation_metric = Gauge(
            "elasticdl_evaluation_metric",
            "Metrics of the last evaluation.",
            ["metric"],
            registry=registry,
        )
        self.checkpoint_version = Gauge(
            "elasticdl_checkpoint_version",
            "Version of the newest complete checkpoint.",
            registry=registry,
        )
        self.checkpoint_time = Gauge(
            "elasticdl_checkpoint_timestamp_seconds",
            "When the newest checkpoint was completed, in Unix seconds.",
            registry=registry,
        )
        self.checkpoint_failures = Counter(
            "elasticdl_checkpoint_failures_total",
            "Checkpoints that could not be written.",
            registry=registry,
        )
        self.journal_seconds = Histogram(
            "elasticdl_journal_commit_seconds",
            "Time of one group commit of the journal.",
            buckets=_CALL_BUCKETS,
            registry=registry,
        )
        self.journal_bytes = Gauge(
            "elasticdl_journal_bytes",
            "Size of the journal's segment that is being written.",
            registry=registry,
        )
        self.goodput = _CauseSeconds(
            registry,
            "elasticdl_goodput_seconds",
            "Seconds of all workers together, by cause; pending and preempted are "
            "those of workers that could not run.",
        )
        for outcome in ("done", "failed", "returned", "expired", "late"):
            self.task_reports.labels(outcome)
        for role in ("worker", "ps"):
            self.recovery_seconds.labels(role)


class PsMetrics:
    """What a PS shows."""

    def __init__(self) -> None:
        """Make a fresh registry."""
        self.registry = registry = CollectorRegistry()
        self.initialized = Gauge(
            "elasticdl_ps_initialized", "1 when it has parameters.", registry=registry
        )
        self.version = Gauge(
            "elasticdl_ps_version", "Its model version.", registry=registry
        )
        self.parameter_bytes = Gauge(
            "elasticdl_ps_parameter_bytes",
            "Bytes of its values and slots.",
            registry=registry,
        )
        self.snapshots = Gauge(
            "elasticdl_ps_snapshots", "Snapshots it holds now.", registry=registry
        )
        self.call_seconds = Histogram(
            "elasticdl_ps_call_seconds",
            "Time of a call without its transfer, by method.",
            ["method"],
            buckets=_CALL_BUCKETS,
            registry=registry,
        )
        self.apply_seconds = Histogram(
            "elasticdl_ps_apply_seconds",
            "Time of one update of the parameters.",
            buckets=_CALL_BUCKETS,
            registry=registry,
        )
        self.received = Counter(
            "elasticdl_ps_received_bytes_total",
            "Tensor bytes pushed to it.",
            registry=registry,
        )
        self.sent = Counter(
            "elasticdl_ps_sent_bytes_total",
            "Tensor bytes pulled from it.",
            registry=registry,
        )
        self.pushes = Counter(
            "elasticdl_ps_pushes_total",
            "Gradients by answer: accepted, stale, duplicate.",
            ["answer"],
            registry=registry,
        )
        self.staleness = Histogram(
            "elasticdl_ps_staleness_versions",
            "Versions between a gradient and the values it was applied to.",
            buckets=_STALENESS_BUCKETS,
            registry=registry,
        )
        self.checkpoint_seconds = Histogram(
            "elasticdl_ps_checkpoint_write_seconds",
            "Time to write a shard, in the background.",
            buckets=_RECOVERY_BUCKETS,
            registry=registry,
        )
        self.checkpoint_failures = Counter(
            "elasticdl_ps_checkpoint_failures_total",
            "Shards that could not be written.",
            registry=registry,
        )
        for answer in ("accepted", "stale", "duplicate"):
            self.pushes.labels(answer)


class WorkerMetrics:
    """What a worker shows."""

    def __init__(self) -> None:
        """Make a fresh registry."""
        self.registry = registry = CollectorRegistry()
        self.steps = Counter(
            "elasticdl_worker_steps_total",
            "Training steps of this process.",
            registry=registry,
        )
        self.records = Counter(
            "elasticdl_worker_records_total",
            "Records read, by kind of task.",
            ["task"],
            registry=registry,
        )
        self.loss = Gauge(
            "elasticdl_worker_loss", "Loss of the last step.", registry=registry
        )
        self.version = Gauge(
            "elasticdl_worker_model_version",
            "Model version of its values.",
            registry=registry,
        )
        self.step_seconds = Histogram(
            "elasticdl_worker_step_seconds",
            "Time of one training step.",
            buckets=_STEP_BUCKETS,
            registry=registry,
        )
        self.pull_seconds = Histogram(
            "elasticdl_worker_pull_seconds",
            "Time of one pull from all PS that no push went with.",
            buckets=_CALL_BUCKETS,
            registry=registry,
        )
        self.push_seconds = Histogram(
            "elasticdl_worker_push_seconds",
            "Time of one push to all PS, with the values that it brings back.",
            buckets=_CALL_BUCKETS,
            registry=registry,
        )
        self.convert_seconds = Histogram(
            "elasticdl_worker_convert_seconds",
            "Time to pack a batch's gradients for the PS, or to unpack values.",
            buckets=_CALL_BUCKETS,
            registry=registry,
        )
        self.compute_seconds = Histogram(
            "elasticdl_worker_compute_seconds",
            "Time TensorFlow took for the gradients of a batch.",
            buckets=_STEP_BUCKETS,
            registry=registry,
        )
        self.refused = Counter(
            "elasticdl_worker_refused_gradients_total",
            "Gradients that a PS refused; their batches were computed again.",
            registry=registry,
        )
        self.bad_records = Counter(
            "elasticdl_worker_bad_records_total",
            "Records that could not be read and were skipped.",
            registry=registry,
        )
        self.skipped_batches = Counter(
            "elasticdl_worker_skipped_batches_total",
            "Batches whose loss was not finite.",
            registry=registry,
        )
        self.memory = Gauge(
            "elasticdl_worker_memory_bytes", "Resident memory.", registry=registry
        )
        self.goodput = _CauseSeconds(
            registry,
            "elasticdl_worker_goodput_seconds",
            "Seconds of this process by cause; they sum to its life.",
        )
        self.goodput.set(dict.fromkeys(CAUSES, 0.0))
        for task in ("training", "evaluation", "prediction"):
            self.records.labels(task)
