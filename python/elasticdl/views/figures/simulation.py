"""Charts of simulations: use, sizes, waits and serving, policy beside policy.

Owns them. Called by `views.report.simulation`. Must not know the page.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any

from elasticdl.simulator.course import Course, Sample
from elasticdl.views.figures import look
from elasticdl.views.figures.look import Chart

_POINTS = 400
_TONES = {
    "gang": look.GRAY,
    "fixed": look.ORANGE,
    "edl": look.PURPLE,
    "elastic": look.BLUE,
}


def charts(courses: Sequence[Course]) -> list[Chart]:
    """Return the charts of one trace; `courses`: one for each policy."""
    end = max(course.until for course in courses)
    unit = (60.0, "min") if end > 1200 else (1.0, "s")
    key = courses[0].trace
    found = [
        _lines(f"{key}-use", "Use of the cluster", "Share of it that pods hold, in %.",
               courses, unit, lambda sample: 100 * sample.use),
        _lines(f"{key}-workers", "Workers that run", "Of all jobs together.",
               courses, unit, lambda sample: float(sum(sample.running))),
        _waits(key, courses),
        _ends(key, courses, unit),
    ]  # fmt: skip
    if any(sample.serving_wanted for sample in courses[0].samples):
        found.append(_serving(key, courses, unit))
    found += [_sizes(key, course, unit, end) for course in courses]
    return found


def grid(course: Course, end: float) -> list[float]:
    """Return the times that are drawn."""
    if len(course.samples) <= _POINTS:
        return [*(sample.time for sample in course.samples), course.until]
    return [end * number / _POINTS for number in range(_POINTS + 1)]


def at(course: Course, times: Sequence[float]) -> list[Sample]:
    """Return the sample that held at each time."""
    known = [sample.time for sample in course.samples]
    return [course.samples[max(0, bisect_right(known, t) - 1)] for t in times]


def _lines(
    key: str,
    title: str,
    text: str,
    courses: Sequence[Course],
    unit: tuple[float, str],
    reading: Callable[[Sample], float],
) -> Chart:
    traces = []
    for course in courses:
        times = grid(course, course.until)
        traces.append(
            _line(course.policy, times, unit, [reading(s) for s in at(course, times)])
        )
    return Chart(key, title, text, _figure(traces, unit))


def _line(
    name: str,
    times: Sequence[float],
    unit: tuple[float, str],
    values: Sequence[float],
    **more: Any,
) -> Any:
    x = [f"{time / unit[0]:.4g}" for time in times]
    tone = more.pop("tone", None) or _TONES.get(name, look.GREEN)
    return look.line(name, x, values, tone, steps=True, **more)


def _figure(traces: Sequence[Any], unit: tuple[float, str], y_title: str = "") -> Any:
    figure = look.figure(traces, y_title=y_title)
    figure.update_layout(
        xaxis={"type": "linear", "title": {"text": unit[1]}, "rangemode": "tozero"}
    )
    return figure


def _sizes(key: str, course: Course, unit: tuple[float, str], end: float) -> Chart:
    times = grid(course, course.until)
    samples = at(course, times)
    x = [f"{time / unit[0]:.4g}" for time in times]
    traces = [
        look.area(
            name,
            x,
            [float(s.running[n]) for s in samples],
            look.colour(n),
            group="jobs",
        )
        for n, name in enumerate(course.jobs)
    ]
    for trace in traces:
        trace.line.shape = "hv"
        trace.showlegend = len(traces) <= 8
    figure = _figure(traces, unit, "workers")
    most = max((sum(s.running) for s in course.samples), default=1)
    figure.update_layout(hovermode="closest")
    figure.update_xaxes(range=[0, end / unit[0]])
    figure.update_yaxes(range=[0, 1.05 * most + 1])
    return Chart(
        f"{key}-sizes-{course.policy}",
        f"Sizes under {course.policy}",
        "Workers that run, job upon job.",
        figure,
    )


def _waits(key: str, courses: Sequence[Course]) -> Chart:
    traces = []
    for course in courses:
        waits = sorted(
            j.first_worker - j.came for j in course.done if j.first_worker is not None
        )
        x = [str(number + 1) for number in range(len(waits))]
        traces.append(
            look.line(
                course.policy, x, waits, _TONES.get(course.policy, look.GREEN), unit="s"
            )
        )
    figure = look.figure(traces, y_title="s")
    figure.update_layout(xaxis={"type": "linear", "title": {"text": "jobs"}})
    text = "How long jobs waited for their first worker, the shortest wait first."
    return Chart(f"{key}-waits", "First worker", text, figure)


def _ends(key: str, courses: Sequence[Course], unit: tuple[float, str]) -> Chart:
    title = "Jobs done"
    if not any(job.ended is not None for course in courses for job in course.done):
        return Chart(f"{key}-done", title, "No job of this trace ends.")
    traces = []
    for course in courses:
        ends = sorted(job.ended for job in course.done if job.ended is not None)
        counts = [float(number) for number in range(len(ends) + 1)]
        traces.append(_line(course.policy, [0.0, *ends], unit, counts))
    return Chart(
        f"{key}-done", title, "How many were done by then.", _figure(traces, unit)
    )


def _serving(key: str, courses: Sequence[Course], unit: tuple[float, str]) -> Chart:
    times = grid(courses[0], courses[0].until)
    wanted = [float(s.serving_wanted) for s in at(courses[0], times)]
    traces = [
        _line("wanted", times, unit, wanted, tone=look.GREEN, line={"dash": "dash"})
    ]
    for course in courses:
        times = grid(course, course.until)
        served = [float(s.serving) for s in at(course, times)]
        traces.append(_line(course.policy, times, unit, served))
    return Chart(
        f"{key}-serving",
        "Serving",
        "Pods that serve, and how many were to.",
        _figure(traces, unit),
    )
