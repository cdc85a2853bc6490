"""When the job will be through: records per worker second, times the workers there are.

Owns the estimate behind every ETA. Called by the loop, which tells what is done, and by
`master.telling.status`. Pure: `now` is an argument; must not know who the workers are.

A mean over wall-clock time is wrong for as long as its window after each pause and each
change of the number of workers. Seconds of workers at work stand still in a pause, and
what one of them brings in is much the same however many there are. Where it is not (all
share one machine), what came since the last change counts alone as soon as it is
enough, and is remembered for the next time that there are as many. Records are done in
portions of a task, so that a window holds several of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

_ROUNDS = 4  # times that all leased records are done within a window
_POINTS = 60  # kept of a window
_OF_ALL = 0.1  # a long job's window grows: evaluations belong into it


@dataclass(frozen=True)
class _Point:
    worked: float  # worker seconds so far
    records: int


class Pace:
    """Records per second to expect of the workers at work."""

    def __init__(
        self,
        window_seconds: float = 30.0,
        *,
        settled_seconds: float = 10.0,
        warm_seconds: float = 3.0,
    ) -> None:
        """Set the window, and how long a change of workers needs to settle.

        `settled_seconds`: what has to pass after a change of the number of workers
        until that which was before it is left out. `warm_seconds`: not measured, for
        the first steps are slow, and what workers did while the master was away comes
        all at once.
        """
        self._window = window_seconds
        self._settled = settled_seconds
        self._warm = warm_seconds
        self._now: float | None = None
        self._workers = 0
        self._worked = 0.0
        self._leased = 0
        self._begun: _Point | None = None  # the measuring, or what came after a rewind
        self._last = _Point(0.0, 0)  # when records were done last
        self._points: list[_Point] = []  # when records were done, those of the window
        self._changed = 0.0  # worker seconds when the number of workers changed
        # Records per worker second, by the number of workers, as last measured.
        self._known: dict[int, float] = {}
        self._known_at = 0.0  # worker seconds when it was measured last

    def take(self, records: int, *, leased: int, workers: int, now: float) -> None:
        """Note the records done and leased, and the workers at work."""
        if self._now is not None:
            self._worked += self._workers * max(0.0, now - self._now)
        self._now = now
        self._leased = leased
        if workers and workers != self._workers:
            self._changed = self._worked
        self._workers = workers
        if self._begun is None or records < self._last.records:
            # A rewind: the course begins anew, the speed does not.
            self._begun = self._last = _Point(self._worked, records)
            self._points = []
            self._changed = self._worked
        elif records > self._last.records:
            self._last = _Point(self._worked, records)
            if self._worked - self._begun.worked > self._warm * workers:
                self._add(self._last)

    def per_second(self) -> float | None:
        """Return the expected rate; None if unknown.

        It is not while nobody works, nor before the first records are done.
        """
        each = self._per_worker_second()
        return each * self._workers if each and self._workers else None

    def _add(self, point: _Point) -> None:
        points = self._points
        apart = self._window_worked / _POINTS
        if len(points) > 2 and point.worked - points[-2].worked < apart:
            points[-1] = point
        else:
            points.append(point)
        del points[: self._window_first()]
        settled = self._settled_first()
        if settled >= 0 and self._workers:
            self._known[self._workers] = self._rate(points[settled])
            self._known_at = self._worked

    @property
    def _window_worked(self) -> float:
        """The window in worker seconds."""
        begun = self._begun.worked if self._begun else 0.0
        recent = self._window * max(1, self._workers)
        return max(recent, _OF_ALL * (self._worked - begun))

    def _first(self, worked: float, *, since: float) -> int:
        """Return the newest point with enough work after it, -1 if there is none."""
        records = self._last.records - _ROUNDS * self._leased
        for number in range(len(self._points) - 2, -1, -1):
            point = self._points[number]
            if point.worked < since:
                return -1
            if point.worked <= self._worked - worked and point.records <= records:
                return number
        return -1

    def _window_first(self) -> int:
        """Return the start of the window, or the oldest point."""
        return max(0, self._first(self._window_worked, since=0.0))

    def _settled_first(self) -> int:
        """Return the point of the last change of workers; -1 if it is too recent."""
        return self._first(self._settled * self._workers, since=self._changed)

    def _per_worker_second(self) -> float | None:
        begun, points = self._begun, self._points
        if begun is None:
            return None
        first = self._settled_first()
        # Where the number changes all the time none is ever measured: the mean is.
        recent = self._worked - self._known_at <= self._window_worked
        if first < 0 and self._known and recent:
            nearest = min(self._known, key=lambda n: (abs(n - self._workers), n))
            rate = self._known[nearest]
        elif points and self._last.records - points[0].records >= self._leased:
            rate = self._rate(points[first if first >= 0 else self._window_first()])
        elif self._worked - begun.worked >= self._settled * self._workers:
            rate = self._rate(begun)
        else:
            return None
        return min(rate, self._unstuck())

    def _rate(self, start: _Point) -> float:
        worked = self._last.worked - start.worked
        # In a pause what was begun is still told, and nobody works.
        return (self._last.records - start.records) / worked if worked > 0 else 0.0

    def _unstuck(self) -> float:
        """Return the rate if all leased records were done at this moment.

        What workers bring in cannot be more, it would have come by now. Of a stop of
        seconds, as at the loss of a PS, nothing is to be seen.
        """
        idle = self._worked - self._last.worked
        if not self._leased or idle <= self._window * self._workers:
            return math.inf
        return self._leased / idle
