"""Callbacks of ElasticDL's own for `callbacks()` of a model module.

Owns two small classes that carry a value; the worker and the master act on them. Users
import them; they import nothing, so they also load where Keras is not installed.
"""

from __future__ import annotations

from collections.abc import Callable


class LearningRateScheduler:
    """Sets the learning rate by the model version (the number of updates so far)."""

    def __init__(self, schedule: Callable[[int], float]) -> None:
        """Take `schedule(version) -> learning rate`."""
        self.schedule = schedule


class MaxStepsStopping:
    """Stops training after so many steps of all workers, as `training.maxSteps`."""

    def __init__(self, max_steps: int) -> None:
        """Take the number of steps, 1 or more."""
        if max_steps < 1:
            raise ValueError(f"max_steps is {max_steps}, expected 1 or more")
        self.max_steps = int(max_steps)
