"""What strategy local and sync mode need of a specification, and refuse.

Owns the rules and their words; those of a group are in `job.spec.group`. Called by
`job.spec.job` for every specification. Pure.

What would have no effect is refused: whoever wrote it believes that it has one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from elasticdl.job.spec.group import without_ps
from elasticdl.job.spec.kinds import JobType, Strategy, UpdateMode
from elasticdl.job.spec.problems import Problem

if TYPE_CHECKING:
    from elasticdl.job.spec.job import JobSpec


def needs_of_local(job: JobSpec) -> list[Problem]:
    """Return what is wrong with a job's settings for one worker without PS."""
    if job.strategy is not Strategy.LOCAL:
        return []
    problems = []
    if job.worker.replicas != 1:
        problems.append(
            Problem(
                "worker.replicas",
                str(job.worker.replicas),
                "1, since strategy `local` runs one worker",
                "write 1, or strategy: parameterServer",
            )
        )
    elif job.worker.takes_part:
        least, most = job.worker.bounds
        problems.append(
            Problem(
                "worker.max",
                str(most),
                f"no range of workers ({least} to {most}), since strategy `local` "
                "runs one worker",
                "leave worker.min and worker.max out, or write strategy: "
                "parameterServer",
            )
        )
    if job.type is JobType.TRAIN:
        problems += without_ps(job, pulls="nothing is pulled")
    return problems


def needs_of_sync(job: JobSpec) -> list[Problem]:
    """Return what is wrong with a job's settings for one version of all workers."""
    ps = job.ps
    trains = job.type is JobType.TRAIN
    has_ps = job.strategy is Strategy.PARAMETER_SERVER
    if not (trains and has_ps and ps.mode is UpdateMode.SYNC):
        return []
    reason = "with ps.mode sync each gradient is of the version that it is applied to"
    help_ = "leave it out, or write ps.mode: async"
    found = [
        ("ps.maxStaleness", str(ps.max_staleness), "0", bool(ps.max_staleness)),
        ("ps.stalenessModulation", "true", "false", ps.staleness_modulation),
        (
            "worker.pullSteps",
            str(job.worker.pull_steps),
            "1",
            job.worker.pull_steps != 1,
        ),
    ]
    return [
        Problem(path, got, f"{expected}: {reason}", help_)
        for path, got, expected, is_wrong in found
        if is_wrong
    ]
