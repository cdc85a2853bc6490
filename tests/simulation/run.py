"""One seed, from its scenario to what is wrong with it.

Owns a run's outcome. Called by the command line (`python -m tests.simulation`).
"""

from __future__ import annotations

from dataclasses import dataclass

from elasticdl.job.spec.job import JobSpec

from tests.simulation import toys
from tests.simulation.earlier import beginning
from tests.simulation.faults import Faults
from tests.simulation.invariants import problems
from tests.simulation.kernel import StuckError
from tests.simulation.scenario import Scenario, draw
from tests.simulation.world import World

# After the last fault a job of seconds has so long to end.
MOST_SECONDS = 400.0


@dataclass(frozen=True)
class Outcome:
    """What became of a seed."""

    scenario: Scenario
    problems: list[str]
    faults: list[str]
    seconds: float  # simulated
    turns: int
    mark: str  # the same for the same course
    last: list[str]


def run(
    seed: int,
    *,
    only: tuple[str, ...] = (),
    local: bool = False,
    verbose: bool = False,
) -> Outcome:
    """Run a seed; `local`: of strategy local."""
    scenario = draw(seed, only, local=local)
    toys.settings = toys.Settings(
        num_records=scenario.num_records,
        epochs=scenario.most_epochs,
        num_ps=scenario.num_ps,
        sync=scenario.sync,
        step_seconds=scenario.step_seconds,
        slowest_step=scenario.slowest_step,
        feed_seconds=scenario.feed_seconds,
        sources=scenario.sources,
        validation=scenario.evaluation.records,
        keeps_best=scenario.evaluation.keeps_best,
        restores=scenario.evaluation.restores,
    )
    begins = beginning(scenario, verbose=verbose)
    world = World(seed, verbose=verbose, begins=begins)
    try:
        Faults(world, scenario)
        document = scenario.document()
        document["checkpoint"]["initFrom"] = world.init_from
        if scenario.evaluation.keeps_best:
            document["export"] = {"dir": world.exports, "formats": ["keras"]}
        world.begin(JobSpec.model_validate(document))
        try:
            world.run(most_seconds=MOST_SECONDS)
        except StuckError as error:
            found = [f"the job stands still: {error}; {world.stands()}"]
            found += [f"a role died of a bug: {b[-300:]}" for b in world.kernel.bugs]
        else:
            found = list(problems(world, scenario))
        kernel = world.kernel
        mark = f"{kernel.now:.9f} {kernel.turns} {kernel.random.random():.9f}"
        return Outcome(
            scenario,
            found,
            world.seen.faults,
            kernel.now,
            kernel.turns,
            mark,
            kernel.lines[-40:],
        )
    finally:
        world.close()
