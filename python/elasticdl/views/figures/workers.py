"""Charts of a job's workers: how many, why they changed, preemptions, step times.

Owns them. Called by `figures.job`. Must not know the page.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from datetime import tzinfo
from typing import Any

import plotly.graph_objects as go

from elasticdl.job.decision import Decision
from elasticdl.job.history import History, HistorySample
from elasticdl.job.words import EndCause, HappeningKind, JobState, ReplicaState
from elasticdl.views import formatting as text
from elasticdl.views.figures import look, series
from elasticdl.views.figures.look import Chart

# What is marked in the chart of workers: label, symbol, colour. Without a cause of its
# own a replica that ended is `lost`.
_MARKS = {
    "preempted": ("preempted", "triangle-down", look.RED),
    "lost": ("lost for another cause", "x", look.ORANGE),
    "new": ("came, or came back", "triangle-up", look.GREEN),
    "left": ("left as it was told", "triangle-down-open", look.GRAY),
    "job": ("master, rewind, edit", "diamond", look.PURPLE),
}
_MARK_OF_KIND: dict[str, str] = {
    HappeningKind.ENDED: "lost",
    HappeningKind.JOINED: "new",
    HappeningKind.LEFT: "left",
    HappeningKind.GROWN: "job",
    HappeningKind.SHRUNK: "job",
    HappeningKind.REWOUND: "job",
    HappeningKind.MASTER: "job",
    HappeningKind.EDITED: "job",
}
_ENDED = frozenset(state for state in JobState if state.ended)
_MOST_LINES = 10
_MOST_BARS = 15


def counts(history: History, zone: tzinfo) -> Chart:
    """Workers wanted, allowed, running and pending, with what changed them."""
    key, title = "workers", "Workers over time"
    samples = history.samples
    if not samples:
        return Chart(key, title, "No sample of the workers was recorded.")
    x = [look.at(sample.time, zone) for sample in samples]
    running = [float(sample.workers_running) for sample in samples]
    traces = [
        look.line(
            "running",
            x,
            running,
            look.BLUE,
            steps=True,
            fill="tozeroy",
            fillcolor=look.faint(look.BLUE, 0.18),
        ),
        _count("pending", x, samples, "workers_pending", look.ORANGE),
        _count("wanted", x, samples, "workers_wanted", look.GREEN, dash="dash"),
        *_bounds(x, samples),
        *_marks(history, zone),
    ]
    return Chart(
        key,
        title,
        "How many the job wants and may have, how many run and wait for a place; the "
        "marks say what changed them.",
        look.figure(traces, y_title="workers"),
    )


def _bounds(x: Sequence[str], samples: Sequence[HistorySample]) -> list[Any]:
    """Return the bounds on the number of workers; none for a job of fixed size."""
    if not any(sample.workers_max for sample in samples):
        return []
    return [
        _count("maximum", x, samples, "workers_max", look.GRAY, dash="dot"),
        _count("minimum", x, samples, "workers_min", look.GRAY, dash="dashdot"),
    ]


def _count(
    name: str,
    x: Sequence[str],
    samples: Sequence[HistorySample],
    field: str,
    tone: str,
    dash: str = "solid",
) -> Any:
    y = [float(getattr(sample, field)) for sample in samples]
    width = 2.0 if dash == "solid" else 1.5
    return look.line(name, x, y, tone, steps=True, line={"dash": dash, "width": width})


def mark_of(decision: Decision) -> str:
    """Return the mark of a decision; "" for none: PS are only in the table."""
    if decision.replica and not decision.replica.startswith("worker-"):
        return ""
    if (
        decision.kind == HappeningKind.ENDED
        and decision.end_cause is EndCause.PREEMPTED
    ):
        return "preempted"
    return _MARK_OF_KIND.get(decision.kind, "")


def _marks(history: History, zone: tzinfo) -> list[Any]:
    """Return one trace for each kind of mark, on the line of running workers."""
    times = [sample.time for sample in history.samples]
    marked: dict[str, list[tuple[str, int, str]]] = {}
    for decision in history.decisions:
        mark = mark_of(decision)
        if mark:
            number = max(0, bisect_right(times, decision.time) - 1)
            height = history.samples[number].workers_running
            words = _words(decision)
            marked.setdefault(mark, []).append(
                (look.at(decision.time, zone), height, words)
            )
    return [
        _mark_trace(*_MARKS[mark], points=marked[mark])
        for mark in _MARKS
        if mark in marked
    ]


def _mark_trace(
    name: str, symbol: str, tone: str, *, points: Sequence[tuple[str, int, str]]
) -> Any:
    return go.Scatter(
        name=name,
        x=[x for x, _, _ in points],
        y=[height for _, height, _ in points],
        mode="markers",
        marker={"symbol": symbol, "size": 10, "color": tone, "line": {"width": 1}},
        text=[look.plain(words) for _, _, words in points],
        hovertemplate="%{text}<extra></extra>",
    )


def _words(decision: Decision) -> str:
    """Return a decision in one short line."""
    said = decision.text or " ".join(
        part for part in (decision.replica, decision.kind, decision.cause) if part
    )
    return said if len(said) <= 110 else said[:107] + "..."


def preemptions(history: History, zone: tzinfo) -> Chart:
    """Preemptions so far, and the number of wanted workers without a machine."""
    key, title = "preemptions", "Preemptions and capacity taken back"
    samples = history.samples
    if not samples:
        return Chart(key, title, "No sample was recorded.")
    x = [look.at(sample.time, zone) for sample in samples]
    # When a job ends its workers leave; none is missing then.
    missing = [
        float(max(0, sample.workers_wanted - sample.workers_running))
        if sample.state not in _ENDED
        else 0.0
        for sample in samples
    ]
    lost = [float(sample.preemptions) for sample in samples]
    if not any(missing) and not any(lost):
        return Chart(key, title, "No worker was preempted, and none was missing.")
    traces = [
        look.line(
            "wanted workers that do not run",
            x,
            missing,
            look.ORANGE,
            steps=True,
            fill="tozeroy",
            fillcolor=look.faint(look.ORANGE, 0.25),
        ),
        look.line("preemptions so far", x, lost, look.RED, steps=True),
    ]
    return Chart(
        key,
        title,
        "Workers that were preempted, added up, and how much of what the job wanted "
        "it had to go without.",
        look.figure(traces, y_title="workers"),
    )


def step_times(history: History, zone: tzinfo) -> Chart:
    """Step time of each worker; for many workers the median and the slowest."""
    key, title = "steps", "Step time by worker"
    # Of many workers not every sample tells what each of them does.
    samples = [s for s in history.samples if s.workers or not s.workers_running]
    by_worker = _step_seconds(samples)
    if not by_worker:
        return Chart(key, title, "No worker reported a step.")
    x = [look.at(sample.time, zone) for sample in samples]
    by, unit = series.second_scale(series.largest(*by_worker.values()))
    medians = _medians(by_worker)
    slow = series.outliers(medians)
    shown = sorted(by_worker, key=int)
    traces = []
    if len(by_worker) > _MOST_LINES:
        middle = [
            series.median([y[n] for y in by_worker.values()]) for n in range(len(x))
        ]
        traces.append(
            look.line(
                "median of all",
                x,
                series.divided(middle, by),
                look.GRAY,
                line={"width": 4},
                unit=unit,
            )
        )
        shown = sorted(medians, key=lambda index: -medians[index])[:_MOST_LINES]
    traces += [
        look.line(
            f"worker-{index}" + (" (straggler)" if index in slow else ""),
            x,
            series.divided(by_worker[index], by),
            look.colour(number),
            line={"width": 3 if index in slow else 1.5},
            unit=unit,
        )
        for number, index in enumerate(shown)
    ]
    words = f"Of {len(by_worker)} workers the {_MOST_LINES} slowest, beside the median."
    return Chart(
        key,
        title,
        words if len(by_worker) > _MOST_LINES else "Time of one training step.",
        look.figure(traces, y_title=f"step time ({unit})"),
    )


def stragglers(history: History) -> Chart:
    """Median step time of each worker over its life, the slowest first."""
    key, title = "stragglers", "Who is slow"
    medians = _medians(_step_seconds(history.samples))
    if not medians:
        return Chart(key, title, "No worker reported a step.")
    slow = series.outliers(medians)
    order = sorted(medians, key=lambda index: -medians[index])[:_MOST_BARS]
    by, unit = series.second_scale(max(medians.values()))
    trace = look.bars(
        [f"worker-{index}" for index in order],
        [medians[index] / by for index in order],
        [look.RED if index in slow else look.BLUE for index in order],
        labels=[f"{medians[index] / by:.3g} {unit}" for index in order],
    )
    found = ", ".join(f"worker-{index}" for index in order if index in slow)
    more = len(medians) - len(order)
    return Chart(
        key,
        title,
        "Median step time over each worker's life. "
        + (f"Stragglers: {found}." if found else "No straggler: ")
        + (
            ""
            if found
            else f"nobody takes {series.OUTLIER:g} times the others' median."
        )
        + (f" {text.plural(more, 'faster worker')} left out." if more else ""),
        look.bar_figure(trace, x_title=f"median step time ({unit})"),
    )


def _step_seconds(samples: Sequence[HistorySample]) -> dict[str, list[float | None]]:
    """Return step seconds by worker's index; None where it did not train."""
    found: dict[str, list[float | None]] = {}
    for number, sample in enumerate(samples):
        for index, worker in sample.workers.items():
            if worker.state == ReplicaState.RUNNING and worker.step_seconds > 0:
                if index not in found:
                    found[index] = [None] * len(samples)
                found[index][number] = worker.step_seconds
    return found


def _medians(by_worker: dict[str, list[float | None]]) -> dict[str, float]:
    return {
        index: middle
        for index, values in by_worker.items()
        if (middle := series.median(values)) is not None
    }
