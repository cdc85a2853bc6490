"""How every chart looks: colours, traces, layout.

Owns what the charts have in common. Called by the other modules of this package. Must
not know what is drawn. Colours of text, grid and ground are the page's
(`pages/charts.js`), since they change between light and dark; those of the traces are
of a middle tone that reads on both.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Any

import plotly.graph_objects as go

BLUE = "#3b82d6"
GREEN = "#2f9a5c"
ORANGE = "#d9701a"
RED = "#d9434e"
PURPLE = "#8f63d2"
GRAY = "#8590a0"
TEAL = "#1f98a8"
YELLOW = "#b0850a"
PINK = "#cf559a"
BROWN = "#a0714f"
PALETTE = (
    BLUE, ORANGE, GREEN, PURPLE, RED, TEAL, YELLOW, PINK, BROWN, GRAY,
)  # fmt: skip

# What a second went to has the same colour in every chart (metrics/goodput.py).
CAUSE_COLOURS = {
    "train": GREEN,
    "evaluate": BLUE,
    "predict": TEAL,
    "export": BROWN,
    "waitPs": ORANGE,
    "waitPeers": ORANGE,
    "regroup": "#c9a86a",
    "waitData": YELLOW,
    "start": "#5a87c0",
    "restore": PURPLE,
    "replay": PINK,
    "idle": GRAY,
    "pending": "#b07a80",
    "preempted": RED,
}

Values = Sequence[float | None]


@dataclass(frozen=True)
class Chart:
    """One chart of a page; `figure` is None if there is nothing to draw."""

    key: str  # unique in its page
    title: str
    text: str  # one sentence: what is seen; or why there is nothing
    figure: Any = None  # plotly.graph_objects.Figure, which has no types

    @property
    def json(self) -> str:
        """The figure as JSON for plotly.js."""
        return str(self.figure.to_json())


def plain(text: str) -> str:
    """Return text escaped for plotly, which reads tags and entities in labels."""
    return html.escape(text, quote=False)


def at(seconds: float, zone: tzinfo) -> str:
    """Return Unix seconds as plotly's wall clock of that zone."""
    return datetime.fromtimestamp(seconds, zone).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def colour(number: int) -> str:
    """Return the colour of the series with that number; they repeat after ten."""
    return PALETTE[number % len(PALETTE)]


def faint(hex_colour: str, alpha: float) -> str:
    """Return the colour with this opacity."""
    red, green, blue = (int(hex_colour[n : n + 2], 16) for n in (1, 3, 5))
    return f"rgba({red},{green},{blue},{alpha:g})"


def line(
    name: str,
    x: Sequence[str],
    y: Values,
    tone: str,
    *,
    steps: bool = False,
    unit: str = "",
    **more: Any,
) -> Any:
    """Return a line; None in `y` is a gap. `steps`: a value holds until the next."""
    style = {"color": tone, "width": 2, **more.pop("line", {})}
    if steps:
        style["shape"] = "hv"
    # A value between two gaps would not be seen as a line.
    lonely = sum(value is not None for value in y) == 1
    return go.Scatter(
        name=plain(name),
        x=list(x),
        y=list(y),
        mode="lines+markers" if lonely else "lines",
        line=style,
        hovertemplate=f"%{{y:.4~g}}{_with_space(unit)}",
        **more,
    )


def area(
    name: str, x: Sequence[str], y: Values, tone: str, *, unit: str = "", group: str
) -> Any:
    """Return one layer of a stack of areas."""
    return go.Scatter(
        name=plain(name),
        x=list(x),
        y=[value or 0.0 for value in y],
        mode="lines",
        line={"color": tone, "width": 0.8},
        fillcolor=faint(tone, 0.6),
        stackgroup=group,
        hovertemplate=f"%{{y:.3~g}}{_with_space(unit)}",
    )


def bars(
    names: Sequence[str],
    values: Sequence[float],
    tones: Sequence[str],
    *,
    labels: Sequence[str],
) -> Any:
    """Return horizontal bars, the first on top, each with its label."""
    return go.Bar(
        x=list(values),
        y=[plain(name) for name in names],
        orientation="h",
        marker={"color": list(tones)},
        text=[plain(label) for label in labels],
        textposition="auto",
        textangle=0,
        # Letters keep their size; what does not fit stands beside its bar.
        constraintext="none",
        insidetextfont={"color": "#ffffff"},
        cliponaxis=False,
        hovertemplate="%{y}: %{text}<extra></extra>",
        showlegend=False,
    )


def figure(
    traces: Sequence[Any], *, y_title: str = "", y_axis: dict[str, Any] | None = None
) -> Any:
    """Return a figure of traces over time."""
    return go.Figure(
        data=list(traces),
        layout={
            "template": "none",
            "showlegend": False,  # the page has legends of its own, which wrap
            "hovermode": "x unified",
            "xaxis": {"type": "date"},
            "yaxis": {
                "title": {"text": plain(y_title)},
                "rangemode": "tozero",
                **(y_axis or {}),
            },
        },
    )


def right_axis(title: str) -> dict[str, Any]:
    """Return a second axis of values, on the right, from zero."""
    return {
        "title": {"text": plain(title)},
        "overlaying": "y",
        "side": "right",
        "rangemode": "tozero",
        "showgrid": False,
    }


def bar_figure(trace: Any, *, x_title: str) -> Any:
    """Return bars as a figure."""
    return go.Figure(
        data=[trace],
        layout={
            "template": "none",
            "showlegend": False,
            "hovermode": "closest",
            "xaxis": {"title": {"text": plain(x_title)}, "rangemode": "tozero"},
            "yaxis": {"autorange": "reversed", "type": "category"},
            "bargap": 0.35,
        },
    )


def _with_space(unit: str) -> str:
    return f" {unit}" if unit else ""
