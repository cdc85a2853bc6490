"""What the loop knows of training, whatever the strategy.

Owns the protocol between the loop and a trainer, and the values that cross it. Must not
import TensorFlow, and must not know how a trainer reaches its parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from elasticdl.errors import ElasticDLError
from elasticdl.job.tasks import ModelVersion

Array = NDArray[np.generic]


class LeavingError(ElasticDLError):
    """The worker was told to leave during a wait."""


class BatchPosition(NamedTuple):
    """Position of a batch in its task."""

    task_id: int
    epoch: int
    records_done: int  # leading records of the task covered after it; 0 is unknown
    num_records: int
    last: bool  # of the task
    # Of its tensors, where whoever made it has looked already.
    shapes: tuple[tuple[int | None, ...], ...] | None = None


class NanLossError(ElasticDLError):
    """The loss is not finite and the job does not skip such batches."""

    def __init__(self, message: str, at: BatchPosition | None = None) -> None:
        """`at`: the batch, if it is not the last given one."""
        super().__init__(message)
        self.at = at


@dataclass(frozen=True)
class BatchDone:
    """The outcome of a batch."""

    loss: float
    version: int  # of the parameters that it was computed at
    skipped: bool = False  # its loss was not a number and changed nothing


@dataclass(frozen=True)
class Values:
    """The model's values at one version, for evaluation and export."""

    version: int
    trainable: Sequence[NDArray[np.float32]]  # in the model's order
    state: Mapping[str, Array] = field(default_factory=dict)


@dataclass(frozen=True)
class InModel:
    """The values that are in the model already, and which version they are."""

    version: int


class ModelSource(Protocol):
    """Where evaluation and export get the model's values."""

    def values(self, model: ModelVersion) -> Values | InModel:
        """Return the values of a version, or which ones are in the model."""

    def variables_changed(self) -> None:
        """Note that the model's trainable variables were overwritten."""


class Trainer(ModelSource, Protocol):
    """Trains batch after batch; used by one thread."""

    @property
    def acknowledged(self) -> int:
        """Number of batches from the start whose gradients are safely applied.

        Also of those that were skipped. After a FencedError the count is meaningless
        for batches before it: their tasks are handed back.
        """

    @property
    def trained(self) -> int:
        """Number of batches from the start, acknowledged or not."""

    def train_batch(self, features: Any, labels: Any, at: BatchPosition) -> BatchDone:
        """Train on a batch.

        Raises FencedError when the parameters were rewound, NanLossError, RpcError
        and LeavingError; whatever else comes out is the user's code.
        """

    def flush(self) -> None:
        """Wait until every batch is acknowledged. Raises as `train_batch`."""

    def recover(self) -> None:
        """Continue from the present parameters after a FencedError."""

    def between_steps(self) -> None:
        """Do what was requested between steps, also without training tasks."""

    def close(self) -> None:
        """Close threads and connections."""
