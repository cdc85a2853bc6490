"""How many tasks a worker gets in one call, so that none stands idle for another.

Owns the two shares. Called by `master.calls.leasing`. Pure; must not know who asks.
"""

from __future__ import annotations

import math

from elasticdl.master.model.evaluation_round import Round
from elasticdl.master.tasks.queue import TaskQueue


def of_training(queue: TaskQueue | None, *, workers: int) -> float:
    """Return the share of the training tasks that can still be leased."""
    return queue.left / max(1, workers) if queue else 0.0


def of_round(current: Round | None, *, workers: int) -> float:
    """Return the share of an evaluation's tasks; no bound without one.

    A worker asks for as many as it trains in a second. Those of an evaluation may take
    much longer each, and the last one has nothing beside it to do meanwhile.
    """
    if current is None or not current.started:
        return math.inf
    return max(1.0, current.left / max(1, workers))
