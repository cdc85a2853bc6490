"""The report of a job as one HTML file, with its charts and all they need.

Owns the page: header, key figures, charts, table of changes. Called by the verb
`report`. Pure: time and zone are arguments. Must not read jobs nor write files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo

from elasticdl import __version__
from elasticdl.client import JobView
from elasticdl.job.history import History
from elasticdl.job.status import EvaluationResult
from elasticdl.job.words import JobState
from elasticdl.views import formatting as text
from elasticdl.views import pages
from elasticdl.views.figures import job as charts
from elasticdl.views.figures.look import Chart
from elasticdl.views.group import group_lines
from elasticdl.views.report.changes import changes, changes_table
from elasticdl.views.report.key_figures import KeyFigure, key_figures

_TONES = {
    "running": "good",
    "succeeded": "good",
    "failed": "bad",
    "interrupted": "bad",
}


@dataclass(frozen=True)
class Subject:
    """The sources of a report."""

    view: JobView
    history: History
    made: float  # Unix seconds
    zone: tzinfo  # whose wall clock is shown


def report_page(subject: Subject) -> str:
    """Return the whole file."""
    sections = charts.sections(
        subject.history,
        goodput_seconds=_goodput(subject),
        evaluations=_evaluations(subject),
        zone=subject.zone,
    )
    figures = {
        chart.key: json.loads(chart.json)
        for section in sections
        for chart in section.charts
        if chart.figure is not None
    }
    main = [_section(section) for section in sections]
    main.append(changes_table(changes(subject.view, subject.history), subject.zone))
    return pages.filled(
        "report.html",
        version=pages.escaped(__version__),
        title=pages.escaped(f"Job {subject.view.name}: {_state(subject.view)}"),
        style=pages.read("page.css") + pages.read("report.css"),
        header=_header(subject),
        main="\n".join(main),
        footer=_footer(subject),
        figures=pages.data(figures),
        plotly=pages.packed_plotly(),
        script=pages.read("charts.js") + pages.read("report.js"),
    )


def _goodput(subject: Subject) -> Mapping[str, float]:
    view, samples = subject.view, subject.history.samples
    document = view.report or view.status
    if document is not None:
        return document.goodput_seconds
    return samples[-1].goodput_seconds if samples else {}


def _evaluations(subject: Subject) -> Sequence[EvaluationResult]:
    report = subject.view.report
    return report.evaluations if report else subject.history.evaluations


def _state(view: JobView) -> str:
    if view.status is not None:
        return str(view.status.state)
    return str(view.report.status if view.report else view.condition)


def _header(subject: Subject) -> str:
    view = subject.view
    state = _state(view)
    document = view.status or view.report
    kind = f"{document.type} job, strategy {document.strategy}" if document else "job"
    began = document.started if document else _first_time(subject.history)
    place = f", {view.place}" if view.place else ""
    since = f", begun {_clock(began, subject.zone)}" if began else ""
    parts = [
        f'<div class="head"><h1>{pages.escaped(view.name)}</h1>'
        f'<span class="pill {_TONES.get(state, "warn")}">{pages.escaped(state)}</span>'
        "</div>",
        f'<p class="soft">{pages.escaped(kind + place + since)}</p>',
        *_messages(subject),
        _figures(list(key_figures(view, subject.history, now=subject.made))),
    ]
    return "\n".join(parts)


def _messages(subject: Subject) -> Iterator[str]:
    """Yield the job's messages, and notes for the reader."""
    view = subject.view
    document = view.status or view.report
    if document is not None and document.message:
        tone = " bad" if _state(view) == JobState.FAILED else ""
        message = pages.escaped(text.without_trace(document.message))
        yield f'<p class="card notice{tone}">{message}</p>'
    if view.status is not None and view.status.group is not None:
        for line in group_lines(view.status.group, view.status.replicas):
            yield f'<p class="card notice">{pages.escaped(line)}</p>'
    if view.note:
        yield f'<p class="card notice">{pages.escaped(view.note)}</p>'
    if not subject.history.samples:
        yield (
            '<p class="card notice">There is no history of this job: the charts over '
            "time are empty. It is written by the job's master while it runs.</p>"
        )


def _first_time(history: History) -> float:
    return history.samples[0].time if history.samples else 0.0


def _figures(figures: Sequence[KeyFigure]) -> str:
    rows = [
        f'<div class="card"><dt>{pages.escaped(one.label)}</dt>'
        f"<dd>{pages.escaped(one.value)}"
        + (f"<small>{pages.escaped(one.note)}</small>" if one.note else "")
        + "</dd></div>"
        for one in figures
    ]
    return f'<dl class="figures">{"".join(rows)}</dl>' if rows else ""


def _section(section: charts.ChartSection) -> str:
    inside = "\n".join(_chart(chart) for chart in section.charts)
    return (
        f"<section><h2>{pages.escaped(section.title)}</h2>"
        f'<div class="charts">{inside}</div></section>'
    )


def _chart(chart: Chart) -> str:
    title, words = pages.escaped(chart.title), pages.escaped(chart.text)
    if chart.figure is None:
        return (
            f'<div class="card nothing"><h3>{title}</h3><p class="empty">{words}</p>'
            "</div>"
        )
    right = " data-right" if "yaxis2" in chart.figure.layout else ""
    return (
        f'<figure class="card chart"><h3>{title}</h3><p>{words}</p>'
        f'<div class="plot" id="{chart.key}" role="img" aria-label="{title}"{right}>'
        '</div><div class="legend"></div></figure>'
    )


def _footer(subject: Subject) -> str:
    offset = datetime.fromtimestamp(subject.made, subject.zone).strftime("%z")
    return pages.escaped(
        f"Made by elasticdl {__version__} at {_clock(subject.made, subject.zone)}. "
        f"Times are those of UTC{offset[:3]}:{offset[3:]}. A double click resets a "
        "chart's zoom."
    )


def _clock(seconds: float, zone: tzinfo) -> str:
    return datetime.fromtimestamp(seconds, zone).strftime("%Y-%m-%d %H:%M:%S")
