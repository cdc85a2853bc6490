"""What every benchmark is made of: rounds, ratios, and one line of the table.

Owns how variants are timed against each other and what a row says. Used by all files
of this folder; knows nothing of what is measured.

A figure is a ratio of two things measured in the same run, never a time alone: the
machine may be busy or slow, and then both are.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")
_RUNNER = asyncio.Runner()


@dataclass(frozen=True)
class Row:
    """One line: the median over rounds, the middle 80 % of them, and the bar."""

    name: str
    what: str  # what is divided by what, with the unit where it is no plain ratio
    ratio: float
    low: float
    high: float
    bar: float
    better: str  # "higher" or "lower"
    ok: bool


@dataclass(frozen=True)
class Benchmark:
    """One entry of the list that `make bench` goes through."""

    run: Callable[[], list[Row]]
    seconds: float  # about how long it takes, for the progress line
    short: bool = True  # part of the round that `.ci/run` makes


def interleaved(
    variants: Mapping[str, Callable[[], float]], rounds: int, *, warm: bool = True
) -> dict[str, list[float]]:
    """Run all variants in turn, `rounds` times; return each one's figures by round.

    A variant returns its own figure (seconds as a rule; see `timed`). With `warm`, one
    round before the first is run and forgotten.
    """
    figures: dict[str, list[float]] = {name: [] for name in variants}
    for number in range(-1 if warm else 0, rounds):
        # Whoever comes second finds warm caches; so they take turns.
        names = list(variants) if number % 2 else list(reversed(variants))
        for name in names:
            figure = variants[name]()
            if number >= 0:
                figures[name].append(figure)
        progress(f"round {number + 1} of {rounds}")
    progress("")
    return figures


def in_one_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run it in the loop that all rounds share.

    gRPC has news for a round's calls when the round is over, and a trace of the stack
    for each that comes to a closed loop.
    """
    return _RUNNER.run(work)


def timed(work: Callable[[], object], times: int = 1) -> Callable[[], float]:
    """Return a variant that runs `work` `times` times and gives the seconds of one."""

    def run() -> float:
        began = time.perf_counter()
        for _ in range(times):
            work()
        return (time.perf_counter() - began) / times

    return run


def ratios(top: Sequence[float], bottom: Sequence[float]) -> list[float]:
    """Divide round by round: both of a round met the same machine."""
    return [a / b for a, b in zip(top, bottom, strict=True)]


def row(
    name: str, what: str, values: Sequence[float], bar: float, better: str = "higher"
) -> Row:
    """Make a row of the ratios of all rounds."""
    ordered = sorted(values)
    skip = round(0.1 * (len(ordered) - 1))
    middle = statistics.median(ordered)
    ok = middle >= bar if better == "higher" else middle <= bar
    return Row(
        name, what, middle, ordered[skip], ordered[-1 - skip], bar, better, ok
    )  # fmt: skip


def seconds_row(name: str, what: str, values: Sequence[float], bar: float) -> Row:
    """Make a row of times in seconds, whose bar holds for the 95th percentile."""
    ordered = sorted(values)
    late = ordered[min(len(ordered) - 1, round(0.95 * (len(ordered) - 1)))]
    return Row(
        name,
        f"{what} (seconds: fastest, median, p95)",
        statistics.median(ordered),
        ordered[0],
        late,
        bar,
        "lower",
        late <= bar,
    )


def progress(text: str) -> None:
    """Show where a long run is, on the terminal alone."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K  {text}", end="", file=sys.stderr, flush=True)
