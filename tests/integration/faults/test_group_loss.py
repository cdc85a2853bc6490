"""Members of a group lost at work: no record is repeated while one of them is left."""

import re
import signal
from pathlib import Path

import numpy as np
import pytest
from elasticdl.checkpoint import reshard
from elasticdl.errors import ExitCode
from elasticdl.job.values.file import edit_values
from elasticdl.testing.claims import check_whole

# Up to seven starts of a worker in a test, beside other tests.
pytestmark = pytest.mark.timeout(400)

ONE = {"replicas": 1}
LONG = {"epochs": 10_000, "batchSize": 16, "batchesPerTask": 4}


def group(job, name, *, replicas=3, **changes):
    values = {
        "strategy": "allReduce",
        "worker": {"replicas": replicas, "maxRestarts": 50},
        "training": LONG,
    }
    return job(name, **{**values, **changes})


def together(one, number):
    """Wait until so many members make steps; return the status."""
    return one.wait_until(
        lambda s: s.group and s.group.level and len(s.group.members) == number,
        f"{number} members",
    )


def at_work(one, number):
    """Wait until so many members make steps, and each replacement has made one.

    Though one leads only if all older ones are lost.
    """
    together(one, number)
    return one.wait_until(
        lambda s: (
            all(relaunch.seconds for relaunch in s.relaunches)
            and s.group.level
            and len(s.group.members) == number
        ),
        "replacements at work",
    )


def lose(one, *names, how=signal.SIGKILL, steps=20):
    """Signal these replicas; wait until the rest makes steps without them."""
    for name in names:
        one.handle.kill(name, how)
    status = one.wait_until(
        lambda s: s.group and s.group.level and not {*names} & {*s.group.members},
        f"a round without {names}",
    )
    one.wait_for_step(status.progress.version + steps)
    return status


def assert_once(one, report):
    check_whole(one, report)
    found = one.audit()
    assert found.once, found
    assert report.rewinds == 0
    assert report.replayed_records == 0
    # The journal believes what is reported; the model counts what it was trained with.
    assert report.version == report.steps


def assert_shared(one):
    """The audit names all who took records, each of which counts once."""
    epochs = [epoch for epoch in one.audit().epochs if epoch.finished]
    for epoch in epochs:
        assert sum(epoch.by_worker.values()) == epoch.records
    took = {name for epoch in epochs for name in epoch.by_worker}
    assert len(took) > 3
    # Three take a third each, whoever reports; a loss in between shifts it.
    last = epochs[-1].by_worker
    assert len(last) >= 3
    assert max(last.values()) < 0.7 * epochs[-1].records


# Who of three are lost together, by their places in the group.
LATER = slice(1, None)
FIRST = slice(2)


@pytest.mark.parametrize(
    "pairs", [[FIRST], pytest.param([LATER, FIRST], marks=pytest.mark.soak)]
)
def test_no_record_is_repeated_when_the_leader_another_one_and_two_are_lost(job, pairs):
    one = group(job, "losses")
    leader, other, _ = together(one, 3).group.members
    one.wait_for_step(30)
    lose(one, leader)
    lose(one, at_work(one, 3).group.members[1])
    for pair in pairs:
        lose(one, *at_work(one, 3).group.members[pair])
    status = at_work(one, 3)
    assert not {leader, other} & set(status.group.members)
    one.end_after_this_epoch()
    report = one.finish()
    assert_once(one, report)
    assert {r.reason for r in report.relaunches} == {"killed"}
    assert report.rounds > 4 + 2 * len(pairs)
    assert report.changes_seconds > 0
    assert all(one.seconds for one in report.relaunches)
    assert_shared(one)


BUILDS_ON_THE_RATE = """

def callbacks():
    def schedule(epoch, lr):
        print(f"epoch {epoch} builds on {lr:.6f}", flush=True)
        return lr * 0.5
    return [keras.callbacks.LearningRateScheduler(schedule)]
"""


def test_a_schedule_that_builds_on_the_rate_goes_on_when_the_leader_is_lost(
    job, unhurried
):
    model = unhurried(0.05)
    model["files"]["net.py"] += BUILDS_ON_THE_RATE
    one = group(job, "rates", model=model, training={**LONG, "epochs": 4})
    leader = together(one, 3).group.members[0]
    one.wait_until(lambda s: s.progress.epoch >= 2, "the second epoch")
    status = lose(one, leader)
    one.finish()
    leaders = {leader, status.group.members[0]}
    said = {
        name: set(re.findall(r"epoch 0 builds on (.*)", log.read_text()))
        for log in one.job_dir.logs_dir.glob("worker-*.log")
        if (name := log.stem) in leaders
    }
    assert said.keys() == leaders
    assert len(set.union(*said.values())) == 1, said
    assert all(said.values()), said


