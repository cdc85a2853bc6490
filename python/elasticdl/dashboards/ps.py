"""The dashboard of a job's parameter servers: size, load, latency, memory.

Owns its panels. Called by `boards`.
"""

from __future__ import annotations

from elasticdl.dashboards.board import Board, Panel, PanelKind, Query, Row
from elasticdl.dashboards.selectors import mean, of_job, quantile, rate

_TRAFFIC = (
    f"(sum by (index) ({rate(of_job('elasticdl_ps_received_bytes_total'))})"
    f" + sum by (index) ({rate(of_job('elasticdl_ps_sent_bytes_total'))}))"
)
_HOT = f"{_TRAFFIC} / on () group_left () (avg({_TRAFFIC}) > 0)"
_BYTES = f"sum by (index) ({of_job('elasticdl_ps_parameter_bytes')})"
_VERSION = f"sum by (index) ({of_job('elasticdl_ps_version')})"
_ROWS = f"sum by (index) ({of_job('elasticdl_ps_embedding_rows')}) or {_VERSION} * 0"
_LATENCY = mean("elasticdl_ps_call_seconds", "index")
_STALENESS = mean("elasticdl_ps_staleness_versions", "index")
_MEMORY = f"max by (index) ({of_job('elasticdl_ps_memory_bytes')})"
_LIMIT = f"(max by (index) ({of_job('elasticdl_ps_memory_limit_bytes')}) > 0)"

_ALL = Row(
    "All parameter servers",
    (
        Panel(
            "Parameter servers",
            PanelKind.TABLE,
            "One line for each: bytes of values and slots, embedding rows, mean time "
            "of a request, mean staleness of gradients, its traffic over the mean of "
            "all (the hot one is above 1), memory, and the share of its limit where "
            "one is set.",
            width=24,
            columns=(("index", "PS"),),
            queries=(
                Query(_BYTES, "bytes", unit="bytes"),
                Query(_ROWS, "rows", unit="short"),
                Query(_LATENCY, "request", unit="s"),
                Query(_STALENESS, "staleness", unit="none"),
                Query(_HOT, "load / mean", unit="none"),
                Query(_MEMORY, "memory", unit="bytes"),
                Query(f"{_MEMORY} / {_LIMIT}", "of limit", unit="percentunit"),
            ),
        ),
    ),
)

_LOAD = Row(
    "Load",
    (
        Panel(
            "Traffic",
            PanelKind.TIMESERIES,
            "Tensor bytes pushed to and pulled from each parameter server. One line "
            "high above the others is a hot shard.",
            unit="Bps",
            queries=(Query(_TRAFFIC, "PS {{index}}"),),
        ),
        Panel(
            "Hot shard",
            PanelKind.BARGAUGE,
            "Traffic of each parameter server over the mean of all. With the load well "
            "spread all are near 1.",
            queries=(Query(_HOT, "PS {{index}}"),),
        ),
        Panel(
            "Request latency",
            PanelKind.TIMESERIES,
            "Mean time of a call without its transfer, by method.",
            unit="s",
            queries=(
                Query(
                    mean("elasticdl_ps_call_seconds", "index, method"),
                    "PS {{index}} {{method}}",
                ),
            ),
        ),
        Panel(
            "Request latency, slow ones",
            PanelKind.TIMESERIES,
            "Time of a call without its transfer that 95 and 99 of 100 stay below, by "
            "method.",
            unit="s",
            queries=tuple(
                Query(
                    quantile(share, "elasticdl_ps_call_seconds", "method"),
                    f"{name} {{{{method}}}}",
                )
                for share, name in ((0.95, "p95"), (0.99, "p99"))
            ),
        ),
        Panel(
            "Update time",
            PanelKind.TIMESERIES,
            "Mean time of one update of the parameters.",
            unit="s",
            width=8,
            queries=(
                Query(mean("elasticdl_ps_apply_seconds", "index"), "PS {{index}}"),
            ),
        ),
        Panel(
            "Staleness",
            PanelKind.TIMESERIES,
            "Mean number of versions between a gradient and the values that it is "
            "applied to.",
            width=8,
            queries=(Query(_STALENESS, "PS {{index}}"),),
        ),
        Panel(
            "Gradients",
            PanelKind.TIMESERIES,
            "Gradients per second, by answer.",
            unit="short",
            width=8,
            queries=(
                Query(
                    f"sum by (answer) ({rate(of_job('elasticdl_ps_pushes_total'))})",
                    "{{answer}}",
                ),
            ),
        ),
    ),
)

_SIZE = Row(
    "Size",
    (
        Panel(
            "Memory",
            PanelKind.TIMESERIES,
            "Resident memory of each parameter server, and its limit where one is set.",
            unit="bytes",
            queries=(
                Query(_MEMORY, "PS {{index}}"),
                Query(_LIMIT, "PS {{index}} limit"),
            ),
        ),
        Panel(
            "Bytes of parameters",
            PanelKind.TIMESERIES,
            "Values and optimizer slots.",
            unit="bytes",
            queries=(Query(_BYTES, "PS {{index}}"),),
        ),
        Panel(
            "Embedding rows",
            PanelKind.TIMESERIES,
            "Rows of embedding tables that each parameter server holds.",
            unit="short",
            queries=(Query(_ROWS, "PS {{index}}"),),
        ),
        Panel(
            "Time to write a checkpoint",
            PanelKind.TIMESERIES,
            "Mean time to write a shard, in the background.",
            unit="s",
            queries=(
                Query(
                    mean("elasticdl_ps_checkpoint_write_seconds", "index"),
                    "PS {{index}}",
                ),
            ),
        ),
    ),
)

BOARD = Board(
    uid="elasticdl-ps",
    title="ElasticDL / Parameter servers",
    description="The parameter servers of one job: load, latency, memory.",
    rows=(_ALL, _LOAD, _SIZE),
)
