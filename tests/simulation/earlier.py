"""The job before, whose checkpoint a job begins with (`checkpoint.initFrom`).

Owns its run, undisturbed, and what it left: a folder of checkpoints and the numbers in
the newest one. Called by `run`. Everything that an invariant says of a job is said of
what was applied on top of these numbers.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from elasticdl.checkpoint import reshard, shelf
from elasticdl.errors import ExitCode
from elasticdl.job.spec.job import JobSpec

from tests.simulation import disk, toys
from tests.simulation.scenario import Earlier, Evaluation, Scenario
from tests.simulation.world import Beginning, World

_MOST_SECONDS = 400.0
FOLDER = "earlier"


def beginning(scenario: Scenario, *, verbose: bool) -> Beginning | None:
    """Train the job before; return what it left, None if there is none.

    Must run before the job's own world is made. The files lie in a temporary folder,
    which the caller moves.
    """
    if scenario.earlier is None:
        return None
    first = _of(scenario, scenario.earlier)
    settings = toys.settings
    toys.settings = replace(
        settings,
        sync=first.sync,
        slowest_step=1.0,
        feed_seconds=0.0,
        validation=0,
        keeps_best=False,
        restores=False,
    )
    world = World(-1 - scenario.seed, verbose=verbose)
    try:
        world.kernel.preempt = 0.0
        world.begin(JobSpec.model_validate(first.document()))
        world.run(most_seconds=_MOST_SECONDS)
        if world.platform.ended != ExitCode.OK:
            raise AssertionError(f"the job before ended with {world.platform.ended}")
        kept = Path(tempfile.mkdtemp(dir=Path(world.root).parent)) / FOLDER
        shutil.copytree(Path(world.root) / "job" / "checkpoints", kept)
    finally:
        world.close()
        toys.settings = settings
    newest, manifest = shelf.meant(disk.paths.Path(kept))[0]
    whole = reshard.load_all(newest)
    values = [whole.values[f"count_{ps}"] for ps in range(scenario.num_ps)]
    named = FOLDER if scenario.earlier.names_folder else f"{FOLDER}/{newest.name}"
    return Beginning(str(kept), named, values, manifest.version)


def _of(scenario: Scenario, earlier: Earlier) -> Scenario:
    return replace(
        scenario,
        sync=earlier.sync,
        num_ps=earlier.num_ps,
        workers=earlier.workers,
        recovery="auto",
        epochs=1,
        step_seconds=0.005,
        every_seconds=60,
        every_steps=earlier.every_steps,
        faults=(),
        edits=(),
        evaluation=Evaluation(),
        strategy="parameterServer",
    )
