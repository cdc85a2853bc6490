"""What must hold after a run, read off parameters, disk and what was watched.

Owns the checks; each returns sentences that say what is wrong. Believes no role: the
toy model's numbers say how often each record was applied.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from elasticdl.checkpoint import reshard, store
from elasticdl.checkpoint.layout import Manifest
from elasticdl.errors import ElasticDLError, ExitCode
from elasticdl.job import folder
from elasticdl.master.tasks.audit import audit
from elasticdl.master.tasks.ledger import Ledger
from elasticdl.master.tasks.queue import TaskQueue
from elasticdl.master.tasks.queue_plan import QueuePlan

from tests.simulation import disk
from tests.simulation.scenario import Scenario
from tests.simulation.toy_evaluation import AWAY, MODEL, seen_in
from tests.simulation.world import World

# Faults in which nothing that a worker or a PS did is lost.
_HARMLESS = {"kill_master", "kill_master_at_write", "kill_master_at_step", "list_again"}
_PS_FAULTS = {
    "kill_ps", "kill_all_ps", "kill_ps_and_master", "kill_ps_at_end",
    "kill_worker_at_end", "kill_ps_at_write", "freeze_ps", "cut_off",
    "damage_checkpoint", "bad_network",
}  # fmt: skip


def problems(world: World, scenario: Scenario) -> Iterator[str]:
    """Yield what is wrong with a run that has come to its end."""
    for bug in world.kernel.bugs:
        yield f"a role died of a bug: {bug.strip().splitlines()[-1][:200]}"
    yield from _ending(world)
    yield from _given_up(world, scenario)
    # An async PS goes on from what some worker has pulled; what that lacks is counted.
    if world.seen.initial and (scenario.sync or scenario.recovery != "auto"):
        yield (
            "a PS of a job that had begun was given initial values: "
            f"{', '.join(world.seen.initial)}; all else follows from it"
        )
        return
    yield from _checkpoints(world, scenario)
    yield from _final(world, scenario)
    yield from _losses(world, scenario)
    yield from _evaluations(world, scenario)
    yield from _exports(world, scenario)
    yield from _audit(world)
    if world.seen.while_paused:
        yield f"a task was given out at {world.seen.while_paused[0]:.2f} s, in a pause"
    if scenario.sync:
        yield from _versions(world)
        yield from _quorum(world)


def _ending(world: World) -> Iterator[str]:
    ended = world.platform.ended
    if ended != ExitCode.OK:
        report = folder.read_report(world.job_dir)
        message = report.message if report else world.last_words
        yield f"the job ended with {ended}: {message}"


def _given_up(world: World, scenario: Scenario) -> Iterator[str]:
    """Nobody alive is killed, unless a fault had kept it from being heard."""
    report = folder.read_report(world.job_dir)
    relaunches = report.relaunches if report is not None else ()
    given_up = [one for one in relaunches if one.reason in ("hung", "silent")]
    # A master may be lost between that and the stop, which the next one makes up for.
    known = {one.replica for one in given_up}
    if scenario.kinds.isdisjoint({"ghost_master", "power_cut", "full_disk"}):
        for time, name, reason in world.platform.stops:
            if reason == "unknown to the master" and name not in known:
                yield f"a live replica was ended: {name}, {reason}, at {time:.1f} s"
    if world.excused:
        return
    for one in given_up:
        yield f"a live replica was given up: {one.replica} {one.reason}"


# -- parameters -----------------------------------------------------------------------


def counts(path: Path, world: World, scenario: Scenario) -> list[np.ndarray]:
    """Return how often each record was applied by this job, by PS."""
    whole = reshard.load_all(disk.paths.Path(path))
    found = [whole.values[f"count_{ps}"] for ps in range(scenario.num_ps)]
    if world.begins is None:
        return found
    return [
        held - began for held, began in zip(found, world.begins.values, strict=True)
    ]


def _lossy(world: World, scenario: Scenario) -> bool:
    """Whether async PS may have lost updates, which are counted elsewhere."""
    continues = not scenario.sync and scenario.recovery == "auto"
    return continues and bool(world.losses.lost)


def _final(world: World, scenario: Scenario) -> Iterator[str]:
    if world.platform.ended != ExitCode.OK:
        return
    report = folder.read_report(world.job_dir)
    if report is None:
        yield "the job succeeded and left no report"
        return
    if not report.checkpoint:
        yield "the job succeeded and saved nothing"
        return
    try:
        found = counts(Path(report.checkpoint), world, scenario)
    except (ElasticDLError, OSError) as error:
        # A bit that flips after the end is no business of the job; a reader is told.
        if report.checkpoint not in world.damaged or "is damaged" not in str(error):
            yield f"the job succeeded and its checkpoint cannot be read: {error}"
        return
    for ps, whole in enumerate(found):
        applied = whole[: scenario.num_records * world.epochs]
        missing = np.flatnonzero(applied < 1)
        live = world.losses.trained(ps)
        held = live[: applied.size] if live is not None else np.zeros(applied.size)
        unsaved = np.flatnonzero((applied < 1) & (held >= 1))
        if len(unsaved):
            yield (
                f"the last checkpoint lacks {len(unsaved)} records that PS {ps} had "
                f"applied when the job ended (first: number {unsaved[0]})"
            )
        elif len(missing) and not _lossy(world, scenario):
            yield (
                f"{len(missing)} records are missing on PS {ps} (first: number "
                f"{missing[0]} of {applied.size})"
            )
        twice = np.flatnonzero(applied > 1)
        # A worker that is scaled away hands its task back half trained. Who gets it
        # trains all of it, and the report tells these records as trained again.
        more = np.maximum(applied - 1, 0).sum()
        told = more <= report.replayed_records and scenario.scales
        if len(twice) and scenario.kinds <= _HARMLESS and not told:
            yield (
                f"{len(twice)} records were applied more than once on PS {ps} though "
                f"nothing was lost (first: number {twice[0]}, {applied[twice[0]]:g} "
                "times)"
            )
        if not np.array_equal(applied, np.round(applied)):
            yield f"PS {ps} holds numbers that no sum of updates gives"


# -- checkpoints ----------------------------------------------------------------------


def _checkpoints(world: World, scenario: Scenario) -> Iterator[str]:
    where = Path(world.root) / "job" / "checkpoints"
    plan = _plan(world)
    for path in sorted(where.glob("version-*")):
        if str(path) in world.damaged:
            continue
        try:
            manifest = store.read_manifest(disk.paths.Path(path))
            store.verify(disk.paths.Path(path))
        except ElasticDLError as error:
            if "never completed" not in str(error):
                yield f"{path.name}: {error}"
            continue
        if plan is None or _lossy(world, scenario):
            continue
        needed = _needed(plan, manifest, scenario)
        for ps, applied in enumerate(counts(path, world, scenario)):
            short = np.flatnonzero(applied < needed)
            if len(short):
                yield (
                    f"{path.name} is no pair of parameters and position: record "
                    f"number {short[0]} counts as trained, PS {ps} has not applied it "
                    f"({len(short)} such)"
                )
                break


def _plan(world: World) -> QueuePlan | None:
    from elasticdl.master.tasks.journal_files import read_events

    try:
        for _, event in read_events(world.job_dir.journal_dir):
            if event["k"] == "plan":
                return QueuePlan.from_json(event["plan"])
    except ElasticDLError:
        return None
    return None


def _needed(plan: QueuePlan, manifest: Manifest, scenario: Scenario) -> np.ndarray:
    """Return 1 for each record of each epoch that the position counts as trained."""
    queue = TaskQueue(replace(plan, epochs=scenario.most_epochs))
    position = manifest.position.get("queue")
    if not position:
        return np.zeros(scenario.num_records * scenario.most_epochs, int)
    applied = {int(k): v for k, v in manifest.position.get("applied", {}).items()}
    queue.restore(position, applied)
    needed = np.ones((scenario.most_epochs, scenario.num_records), int)
    lease = 0
    while True:
        lease += 1
        leased = queue.lease(worker=0, lease_id=lease, deadline=0.0)
        if leased is None:
            return needed.reshape(-1)
        task = leased.task
        needed[task.epoch, task.start : task.end] = 0


# -- losses, audit --------------------------------------------------------------------


def _losses(world: World, scenario: Scenario) -> Iterator[str]:
    """Updates that were in a PS and are not in the next one are counted.

    All of those in tasks that count as done, and what a heartbeat has told of. What was
    in nobody's word yet when the next PS asked for values, nobody can count. What only
    other PS got may count: the one that was lost never had it, and its next one lacks
    it.
    """
    if scenario.sync or scenario.recovery != "auto":
        return
    report = folder.read_report(world.job_dir)
    if report is None:
        return
    real = sum(world.losses.lost.values())
    untold = sum(world.losses.untold.values())
    if report.lost_updates > real + world.losses.missed():
        yield f"{report.lost_updates} updates count as lost, {real} were"
    elif report.lost_updates < real - untold:
        yield (
            f"{report.lost_updates} updates count as lost, {real} were, of which no "
            f"master had been told of {untold}"
        )


def _evaluations(world: World, scenario: Scenario) -> Iterator[str]:
    """A round sees each record once and one version; the last one all training."""
    report = folder.read_report(world.job_dir)
    wanted = scenario.evaluation.records
    if report is None or not wanted:
        return
    began, first = _began(world, scenario)
    for one in report.evaluations:
        if one.records != wanted:
            yield f"a round saw {one.records} records of {wanted}: {one}"
        seen = seen_in(one.metrics, scenario.num_ps)
        if any(spread for _, spread in seen):
            yield f"a round saw more than one version: {one}"
        over = {all_ - of for (all_, _), of in zip(seen, began, strict=True)}
        if scenario.sync and len(over) > 1:
            yield f"a round saw PS at different versions: {one}"
        # Each update is a version in async mode, and has so many records.
        versions = first + (seen[0][0] - began[0]) / scenario.batch_size
        counted = not scenario.sync and not _lossy(world, scenario)
        if counted and versions != one.version:
            yield f"a round saw another version than it tells: {one}"
    if world.platform.ended != ExitCode.OK:
        return
    if not report.evaluations:
        yield "the job succeeded and was never evaluated"
        return
    last = seen_in(report.evaluations[-1].metrics, scenario.num_ps)
    try:
        # Not what PS hold: a worker that was frozen may push when all is written.
        whole = counts(Path(report.checkpoint), world, scenario)
    except (ElasticDLError, OSError):
        return  # what else is asked of a checkpoint says so
    held = [float(each.sum()) + sum_ for each, sum_ in zip(whole, began, strict=True)]
    # A PS that was lost after the round may have begun with fewer updates.
    if [updates for updates, _ in last] != held and not _lossy(world, scenario):
        yield f"the last round saw {last}, the job ended with {held}"


def _exports(world: World, scenario: Scenario) -> Iterator[str]:
    """The model that is kept is the one that was measured; the last one is saved."""
    report = folder.read_report(world.job_dir)
    if report is None or not scenario.evaluation.keeps_best:
        return
    where = Path(world.exports)
    best = report.best
    away = [one.metrics[AWAY] for one in report.evaluations]
    if best is not None:
        measured = [each for each, _ in seen_in(best.metrics, scenario.num_ps)]
        kept = _sums(where / "best", scenario)
        if kept != measured:
            yield f"the best model has {kept}, its round measured {measured}"
        if best.metrics[AWAY] > min(away):
            yield f"the best model is {best.metrics[AWAY]} away, a round {min(away)}"
    if world.platform.ended != ExitCode.OK:
        return
    if best is None:
        yield "the job succeeded and kept no model as the best one"
    if left := [path.name for path in where.glob("**/.kept-*")]:
        yield f"models were left aside: {left}"
    if scenario.evaluation.restores:
        final = report.restored
        measured = [each for each, _ in seen_in(final.metrics, scenario.num_ps)]
        if _sums(where, scenario) != measured:
            yield (
                f"the final model has {_sums(where, scenario)}, its round measured "
                f"{measured}"
            )
        if final.metrics[AWAY] > min(away):
            yield f"the final model is {final.metrics[AWAY]} away, a round {min(away)}"
        return
    began, _ = _began(world, scenario)
    whole = counts(Path(report.checkpoint), world, scenario)
    held = [float(each.sum()) + sum_ for each, sum_ in zip(whole, began, strict=True)]
    if _sums(where, scenario) != held and not _lossy(world, scenario):
        yield f"the model has {_sums(where, scenario)}, the last checkpoint {held}"


def _sums(where: Path, scenario: Scenario) -> list[float]:
    """Return the sum of each PS's numbers in an exported model; [] without one."""
    path = where / MODEL
    if not path.exists():
        return []
    whole = json.loads(path.read_text())
    return [float(sum(whole[f"count_{ps}"])) for ps in range(scenario.num_ps)]


