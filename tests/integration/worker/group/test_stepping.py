"""What steps a member makes with its parts, and what is shown of them."""

import threading
import time
from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
from elasticdl.job.words import GoodputCause, WorkerPhase
from elasticdl.metrics.goodput import GoodputLedger
from elasticdl.metrics.registry import WorkerMetrics
from elasticdl.worker.group.plan import GroupTask, Work
from elasticdl.worker.group.position import Position
from elasticdl.worker.group.speeds import Speeds
from elasticdl.worker.group.state import MemberState
from elasticdl.worker.group.stepping import Stepping
from elasticdl.worker.progress import WorkerProgress
from elasticdl.worker.shows import Shows
from elasticdl.worker.steps.learning_rate import LearningRate


def test_heartbeats_do_not_wait_for_a_state_that_is_handed_out(members):
    (one,) = members(1)
    answers = []

    class Asked(MemberState):
        def copied(self, work, moved):
            asks = threading.Thread(target=lambda: answers.append(place.goes_on(1)))
            asks.start()
            asks.join(30)
            return super().copied(work, moved)

    state = Asked(one.module.model, one.module.optimizer, one.step.moved)
    place = Position(SimpleNamespace(state=state, step=one.step))
    place.work.add([GroupTask(1, 1, 0, "file", 0, 8, 0)])
    assert one.state.take(b"".join(place.state())) == place.work
    assert answers == [True]


def stepping_of(step, one, batches, *, records):
    """Return what makes steps of these batches, its place, and its parts."""
    clock = time.monotonic
    shows = Shows(
        WorkerProgress(clock),
        GoodputLedger(clock),
        WorkerMetrics(),
        log_loss_steps=100,
    )
    rate = LearningRate(one.module.optimizer, lambda *_: None, lambda: 1.0)
    made = Future()
    made.set_result(batches)
    parts = SimpleNamespace(
        step=step,
        rate=rate,
        shows=shows,
        skip_nan=False,
        speeds=Speeds(follow=True),
        shares=SimpleNamespace(ask=lambda *_: made, ask_ahead=lambda *_: None),
    )
    place = Position(parts)
    place.work.add([GroupTask(1, 1, 0, "file", 0, records, 0)])
    link = SimpleNamespace(leads=True, step_records=batches.records)
    return Stepping(parts, place, link), place, parts


def test_applying_what_others_were_waited_for_is_the_members_own_work(
    members, batches_of
):
    (one,) = members(1)
    (features, labels), *_ = batches_of(1)
    batches = one.share(features, labels)
    stepping, place, parts = stepping_of(one.step, one, batches, records=len(labels))
    progress, ledger = parts.shows.progress, parts.shows.goodput
    plan = place.work.plan(len(labels))
    summed = one.part(features, labels, 0, len(labels), portion=1000)
    progress.enter(WorkerPhase.WAIT)
    ledger.switch(GoodputCause.WAIT_PEERS)
    stepping.apply(plan, summed, ())
    assert (ledger.current, progress.phase) == (GoodputCause.TRAIN, WorkerPhase.TRAIN)
    assert ledger.seconds()[GoodputCause.TRAIN] > 0
    assert progress.steps == place.work.version == 1


def test_a_members_speed_is_that_of_its_share_and_of_its_update(members, batches_of):
    """A slow member's update is slow too; a smaller share makes up for it."""
    (one,) = members(1)
    (features, labels), *_ = batches_of(1)
    records, update = len(labels), 0.3

    class Slow:
        compute = one.step.compute

        def apply(self, summed, *, of):
            time.sleep(update)
            return one.step.apply(summed, of=of)

    batches = one.share(features, labels)
    stepping, place, parts = stepping_of(Slow(), one, batches, records=4 * records)
    for _ in range(3):
        plan = place.work.plan(records)
        own = stepping.share(plan, 0, 2)
        stepping.compute(own, lambda *_: None)
        summed = one.step.compute(batches, lambda *_: None, of=records)
        stepping.apply(plan, summed.copy(), ())
    # Its first update traces, and passes for none.
    parts.speeds = Speeds(follow=True)
    stepping.compute(own, lambda *_: None)
    assert 0 < parts.speeds.own < records / update


READS_RATE = """

KEPT = keras.optimizers.SGD(0.5)

def optimizer():
    return KEPT

plain_loss = loss

def loss(labels, predictions):
    return plain_loss(labels, predictions) * (1 + KEPT.learning_rate)
"""


def test_a_loss_that_reads_the_rate_sees_that_of_its_own_step(members, batches_of, mlp):
    """Alone or not, it is the plan's; until the step is made the old one is set."""
    given, found = list(batches_of(6)), []
    records = len(given[0][1])
    for others in (False, True):
        (one,) = members(1, text=mlp + READS_RATE)
        parts_of_step = []

        def compute(*args, one=one, kept=parts_of_step, **options):
            kept.append(one.step.compute(*args, **options).copy())

        step = SimpleNamespace(
            compute=compute, apply=one.step.apply, alone=one.step.alone
        )
        first = one.share(*given[0])
        stepping, place, parts = stepping_of(step, one, first, records=6 * records)
        for number, batch in enumerate(given):
            plan = replace(place.work.plan(records), rate=[0.5, 0.1, 0.3][number % 3])
            own = replace(stepping.share(plan, 0, 2), batches=one.share(*batch))
            if not others:
                stepping.alone(own, (1,))
                continue
            before = parts.rate.last
            stepping.compute(own, lambda *_: None)
            assert float(parts.rate.own or parts.rate.last) == before
            stepping.apply(plan, parts_of_step[-1], (1, 2))
        found.append([w.numpy() for w in one.module.model.weights])
    for alone, together in zip(*found, strict=True):
        np.testing.assert_allclose(alone, together, rtol=1e-5, atol=1e-6)


def test_a_newcomer_copies_the_rate_between_steps_also_while_one_is_computed(members):
    """The step may be made again with another rate, as after the loss of a member."""
    one, other = members(2, optimizer="SGD(0.5)")
    rates = [
        LearningRate(member.module.optimizer, lambda *_: None, lambda: 1.0)
        for member in (one, other)
    ]
    states = [
        MemberState(
            member.module.model, member.module.optimizer, member.step.moved, rate
        )
        for member, rate in zip((one, other), rates, strict=True)
    ]
    before = one.step.state_before
    digest = states[0].digest(before)
    with rates[0].during(0.75):
        assert float(one.module.optimizer.learning_rate) == 0.75
        assert states[0].digest(before) == digest
        raw = b"".join(states[0].copied(Work(rate=rates[0].last), before))
    rates[1].took(states[1].take(raw).rate)
    assert states[1].digest(before) == digest
    for member, rate in zip((one, other), rates, strict=True):
        rate.set(0.5)
        assert float(member.module.optimizer.learning_rate) == 0.5
