"""`python -m docs.generate.simulated_hour`: the picture of the README.

Owns docs/images/simulated-hour.svg: workers of the trace `day` in its first hour, job
upon job, under gang and under elastic. Not among the files that `make docs` writes: a
simulation takes longer than a check should.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from elasticdl.simulator.course import Course
from elasticdl.simulator.outcome import outcome
from elasticdl.simulator.policies import new_policy
from elasticdl.simulator.reading import load_trace
from elasticdl.simulator.simulation import Simulation
from elasticdl.simulator.trace import Trace
from elasticdl.views.figures.look import PALETTE
from elasticdl.views.figures.simulation import at

FILE = Path(__file__).parents[1] / "images" / "simulated-hour.svg"
_HOUR = 3600.0
_WIDE, _HIGH, _LEFT, _TOP = 430, 190, 46, 58
_STEP = 20.0


def main() -> None:
    trace = load_trace("day")
    courses = [
        Simulation(trace, new_policy(name)).run() for name in ("gang", "elastic")
    ]
    FILE.write_text(picture(trace, courses), encoding="utf-8")


def picture(trace: Trace, courses: Sequence[Course]) -> str:
    """Return the SVG."""
    most = max(max(sum(s.running) for s in course.samples) for course in courses)
    top = 10 * (int(most / 10) + 1)
    width = 2 * (_WIDE + _LEFT) + 20
    height = _TOP + _HIGH + 46
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="system-ui, sans-serif" font-size="12" fill="#333">',
        f'<rect width="{width}" height="{height}" rx="6" fill="#fff"/>',
    ]
    for number, course in enumerate(courses):
        left = _LEFT + number * (_WIDE + _LEFT + 8)
        parts += _panel(trace, course, left, top)
    return "\n".join([*parts, "</svg>", ""])


def _panel(trace: Trace, course: Course, left: int, top: int) -> Iterator[str]:
    made = outcome(course, trace)
    yield (
        f'<text x="{left}" y="22" font-size="15" font-weight="600">'
        f"{course.policy}</text>"
    )
    words = (
        f"a job takes {made.completion or 0:,.0f} s in the mean, its first worker "
        f"comes after {made.first_mean or 0:,.0f} s"
    )
    yield f'<text x="{left}" y="42" fill="#666">{words}</text>'
    times = [_STEP * n for n in range(int(_HOUR / _STEP) + 1)]
    samples = at(course, times)
    floor = [0] * len(times)
    for job in range(len(course.jobs)):
        sizes = [sample.running[job] for sample in samples]
        there = [number for number, size in enumerate(sizes) if size]
        over = [low + size for low, size in zip(floor, sizes, strict=True)]
        if there:
            part = slice(there[0], there[-1] + 2)
            low, high = floor[part], over[part]
            yield _area(times[part], low, high, left, top, PALETTE[job % len(PALETTE)])
        floor = over
    bottom = _TOP + _HIGH
    for mark in range(0, top + 1, 20):
        y = bottom - mark / top * _HIGH
        yield f'<path d="M{left} {y:.1f}h{_WIDE}" stroke="#0002"/>'
        yield f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{mark}</text>'
    for minute in range(0, 61, 15):
        x = left + minute / 60 * _WIDE
        where = f'x="{x:.1f}" y="{bottom + 17}" text-anchor="middle"'
        yield f"<text {where}>{minute}</text>"
    middle = left + _WIDE / 2
    yield f'<text x="{middle}" y="{bottom + 36}" text-anchor="middle">minutes</text>'
    yield f'<text x="{left}" y="{_TOP - 4}" font-size="11">workers</text>'


def _area(
    times: Sequence[float],
    low: Sequence[int],
    high: Sequence[int],
    left: int,
    top: int,
    tone: str,
) -> str:
    def points(values: Sequence[int]) -> list[str]:
        """Return the corners of a line that goes up and down in steps."""
        found: list[str] = []
        before = None
        for time, value in zip(times, values, strict=True):
            x = f"{left + time / _HOUR * _WIDE:.0f}"
            if before is not None and value != before:
                found.append(f"{x} {_height(before, top)}")
            if value != before:
                found.append(f"{x} {_height(value, top)}")
            before = value
        end = f"{left + times[-1] / _HOUR * _WIDE:.0f}"
        return [*found, f"{end} {_height(values[-1], top)}"]

    outline = "L".join([*points(high), *reversed(points(low))])
    return f'<path d="M{outline}Z" fill="{tone}" fill-opacity=".75"/>'


def _height(value: int, top: int) -> str:
    return f"{_TOP + _HIGH - value / top * _HIGH:.0f}"


if __name__ == "__main__":
    main()
