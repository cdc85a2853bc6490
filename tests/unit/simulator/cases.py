"""Traces under policies, and the figures that the bars of the cases are about.

Owns how a case is run and its bars. Used by this folder's tests and by the soak.
"""

from __future__ import annotations

from elasticdl.simulator.course import Course
from elasticdl.simulator.outcome import Outcome, outcome, rises
from elasticdl.simulator.policies import new_policy
from elasticdl.simulator.reading import load_trace
from elasticdl.simulator.simulation import Simulation
from elasticdl.simulator.trace import Priority, Trace

SLOW = 15.0
POD_START = 2.0


def trace(name: str, *, leave: float | None = None) -> Trace:
    """Return a shipped trace; `leave`: how long workers take to leave."""
    found = load_trace(name)
    if leave is None:
        return found
    times = found.times.model_copy(update={"leave": leave})
    return found.model_copy(update={"times": times})


def without_priorities(given: Trace) -> Trace:
    """Return a trace in which nobody goes first, as clusters were in 2017."""
    equal = {name: Priority(value=0, preempts=False) for name in given.priorities}
    return given.model_copy(update={"priorities": equal})


def of_fixed_size(given: Trace, workers: int) -> Trace:
    """Return a trace whose jobs have so many workers."""
    jobs = [
        job.model_copy(
            update={
                "workers": job.workers.model_copy(
                    update={"max": workers, "replicas": workers}
                )
            }
        )
        for job in given.jobs
    ]
    return given.model_copy(update={"jobs": jobs})


def run(
    given: Trace, policy: str, *, seed: int | None = None
) -> tuple[Course, Outcome]:
    """Simulate; return what was seen and its figures."""
    course = Simulation(given, new_policy(policy), seed=seed).run()
    return course, outcome(course, given)


def slowest_rise(course: Course) -> float:
    """Return the longest time that serving took to be complete."""
    times = [seconds for _, seconds in rises(course)]
    assert all(seconds is not None for seconds in times), "serving never came back"
    return max(seconds for seconds in times if seconds is not None)


def check_20_jobs(course: Course, made: Outcome, *, slow: bool) -> list[str]:
    """Return which bars of the case of 20 jobs are missed."""
    assert made.first_mean is not None
    assert made.first_most is not None
    assert made.fairness is not None
    bars = {
        f"first worker after {made.first_mean:.1f} s": made.first_mean
        < (25 if slow else 10),
        f"at most {made.first_most:.1f} s": made.first_most < (60 if slow else 15),
        f"{made.never} never": made.never == 0,
    }
    if not slow:
        bars |= {
            f"below min for {made.below_floor:.1f} s": made.below_floor == 0,
            f"fairness {made.fairness:.3f}": made.fairness >= 0.95,
            f"use {made.use:.3f}": made.use >= 0.82,
            f"{made.packed} of {made.fit} fit": made.packed >= 0.98 * made.fit,
        }
    return [words for words, held in bars.items() if not held]


def check_wave(course: Course, made: Outcome, *, slow: bool) -> list[str]:
    """Return which bars of the serving wave are missed."""
    assert made.first_mean is not None
    rise = slowest_rise(course)
    low = course.mean(lambda sample: sample.use, 300, 390)
    bars = {
        f"serving complete after {rise:.1f} s": rise <= (30 if slow else 10),
        f"first worker after {made.first_mean:.1f} s": made.first_mean
        < (20 if slow else 10),
        f"use at 100 {low:.3f}": slow or low >= 0.80,
    }
    return [words for words, held in bars.items() if not held]
