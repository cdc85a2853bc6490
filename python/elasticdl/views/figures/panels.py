"""Charts of a dashboard's panels, from series over time.

Owns their look. Called by `views.dashboard.drawing`. Must not know Prometheus nor what
a dashboard is made of.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any

import plotly.graph_objects as go

from elasticdl.views.figures import look, units

_MOST_BARS = 25  # More bars cannot be read.
# Series that mean the same wherever they are; causes have colours of their own too.
_TONES = look.CAUSE_COLOURS | {
    "running": look.BLUE,
    "wanted": look.GREEN,
    "minimum": look.GRAY,
    "maximum": look.BROWN,
    "limit": look.RED,
    "median": look.GRAY,
    "free": look.GRAY,
}


@dataclass(frozen=True)
class NamedSeries:
    """One line of a chart: Unix seconds with values."""

    name: str
    points: Sequence[tuple[float, float]]
    unit: str = "none"
    right: bool = False  # on an axis of its own


@dataclass(frozen=True)
class Moment:
    """A marked moment."""

    time: float
    text: str


@dataclass(frozen=True)
class TimeAxis:
    """The time axis; a gap of more than two steps is drawn as a gap."""

    start: float
    end: float
    step: float
    zone: tzinfo


def over_time(
    lines: Sequence[NamedSeries],
    axis: TimeAxis,
    *,
    stacked: bool = False,
    steps: bool = False,
    moments: Sequence[Moment] = (),
) -> Any:
    """Return a chart over time."""
    tones = _tones([one.name for one in lines])
    traces: list[Any] = []
    titles: dict[bool, str] = {}
    for right in (False, True):
        group = [(n, one) for n, one in enumerate(lines) if one.right is right]
        if not group:
            continue
        by, titles[right] = _scale([one for _, one in group])
        traces += [
            _trace(
                one, tones[n], axis, by=by, unit=titles[right], stacked=stacked,
                steps=steps,
            )
            for n, one in group
        ]  # fmt: skip
    figure = look.figure(traces, y_title=titles.get(False, ""))
    first, last = look.at(axis.start, axis.zone), look.at(axis.end, axis.zone)
    figure.update_layout(xaxis={"range": [first, last]})
    if True in titles:
        figure.update_layout(yaxis2=look.right_axis(titles[True]))
    if moments:
        _mark(figure, moments, axis)
    return figure


def _scale(lines: Sequence[NamedSeries]) -> tuple[float, str]:
    values = [abs(v) for one in lines for _, v in one.points if math.isfinite(v)]
    unit = next((one.unit for one in lines if one.points), "none")
    return units.scale(unit, max(values, default=0.0))


def _trace(
    one: NamedSeries, tone: str, axis: TimeAxis, *, by: float, unit: str,
    stacked: bool, steps: bool,
) -> Any:  # fmt: skip
    x, y = _with_gaps(one.points, axis, by)
    if stacked:
        return look.area(one.name, x, y, tone, unit=unit, group="stack")
    if not one.right:
        return look.line(one.name, x, y, tone, steps=steps, unit=unit)
    name = f"{one.name} (right)"
    return look.line(name, x, y, tone, steps=steps, unit=unit, yaxis="y2")


def _with_gaps(
    points: Sequence[tuple[float, float]], axis: TimeAxis, by: float
) -> tuple[list[str], list[float | None]]:
    x: list[str] = []
    y: list[float | None] = []
    before = math.inf
    for when, value in points:
        if when - before > 2 * axis.step:
            x.append(look.at(before + axis.step, axis.zone))
            y.append(None)
        x.append(look.at(when, axis.zone))
        y.append(value / by if math.isfinite(value) else None)
        before = when
    return x, y


def _tones(names: Sequence[str]) -> list[str]:
    """Return a colour for each name: fixed ones first, the others in turn."""
    taken = {_TONES[name] for name in names if name in _TONES}
    free = [tone for tone in look.PALETTE if tone not in taken] or [look.GRAY]
    turns = itertools.cycle(free)
    return [_TONES.get(name) or next(turns) for name in names]


def _mark(figure: Any, moments: Sequence[Moment], axis: TimeAxis) -> None:
    """Draw moments as vertical lines, labelled on top."""
    where = [look.at(one.time, axis.zone) for one in moments]
    for x in where:
        figure.add_shape(
            type="line", x0=x, x1=x, y0=0, y1=1, yref="paper",
            line={"color": look.GRAY, "width": 1, "dash": "dot"},
        )  # fmt: skip
    figure.add_trace(
        go.Scatter(
            name="membership changes",
            x=where,
            y=[1.0] * len(where),
            yaxis="y3",
            mode="markers",
            marker={"symbol": "triangle-down", "size": 9, "color": look.PURPLE},
            text=[look.plain(one.text) for one in moments],
            hovertemplate="%{text}<extra></extra>",
        )
    )
    figure.update_layout(
        yaxis3={
            "overlaying": "y",
            "range": [0, 1],
            "visible": False,
            "fixedrange": True,
        }
    )


def gauges(values: Sequence[tuple[str, float]], unit: str) -> Any:
    """Return bars of values, the largest on top."""
    order = sorted(
        (one for one in values if math.isfinite(one[1])), key=lambda one: -one[1]
    )[:_MOST_BARS]
    names = [name for name, _ in order]
    by, title = units.scale(unit, max((abs(v) for _, v in order), default=0.0))
    trace = look.bars(
        names,
        [value / by for _, value in order],
        [look.CAUSE_COLOURS.get(name, look.BLUE) for name in names],
        labels=[units.shown(value, unit) for _, value in order],
    )
    return look.bar_figure(trace, x_title=title)
