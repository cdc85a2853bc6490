"""How far a worker is ahead: tasks held ready, and how long a report may wait.

Owns the two bounds that keep a job of short tasks, or of many workers, from being a job
of calls. Called by the task stream, under its lock. Pure: `now` is an argument.
"""

from __future__ import annotations

# Tasks ready are worth at most so many seconds of training, or the time between two
# calls that the master asks for; what is lost with a worker. A call costs master and
# worker milliseconds of a CPU that steps need: five times as many calls were a tenth of
# the speed of a small model on two CPUs.
_READY_SECONDS = 1.0
_MOST_READY = 64
# So much training is left when the next tasks are asked for.
_LEAD_SECONDS = 0.3
# A report waits so long for others to go with it, or the time between two calls; what a
# lost worker did in that time is trained again. Longer than from one lease to the next:
# it goes with that.
_REPORT_SECONDS = 1.0
# A task's length is a running mean of about the last so many.
_MEAN_OVER = 4


class Ahead:
    """How many tasks a worker holds ready, by its pace."""

    def __init__(self, *, far: bool) -> None:
        """With `far` false: one task ready, every report at once (sync training)."""
        self._far = far
        self._seconds: float | None = None
        self._since: float | None = None
        self._call_seconds = 0.0
        # Number of tasks to hold ready beside the trained one, and how many are left
        # when the next ones are asked for: looked up for each task, and by each report.
        self.most_ready, self._left = 1, 0

    def calls_every(self, seconds: float) -> None:
        """Note the interval at which the master can serve this worker."""
        self._call_seconds = seconds
        self._decide()

    def took(self, *, waited_seconds: float, now: float) -> None:
        """Note the start of a task, after so many seconds without one.

        The time since the last one was begun, less the wait, was its length.
        """
        if self._since is not None:
            seconds = now - self._since - waited_seconds
            mean = seconds if self._seconds is None else self._seconds
            self._seconds = mean + (seconds - mean) / _MEAN_OVER
            self._decide()
        self._since = now

    def _decide(self) -> None:
        if not self._far or self._seconds is None:
            return
        tasks_a_second = 1.0 / max(self._seconds, 1e-6)
        most = round(tasks_a_second * max(_READY_SECONDS, self._call_seconds))
        self.most_ready = max(1, min(_MOST_READY, most))
        self._left = min(self.most_ready // 2, int(_LEAD_SECONDS * tasks_a_second))

    def wanted(self, ready: int) -> int:
        """Return how many tasks to lease now: 0 until those ready are nearly used."""
        return self.most_ready - ready if ready <= self._left else 0

    def report_due(self, *, oldest: float, now: float) -> float:
        """Return the seconds for which reports may still wait; 0 or less is now."""
        if not self._far:
            return 0.0
        return oldest + max(_REPORT_SECONDS, self._call_seconds) - now