def test_when_all_are_lost_the_group_goes_back_to_its_checkpoint(job):
    one = group(job, "all-lost")
    status = one.wait_until(
        lambda s: s.group and len(s.group.members) == 3 and s.checkpoint_version,
        "three members and a checkpoint",
    )
    for name in status.group.members:
        one.handle.kill(name, signal.SIGKILL)
    status = one.wait_until(
        lambda s: s.rewinds == 1 and s.group and s.group.level, "a round after a rewind"
    )
    one.wait_for_step(status.progress.version + 50)
    one.end_after_this_epoch()
    report = one.finish()
    check_whole(one, report)
    assert report.rewinds == 1


@pytest.mark.parametrize("rank", [0, pytest.param(1, marks=pytest.mark.soak)])
def test_a_stop_in_which_a_member_is_lost_saves_what_the_others_have(job, rank):
    one = group(job, "stopped", checkpoint={"everySeconds": 3600.0})
    status = one.wait_until(
        lambda s: s.group and len(s.group.members) == 3 and s.checkpoint_version,
        "three members and the first checkpoint",
    )
    status = one.wait_for_step(status.progress.version + 100)
    one.handle.kill(status.group.members[rank], signal.SIGKILL)
    one.handle.stop()
    report = one.finish(expected=ExitCode.STOPPED)
    assert report.rewinds == 0
    saved = reshard.load_all(Path(report.checkpoint)).version
    # No step is made after the copy: it would be lost.
    assert saved == report.version >= status.progress.version
    # Whoever launches it with what cannot change is told the same version.
    changed = group(job, "stopped", training={**LONG, "globalBatchSize": 96})
    assert changed.finish(expected=ExitCode.STORAGE).version == saved


def test_steps_go_on_without_a_master_and_a_loss_meanwhile_waits_for_it(job):
    one = group(job, "no-master")
    leader = together(one, 3).group.members[0]
    one.wait_for_step(30)
    one.fault("master", signal.SIGKILL)
    one.handle.kill(leader, signal.SIGKILL)
    status = one.wait_until(
        lambda s: (
            s.master_generation == 2
            and s.group
            and s.group.level
            and leader not in s.group.members
        ),
        "a second master and a round without the leader",
    )
    one.wait_for_step(status.progress.version + 50)
    one.end_after_this_epoch()
    report = one.finish()
    check_whole(one, report)
    assert report.rewinds == 0
    assert report.master_restarts == 1


@pytest.mark.soak
def test_a_frozen_member_is_left_out_and_one_that_leaves_takes_nothing_along(job):
    one = group(job, "frozen")
    frozen = together(one, 3).group.members[1]
    one.wait_for_step(30)
    lose(one, frozen, how=signal.SIGSTOP)
    lose(one, together(one, 3).group.members[0], how=signal.SIGTERM)
    one.end_after_this_epoch()
    report = one.finish()
    assert_once(one, report)
    assert "silent" in {r.reason for r in report.relaunches}


@pytest.mark.soak
def test_a_group_shrinks_to_one_member_grows_back_and_is_scaled(job):
    # One that is alone makes a step of one batch in one go, as strategy local does.
    one = group(job, "elastic", replicas=4, training={**LONG, "globalBatchSize": 16})
    together(one, 4)
    one.handle.set_capacity(1)
    status = together(one, 1)
    one.wait_for_step(status.progress.version + 50)
    one.handle.set_capacity(None)
    status = together(one, 4)
    one.wait_for_step(status.progress.version + 20)
    one.end_after_this_epoch()
    report = one.finish()
    assert_once(one, report)
    steps = re.findall(r"Round (\d+): ([^(]*)", one.log_text("master", 0))
    assert [int(number) for number, _ in steps] == list(range(1, len(steps) + 1))


@pytest.mark.soak
def test_fewer_than_a_raised_minimum_make_no_step_and_a_stop_keeps_theirs(job):
    one = group(job, "least", replicas=2)
    together(one, 2)
    one.handle.set_capacity(1)
    status = together(one, 1)
    one.wait_for_step(status.progress.version + 20)
    edit_values(one.job_dir.spec_file, {"job.worker.min": 2})
    seen: list[float] = []

    def stands(status):
        waits = "no step is made" in status.message and any(
            one.name in status.group.members and one.phase == "wait"
            for one in status.replicas
        )
        seen.append(status.progress.version if waits else len(seen) - 1e9)
        return len(seen) > 20 and len({*seen[-20:]}) == 1

    stood = one.wait_until(stands, "a member that stands and waits for another one")
    one.handle.stop()
    report = one.finish(expected=ExitCode.STOPPED)
    assert report.version == stood.progress.version
    assert reshard.load_all(Path(report.checkpoint)).version == report.version


# One worker finds the file, and moves a weight; so does no other one.
DRIFTS = """
_own_optimizer = optimizer


def optimizer():
    import pathlib
    import tensorflow as tf

    made = _own_optimizer()
    apply = made.apply

    def amount():
        try:
            pathlib.Path("{flag}").rename("{flag}.found")
        except FileNotFoundError:
            return 0.0
        return 1e-3

    def drifts(grads, trainable_variables=None):
        done = apply(grads, trainable_variables)
        by = tf.ensure_shape(tf.py_function(amount, [], tf.float32), ())
        made._trainable_variables[0].assign_add(
            by * tf.ones_like(made._trainable_variables[0])
        )
        return done

    made.apply = drifts
    return made
"""


