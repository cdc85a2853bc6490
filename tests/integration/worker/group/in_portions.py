"""Members of a group that compute portions of the same steps."""

import re

import numpy as np
from elasticdl.model.state import non_trainable
from elasticdl.worker.group.plan import StepPlan, share
from elasticdl.worker.group.step import GroupStep, ShareBatches

from tests.integration.worker.matrix import BATCH


class Member:
    def __init__(self, made, data, initial):
        self.module, self.feeder = made
        batch = next(self.feeder.batches(data[:BATCH]))
        model = self.module.model
        moved = non_trainable(model).moved_together
        self.step = GroupStep(
            self.module,
            self.module.optimizer,
            moved,
            skip_nan=False,
            taps=True,
            least_floats=1,
        )
        self.step.trace(batch.features, batch.labels)
        if initial is not None:
            model.set_weights(initial)
        self.step.begin()

    def part(self, records):
        batches = tuple(self.feeder.batches(records))
        share = ShareBatches(batches, len(records))
        return self.step.compute(share, lambda bucket, vector: None)


def together(members, records):
    plan = StepPlan(1, 0, len(records))
    bounds = [share(plan, rank, len(members)) for rank in range(len(members))]
    parts = [
        member.part(records[start:end])
        for member, (start, end) in zip(members, bounds, strict=True)
    ]
    return [member.step.apply(sum(parts[1:], parts[0])) for member in members]


def assert_equal(mine, theirs, case):
    for a, b in zip(mine.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=case.rtol, atol=case.atol)


def said_of_state(caplog):
    """Return what is in doubt of the state; what is found of all is one line more."""
    messages = (one.getMessage() for one in caplog.records)
    return [text for text in messages if re.match("State (?!of)", text)]
