"""The plan of a job's queue: its records, how they are divided, how often, which order.

Made by `master.tasks.data_plan`, kept by the journal, followed by `master.tasks.queue`,
compared with the events by `master.tasks.audit`. Must know nothing of tasks, leases or
replicas.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from elasticdl.data.reader import Shard


@dataclass(frozen=True)
class QueuePlan:
    """The records of a job, how they are divided, how often and in what order.

    `elastic`: steps have more or fewer records than `batch_size`, as workers say.
    """

    shards: tuple[Shard, ...]
    batch_size: int
    batches_per_task: int
    epochs: int = 1  # 0 is endless
    max_steps: int = 0  # 0 is no limit
    shuffle: bool = False
    seed: int = 0
    elastic: bool = False

    @property
    def records_per_epoch(self) -> int:
        """Records in one pass."""
        return sum(shard.num_records for shard in self.shards)

    def to_json(self) -> dict[str, Any]:
        """Return the plan as plain data; `from_json` reads it."""
        tree = asdict(self)
        tree["shards"] = [[s.source, s.start, s.end] for s in self.shards]
        return tree

    @staticmethod
    def from_json(tree: Mapping[str, Any]) -> QueuePlan:
        """Return the plan that `to_json` wrote."""
        return QueuePlan(**{**tree, "shards": tuple(Shard(*s) for s in tree["shards"])})

    def credit(self, applied: int, records: int) -> int:
        """Return how many of a task's records need not be given out again.

        `applied`: the leading ones that the parameters contain. A step takes a batch
        or nothing, so part of a batch is none of them; steps of an elastic plan end
        anywhere.
        """
        if applied >= records:
            return records
        return applied if self.elastic else applied - applied % self.batch_size


# Which fields of the specification say what a plan has.
_FIELDS = {
    "batch_size": "training.globalBatchSize, else training.batchSize",
    "batches_per_task": "training.batchesPerTask",
    "max_steps": "training.maxSteps",
    "shuffle": "data.shuffle",
    "seed": "training.seed",
    "elastic": "training.globalBatchSize: elastic",
}


def differences(before: QueuePlan, now: QueuePlan) -> str:
    """Return in words what a journal's plan had, and in what another one differs."""
    had, has = before.to_json(), now.to_json()
    changed = [
        f"{field} {json.dumps(had[name])}, now {json.dumps(has[name])}"
        for name, field in _FIELDS.items()
        if had[name] != has[name]
    ]
    if before.shards != now.shards:
        changed.insert(0, f"now there is {_size(now)}{_other_source(before, now)}")
    return f"{_size(before)}; {'; '.join(changed)}"


def _size(plan: QueuePlan) -> str:
    return f"{plan.records_per_epoch} records in {len(plan.shards)} sources"


def _other_source(before: QueuePlan, now: QueuePlan) -> str:
    """Return the first source that changed; "" if none did."""
    for old, new in itertools.zip_longest(before.shards, now.shards):
        if old != new:
            was = f"{old.source} had {old.num_records} records" if old else "nothing"
            is_ = f"{new.source} has {new.num_records}" if new else "nothing"
            return f". First difference: {was}, now {is_}"
    return ""
