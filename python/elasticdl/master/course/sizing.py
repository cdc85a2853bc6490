"""How many tasks are left for workers, where a size was granted.

Owns which tasks count. Called by the loop before it plans members. Pure.
"""

from __future__ import annotations

import math

from elasticdl.job.spec.job import JobType
from elasticdl.master.job_state import Job


def tasks_left(job: Job) -> int | None:
    """Return how many tasks are done or to be done yet; None where nobody can say.

    While an evaluation is to come, whoever has no training task waits for one of that:
    a worker takes longer to start than most of these tasks take.
    """
    parts = job.parts
    queue = parts.ledger.queue
    if queue is None or (job.trains and job.spec.data.validation):
        return None
    if job.spec.type is JobType.EVALUATE or math.isinf(queue.left):
        return None
    return int(queue.left) + len(queue.leased) + parts.side.open
