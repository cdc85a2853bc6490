"""Members of a group in this process: what the wire carries is added here."""

import tensorflow as tf
from elasticdl.model.feeding import Batch
from elasticdl.model.state import non_trainable
from elasticdl.worker.group.plan import StepPlan, Work, share
from elasticdl.worker.group.state import MemberState
from elasticdl.worker.group.step import GroupStep, ShareBatches


class Member:
    """A worker's model, step and state."""

    def __init__(self, module, *, skip_nan=False, taps=True):
        self.module = module
        moved = non_trainable(module.model).moved_together
        self.step = GroupStep(
            module,
            module.optimizer,
            moved,
            skip_nan=skip_nan,
            taps=taps,
            least_floats=1,
        )
        self.handed = []  # buckets of the last share, and what each one had
        self.state = MemberState(module.model, module.optimizer, self.step.moved)
        self.work = Work()

    def trace(self, features, labels):
        self.step.trace(tf.constant(features), tf.constant(labels))
        return self

    def part(self, features, labels, start, end, *, portion):
        batches = [
            Batch(
                tf.constant(features[a : min(a + portion, end)]),
                tf.constant(labels[a : min(a + portion, end)]),
                min(a + portion, end) - a,
            )
            for a in range(start, end, portion)
        ]
        self.handed = []
        return self.step.compute(ShareBatches(batches, end - start), self.ready)

    def ready(self, bucket, vector):
        begin, end = [0, *self.step.ends][bucket : bucket + 2]
        self.handed.append((bucket, vector[begin:end].copy()))

    def share(self, features, labels):
        batch = Batch(tf.constant(features), tf.constant(labels), len(labels))
        return ShareBatches([batch], len(labels))

    def alone(self, features, labels):
        return self.step.alone(self.share(features, labels))


def together(members, features, labels, *, portion=1000):
    """Make one step of all members."""
    plan = StepPlan(1, 0, len(labels))
    parts = [
        member.part(features, labels, *share(plan, rank, len(members)), portion=portion)
        for rank, member in enumerate(members)
    ]
    summed = parts[0].copy()
    for part in parts[1:]:
        summed += part
    return [member.step.apply(summed.copy()) for member in members]


def with_optimizer(mlp, text):
    usual = "keras.optimizers.Adam(0.05)"
    assert usual in mlp
    return mlp.replace(usual, f"keras.optimizers.{text}")


def made_members(definition, mlp, features, labels, number, optimizer):
    """Return members whose models are equal."""
    text = with_optimizer(mlp, optimizer)
    found = [Member(definition(text)).trace(features, labels) for _ in range(number)]
    raw = b"".join(found[0].state.copied(Work(), found[0].step.state_before))
    for other in found[1:]:
        other.state.take(raw)
        other.step.begin()
    return found
