"""The figures of a simulation: waits, use, fairness, moves, serving.

Owns what is told of a course, by one name each. Called by the verb `simulate`, by
pages, tests and benchmarks. Pure.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from elasticdl.simulator.course import Course, Sample
from elasticdl.simulator.trace import Trace

# A job has so long to get its floor: three starts of pods, a master's and a plan.
_GRACE_SECONDS = 15.0
# So long after the last arrival sizes are to be at rest.
_REST_SECONDS = 75.0


@dataclass(frozen=True)
class Outcome:
    """How one trace went under one policy. None: does not apply."""

    trace: str
    policy: str
    seed: int
    jobs: int
    seconds: float  # simulated
    finished: int
    makespan: float | None  # until the last job was done
    completion: float | None  # mean, of jobs that were done
    first_mean: float | None  # from a job's arrival to its first worker
    first_most: float | None
    never: int  # jobs without a worker up to the end
    use: float  # mean share of CPU, or of GPUs where jobs ask for them
    workers: float  # mean number that runs
    fairness: float | None  # least of Jain's index at rest
    below_floor: float  # seconds, all jobs together
    moved: int  # workers that were told to leave, or pushed out
    preempted: int
    work: float  # worker seconds done
    goodput: float | None  # mean share of workers' seconds that were training
    serving_most: float | None  # seconds until serving was complete, the longest
    serving_late: int  # rises that never became complete
    shortfall: float  # pod seconds that serving lacked
    packed: int
    fit: int


def outcome(course: Course, trace: Trace) -> Outcome:
    """Return the figures of a course."""
    waits = [j.first_worker - j.came for j in course.done if j.first_worker is not None]
    took = [j.ended - j.came for j in course.done if j.ended is not None]
    begin = used_from(trace)
    longest, late = _serving(course)
    good = [j.goodput for j in course.done if j.work > 0]
    all_done = bool(took) and len(took) == len(course.done)
    return Outcome(
        trace=course.trace,
        policy=course.policy,
        seed=course.seed,
        jobs=len(course.jobs),
        seconds=course.until,
        finished=len(took),
        makespan=max(j.ended or 0.0 for j in course.done) if all_done else None,
        completion=statistics.fmean(took) if all_done else None,
        first_mean=statistics.fmean(waits) if waits else None,
        first_most=max(waits) if waits else None,
        never=len(course.jobs) - len(waits),
        use=course.mean(lambda sample: sample.use, begin),
        workers=course.mean(lambda sample: float(sum(sample.running)), begin),
        fairness=_fairness(course, trace),
        below_floor=_below_floor(course),
        moved=sum(j.moved for j in course.done),
        preempted=sum(j.preempted for j in course.done),
        work=sum(j.work for j in course.done),
        goodput=statistics.fmean(good) if good else None,
        serving_most=longest,
        serving_late=late,
        shortfall=sum(
            seconds * max(0, sample.serving_wanted - sample.serving)
            for seconds, sample in course.spans()
        ),
        packed=course.packed,
        fit=course.workers_that_fit,
    )


def used_from(trace: Trace) -> float:
    """Return from when use is told: of jobs without an end, when all are there."""
    return trace.last_arrival if trace.until else 0.0


def jain(sizes: Sequence[float]) -> float:
    """Return Jain's index of fairness: 1 if all are alike, 1/n if one has all."""
    squares = sum(size * size for size in sizes)
    return sum(sizes) ** 2 / (len(sizes) * squares) if squares else 1.0


def _fairness(course: Course, trace: Trace) -> float | None:
    """Return the least index once sizes are at rest; None if jobs are not alike."""
    jobs = trace.all_jobs()
    alike = {(job.workers.max, job.weight, job.workers.cpu) for job in jobs}
    if len(alike) != 1 or len(jobs) < 2:
        return None
    found = [
        jain([float(n) for n in _alive(sample)])
        for _, sample in course.spans(trace.last_arrival + _REST_SECONDS)
        if len(_alive(sample)) > 1
    ]
    return min(found, default=None)


def _alive(sample: Sample) -> list[int]:
    return [n for n, alive in zip(sample.running, sample.alive, strict=True) if alive]


def _below_floor(course: Course) -> float:
    known = {job.name: job for job in course.done}
    total = 0.0
    for at, name in enumerate(course.jobs):
        job = known.get(name)
        if job is None:
            continue
        for seconds, sample in course.spans(job.came + _GRACE_SECONDS, job.ended):
            if sample.running[at] < job.floor:
                total += seconds
    return total


def rises(course: Course) -> list[tuple[float, float | None]]:
    """Return when serving was to grow, and how long it then was incomplete.

    None: it was not complete before it was to change again.
    """
    found: list[tuple[float, float | None]] = []
    since: float | None = None
    first = Sample(0.0, 0, 0, (), (), (), 0, 0, 0)
    for before, sample in pairwise([first, *course.samples]):
        if sample.serving_wanted != before.serving_wanted:
            if since is not None:
                found.append((since, None))
            grew = sample.serving_wanted > before.serving_wanted
            since = sample.time if grew else None
        if since is not None and sample.serving >= sample.serving_wanted:
            found.append((since, sample.time - since))
            since = None
    return [*found, (since, None)] if since is not None else found


def _serving(course: Course) -> tuple[float | None, int]:
    told = [seconds for _, seconds in rises(course)]
    complete = [seconds for seconds in told if seconds is not None]
    return max(complete, default=None), len(told) - len(complete)
