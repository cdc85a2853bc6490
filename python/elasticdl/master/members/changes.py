"""Which replicas came to the job and which left it, and why, since this master began.

Owns the counts that metrics show. Counts the happenings that
`master.telling.publishing` hands on; endings that were needed are in
`master.members.relaunches`, which outlives a master. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from elasticdl.job.status import Relaunch
from elasticdl.job.words import ChangeCause
from elasticdl.master import happenings
from elasticdl.master.happenings import Happening


@dataclass
class Changes:
    """Replicas that joined or were told to leave, by role and cause."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    times: dict[str, float] = field(default_factory=dict)  # of the last, by cause
    costs: dict[str, float] = field(default_factory=dict)  # of the last that works
    _since: dict[str, tuple[str, float]] = field(default_factory=dict)

    def take(self, said: Sequence[Happening]) -> None:
        """Count happenings."""
        for happening in said:
            match happening:
                case happenings.ReplicaWanted(time=time, replica=replica, why=why):
                    self._count(happening.role, why, time)
                    # Its first work tells what its coming cost.
                    self._since[replica] = (why, time)
                case happenings.ReplicaWorks(time=time, replica=replica):
                    if replica in self._since:
                        cause, since = self._since.pop(replica)
                        self.costs[cause] = time - since
                case happenings.ReplicaDismissed(time=time, role=role, why=why):
                    self._count(role, why, time)
                    self.costs[why] = 0.0  # nobody has to come for it
                case happenings.ReplicaJoined(role=role):
                    self.counts[role, ChangeCause.JOINED] += 1

    def _count(self, role: str, why: str, time: float) -> None:
        self.counts[role, why] += 1
        self.times[why] = time

    def with_endings(
        self,
        records: Iterable[Relaunch],
        endings: Mapping[str, Mapping[str, int]],
    ) -> Changes:
        """Return these changes together with the ends of needed replicas.

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
