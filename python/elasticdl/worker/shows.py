"""What a worker shows of its training steps: progress, metrics, the logged loss.

Owns the counting of a step. Called by `worker.training` and `worker.group.loop`. Must
not know tasks, nor where gradients go.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from elasticdl.metrics.goodput import GoodputLedger
from elasticdl.metrics.registry import WorkerMetrics
from elasticdl.model.feeding import Batch, kind_of
from elasticdl.worker.progress import WorkerProgress
from elasticdl.worker.trainer import BatchDone

log = logging.getLogger(__name__)


class Shows:
    """The counters and metrics of a step."""

    def __init__(
        self,
        progress: WorkerProgress,
        goodput: GoodputLedger,
        metrics: WorkerMetrics,
        *,
        log_loss_steps: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Log the loss every `log_loss_steps` steps."""
        self.progress = progress
        self.goodput = goodput
        self.metrics = metrics
        self.clock = clock
        self._log_loss_steps = log_loss_steps

    def begins(self, batch: Batch) -> None:
        """Note the start of a step."""
        self.progress.begins(kind_of(batch))

    def step(self, done: BatchDone, records: int, seconds: float | None = None) -> None:
        """Count a step of so many seconds; by default those since it `begins`."""
        if done.skipped:
            self.metrics.records.labels(task="training").inc(records)
            self.metrics.skipped_batches.inc()
            self.progress.ended()
            log.warning("Loss %s: the batch was skipped", done.loss)
            return
        step = self.progress.stepped(
            version=done.version, loss=done.loss, records=records, seconds=seconds
        )
        if step % self._log_loss_steps == 0 or step == 1:
            log.info("Loss %.4f at step %d (version %d)", done.loss, step, done.version)
