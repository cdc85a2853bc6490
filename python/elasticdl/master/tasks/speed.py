"""How fast records are trained: a mean over the last while. Pure."""

from __future__ import annotations


class Speed:
    """Records per second over a recent window."""

    def __init__(self, window_seconds: float = 30.0) -> None:
        """Set the window."""
        self._window = window_seconds
        self._points: list[tuple[float, int]] = []

    def take(self, records: int, *, now: float) -> None:
        """Note the number of records done so far."""
        if self._points and records < self._points[-1][1]:
            self._points.clear()  # a rewind
        if self._points and now - self._points[-1][0] < self._window / 30:
            return
        self._points.append((now, records))
        while self._points[0][0] < now - self._window:
            del self._points[0]

    def per_second(self, records: int, *, now: float) -> float:
        """Return the mean over the window; 0 while unknown."""
        if not self._points or now <= self._points[0][0]:
            return 0.0
        since, before = self._points[0]
        return max(0.0, (records - before) / (now - since))
