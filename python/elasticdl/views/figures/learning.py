"""Charts of what a job learns: loss, metrics of its evaluations.

Owns them. Called by `figures.job`. Must not know the page.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import tzinfo
from typing import Any

import plotly.graph_objects as go

from elasticdl.job.history import History
from elasticdl.job.status import EvaluationResult
from elasticdl.views.figures import look
from elasticdl.views.figures.look import Chart

# A loss that falls by more than this is drawn on a logarithmic axis.
_LOG_RATIO = 50.0
_MOST_METRICS = 6
_MOST_MARKERS = 60


def loss(history: History, zone: tzinfo) -> Chart:
    """The training loss; a loss that is not finite is a gap with a mark."""
    key, title = "loss", "Training loss"
    known = [(s.time, s.loss) for s in history.samples if s.loss is not None]
    if not known:
        return Chart(key, title, "No loss was recorded.")
    x = [look.at(time, zone) for time, _ in known]
    y = [value if math.isfinite(value) else None for _, value in known]
    finite = [value for value in y if value is not None]
    axis: dict[str, Any] = {"rangemode": "normal"}
    y_title = "loss"
    if finite and min(finite) > 0 and max(finite) > _LOG_RATIO * min(finite):
        axis |= {"type": "log", "dtick": 1, "exponentformat": "e"}
        y_title = "loss (log scale)"
    broken = [when for when, value in zip(x, y, strict=True) if value is None]
    traces = [look.line("loss", x, y, look.BLUE)]
    if broken:
        traces.append(
            go.Scatter(
                name="not finite",
                x=broken,
                y=[min(finite, default=1.0)] * len(broken),
                mode="markers",
                marker={"symbol": "x", "size": 9, "color": look.RED},
                hovertemplate="not finite (NaN or infinite)<extra></extra>",
            )
        )
    words = "Loss of the newest step that the master heard of."
    if broken:
        words += f" {len(broken)} samples were not finite (NaN or infinite)."
    return Chart(key, title, words, look.figure(traces, y_title=y_title, y_axis=axis))


def evaluations(results: Sequence[EvaluationResult], zone: tzinfo) -> list[Chart]:
    """One chart for each metric that the job evaluates, its own loss last."""
    names = {name for result in results for name in result.metrics}
    if not names:
        return [Chart("evaluation", "Evaluation", "No evaluation has finished yet.")]
    order = sorted(names, key=lambda name: (name == "loss", name))[:_MOST_METRICS]
    return [
        _metric(f"evaluation-{number}", name, results, zone)
        for number, name in enumerate(order)
    ]


def _metric(
    key: str, name: str, results: Sequence[EvaluationResult], zone: tzinfo
) -> Chart:
    there = [result for result in results if name in result.metrics]
    values = [result.metrics[name] for result in there]
    trace = go.Scatter(
        name=look.plain(name),
        x=[look.at(result.time, zone) for result in there],
        y=[value if math.isfinite(value) else None for value in values],
        mode="lines+markers" if len(there) <= _MOST_MARKERS else "lines",
        line={"color": look.GREEN, "width": 2},
        marker={"size": 7},
        text=[look.plain(_round(result)) for result in there],
        hovertemplate="%{y:.4~g} (%{text})",
    )
    return Chart(
        key,
        f"Evaluation: {name}",
        f"{len(there)} rounds on {there[-1].records:,} records".replace(",", " ")
        + f"; the last gave {values[-1]:.4g}.",
        look.figure([trace], y_title=name, y_axis={"rangemode": "normal"}),
    )


def _round(result: EvaluationResult) -> str:
    why = f", {result.why}" if result.why else ""
    return f"version {result.version}{why}"
