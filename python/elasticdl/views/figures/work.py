"""Charts of a job's work: where the seconds went, the queue, the speed, checkpoints.

Owns them. Called by `figures.job`. Must not know the page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import tzinfo

from elasticdl.job.history import History, HistorySample
from elasticdl.job.words import MASTER_CAUSES, WORKER_CAUSES, GoodputCause
from elasticdl.views import formatting as text
from elasticdl.views.figures import look, series
from elasticdl.views.figures.look import Chart

_CAUSES = (
    GoodputCause.TRAIN,
    *(c for c in WORKER_CAUSES if c is not GoodputCause.TRAIN),
    *MASTER_CAUSES,
)


def goodput_sum(seconds: Mapping[str, float]) -> Chart:
    """Where the worker seconds went, in all."""
    key, title = "goodput", "Where the worker seconds went"
    spent = {cause: s for cause, s in seconds.items() if s > 0}
    whole = sum(spent.values())
    if not whole:
        return Chart(key, title, "No worker second was counted yet.")
    order = sorted(spent, key=lambda cause: -spent[cause])
    by, unit = series.second_scale(max(spent.values()))
    trace = look.bars(
        [text.doing(cause) for cause in order],
        [spent[cause] / by for cause in order],
        [look.CAUSE_COLOURS.get(cause, look.GRAY) for cause in order],
        labels=[
            f"{_share(spent[cause], whole)}, {text.duration(spent[cause])}"
            for cause in order
        ],
    )
    return Chart(
        key,
        title,
        f"All {text.duration(whole)} of all workers together; pending and preempted "
        "are those of workers that could not run.",
        look.bar_figure(trace, x_title=f"worker seconds ({unit})"),
    )


def _share(part: float, whole: float) -> str:
    share = 100 * part / whole
    return f"{share:.0f} %" if share >= 10 else f"{share:.1f} %"


def goodput(history: History, zone: tzinfo) -> Chart:
    """What the workers' time was spent on, stacked over time."""
    key, title = "goodput-time", "What the workers did over time"
    samples = history.samples
    there = [c for c in _CAUSES if any(s.goodput_seconds.get(c) for s in samples)]
    if len(samples) < 2 or not there:
        return Chart(key, title, "Fewer than two samples of it were recorded.")
    x = [look.at(sample.time, zone) for sample in samples]
    traces = [
        look.area(
            text.doing(cause),
            x,
            series.job_rates(samples, _spent_on(cause)),
            look.CAUSE_COLOURS.get(cause, look.GRAY),
            unit="workers",
            group="causes",
        )
        for cause in there
    ]
    return Chart(
        key,
        title,
        "How many workers did what: worker seconds of each cause per second.",
        look.figure(traces, y_title="workers"),
    )


def _spent_on(cause: str) -> series.Reading:
    return lambda sample: sample.goodput_seconds.get(cause, 0.0)


def queue(history: History, zone: tzinfo) -> Chart:
    """Tasks done, of how many."""
    key, title = "queue", "Task queue: done"
    samples = history.samples
    if not samples:
        return Chart(key, title, "No sample of the queue was recorded.")
    x = [look.at(sample.time, zone) for sample in samples]
    traces = [
        look.line(
            "done",
            x,
            [float(sample.tasks_done) for sample in samples],
            look.GREEN,
            fill="tozeroy",
            fillcolor=look.faint(look.GREEN, 0.18),
        )
    ]
    if any(sample.tasks_total for sample in samples):
        planned = [float(sample.tasks_total) or None for sample in samples]
        traces.append(
            look.line(
                "planned", x, planned, look.GRAY, steps=True, line={"dash": "dot"}
            )
        )
    return Chart(
        key,
        title,
        _queue_words(samples[-1]),
        look.figure(traces, y_title="tasks"),
    )


def _queue_words(last: HistorySample) -> str:
    done = text.count(last.tasks_done)
    total = f" of {text.count(last.tasks_total)}" if last.tasks_total else ""
    left = ""
    if last.eta_seconds:
        left = f"; at the last sample {text.duration(last.eta_seconds)} were left"
    return f"Tasks of all epochs: {done}{total} done{left}."


def leases(history: History, zone: tzinfo) -> Chart:
    """Tasks that workers held, and tasks that came back."""
    key, title = "leases", "Task queue: leased, waiting, replayed"
    samples = history.samples
    if not samples:
        return Chart(key, title, "No sample of the queue was recorded.")
    x = [look.at(sample.time, zone) for sample in samples]
    traces = [
        look.line("leased", x, [float(s.tasks_leased) for s in samples], look.BLUE),
        look.line(
            "came back, waiting", x, [float(s.tasks_waiting) for s in samples],
            look.ORANGE,
        ),
    ]  # fmt: skip
    replayed = samples[-1].replayed_records
    figure = look.figure(traces, y_title="tasks")
    if replayed:
        figure.add_trace(
            look.line(
                "replayed records (right)",
                x,
                [float(sample.replayed_records) for sample in samples],
                look.PINK,
                steps=True,
                yaxis="y2",
            )
        )
        figure.update_layout(yaxis2=look.right_axis("records"))
    return Chart(
        key,
        title,
        "Tasks that workers hold, tasks that came back and wait, and records that had "
        f"to be trained again ({text.count(replayed)}).",
        figure,
    )


def speed(history: History, zone: tzinfo) -> Chart:
    """Records per second."""
    key, title = "speed", "Speed"
    samples = history.samples
    if not any(sample.records_per_second for sample in samples):
        return Chart(key, title, "No speed was recorded.")
    x = [look.at(sample.time, zone) for sample in samples]
    y = [sample.records_per_second for sample in samples]
    trace = look.line("records per second", x, y, look.TEAL, unit="records/s")
    return Chart(
        key,
        title,
        "Records done per second, all workers together.",
        look.figure([trace], y_title="records per second"),
    )


def checkpoints(history: History, zone: tzinfo) -> Chart:
    """The age of the newest checkpoint, and how long each took."""
    key, title = "checkpoints", "Age of the newest checkpoint"
    samples = history.samples
    ages = [sample.checkpoint_age_seconds for sample in samples]
    if all(age is None for age in ages):
        return Chart(key, title, "The job has no complete checkpoint yet.")
    x = [look.at(sample.time, zone) for sample in samples]
    by, unit = series.second_scale(series.largest(ages))
    traces = [
        look.line("age", x, series.divided(ages, by), look.PURPLE, unit=unit),
        *_durations(samples, x),
    ]
    figure = look.figure(traces, y_title=f"age ({unit})")
    if len(traces) > 1:
        figure.update_layout(yaxis2=look.right_axis("time to write (s)"))
    return Chart(
        key,
        title,
        "What a loss of all PS would cost at that time; and how long each checkpoint "
        "took to write.",
        figure,
    )


def _durations(samples: Sequence[HistorySample], x: Sequence[str]) -> list[object]:
    """Return the trace of checkpoint durations, a point for each checkpoint."""
    points: list[tuple[str, float]] = []
    version: int | None = None
    for when, sample in zip(x, samples, strict=True):
        if sample.checkpoint_version != version and sample.checkpoint_seconds:
            points.append((when, sample.checkpoint_seconds))
        version = sample.checkpoint_version
    if not points:
        return []
    trace = look.line(
        "time to write (right)",
        [when for when, _ in points],
        [seconds for _, seconds in points],
        look.BROWN,
        unit="s",
        yaxis="y2",
    )
    trace.update(mode="markers", marker={"size": 8, "color": look.BROWN})
    return [trace]
