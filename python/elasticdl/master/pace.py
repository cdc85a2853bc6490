"""When the job will be through: records per worker second, times the workers there are.

Owns the estimate behind every ETA. Called by the loop, which tells what is done, and by
`master.status`. Pure: `now` is an argument; must not know who the workers are.

A mean over wall-clock time is wrong for as long as its window after each pause and each
change of the number of workers. Seconds of workers at work stand still in a pause, and
what one of them brings in is much the same however many there are. Where it is not (all
share one machine), what came since the last change counts alone as soon as it is
enough. Records are done in portions of a task, so that a window holds several of them.
"""

from __future__ import annotations

from dataclasses import dataclass

_ROUNDS = 4  # times that all leased records are done within a window
_POINTS = 60  # kept of a window
_OF_ALL = 0.1  # a long job's window grows: evaluations belong into it


@dataclass(frozen=True)
class _Point:
    worked: float  # worker seconds so far
    records: int


class Pace:
    """Records per second that can be expected of the workers that are at work."""

    def __init__(
        self, window_seconds: float = 30.0, *, settled_seconds: float = 10.0
    ) -> None:
        """Look back so far, or as far as enough was done.

        `settled_seconds`: what has to pass after a change of the number of workers
        until that which was before it is left out.
        """
        self._window = window_seconds
        self._settled = settled_seconds
        self._now: float | None = None
        self._workers = 0
        self._worked = 0.0
        self._leased = 0
        self._points: list[_Point] = []
        self._begun = 0.0  # worker seconds when the measuring began
        self._changed = 0.0  # worker seconds when the number of workers changed
        self._before: float | None = None  # records per worker second before a rewind

    def take(self, records: int, *, leased: int, workers: int, now: float) -> None:
        """Note the records done, those leased, and the workers at work now."""
        if self._now is not None:
            self._worked += self._workers * max(0.0, now - self._now)
        self._now = now
        self._leased = leased
        if workers and workers != self._workers:
            self._changed = self._worked
        self._workers = workers
        if not self._points or records < self._points[-1].records:
            self._restart(records)
        elif records > self._points[-1].records:
            self._add(_Point(self._worked, records))

    def per_second(self) -> float | None:
        """Return the rate to be expected now; None when it is not known.

        It is not while nobody works, nor before the first records are done.
        """
        each = self._per_worker_second()
        return each * self._workers if each and self._workers else None

    def _restart(self, records: int) -> None:
        """A rewind: the course begins anew, the speed does not."""
        self._before = self._per_worker_second()
        self._points = [_Point(self._worked, records)]
        self._begun = self._changed = self._worked

    def _add(self, point: _Point) -> None:
        points = self._points
        apart = self._window_worked / _POINTS
        if len(points) > 2 and point.worked - points[-2].worked < apart:
            points[-1] = point
        else:
            points.append(point)
        del points[: max(0, self._first(self._window_worked, since=0.0))]
        if self._first(self._settled * self._workers, since=0.0) >= 0:
            self._before = None

    @property
    def _window_worked(self) -> float:
        """The window in worker seconds."""
        recent = self._window * max(1, self._workers)
        return max(recent, _OF_ALL * (self._worked - self._begun))

    def _first(self, worked: float, *, since: float) -> int:
        """Return the newest point with enough after it, -1 if there is none."""
        records = self._points[-1].records - _ROUNDS * self._leased
        for number in range(len(self._points) - 2, -1, -1):
            point = self._points[number]
            if point.worked < since:
                return -1
            if point.worked <= self._worked - worked and point.records <= records:
                return number
        return -1

    def _per_worker_second(self) -> float | None:
        points = self._points
        if len(points) < 2 or self._before is not None:
            return self._before
        first = self._first(self._settled * self._workers, since=self._changed)
        if first < 0:
            first = max(0, self._first(self._window_worked, since=0.0))
        start, end = points[first], points[-1]
        done = end.records - start.records
        if end.worked <= start.worked:
            return None
        # As if what is leased were done this moment: lower is what has got stuck.
        soon = (done + self._leased) / (self._worked - start.worked)
        return min(done / (end.worked - start.worked), soon)
