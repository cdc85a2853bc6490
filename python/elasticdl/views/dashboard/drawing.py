"""What a panel shows: its queries asked, the answers as a chart, figures or a table.

Owns the kinds of panel. Called by `viewer.server`. Must not know HTTP or HTML.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any

from elasticdl.views.dashboard.boards import Dashboard, Mark, Panel, Target
from elasticdl.views.dashboard.prometheus import Prometheus, Series
from elasticdl.views.dashboard.tables import table
from elasticdl.views.dashboard.variables import Window, filled, label_values, legend
from elasticdl.views.figures import panels, units

_MOST_MOMENTS = 100
NOTHING = "No data in this time."


@dataclass(frozen=True)
class Sight:
    """What is looked at: which Prometheus, with which choices, when."""

    prometheus: Prometheus
    chosen: Mapping[str, Sequence[str]]
    window: Window
    zone: tzinfo

    def ask(self, target: Target) -> list[Series]:
        """Return the answer of a query."""
        expression = filled(target.expr, self.chosen, self.window)
        if target.instant:
            return self.prometheus.instant(expression, self.window.end)
        return self.prometheus.range(expression, self.window)

    def values(self, expression: str) -> list[str]:
        """Return what a variable may be."""
        selector, label = label_values(expression)
        selector = filled(selector, self.chosen, self.window)
        return self.prometheus.label_values(selector, label, self.window)


def drawn(board: Dashboard, panel: Panel, sight: Sight) -> dict[str, Any]:
    """Return a panel as the page takes it; `kind` says what it is."""
    if panel.type == "text":
        return {"kind": "text", "text": panel.options.content}
    answers = {target.ref_id: sight.ask(target) for target in panel.targets}
    if not any(answers.values()):
        return {"kind": "nothing", "text": NOTHING}
    match panel.type:
        case "timeseries":
            return _chart(_over_time(board, panel, answers, sight))
        case "bargauge":
            return _chart(panels.gauges(_values(panel, answers), _unit(panel)))
        case "stat" | "gauge":
            return {"kind": "stat", "items": _stats(panel, answers)}
        case "table":
            return {"kind": "table", **table(answers, panel.field_config)}
        case other:
            return {
                "kind": "nothing",
                "text": f"A panel of type {other} needs Grafana.",
            }


def _chart(figure: Any) -> dict[str, Any]:
    return {"kind": "chart", "figure": json.loads(figure.to_json())}


def _unit(panel: Panel) -> str:
    return panel.field_config.defaults.unit


def _named(
    panel: Panel, answers: Mapping[str, Sequence[Series]]
) -> list[tuple[str, str, Series]]:
    """Return each series with its name and the letter of its query."""
    return [
        (legend(target.legend_format, one.labels), target.ref_id, one)
        for target in panel.targets
        for one in answers[target.ref_id]
    ]


def _over_time(
    board: Dashboard,
    panel: Panel,
    answers: Mapping[str, Sequence[Series]],
    sight: Sight,
) -> Any:
    lines = []
    for name, letter, one in _named(panel, answers):
        settings = panel.field_config.of(name=name, ref_id=letter)
        lines.append(
            panels.NamedSeries(
                name,
                one.points,
                unit=str(settings["unit"]),
                right=settings.get("custom.axisPlacement") == "right",
            )
        )
    custom = panel.field_config.defaults.custom
    window = sight.window
    return panels.over_time(
        lines,
        panels.TimeAxis(window.start, window.end, window.step, sight.zone),
        stacked=custom.stacking.mode != "none",
        steps=custom.line_interpolation == "stepAfter",
        moments=moments(board, sight),
    )


def moments(board: Dashboard, sight: Sight) -> list[panels.Moment]:
    """Return what is to be marked in every chart over time, the newest ones."""
    found: set[tuple[float, str]] = set()
    for mark in board.annotations.list:
        if mark.enable and mark.expr:
            found |= _moments(mark, sight)
    newest = sorted(found)[-_MOST_MOMENTS:]
    return [panels.Moment(when, words) for when, words in newest]


def _moments(mark: Mark, sight: Sight) -> set[tuple[float, str]]:
    window = sight.window
    found = set()
    for one in sight.prometheus.range(filled(mark.expr, sight.chosen, window), window):
        words = [legend(form, one.labels) for form in _forms(mark)]
        for when, value in one.points:
            moment = value / 1000 if mark.use_value_for_time else when
            if window.start <= moment <= window.end:
                found.add((moment, ": ".join(words)))
    return found


def _forms(mark: Mark) -> list[str]:
    return [form for form in (mark.text_format, mark.title_format) if form] or [
        mark.name
    ]


def _values(
    panel: Panel, answers: Mapping[str, Sequence[Series]]
) -> list[tuple[str, float]]:
    return [(name, one.last) for name, _, one in _named(panel, answers)]


def _stats(
    panel: Panel, answers: Mapping[str, Sequence[Series]]
) -> list[dict[str, str]]:
    """Return name and value of each; `name` alone is the value of a state."""
    items = []
    for name, letter, one in _named(panel, answers):
        unit = panel.field_config.of(name=name, ref_id=letter)["unit"]
        value = units.shown(one.last, str(unit))
        if panel.options.text_mode == "name":
            items.append({"name": "", "value": name})
        else:
            items.append({"name": name, "value": value})
    return items
