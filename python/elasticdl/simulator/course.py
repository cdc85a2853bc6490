"""What a simulation was seen to do, over time.

Owns the record and the sums over it. Written by `simulator.simulation`, read by
`simulator.outcome` and by pages. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Sample:
    """The cluster from this time on, until the next sample."""

    time: float
    use: float  # share of the measured resource that pods hold
    training: float  # the same, of workers alone
    running: tuple[int, ...]  # workers by job, in the order of `Course.jobs`
    wanted: tuple[int, ...]
    alive: tuple[bool, ...]
    waiting: int  # pods of jobs without a node
    serving: int  # pods that serve
    serving_wanted: int


@dataclass(frozen=True)
class JobCourse:
    """How one job fared."""

    name: str
    came: float
    floor: int
    first_worker: float | None
    ended: float | None
    work: float  # worker seconds that it got done
    moved: int  # workers that were told to leave, or pushed out
    preempted: int
    goodput: float  # share of its workers' seconds that were training


@dataclass
class Course:
    """A whole simulation under one policy."""

    trace: str
    policy: str
    seed: int
    jobs: tuple[str, ...]
    until: float = 0.0
    samples: list[Sample] = field(default_factory=list)
    done: list[JobCourse] = field(default_factory=list)
    decisions: int = 0
    workers_that_fit: int = 0  # at the end, beside everything else where it is
    packed: int = 0  # workers at the end

    def spans(
        self, begin: float = 0.0, end: float | None = None
    ) -> Iterator[tuple[float, Sample]]:
        """Yield each sample with the seconds for which it held between two times."""
        last = self.until if end is None else min(end, self.until)
        for number, sample in enumerate(self.samples):
            there = number + 1 < len(self.samples)
            until = self.samples[number + 1].time if there else self.until
            seconds = min(until, last) - max(sample.time, begin)
            if seconds > 0:
                yield seconds, sample

    def mean(
        self,
        reading: Callable[[Sample], float],
        begin: float = 0.0,
        end: float | None = None,
    ) -> float:
        """Return the mean of a reading over time."""
        total = seconds = 0.0
        for held, sample in self.spans(begin, end):
            total += held * reading(sample)
            seconds += held
        return total / seconds if seconds else 0.0
