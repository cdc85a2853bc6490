"""The page of simulations: a table of figures, and charts of each trace.

Owns the page. Called by the verb `simulate`. Pure. Must not run anything.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from elasticdl import __version__
from elasticdl.simulator.course import Course
from elasticdl.simulator.outcome import Outcome, outcome
from elasticdl.simulator.trace import Trace
from elasticdl.views import pages
from elasticdl.views.figures.look import Chart
from elasticdl.views.figures.simulation import charts


@dataclass(frozen=True)
class Simulated:
    """One trace, and its courses under each policy."""

    trace: Trace
    courses: tuple[Course, ...]


def simulation_page(simulated: Sequence[Simulated]) -> str:
    """Return the whole file."""
    sections, figures = [], {}
    for one in simulated:
        drawn = charts(one.courses)
        figures.update(
            {chart.key: json.loads(chart.json) for chart in drawn if chart.figure}
        )
        sections.append(_section(one, drawn))
    names = ", ".join(one.trace.name for one in simulated)
    title = f"Simulated: {names}"
    return pages.filled(
        "report.html",
        version=pages.escaped(__version__),
        title=pages.escaped(title),
        style=pages.read("page.css") + pages.read("report.css"),
        header=f'<div class="head"><h1>{pages.escaped(title)}</h1></div>',
        main="\n".join(sections),
        footer=pages.escaped(
            f"Made by elasticdl {__version__}. Nothing of this was measured: it was "
            "simulated, with the planner's and the masters' own rules."
        ),
        figures=pages.data(figures),
        plotly=pages.packed_plotly(),
        script=pages.read("charts.js") + pages.read("report.js"),
    )


def _section(one: Simulated, drawn: Sequence[Chart]) -> str:
    about = pages.escaped(one.trace.about)
    rows = "".join(_row(outcome(course, one.trace)) for course in one.courses)
    heads = "".join(f"<th>{pages.escaped(head)}</th>" for head in _HEADS)
    table = (
        f'<div class="card" style="margin-bottom: 1rem"><table class="numbers">'
        f"<thead><tr>{heads}</tr></thead>"
        f"<tbody>{rows}</tbody></table></div>"
    )
    inside = "\n".join(_chart(chart) for chart in drawn)
    return (
        f"<section><h2>{pages.escaped(one.trace.name)}</h2>"
        f'<p class="soft">{about} Seed {one.courses[0].seed}.</p>{table}'
        f'<div class="charts">{inside}</div></section>'
    )


_HEADS = (
    "policy", "use", "workers", "first worker", "at most", "never", "all done",
    "one job", "fair", "moved", "goodput", "serving complete after",
)  # fmt: skip


def _row(one: Outcome) -> str:
    never = "never" if one.serving_late else _seconds(one.serving_most)
    cells = (
        one.policy,
        f"{100 * one.use:.1f} %",
        f"{one.workers:.1f}",
        _seconds(one.first_mean),
        _seconds(one.first_most),
        f"{one.never} of {one.jobs}",
        _seconds(one.makespan),
        _seconds(one.completion),
        "" if one.fairness is None else f"{one.fairness:.3f}",
        str(one.moved),
        "" if one.goodput is None else f"{100 * one.goodput:.0f} %",
        never,
    )
    return (
        "<tr>" + "".join(f"<td>{pages.escaped(cell)}</td>" for cell in cells) + "</tr>"
    )


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:,.1f} s".replace(",", " ")


def _chart(chart: Chart) -> str:
    title, words = pages.escaped(chart.title), pages.escaped(chart.text)
    if chart.figure is None:
        return (
            f'<div class="card nothing"><h3>{title}</h3><p class="empty">{words}</p>'
            "</div>"
        )
    return (
        f'<figure class="card chart"><h3>{title}</h3><p>{words}</p>'
        f'<div class="plot" id="{chart.key}" role="img" aria-label="{title}"></div>'
        '<div class="legend"></div></figure>'
    )
