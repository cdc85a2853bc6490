"""What a dashboard's query leaves open: the user's choices, and the time that is shown.

Owns the filling in, by Grafana's rules. Called by `views.dashboard.drawing` and
`views.dashboard.server`. Pure: `now` is an argument. Must not call Prometheus.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from elasticdl.errors import SpecError

ALL = "$__all"
_NAME = re.compile(r"\$(?:\{(\w+)(?::\w+)?\}|(\w+))")
_LABEL = re.compile(r"\{\{\s*(\w+)\s*\}\}")
_RELATIVE = re.compile(r"now(?:-(\d+)([smhdw]))?")
_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
# As many points as a chart has room for, more or less.
_POINTS = 360
_LONGEST_SECONDS = 400 * 86_400


@dataclass(frozen=True)
class Window:
    """The time window in Unix seconds, and the distance of its points."""

    start: float
    end: float
    step: float
    scrape_seconds: float

    @staticmethod
    def of(begin: str, end: str, *, now: float, scrape_seconds: float) -> Window:
        """Return the window from the page's texts: `now-1h`, or Unix milliseconds.

        Raises SpecError for other texts, and where the end is not after the begin.
        """
        first, last = moment(begin, now=now), moment(end, now=now)
        if not 1 <= last - first <= _LONGEST_SECONDS:
            raise SpecError(
                f"got the time from {begin!r} to {end!r}, expected an end that is at "
                "least a second after the begin, and at most 400 days"
            )
        step = max(scrape_seconds, math.ceil((last - first) / _POINTS), 1.0)
        # Steps on round times: a refresh moves the chart, not the points in it.
        return Window(first // step * step, last, step, scrape_seconds)

    @property
    def built_in(self) -> dict[str, str]:
        """Grafana's own variables."""
        length = max(1, round(self.end - self.start))
        # A rate needs two scrapes, also when one was missed.
        rate = max(4 * self.scrape_seconds, self.step + self.scrape_seconds)
        return {
            "__rate_interval": _duration(rate),
            "__interval": _duration(self.step),
            "__interval_ms": str(round(1000 * self.step)),
            "__range": f"{length}s",
            "__range_s": str(length),
            "__range_ms": str(1000 * length),
        }


def _duration(seconds: float) -> str:
    return f"{max(1, round(1000 * seconds))}ms"


def moment(text: str, *, now: float) -> float:
    """Return the Unix seconds of `now-15m`, or of milliseconds. Raises SpecError."""
    relative = _RELATIVE.fullmatch(text)
    if relative:
        number, unit = relative.groups()
        return now - (int(number) * _UNIT_SECONDS[unit] if number else 0)
    if re.fullmatch(r"\d{1,15}", text):
        return int(text) / 1000
    raise SpecError(
        f"got the time {text!r}, expected now, now-15m, now-2d or Unix milliseconds"
    )


def filled(expression: str, chosen: Mapping[str, Sequence[str]], window: Window) -> str:
    """Return a query with its variables filled in.

    `chosen`: the values of each variable, (ALL,) for all of them. Values go into the
    strings of a query, so what would end a string is escaped; several of them, or all,
    are a regular expression. A variable that is not known stays as it is.
    """
    built_in = window.built_in

    def value(match: re.Match[str]) -> str:
        name = next(filter(None, match.groups()))
        if name in built_in:
            return built_in[name]
        if name not in chosen:
            return match[0]
        values = chosen[name]
        if ALL in values:
            return ".*"
        if len(values) == 1 and not _is_pattern(expression, match.start()):
            return _quoted(values[0])
        return "|".join(_quoted(re.escape(one)) for one in values)

    return _NAME.sub(value, expression)


def _is_pattern(expression: str, position: int) -> bool:
    """Whether the string that begins before this position is matched as a pattern."""
    return bool(re.search(r"[=!]~\s*\"[^\"]*$", expression[:position]))


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def legend(form: str, labels: Mapping[str, str]) -> str:
    """Return the name of a series: `{{cause}}` filled in, or all its labels."""
    if form and form != "__auto":
        return _LABEL.sub(lambda match: labels.get(match[1], ""), form).strip()
    rest = [f"{key}={value}" for key, value in labels.items() if key != "__name__"]
    return ", ".join(rest) or labels.get("__name__", "") or "value"
