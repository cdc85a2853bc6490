"""Grafana's units, as people read them.

Owns the spelling of values and the scale of an axis. Used for panels. Pure.
"""

from __future__ import annotations

import math

from elasticdl.views import formatting as text
from elasticdl.views.figures import series

_SUFFIX = {
    "percent": "%",
    "reqps": "req/s",
    "ops": "ops/s",
    "cps": "1/s",
    "wps": "writes/s",
    "rps": "reads/s",
}


def shown(value: float, unit: str) -> str:
    """Return a value in its unit: `1 min 05 s`, `34 MiB/s`, `65 %`."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("∞" if value > 0 else "-∞")
    sign = "-" if value < 0 else ""
    size = abs(value)
    match unit:
        case "s" | "dtdurations":
            return sign + _seconds(size)
        case "ms":
            return sign + _seconds(size / 1000)
        case "bytes" | "decbytes":
            return sign + text.size(size)
        case "Bps" | "binBps":
            return f"{sign}{text.size(size)}/s"
        case "percentunit":
            return f"{100 * value:.3g} %"
        case _:
            suffix = _SUFFIX.get(unit, "")
            return f"{_number(value)} {suffix}".rstrip()


def _seconds(value: float) -> str:
    if 0 < value < 1:
        return f"{1000 * value:.3g} ms"
    return text.duration(value)


def _number(value: float) -> str:
    if abs(value) >= 10_000:
        return text.count(value)
    return f"{value:.4g}"


def scale(unit: str, most: float) -> tuple[float, str]:
    """Return the divisor of an axis' values, and the resulting unit."""
    match unit:
        case "s" | "dtdurations":
            return series.second_scale(most)
        case "ms":
            by, name = series.second_scale(most / 1000)
            return by * 1000, name
        case "bytes" | "decbytes":
            return series.byte_scale(most)
        case "Bps" | "binBps":
            by, name = series.byte_scale(most)
            return by, f"{name}/s"
        case "percentunit":
            return 0.01, "%"
        case _:
            return 1.0, _SUFFIX.get(unit, "")
