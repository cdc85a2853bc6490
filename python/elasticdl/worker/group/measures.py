"""What steps with others cost a member: waits, bytes, changes of rounds.

Owns these figures. Written by `worker.group.loop` in the main thread, read by the
heartbeat's. Must not know what a step is made of, nor other members.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from elasticdl.job.heartbeats import GroupFigures

_NEWEST = 0.1  # weight of the newest step in the mean wait, as of step times


@dataclass(frozen=True)
class _Last:
    """The last step that was made."""

    round: int
    at: float
    sent_bytes: int


class Measures:
    """Figures of one member. One thread writes, any may read."""

    def __init__(
        self, clock: Callable[[], float], sent_bytes: Callable[[], int]
    ) -> None:
        """Begin without a step.

        Args:
            clock: Seconds that only grow.
            sent_bytes: Of gradients, since process start.
        """
        self._clock = clock
        self._sent_bytes = sent_bytes
        self._last: _Last | None = None
        self._waited = 0.0  # since the last step
        self._figures = GroupFigures()

    @property
    def round(self) -> int:
        """The round of the last step; 0 before the first."""
        return self._figures.round

    def waited(self, seconds: float) -> None:
        """Add a wait for other members."""
        self._waited += seconds

    def idled(self) -> None:
        """Note that a step without records was made: a wait for tasks is no wait."""
        self._waited = 0.0

    def made(self, number: int) -> None:
        """Note that a step was made in round `number`."""
        now, sent = self._clock(), self._sent_bytes()
        before, old = self._last, self._figures
        same = before is not None and before.round == number
        change, mean = old.change_seconds, old.wait_seconds
        if not same:
            # In a change everybody waits: it says nothing about who is slow.
            change, mean = now - before.at if before else 0.0, 0.0
        else:
            mean = mean + _NEWEST * (self._waited - mean) if mean else self._waited
        self._figures = GroupFigures(
            round=number,
            change_seconds=change,
            wait_seconds=mean,
            step_bytes=sent - before.sent_bytes if same and before else old.step_bytes,
            sent_bytes=sent,
        )
        self._last = _Last(number, now, sent)
        self._waited = 0.0

    def figures(self) -> GroupFigures:
        """Return what the next heartbeat says."""
        return self._figures
