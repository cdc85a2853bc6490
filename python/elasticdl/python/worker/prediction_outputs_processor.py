"""Base class of what takes the outputs of a prediction job.

Owns the classic interface. For user modules alone; the worker calls `process`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any


class BasePredictionOutputsProcessor(ABC):
    """Base class of a module's `PredictionOutputsProcessor`."""

    @abstractmethod
    def process(self, predictions: Any, worker_id: int) -> None:
        """Take the outputs [records, ...] of a batch, from worker `worker_id`."""
