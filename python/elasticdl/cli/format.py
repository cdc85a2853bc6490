"""Numbers, durations and metrics as people read them.

Owns these spellings. Called by the CLI's views. Must not print.
"""

from __future__ import annotations

from collections.abc import Mapping


def count(number: float) -> str:
    """`28740` -> `28 740`."""
    return f"{number:,.0f}".replace(",", " ")


def rate(per_second: float) -> str:
    """`0.5`, `41.2`, `1 234`: three figures or all before the point."""
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


def metric(value: float) -> str:
    """Four significant figures: `0.9812`, `12.34`, `1.2e-05`."""
    return f"{value:.4g}"


def metrics(values: Mapping[str, float]) -> str:
    """`accuracy 0.9812, loss 0.0523`: what the user asked for before the loss."""
    ordered = sorted(values.items(), key=lambda item: item[0] == "loss")
    return ", ".join(f"{name} {metric(value)}" for name, value in ordered)


def percent(part: float, whole: float) -> str:
    """`57 %`; 100 % only when it is all."""
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


def first_line(text: str) -> str:
    """The line of a message that says most: the last of a traceback, else the first."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    if not lines:
        return ""
    return lines[-1] if lines[0].startswith("Traceback") else lines[0]
