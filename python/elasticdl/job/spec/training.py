"""The part of the specification that says how a model is trained.

Owns length, portions and weights of training, and how workers share steps. Imported
through `job.spec.job`. Must not know where a job runs.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, WithJsonSchema

from elasticdl.job.spec.base import (
    EXACT,
    CountOrZero,
    OnNanLoss,
    PositiveInt,
    SpecModel,
)
from elasticdl.job.spec.kinds import Compression, RateRule, ShareRule

_ClassWeights = Annotated[
    dict[CountOrZero, float],
    # Keys of JSON are texts: else the schema took any.
    WithJsonSchema(
        {
            "type": "object",
            "patternProperties": {"^[0-9]+$": {"type": "number"}},
            "additionalProperties": False,
        }
    ),
]


class AllReduceSpec(SpecModel):
    """How workers exchange gradients with strategy allReduce."""

    compression: Compression = Field(
        Compression.NONE,
        description="How gradients travel between workers: as they are, or in 16 bits "
        "(`bfloat16`: the range of float32, 8 bits of precision; `float16`: 11 bits). "
        "Sums are float32, and all workers apply the same ones.",
    )
    shares: ShareRule = Field(
        ShareRule.EVEN,
        description="Who takes which part of a step's records: all the same, or, with "
        "`speed`, a slower worker fewer, so that nobody waits for it. Then `batchSize` "
        "should have room for more than an even share.",
    )
    learning_rate: RateRule = Field(
        RateRule.NONE,
        description="With `training.globalBatchSize: elastic`: what the learning rate "
        "is multiplied by. `linear` is the number of workers of a step over "
        "`worker.replicas` as the job began, `sqrt` its square root.",
    )


class TrainingSpec(SpecModel):
    """How long to train, and in what batches."""

    epochs: CountOrZero = Field(
        1,
        description="Passes over the data; 0 is endless. May change while the job "
        "runs: an epoch that has begun is finished.",
    )
    max_steps: CountOrZero = Field(
        0, description="Stop after this many batches of all workers; 0 is never."
    )
    batch_size: PositiveInt = Field(64, description="Records a worker takes per step.")
    global_batch_size: PositiveInt | Literal["elastic"] | None = Field(
        None,
        description="With `strategy: allReduce`: records of a step of all workers "
        "together, whatever their number. Left out it is `batchSize` times "
        "`worker.replicas` as the job begins; `elastic` is `batchSize` times the "
        "workers that make the step, so that it grows and shrinks with them.",
    )
    batches_per_task: PositiveInt = Field(
        8,
        description="A task is this many batches; what a lost worker repeats (async: "
        "and the last 0.5 s of its tasks, if they are shorter; 4 s of 1,000 workers).",
    )
    seed: int = Field(
        0,
        ge=-EXACT,
        le=EXACT,
        description="Seed of task order, row order and initial values.",
    )
    log_loss_steps: PositiveInt = Field(
        100, description="Steps between two logged losses of a worker."
    )
    on_nan_loss: OnNanLoss = Field(
        OnNanLoss.STOP,
        description="`stop` fails the job, also at an evaluation or export of a model "
        "whose values became NaN without a NaN loss; `skip` drops the batch's gradient "
        "and counts it in the report.",
    )
    class_weight: _ClassWeights = Field(
        default_factory=dict,
        description="Class number to the weight of its records in the loss, and in the "
        "metrics of `weighted_metrics`; as `class_weight` of Keras's `fit`. A class "
        "that is not named weighs 1. Evaluations are not weighted.",
    )
