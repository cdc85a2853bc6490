"""What a panel shows: its queries asked, the answers as a chart, figures or a table.

Owns the kinds of panel. Called by `views.dashboard.server`. Must not know HTTP or HTML.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any

from elasticdl.dashboards.board import Board, Panel, PanelKind, Query
from elasticdl.dashboards.choices import BoardVariable, membership_changes
from elasticdl.views.dashboard.prometheus import Prometheus, TimeSeries
from elasticdl.views.dashboard.tables import table
from elasticdl.views.dashboard.variables import Window, filled, legend
from elasticdl.views.figures import panels, units

_MOST_MOMENTS = 100  # More marks cover the chart.
NOTHING = "No data in this time."
Answers = Sequence[Sequence[TimeSeries]]  # one for each query of a panel


@dataclass(frozen=True)
class Sight:
    """What a page shows: Prometheus, choices of variables, time window."""

    prometheus: Prometheus
    chosen: Mapping[str, Sequence[str]]
    window: Window
    zone: tzinfo

    def newest(self, expression: str) -> list[TimeSeries]:
        """Return a query's result at the end of the window."""
        return self.prometheus.instant(self._filled(expression), self.window.end)

    def over_time(self, expression: str) -> list[TimeSeries]:
        """Return a query's result over the window."""
        return self.prometheus.range(self._filled(expression), self.window)

    def values(self, variable: BoardVariable) -> list[str]:
        """Return the possible values of a variable."""
        selector = self._filled(variable.series)
        return self.prometheus.label_values(selector, variable.label, self.window)

    def _filled(self, expression: str) -> str:
        return filled(expression, self.chosen, self.window)


def drawn(board: Board, panel: Panel, sight: Sight) -> dict[str, Any]:
    """Return a panel for the page; `kind` names its type."""
    ask = sight.over_time if panel.kind is PanelKind.TIMESERIES else sight.newest
    answers = [ask(query.expr) for query in panel.queries]
    if not any(answers):
        return {"kind": "nothing", "text": NOTHING}
    match panel.kind:
        case PanelKind.TIMESERIES:
            return _chart(_over_time(board, panel, answers, sight))
        case PanelKind.BARGAUGE:
            values = [(name, one.last) for _, name, one in _named(panel, answers)]
            return _chart(panels.gauges(values, panel.unit))
        case PanelKind.STAT:
            return {"kind": "stat", "items": _stats(panel, answers)}
        case PanelKind.TABLE:
            return {"kind": "table", **table(panel, answers)}


def _chart(figure: Any) -> dict[str, Any]:
    return {"kind": "chart", "figure": json.loads(figure.to_json())}


def _named(panel: Panel, answers: Answers) -> Iterator[tuple[Query, str, TimeSeries]]:
    """Yield each series with its query and its name."""
    for query, series in zip(panel.queries, answers, strict=True):
        for one in series:
            yield query, legend(query.name, one.labels), one


def _over_time(board: Board, panel: Panel, answers: Answers, sight: Sight) -> Any:
    lines = [
        panels.NamedSeries(
            name, one.points, unit=query.unit or panel.unit, right=query.right
        )
        for query, name, one in _named(panel, answers)
    ]
    window = sight.window
    return panels.over_time(
        lines,
        panels.TimeAxis(window.start, window.end, window.step, sight.zone),
        stacked=panel.stacked,
        steps=panel.steps,
        moments=moments(board, sight),
    )


def moments(board: Board, sight: Sight) -> list[panels.Moment]:
    """Return the newest moments to mark in every chart over time."""
    mark, window = membership_changes(board), sight.window
    found: set[tuple[float, str]] = set()
    for one in sight.over_time(mark.expr):
        words = ": ".join(legend(form, one.labels) for form in (mark.text, mark.title))
        times = {value / 1000 for _, value in one.points}
        found |= {(t, words) for t in times if window.start <= t <= window.end}
    newest = sorted(found)[-_MOST_MOMENTS:]
    return [panels.Moment(when, words) for when, words in newest]


def _stats(panel: Panel, answers: Answers) -> list[dict[str, str]]:
    """Return name and value of each stat; a state is shown by `name` alone."""
    items = []
    for query, name, one in _named(panel, answers):
        if panel.shows_name:
            items.append({"name": "", "value": name})
        else:
            value = units.shown(one.last, query.unit or panel.unit)
            items.append({"name": name, "value": value})
    return items