def _began(world: World, scenario: Scenario) -> tuple[list[float], int]:
    """Return the sum that each PS's numbers had at first, and the version of that."""
    if world.begins is None:
        return [0.0] * scenario.num_ps, 0
    return [float(each.sum()) for each in world.begins.values], world.begins.version


def _audit(world: World) -> Iterator[str]:
    if not world.job_dir.journal_dir.is_dir():
        return
    try:
        found = audit(world.job_dir.journal_dir)
    except ElasticDLError as error:
        yield f"audit: {error}"
        return
    except Exception as error:  # noqa: BLE001 - it is looked for
        yield f"audit died of a bug: {error!r}"
        return
    if not found.ok:
        yield f"audit: {found.gaps[:3]} {getattr(found, 'twice', '')}"


# -- sync -----------------------------------------------------------------------------


def _versions(world: World) -> Iterator[str]:
    """Each version is made of the same gradients on every PS."""
    applied = world.seen.applied
    made: dict[int, list[tuple[str, ...]]] = {}
    for one in applied.get(0, []):
        made.setdefault(one.version, []).append(one.push_ids)
    for ps, ones in applied.items():
        for one in ones if ps else []:
            if one.push_ids not in made.get(one.version, []):
                yield (
                    f"PS {ps} made version {one.version} of {one.push_ids}, PS 0 of "
                    f"{made.get(one.version)}"
                )
                return
    for one in applied.get(0, []):
        workers = Counter(push_id.rpartition("/")[0] for push_id in one.push_ids)
        if max(workers.values()) > 1:
            yield f"version {one.version} has two gradients of one worker"
            return


def _quorum(world: World) -> Iterator[str]:
    """A version is made of a gradient of each worker that trains a task of its own."""
    for time, gradients, workers in world.seen.short_versions[:1]:
        yield (
            f"a version of {gradients} gradients at {time:.2f} s, while {workers} "
            "workers trained"
        )


__all__ = ["Ledger", "problems"]