@pytest.mark.soak
def test_a_member_whose_values_drift_gets_those_of_the_leader_and_it_is_told(
    job, digits_values, tmp_path
):
    flag = tmp_path / "drift"
    code = digits_values("x").job.model.files["net.py"]
    one = group(
        job,
        "drifts",
        model={"files": {"net.py": code + DRIFTS.format(flag=flag)}},
        checkpoint={"everySeconds": 1.0},
    )
    together(one, 3)
    status = one.wait_for_step(50)
    assert not status.group.repairs
    flag.touch()
    status = one.wait_until(
        lambda s: s.group.repairs and s.group.level and len(s.group.members) == 3,
        "a repair",
    )
    assert status.group.cause == "differed"
    assert not flag.exists()
    # Values are equal again: the next checkpoints find nothing.
    one.wait_until(
        lambda s: s.checkpoint_version > status.progress.version + 200, "checkpoints"
    )
    one.end_after_this_epoch()
    report = one.finish()
    assert_once(one, report)
    assert report.repairs == 1
    assert "had other values than the leader" in one.log_text("master", 0)


@pytest.mark.soak
def test_an_elastic_step_has_a_batch_of_each_member_that_makes_it(job):
    one = group(
        job,
        "elastic-step",
        training={**LONG, "globalBatchSize": "elastic"},
        allReduce={"learningRate": "linear", "compression": "bfloat16"},
    )
    together(one, 3)
    for members in (3, 1):
        one.handle.set_capacity(members)
        first = together(one, members).progress
        one.wait_for_step(first.version + 100)
        before = one.status().progress
        after = one.wait_until(
            lambda s, before=before: s.progress.version > before.version + 200,
            "200 steps more",
        ).progress
        each = (after.records_done - before.records_done) / (
            after.version - before.version
        )
        # Whole tasks are counted, and the last step of a file is smaller.
        assert 0.7 < each / (16 * members) < 1.3, (members, each)
    one.end_after_this_epoch()
    assert_once(one, one.finish())


@pytest.mark.soak
@pytest.mark.parametrize(
    "other", [{"strategy": "parameterServer"}, {"strategy": "local", "worker": ONE}]
)
def test_a_group_begins_with_a_checkpoint_of_another_strategy_and_that_with_its(
    job, other
):
    first = job("of-other", training={"epochs": 3}, **other)
    first_report = first.finish()
    kept = first.job_dir.checkpoints_dir
    version = first_report.version
    one = group(
        job, "of-group", training={"epochs": 2}, checkpoint={"initFrom": str(kept)}
    )
    report = one.finish()
    assert report.version > version
    assert one.audit().once
    back = job(
        "of-other-again",
        training={"epochs": 1},
        **other,
        checkpoint={"initFrom": str(one.job_dir.checkpoints_dir)},
    )
    assert back.finish().version > report.version


def killed(one):
    lose(one, together(one, 4).group.members[0], steps=5)
    lose(one, together(one, 3).group.members[1], steps=5)


def preempted_and_grown(one):
    together(one, 4)
    for members in (1, 4):
        one.handle.set_capacity(members)
        version = together(one, members).progress.version
        one.wait_for_step(version + 5)


def _smooth(model):
    """Return the model without a kink: rounding alone decides on which side of one.

    A record whose sum lies within 1e-7 of it moves the weights by 7e-5 then, as much as
    one that is lost.
    """
    text = model["files"]["net.py"].replace('"relu"', '"tanh"')
    return {**model, "files": {"net.py": text}}


@pytest.mark.soak
@pytest.mark.parametrize("disturb", [killed, preempted_and_grown])
def test_a_run_with_losses_ends_with_the_weights_of_an_undisturbed_one(
    job, unhurried, disturb
):
    settings = {
        "epochs": 10,
        "maxSteps": 200,
        "batchSize": 16,
        "batchesPerTask": 4,
        "globalBatchSize": 64,
    }
    quick, slow = (_smooth(unhurried(s, training_alone=True)) for s in (0.0, 0.1))
    calm = group(job, "calm", replicas=1, training=settings, model=quick).finish()
    one = group(job, "disturbed", replicas=4, training=settings, model=slow)
    disturb(one)
    report = one.finish()
    assert report.version == calm.version == 200
    assert one.audit().once
    assert report.rewinds == report.repairs == 0
    found = [reshard.load_all(Path(of.checkpoint)).values for of in (calm, report)]
    assert found[0].keys() == found[1].keys()
    for name, weights in found[0].items():
        # Of jobs of parameter servers, over fewer steps: test_equality.py.
        np.testing.assert_allclose(
            found[1][name], weights, rtol=2e-4, atol=2e-6, err_msg=name
        )
