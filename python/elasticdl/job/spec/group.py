"""What strategy allReduce needs of a specification, and refuses.

Owns the rules and their words, and how many records a step has. Called by
`job.spec.job` for every specification, and by the master. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from elasticdl.job.spec.base import SpecModel
from elasticdl.job.spec.kinds import JobType, RateRule, Strategy
from elasticdl.job.spec.problems import Problem

if TYPE_CHECKING:
    from elasticdl.job.spec.job import JobSpec

ELASTIC = "elastic"  # of training.globalBatchSize
# Members add up the records of a step in single precision, which counts up to here.
MOST_STEP_RECORDS = 1 << 24


def needs_of_group(job: JobSpec) -> list[Problem]:
    """Return what is wrong with a job's settings of a group of workers."""
    if job.strategy is not Strategy.ALL_REDUCE:
        return _for_a_group_alone(job)
    if job.type is not JobType.TRAIN:
        return []
    return [
        *without_ps(job, pulls="all workers make each step together"),
        *_of_size(job),
        *_of_rate(job),
    ]


def _for_a_group_alone(job: JobSpec) -> list[Problem]:
    problems = []
    size = job.training.global_batch_size
    if size:
        problems.append(
            Problem(
                "training.globalBatchSize",
                str(size),
                f"nothing: with strategy `{job.strategy}` a step has the `batchSize` "
                "records of one worker",
                "leave it out, or write strategy: allReduce",
            )
        )
    of_group = given(job.all_reduce)
    if of_group:
        problems.append(
            Problem(
                "allReduce",
                of_group,
                f"nothing: with strategy `{job.strategy}` workers exchange nothing",
                "leave it out, or write strategy: allReduce",
            )
        )
    return problems


def given(section: SpecModel) -> str:
    """Return the names of the fields that were given, as a values file has them."""
    fields = type(section).model_fields
    return ", ".join(
        sorted(fields[name].alias or name for name in section.model_fields_set)
    )


def without_ps(job: JobSpec, *, pulls: str) -> list[Problem]:
    """Return what is set for PS, of which a strategy has none; `pulls`: nor pulls."""
    problems = []
    of_ps = given(job.ps)
    if of_ps:
        problems.append(
            Problem(
                "ps",
                of_ps,
                f"nothing: with strategy `{job.strategy}` there are no parameter "
                "servers",
                "leave `ps` out, or write strategy: parameterServer",
            )
        )
    if job.worker.pull_steps != 1:
        problems.append(
            Problem(
                "worker.pullSteps",
                str(job.worker.pull_steps),
                f"1: with strategy `{job.strategy}` {pulls}",
                "leave it out, or write strategy: parameterServer",
            )
        )
    return problems


def _of_rate(job: JobSpec) -> list[Problem]:
    rule = job.all_reduce.learning_rate
    if rule is RateRule.NONE or job.training.global_batch_size == ELASTIC:
        return []
    return [
        Problem(
            "allReduce.learningRate",
            rule,
            "none: a step has as many records whatever the number of workers is",
            "leave it out, or write training.globalBatchSize: elastic",
        )
    ]


def _of_size(job: JobSpec) -> list[Problem]:
    records = step_records(job, 0)
    if records <= MOST_STEP_RECORDS:
        return []
    is_set = job.training.global_batch_size is not None
    return [
        Problem(
            "training.globalBatchSize" if is_set else "training.batchSize",
            str(records) if is_set else f"{records} records of all workers in a step",
            f"at most {MOST_STEP_RECORDS}: workers that make a step together count no "
            "further exactly",
            "lower it",
        )
    ]


def step_records(job: JobSpec, began_with: int) -> int:
    """Return the records of a step of all workers that make it together.

    `began_with`: what an earlier run of the job had, 0 without one. What nobody has set
    stays as it was when the job began, whatever the number of workers is now. Where it
    is elastic this is a step of the workers with which the job began.
    """
    training = job.training
    if job.type is not JobType.TRAIN or job.strategy is not Strategy.ALL_REDUCE:
        return training.batch_size
    size = training.global_batch_size
    if isinstance(size, int):
        return size
    return began_with or training.batch_size * job.worker.replicas
