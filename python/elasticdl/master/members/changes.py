"""Which replicas came to the job and which left it, and why, since this master began.

Owns the words for causes and the counts that metrics show. Told by
`master.members.membership` of what nobody else notes; endings that were needed are in
`master.members.relaunches`, which outlives a master. Pure: `now` is an argument.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from elasticdl.job.status import Relaunch
from elasticdl.job.words import ChangeCause


@dataclass
class Changes:
    """Replicas that came, or were told to go, by role and cause."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    times: dict[str, float] = field(default_factory=dict)  # of the last, by cause
    costs: dict[str, float] = field(default_factory=dict)  # of the last that works
    _since: dict[str, tuple[str, float]] = field(default_factory=dict)
    _planned: int | None = None  # workers, at the last look

    def plan(self, workers: int, *, any_there: bool) -> str:
        """Take how many workers are wanted; return why more come, should they."""
        before, self._planned = self._planned, workers
        if before is None and not any_there:
            return ChangeCause.STARTED
        return ChangeCause.RESUMED if before == 0 else ChangeCause.GROWN

    def joined(self, role: str) -> None:
        """Count a replica that runs now; why it was asked for is told already."""
        self.counts[role, ChangeCause.JOINED] += 1

    def left(self, role: str, cause: str, *, now: float) -> None:
        """Count a replica that was told to go: nobody has to come for it."""
        self._take(role, cause, now=now)
        self.costs[cause] = 0.0

    def wanted(self, name: str, role: str, cause: str, *, now: float) -> None:
        """Count a replica that is asked for; its first work tells the cost."""
        self._take(role, cause, now=now)
        self._since[name] = (cause, now)

    def works(self, name: str, *, now: float) -> None:
        """A replica does work: the first time, that is what its coming cost."""
        cause, since = self._since.pop(name, ("", now))
        if cause:
            self.costs[cause] = now - since

    def _take(self, role: str, cause: str, *, now: float) -> None:
        self.counts[role, cause] += 1
        self.times[cause] = now

    def with_endings(
        self,
        records: Iterable[Relaunch],
        endings: Mapping[str, Mapping[str, int]],
    ) -> Changes:
        """Return these changes and the endings of replicas that were needed.

        `records`: the newest; `endings`: all, counted by role and `EndCause`.
        """
        counts = Counter(self.counts)
        times, costs = dict(self.times), dict(self.costs)
        for role, by_cause in endings.items():
            for cause, count in by_cause.items():
                counts[role, cause] += count
        for record in records:
            cause = record.end_cause
            times[cause] = record.time
            # Until the newest one's replacement works, its cost is not known.
            costs.pop(cause, None)
            if record.seconds is not None:
                costs[cause] = record.seconds
        return Changes(counts, times, costs)
