"""The job's goodput: where the seconds of all workers went.

Owns the sums over workers, and the time that wanted workers were pending or preempted.
Fed by heartbeats through `master.members.membership`. Pure: `now` is an argument.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from elasticdl.job.words import GoodputCause

# The journal keeps each note: of many workers they are long, and so fewer.
_NOTE_SECONDS = 30.0
_NOTE_SECONDS_PER_WORKER = 0.5


class Goodput:
    """Seconds by cause, of living and ended workers."""

    def __init__(
        self,
        ended: Mapping[str, float] | None = None,
        live: Mapping[int, Mapping[str, float]] | None = None,
    ) -> None:
        """Take what a restarted master read back: sums, and workers that had not ended.

        One of them that ended meanwhile keeps the seconds it had when it was noted.
        """
        self._ended: defaultdict[str, float] = defaultdict(float, ended or {})
        self._live: dict[int, Mapping[str, float]] = dict(live or {})
        self._absent: dict[int, tuple[str, float]] = {}
        self._noted = 0.0

    def heard(self, generation: int, seconds: Mapping[str, float]) -> None:
        """Take a worker's seconds by cause, counted from its start."""
        self._live[generation] = dict(seconds)

    def absent(self, generation: int, *, preempted: bool, now: float) -> None:
        """Count a worker as wanted without a machine from now on."""
        self._absent.setdefault(
            generation,
            (GoodputCause.PREEMPTED if preempted else GoodputCause.PENDING, now),
        )

    def present(self, generation: int, *, now: float) -> None:
        """Count a worker as present, or as no longer wanted."""
        cause, since = self._absent.pop(generation, ("", now))
        if now > since:
            self._ended[cause] += now - since

    def ended(self, generation: int, *, now: float) -> None:
        """Note that a worker ended; its seconds remain in the sums."""
        self.present(generation, now=now)
        for cause, seconds in self._live.pop(generation, {}).items():
            self._ended[cause] += seconds

    def closed(self) -> dict[str, float]:
        """Return the sums of ended workers, for the journal."""
        return _rounded(self._ended)

    def is_due(self, *, now: float) -> bool:
        """Whether the seconds of living workers are due for the journal."""
        period = max(_NOTE_SECONDS, _NOTE_SECONDS_PER_WORKER * len(self._live))
        return now >= self._noted + period

    def live(self, *, now: float) -> dict[str, dict[str, float]]:
        """Return the seconds of each living worker by generation, for the journal."""
        self._noted = now
        return {str(g): _rounded(seconds) for g, seconds in self._live.items()}

    def seconds(self, *, now: float) -> dict[str, float]:
        """Return the sums by cause."""
        total = defaultdict(float, self._ended)
        for ledger in self._live.values():
            for cause, seconds in ledger.items():
                total[cause] += seconds
        for cause, since in self._absent.values():
            total[cause] += now - since
        return {cause: round(value, 3) for cause, value in sorted(total.items())}


def _rounded(seconds: Mapping[str, float]) -> dict[str, float]:
    return {cause: round(value, 3) for cause, value in seconds.items() if value}


def share(seconds: Mapping[str, float]) -> float:
    """Return the share of the workers' seconds that were training, 0 to 1."""
    alive = sum(
        v
        for cause, v in seconds.items()
        if cause not in (GoodputCause.PENDING, GoodputCause.PREEMPTED)
    )
    return seconds.get(GoodputCause.TRAIN, 0.0) / alive if alive > 0 else 0.0
