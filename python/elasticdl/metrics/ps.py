"""The metrics of a parameter server.

Owns their names. Filled by `ps.main` when somebody asks and by `ps.servicer`. Knows
nothing of where figures come from.
"""

from __future__ import annotations

from elasticdl.metrics.catalogue import ONE_OR_ZERO, Catalogue

# From a local PS to a slow network with a large model.
CALL_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
ANSWERS = ("accepted", "stale", "duplicate")


class PsMetrics(Catalogue):
    """The PS's metrics."""

    def __init__(self) -> None:
        """Create the metrics in a new registry."""
        super().__init__()
        self._state()
        self._calls()
        for answer in ANSWERS:
            self.pushes.labels(answer)

    def _state(self) -> None:
        self.initialized = self.gauge(
            "elasticdl_ps_initialized", "1 when it has parameters.", unit=ONE_OR_ZERO
        )
        self.version = self.gauge(
            "elasticdl_ps_version", "Its model version.", unit="versions"
        )
        self.parameter_bytes = self.gauge(
            "elasticdl_ps_parameter_bytes", "Bytes of its values and slots."
        )
        self.embedding_rows = self.series(
            "elasticdl_ps_embedding_rows",
            "Rows that it holds of a variable whose gradients come by rows.",
            unit="rows",
            labels={"table": "names of the model's embedding variables"},
        )
        self.memory = self.gauge("elasticdl_ps_memory_bytes", "Resident memory.")
        self.memory_limit = self.gauge(
            "elasticdl_ps_memory_limit_bytes",
            "Memory at which its container is killed; 0 when there is no limit.",
        )
        self.snapshots = self.gauge(
            "elasticdl_ps_snapshots", "Snapshots it holds now.", unit="snapshots"
        )
        self.checkpoint_seconds = self.summary(
            "elasticdl_ps_checkpoint_write_seconds",
            "Time to write a shard, in the background.",
        )
        self.checkpoint_failures = self.counter(
            "elasticdl_ps_checkpoint_failures_total",
            "Shards that could not be written.",
            unit="shards",
        )

    def _calls(self) -> None:
        self.call_seconds = self.histogram(
            "elasticdl_ps_call_seconds",
            "Time of a call without its transfer, by method.",
            CALL_BUCKETS,
            labels={"method": "init, pull, push"},
        )
        self.apply_seconds = self.summary(
            "elasticdl_ps_apply_seconds",
            "Time of one update of the parameters.",
        )
        self.received = self.counter(
            "elasticdl_ps_received_bytes_total", "Tensor bytes pushed to it."
        )
        self.sent = self.counter(
            "elasticdl_ps_sent_bytes_total", "Tensor bytes pulled from it."
        )
        self.pushes = self.counter(
            "elasticdl_ps_pushes_total",
            "Gradients by answer.",
            unit="gradients",
            labels={"answer": ", ".join(ANSWERS)},
        )
        self.staleness = self.summary(
            "elasticdl_ps_staleness_versions",
            "Versions between a gradient and the values it was applied to.",
            unit="versions",
        )
