"""The metrics of a worker.

Owns their names. Filled by `worker.life` when somebody asks and by what trains. Knows
nothing of where figures come from.
"""

from __future__ import annotations

from collections.abc import Sequence

from elasticdl.metrics.catalogue import Catalogue
from elasticdl.metrics.goodput import CAUSES

STEP_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
TASKS = ("training", "evaluation", "prediction")


class WorkerMetrics(Catalogue):
    """The worker's metrics."""

    def __init__(self) -> None:
        """Create the metrics in a new registry."""
        super().__init__()
        self._training()
        self._times()
        self.goodput.set_by(dict.fromkeys(CAUSES, 0.0))
        for task in TASKS:
            self.records.labels(task)

    def count_steps(self, steps: Sequence[tuple[float, int, float, int]]) -> None:
        """Count training steps, at least one: (seconds, records, loss, version)."""
        for seconds, *_ in steps:
            self.step_seconds.observe(seconds)
        self.records.labels(task="training").inc(sum(step[1] for step in steps))
        self.steps.inc(len(steps))
        self.loss.set(steps[-1][2])
        self.version.set(steps[-1][3])

    def _training(self) -> None:
        self.steps = self.counter(
            "elasticdl_worker_steps_total",
            "Training steps of this process.",
            unit="steps",
        )
        self.records = self.counter(
            "elasticdl_worker_records_total",
            "Records read, by kind of task.",
            unit="records",
            labels={"task": ", ".join(TASKS)},
        )
        self.loss = self.gauge(
            "elasticdl_worker_loss", "Loss of the last step.", unit="loss"
        )
        self.version = self.gauge(
            "elasticdl_worker_model_version",
            "Model version of its values.",
            unit="versions",
        )
        self.gradient_bytes = self.series(
            "elasticdl_worker_gradient_sent_bytes_total",
            "Bytes of gradients sent to other workers (strategy allReduce).",
        )
        self.refused = self.counter(
            "elasticdl_worker_refused_gradients_total",
            "Gradients that a PS refused; their batches were computed again.",
            unit="gradients",
        )
        self.bad_records = self.counter(
            "elasticdl_worker_bad_records_total",
            "Records that could not be read and were skipped.",
            unit="records",
        )
        self.skipped_batches = self.counter(
            "elasticdl_worker_skipped_batches_total",
            "Batches whose loss was not finite.",
            unit="batches",
        )
        self.memory = self.gauge("elasticdl_worker_memory_bytes", "Resident memory.")
        self.memory_limit = self.gauge(
            "elasticdl_worker_memory_limit_bytes",
            "Memory at which its container is killed; 0 when there is no limit.",
        )
        self.goodput = self.series(
            "elasticdl_worker_goodput_seconds_total",
            "Seconds of this process by cause; they sum to its life.",
            labels={"cause": ", ".join(CAUSES)},
            optional=False,
        )

    def _times(self) -> None:
        self.step_seconds = self.histogram(
            "elasticdl_worker_step_seconds", "Time of one training step.", STEP_BUCKETS
        )
        self.pull_seconds = self.summary(
            "elasticdl_worker_pull_seconds",
            "Time of one pull from all PS that no push went with.",
        )
        self.push_seconds = self.summary(
            "elasticdl_worker_push_seconds",
            "Time of one push to all PS, with the values that it brings back.",
        )
        self.convert_seconds = self.summary(
            "elasticdl_worker_convert_seconds",
            "Time to pack a batch's gradients for the PS, or to unpack values.",
        )
        self.compute_seconds = self.summary(
            "elasticdl_worker_compute_seconds",
            "Time TensorFlow took for the gradients of a batch.",
        )
