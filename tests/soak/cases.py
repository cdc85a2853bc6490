"""The cases of one cluster for many jobs, simulated: every figure beside its bar.

    python -m tests.soak.cases
    python -m tests.soak.cases --seeds 2 --only day

All seeds, workers that leave at once and slowly, the day under each policy. Fails if a
bar is missed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from elasticdl.simulator.outcome import Outcome

from tests.unit.simulator import cases

_DAY_SEEDS = 5


@dataclass(frozen=True)
class Figure:
    """One figure, and whether its bar holds."""

    name: str
    value: float
    bar: str
    holds: bool


def most(name: str, value: float | None, bar: float) -> Figure:
    """Return a figure that may be as large as its bar."""
    there = float("inf") if value is None else value
    return Figure(name, there, f"<= {bar:g}", there <= bar)


def least(name: str, value: float, bar: float) -> Figure:
    """Return a figure that may be as small as its bar."""
    return Figure(name, value, f">= {bar:g}", value >= bar)


def two_jobs(seeds: Sequence[int]) -> Iterator[Figure]:
    """Yield the figures of two jobs on CPUs and on GPUs."""
    for name, bar in (
        ("two-jobs", 1.05 * 429),
        ("two-jobs-18", 1.05 * 429),
        ("two-jobs-21", 1.08 * 506),
        ("gpus", 1.08 * 654),
    ):
        for seed in seeds:
            _, made = cases.run(cases.trace(name), "elastic", seed=seed)
            yield most(f"{name}, seed {seed}: all done, s", made.makespan, bar)
            if name == "two-jobs-18":
                yield least(f"{name}, seed {seed}: use", made.use, 0.95)


def co_location(seeds: Sequence[int]) -> Iterator[Figure]:
    """Yield the figures of a job beside serving."""
    for leave in (1.5, cases.SLOW):
        for seed in seeds:
            trace = cases.trace("co-location", leave=leave)
            course, made = cases.run(trace, "elastic", seed=seed)
            name = f"co-location, leaving in {leave:g} s, seed {seed}"
            yield least(f"{name}: use", made.use, 0.95)
            yield most(f"{name}: serving, s", cases.slowest_rise(course), 20)


def twenty_jobs(seeds: Sequence[int]) -> Iterator[Figure]:
    """Yield the figures of twenty jobs that come one after the other."""
    for seed in seeds:
        _, made = cases.run(cases.trace("20-jobs"), "elastic", seed=seed)
        name = f"20 jobs, seed {seed}"
        yield most(f"{name}: first worker, mean, s", made.first_mean, 10)
        yield most(f"{name}: first worker, at most, s", made.first_most, 15)
        yield most(f"{name}: below min after 15 s, s", made.below_floor, 0)
        yield least(f"{name}: fairness at rest", made.fairness or 0.0, 0.95)
        yield least(f"{name}: use", made.use, 0.82)
        yield least(f"{name}: of what fits", made.packed / made.fit, 0.98)
    for seed in seeds:
        slow = cases.trace("20-jobs", leave=cases.SLOW)
        _, made = cases.run(slow, "elastic", seed=seed)
        name = f"20 jobs, slow, seed {seed}"
        yield most(f"{name}: first worker, mean, s", made.first_mean, 25)
        yield most(f"{name}: first worker, at most, s", made.first_most, 60)


def serving_wave(seeds: Sequence[int]) -> Iterator[Figure]:
    """Yield the figures of six jobs beside serving that comes and goes."""
    for leave, rise, wait in ((1.5, 10, 10), (cases.SLOW, 30, 20)):
        for seed in seeds:
            trace = cases.trace("serving-wave", leave=leave)
            course, made = cases.run(trace, "elastic", seed=seed)
            name = f"wave, leaving in {leave:g} s, seed {seed}"
            yield most(f"{name}: serving, s", cases.slowest_rise(course), rise)
            yield most(f"{name}: first worker, mean, s", made.first_mean, wait)
            if leave < cases.SLOW:
                low = course.mean(lambda sample: sample.use, 300, 390)
                yield least(f"{name}: use at 100", low, 0.80)


def day(seeds: Sequence[int]) -> Iterator[Figure]:
    """Yield the figures of sixty jobs of an hour, by seed and in the mean."""
    total = dict.fromkeys(("gang", "edl", "elastic"), 0.0)
    for seed in range(1, (_DAY_SEEDS if len(seeds) > 2 else len(seeds)) + 1):
        trace = cases.trace("day")
        made: dict[str, Outcome] = {}
        for policy in total:
            _, made[policy] = cases.run(trace, policy, seed=seed)
        took = {policy: one.completion or 0.0 for policy, one in made.items()}
        total = {policy: total[policy] + took[policy] for policy in total}
        name, ours = f"day, seed {seed}", made["elastic"]
        yield most(f"{name}: one job, of gang", took["elastic"] / took["gang"], 0.65)
        ratio = took["elastic"] / took["edl"]
        yield Figure(f"{name}: one job, of edl", ratio, "in the mean", True)
        yield most(f"{name}: first worker, mean, s", ours.first_mean, 10)
        yield most(f"{name}: first worker, at most, s", ours.first_most, 60)
    yield most("day: one job, of gang", total["elastic"] / total["gang"], 0.65)
    yield most("day: one job, of edl", total["elastic"] / total["edl"], 1.0)


CASES: dict[str, Callable[[Sequence[int]], Iterator[Figure]]] = {
    "two-jobs": two_jobs,
    "co-location": co_location,
    "20-jobs": twenty_jobs,
    "serving-wave": serving_wave,
    "day": day,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--seeds", type=int, default=4, help="of each case (default: 4)"
    )
    parser.add_argument("--only", choices=CASES, help="this case alone")
    args = parser.parse_args()
    seeds = range(1, args.seeds + 1)
    missed = 0
    for name, figures in CASES.items():
        if args.only not in (None, name):
            continue
        for figure in figures(seeds):
            missed += not figure.holds
            word = "" if figure.holds else "  MISSED"
            print(
                f"{figure.name:52} {figure.value:9.3f}  {figure.bar}{word}", flush=True
            )
    print(f"{missed} bars missed" if missed else "all bars hold")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
