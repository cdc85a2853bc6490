"""Charts of a job's parameter servers: bytes, calls, memory, which shard is hot.

Owns them. Called by `figures.job`. Must not know the page.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import tzinfo

from elasticdl.job.history import History, HistorySample, PsSample
from elasticdl.job.words import ReplicaState
from elasticdl.views import formatting as text
from elasticdl.views.figures import look, series
from elasticdl.views.figures.look import Chart

_NOTHING = "No sample of a PS was recorded."
Reading = Callable[[PsSample], float]


def charts(history: History, zone: tzinfo) -> list[Chart]:
    """All charts of the PS, in order."""
    samples = history.samples
    shards = sorted({index for sample in samples for index in sample.ps}, key=int)
    x = [look.at(sample.time, zone) for sample in samples]
    return [
        _traffic(samples, shards, x),
        hot(samples, shards),
        _calls(samples, shards, x),
        _call_time(samples, shards, x),
        _memory(samples, shards, x),
    ]


def _of(index: str, reading: Reading) -> series.Reading:
    """Return a reading of one PS's figure in a sample; None where it did not run."""

    def read(sample: HistorySample) -> float | None:
        ps = sample.ps.get(index)
        return None if ps is None or ps.state != ReplicaState.RUNNING else reading(ps)

    return read


def _bytes(ps: PsSample) -> float:
    return ps.received_bytes + ps.sent_bytes


def _traffic(
    samples: Sequence[HistorySample], shards: Sequence[str], x: list[str]
) -> Chart:
    key, title = "ps-bytes", "PS: bytes moved"
    rates = {index: series.rates(samples, _of(index, _bytes)) for index in shards}
    most = series.largest(*rates.values())
    if not most:
        return Chart(key, title, _NOTHING)
    by, unit = series.byte_scale(most)
    traces = [
        look.line(
            f"ps-{index}",
            x,
            series.divided(rates[index], by),
            look.colour(number),
            unit=f"{unit}/s",
        )
        for number, index in enumerate(shards)
    ]
    return Chart(
        key,
        title,
        "Tensor bytes pushed to and pulled from each PS.",
        look.figure(traces, y_title=f"{unit} per second"),
    )


def hot(samples: Sequence[HistorySample], shards: Sequence[str]) -> Chart:
    """The share of each PS in all bytes moved; a hot PS has far more than others."""
    key, title = "ps-hot", "PS: which shard is hot"
    moved = {index: series.total(samples, _of(index, _bytes)) for index in shards}
    whole = sum(moved.values())
    if not whole:
        return Chart(key, title, _NOTHING)
    over = series.above_mean(moved)
    order = sorted(moved, key=lambda index: -moved[index])
    trace = look.bars(
        [f"ps-{index}" for index in order],
        [100 * moved[index] / whole for index in order],
        [look.RED if index in over else look.BLUE for index in order],
        labels=[
            f"{100 * moved[index] / whole:.0f} %, {text.size(moved[index])}"
            for index in order
        ],
    )
    found = ", ".join(f"ps-{index}" for index in order if index in over)
    even = f"None moves {series.OUTLIER:g} times the mean."
    return Chart(
        key,
        title,
        "Share of all tensor bytes that each PS moved. "
        + (f"Hot: {found}." if found else even),
        look.bar_figure(trace, x_title="share of all bytes (%)"),
    )


def _calls(
    samples: Sequence[HistorySample], shards: Sequence[str], x: list[str]
) -> Chart:
    key, title = "ps-calls", "PS: calls"
    rates = {
        index: series.rates(samples, _of(index, lambda ps: ps.calls))
        for index in shards
    }
    if not series.largest(*rates.values()):
        return Chart(key, title, _NOTHING)
    traces = [
        look.line(f"ps-{index}", x, rates[index], look.colour(number), unit="calls/s")
        for number, index in enumerate(shards)
    ]
    return Chart(
        key,
        title,
        "Calls that each PS answered.",
        look.figure(traces, y_title="calls per second"),
    )


def _call_time(
    samples: Sequence[HistorySample], shards: Sequence[str], x: list[str]
) -> Chart:
    key, title = "ps-latency", "PS: time of a call"
    means: dict[str, list[float | None]] = {}
    for index in shards:
        calls = series.rates(samples, _of(index, lambda ps: ps.calls))
        spent = series.rates(samples, _of(index, lambda ps: ps.call_seconds))
        means[index] = [
            1000 * s / n if s is not None and n else None
            for s, n in zip(spent, calls, strict=True)
        ]
    if not series.largest(*means.values()):
        return Chart(key, title, _NOTHING)
    traces = [
        look.line(f"ps-{index}", x, means[index], look.colour(number), unit="ms")
        for number, index in enumerate(shards)
    ]
    return Chart(
        key,
        title,
        "Mean time of a call in the PS, without its transfer.",
        look.figure(traces, y_title="time of a call (ms)"),
    )


def _memory(
    samples: Sequence[HistorySample], shards: Sequence[str], x: list[str]
) -> Chart:
    key, title = "ps-memory", "PS: memory"
    used: dict[str, list[float | None]] = {
        index: [_of(index, lambda ps: ps.memory_bytes)(s) or None for s in samples]
        for index in shards
    }
    limits: list[float | None] = [
        max((ps.memory_limit_bytes for ps in s.ps.values()), default=0) or None
        for s in samples
    ]
    if not series.largest(*used.values()):
        return Chart(key, title, _NOTHING)
    by, unit = series.byte_scale(series.largest(*used.values(), limits))
    traces = [
        look.line(
            f"ps-{index}",
            x,
            series.divided(used[index], by),
            look.colour(number),
            unit=unit,
        )
        for number, index in enumerate(shards)
    ]
    limit = series.largest(limits)
    if limit:
        traces.append(
            look.line(
                "limit",
                x,
                series.divided(limits, by),
                look.RED,
                line={"dash": "dash", "width": 1.5},
                unit=unit,
            )
        )
    held = max(sum(ps.parameter_bytes for ps in s.ps.values()) for s in samples)
    rows = max(sum(ps.embedding_rows for ps in s.ps.values()) for s in samples)
    return Chart(
        key,
        title,
        f"Resident memory; {'limit ' + text.size(limit) if limit else 'no limit'}. "
        f"They held up to {text.size(held)} of parameters"
        + (f" and {text.count(rows)} rows of embeddings." if rows else "."),
        look.figure(traces, y_title=f"memory ({unit})"),
    )
