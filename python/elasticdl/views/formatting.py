"""Numbers, durations and metrics as people read them.

Owns these spellings. Called by the CLI's views. Must not print.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from elasticdl.job.status import GrantStatus

_TRACE_BEGINS = "Traceback (most recent call last):"
_DOING = {
    "": "starting",
    "start": "starting",
    "prepare": "preparing data",
    "train": "training",
    "evaluate": "evaluating",
    "predict": "predicting",
    "export": "exporting",
    "wait": "waiting",
    "waitPs": "waiting for PS",
    "waitPeers": "waiting for other workers",
    "regroup": "changing rounds",
    "waitData": "waiting for data",
    "restore": "loading a checkpoint",
    "replay": "training again",
    "scheduled": "to be started",
    "launched": "starting",
    "draining": "leaving",
}


def count(number: float) -> str:
    """`28740` -> `28 740`."""
    return f"{number:,.0f}".replace(",", " ")


def rate(per_second: float) -> str:
    """`0.5`, `41.2`, `1 234`: three significant figures, or all before the point."""
    if per_second >= 100:
        return count(per_second)
    return f"{per_second:.1f}"


def duration(seconds: float) -> str:
    """`0.4 s`, `41 s`, `2 min 05 s`, `1 h 03 min`, `2 d 04 h`."""
    if seconds < 9.95:
        return f"{max(0.0, seconds):.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    if whole < 86_400:
        return f"{whole // 3600} h {whole % 3600 // 60:02} min"
    return f"{whole // 86_400} d {whole % 86_400 // 3600:02} h"


def short_duration(seconds: float) -> str:
    """`0.41 ms`, `3.1 ms`, `31 ms`, `1.2 s`: for a step or a call."""
    if seconds >= 0.9995:
        return duration(seconds)
    thousandths = 1000 * seconds
    digits = 2 if thousandths < 0.995 else 1 if thousandths < 9.95 else 0
    return f"{thousandths:.{digits}f} ms"


def left(seconds: float) -> str:
    """`41 s left`, `12 min left`, `1 h 03 min left`: rounded, an estimate."""
    if seconds < 59.5:
        return f"{max(1, round(seconds))} s left"
    minutes = max(1, round(seconds / 60))
    return f"{minutes} min left" if minutes < 60 else f"{duration(60 * minutes)} left"


def metric(value: float) -> str:
    """Four significant figures: `0.9812`, `12.34`, `1.2e-05`."""
    return f"{value:.4g}"


def metrics(values: Mapping[str, float]) -> str:
    """`accuracy 0.9812, loss 0.0523`: the user's metrics before the loss."""
    ordered = sorted(values.items(), key=lambda item: item[0] == "loss")
    return ", ".join(f"{name} {metric(value)}" for name, value in ordered)


def percent(part: float, whole: float) -> str:
    """`57 %`; 100 % only if it is everything."""
    if whole <= 0:
        return "0 %"
    share = part / whole
    return f"{100 if share >= 1 else min(99, int(100 * share))} %"


def size(num_bytes: float) -> str:
    """`812 MiB`."""
    value = float(num_bytes)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"


def plural(number: int, word: str) -> str:
    """`1 worker`, `2 workers`, `2 relaunches`."""
    ending = "es" if word.endswith(("nch", "tch")) else "s"
    return f"{count(number)} {word}{'' if number == 1 else ending}"


def grant_words(grant: GrantStatus, least: int, most: int) -> str:
    """`12 workers granted (2 to 60) until 10:30: make room for ml/b`."""
    until = time.strftime("%H:%M", time.localtime(grant.until))
    why = f": {grant.why}" if grant.why else ""
    return (
        f"{plural(grant.workers, 'worker')} granted ({max(1, least)} to {most}) "
        f"until {until}{why}"
    )


def first_line(text: str) -> str:
    """The most informative line: the last of a traceback, else the first."""
    lines = without_trace(text).splitlines()
    return lines[0] if lines else ""


def without_trace(text: str) -> str:
    """A message without its stack trace: the lines above it, or its last line."""
    lines = [line.rstrip() for line in text.strip().splitlines() if line.strip()]
    traces = [n for n, line in enumerate(lines) if line.endswith(_TRACE_BEGINS)]
    if not traces:
        return "\n".join(lines)
    return "\n".join(lines[: traces[0]]) or lines[-1].strip()


def path(full: str | Path, *, here: Path | None = None) -> str:
    """A path as typed here: relative to the current folder, or from `~`."""
    given = Path(full)
    for start, mark in ((here or Path.cwd(), ""), (Path.home(), "~/")):
        if given.is_absolute() and given != start and given.is_relative_to(start):
            return f"{mark}{given.relative_to(start)}"
    return str(full)


def doing(phase: str) -> str:
    """A worker's activity in words; `wait for PS` by a cause of lost time."""
    return _DOING.get(phase, phase)
