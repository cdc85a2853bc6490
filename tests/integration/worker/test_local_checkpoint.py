"""A checkpoint of strategy local holds everything, and starts any job of the model."""

import threading

import keras
import numpy as np
import pytest
from elasticdl.checkpoint import store
from elasticdl.checkpoint.layout import AVERAGE, Manifest
from elasticdl.errors import UnfitError, UserCodeError
from elasticdl.job.heartbeats import LocalSnapshot
from elasticdl.job.tasks import LIVE, ModelVersion
from elasticdl.model.optimizer_variables import variables_of
from elasticdl.worker.local.checkpoint import LocalCheckpoints, LocalState
from elasticdl.worker.local.own_step import OwnStep, other_optimizers
from elasticdl.worker.steps.learning_rate import LearningRate
from elasticdl.worker.uses.fixed_trainer import FixedTrainer

from tests.integration.worker.own_optimizers import (
    COUNTING,
    FORWARDING,
    HOLDING,
    MOVING,
    PASSING_ON,
    REFUSING,
    TENSORFLOWS,
)
from tests.integration.worker.test_local_trainer import local, rate_of, train, weights
from tests.integration.worker.test_optimizer_options import text_of

DENSE = 'keras.layers.Dense(8, activation="tanh")'


def state_of(module, rate=None):
    return LocalState(
        module.model, module.optimizer, module.optimizer_json(), rate=rate
    )


def saved(module, version, folder, rate=None, state=None):
    """Write a checkpoint as the master would have it written."""
    folder.mkdir(parents=True)
    told = []
    request = LocalSnapshot(id="ckpt-1", dir=str(folder))
    checkpoints = LocalCheckpoints(
        state or state_of(module, rate), wanted=lambda: request, tell=told.append
    )
    checkpoints.between_steps(version, {})
    checkpoints.finish()
    entry = {
        "file": told[-1].file,
        "bytes": told[-1].file_bytes,
        "crc32": told[-1].crc32,
        "version": version,
    }
    manifest = Manifest(job="j", strategy="local", version=version, shards=[entry])
    store.write_manifest(folder, manifest)
    return folder


def test_a_request_that_the_next_answer_drops_is_no_checkpoint_without_a_name(
    definition, tmp_path
):
    """The heartbeat's thread brings answers at any moment."""
    told = []
    orders = iter([LocalSnapshot(id="ckpt-1", dir=str(tmp_path)), LocalSnapshot()])
    checkpoints = LocalCheckpoints(
        state_of(definition()), wanted=lambda: next(orders), tell=told.append
    )
    checkpoints.between_steps(3, {})
    checkpoints.finish()
    assert {done.id for done in told} == {"ckpt-1"}


INNER = """keras.layers.Dense(8, activation="tanh"),
        keras.layers.Dense(3)"""
TO_SIX = """keras.layers.Dense(4, use_bias=False, name="first"),
        keras.layers.Dense(6, use_bias=False, name="inner"),
        keras.layers.Dense(3, name="out")"""
TO_FOUR = """keras.layers.Dense(4, use_bias=False, name="inner"),
        keras.layers.Reshape((4, 1)), keras.layers.ZeroPadding1D((0, 2)),
        keras.layers.Flatten(), keras.layers.Dense(3, name="out")"""


def test_a_variable_of_as_many_values_in_another_shape_is_refused_by_its_name(
    definition, mlp, tmp_path
):
    """Its values would be in other places, and train without a word."""
    assert INNER in mlp
    made = definition(mlp.replace(INNER, TO_SIX))
    folder = saved(made, 7, tmp_path / "version-7")
    other = definition(mlp.replace(INNER, TO_FOUR))
    before = weights(other)
    expected = r"inner/kernel: got \(4, 6\), expected \(6, 4\);"
    with pytest.raises(UnfitError, match=expected):
        state_of(other).restore(folder)
    for one, was in zip(weights(other), before, strict=True):
        np.testing.assert_array_equal(one, was)


def test_a_worker_of_a_job_that_stops_makes_no_step_after_its_last_copy(
    definition, tmp_path
):
    module = definition()
    told, orders = [], [LocalSnapshot()]
    checkpoints = LocalCheckpoints(
        state_of(module), wanted=lambda: orders[-1], tell=told.append
    )

    class Leaving(threading.Event):
        """Looks on while the worker waits; the job goes on as `after` says."""

        def __init__(self, after):
            super().__init__()
            self.after = list(after)

        def wait(self, timeout=None):
            orders.append(self.after.pop(0))
            return self.is_set()

    first, second = tmp_path / "1", tmp_path / "2"
    for folder in (first, second):
        folder.mkdir()
    hold = LocalSnapshot(last=True)
    after = [
        LocalSnapshot("ckpt-1", str(first), last=True),
        hold,  # its disk refused it
        LocalSnapshot("ckpt-2", str(second), last=True),
        LocalSnapshot(),  # another master goes on with the job
    ]
    leaving = Leaving(after)
    between_steps = checkpoints.or_hold(leaving)
    assert not between_steps(7, {})
    orders.append(hold)
    assert between_steps(7, {})
    checkpoints.finish()
    assert not leaving.after
    assert {done.id for done in told} == {"ckpt-1", "ckpt-2"}
    assert {done.version for done in told} == {7}


OPTIMIZERS = [
    "Adafactor(0.05)",
    "Adam(0.05, amsgrad=True, use_ema=True, ema_momentum=0.9)",
    "Lamb(0.01)",
    "RMSprop(0.01, momentum=0.9, centered=True)",
    "SGD(0.1, momentum=0.9, gradient_accumulation_steps=4)",
    "LossScaleOptimizer(keras.optimizers.Adam(0.01), initial_scale=8.0, "
    "dynamic_growth_steps=4)",
    "Nadam(0.02)",
    "ScheduleFreeAdamW(0.02)",
    "LossScaleOptimizer(keras.optimizers.Nadam(0.02), initial_scale=8.0)",
    "MultiOptimizer(keras.optimizers.OptimizerMap(keras.optimizers.SGD(0.1, "
    "momentum=0.9), {'.*kernel': keras.optimizers.Nadam(0.02)}))",
]


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda text: text.split("(")[0])
def test_every_variable_of_an_optimizer_comes_back(
    definition, mlp, batches_of, tmp_path, optimizer
):
    text = text_of(mlp.replace(DENSE, f"{DENSE}, keras.layers.Dropout(0.3)"), optimizer)
    module = definition(text)
    batches = list(batches_of(12))
    trainer = local(module)
    train(trainer, batches[:6])
    folder = saved(module, 6, tmp_path / "version-6")
    train(trainer, batches[6:])

    again = definition(text)
    resumed = local(again)
    assert state_of(again).restore(folder) == 6
    train(resumed, batches[6:])
    for mine, theirs in zip(weights(again), weights(module), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    for mine, theirs in zip(
        again.optimizer.variables, module.optimizer.variables, strict=True
    ):
        np.testing.assert_array_equal(mine.numpy(), theirs.numpy())


@pytest.mark.parametrize("own", [HOLDING, COUNTING, MOVING.replace("RATE", "0.5")])
def test_optimizers_that_one_of_the_users_own_holds_come_back_too(
    definition, mlp, batches_of, tmp_path, own
):
    module = definition(mlp + own)
    batches = list(batches_of(12))
    trainer, state = local(module), state_of(module)
    train(trainer, batches[:6])
    folder = saved(module, 6, tmp_path / "version-6", state=state)
    train(trainer, batches[6:])
    again = definition(mlp + own)
    resumed = local(again)
    assert state_of(again).restore(folder) == 6
    train(resumed, batches[6:])
    for mine, theirs in zip(weights(again), weights(module), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_a_held_rate_that_the_module_says_anew_is_not_that_of_the_checkpoint(
    definition, mlp, batches_of, tmp_path
):
    module = definition(mlp + MOVING.replace("RATE", "0.5"))
    state = state_of(module)
    train(local(module), list(batches_of(3)))
    folder = saved(module, 3, tmp_path / "version-3", state=state)
    again = definition(mlp + MOVING.replace("RATE", "0.25"))
    state_of(again).restore(folder)
    assert float(again.optimizer.held.learning_rate) == 0.25


@pytest.mark.parametrize("own", [FORWARDING, PASSING_ON])
@pytest.mark.parametrize("said", ["scale", "callback"])
def test_a_rate_that_is_passed_on_to_held_optimizers_is_that_of_the_job(
    definition, mlp, batches_of, tmp_path, said, own
):
    def rate_of_job(module, before):
        scale = 0.5 if before and said == "scale" else 1.0
        wanted = 0.2 if before and said == "callback" else None
        return LearningRate(module.optimizer, lambda *_: wanted, lambda: scale)

    module = definition(mlp + own)
    rate = rate_of_job(module, before=True)
    state = state_of(module, rate)
    train(local(module, rate=rate), list(batches_of(3)))
    assert float(module.optimizer.learning_rate) != pytest.approx(0.1)
    folder = saved(module, 3, tmp_path / "version-3", state=state)
    again = definition(mlp + own)
    rate = rate_of_job(again, before=False)
    state_of(again, rate).restore(folder)
    train(local(again, rate=rate, version=3), list(batches_of(2)))
    for one in vars(again.optimizer).values():
        if isinstance(one, keras.optimizers.Optimizer):
            assert float(one.learning_rate) == pytest.approx(0.1)
    np.testing.assert_array_equal(again.optimizer.rates, [0.5**6, 0.5**7])


@pytest.mark.parametrize("end", ["pass", "raise RuntimeError('not for you')"])
def test_an_optimizer_is_as_before_when_it_was_tried_what_follows_its_rate(
    definition, mlp, end
):
    module = definition(mlp + REFUSING.replace("RAISES", end))
    state_of(module)
    assert float(module.optimizer.learning_rate) == np.float32(0.1)
    assert float(module.optimizer.warm) == 1.0


def test_variables_are_found_however_deep_and_beside_however_many_numbers():
    class Link:
        def __init__(self, following):
            self.following = following

    optimizer = keras.optimizers.SGD()
    within = keras.Variable(0.0, name="within")
    for _ in range(5_000):
        within = Link(within)
    optimizer.within, optimizer.numbers = within, tuple(range(1_000_000))
    assert [v.name for v in variables_of(optimizer)][-1] == "within"


def test_a_variable_that_keras_does_not_know_is_refused(definition, mlp):
    module = definition(mlp + TENSORFLOWS)
    with pytest.raises(UserCodeError, match=r"Tensorflows\.seen is a tf\.Variable"):
        state_of(module)


TWINS = """
import keras

class Twins(keras.Model):
    def __init__(self):
        super().__init__(name="net")
        self.one = keras.layers.Dense(3, name="a_b")
        self.inside = keras.Sequential([keras.layers.Dense(3, name="b")], name="a")

    def call(self, x):
        return self.one(x) + self.inside(x)
"""


def test_slots_of_variables_whose_names_run_together_stay_apart(
    definition, mlp, batches_of, tmp_path
):
    model = mlp[mlp.index("return keras.Sequential(") : mlp.index("\ndef loss")]
    text = TWINS + mlp.replace(model, "return Twins()\n").replace("import keras", "", 1)
    module = definition(text)
    train(local(module), batches_of(3))
    folder = saved(module, 3, tmp_path / "version-3")
    again = definition(text)
    state_of(again).restore(folder)
    for mine, theirs in zip(
        again.optimizer.variables, module.optimizer.variables, strict=True
    ):
        np.testing.assert_array_equal(mine.numpy(), theirs.numpy())


def test_the_rate_is_that_of_the_job_and_the_slots_go_on(
    definition, mlp, batches_of, tmp_path
):
    module = definition(text_of(mlp, "Adam(0.05)"))
    train(local(module), batches_of(4))
    folder = saved(module, 4, tmp_path / "version-4")
    again = definition(text_of(mlp, "AdamW(0.01)"))
    assert state_of(again).restore(folder) == 4
    assert float(again.optimizer.learning_rate) == pytest.approx(0.01)
    assert int(again.optimizer.iterations) == 4
    np.testing.assert_array_equal(
        again.optimizer._momentums[0].numpy(), module.optimizer._momentums[0].numpy()
    )


def test_another_optimizer_begins_at_its_first_step(
    definition, mlp, batches_of, tmp_path, caplog
):
    module = definition(text_of(mlp, "SGD(0.05, momentum=0.9)"))
    train(local(module), batches_of(4))
    folder = saved(module, 4, tmp_path / "version-4")
    again = definition(text_of(mlp, "Adam(0.01)"))
    assert state_of(again).restore(folder) == 4
    assert int(again.optimizer.iterations) == 0
    assert not again.optimizer._momentums[0].numpy().any()
    assert "written with SGD, the job's optimizer is Adam" in caplog.text


def test_variables_that_nobody_averages_are_used_as_they_are(
    definition, mlp, batches_of, tmp_path
):
    text = text_of(
        mlp,
        "MultiOptimizer(keras.optimizers.OptimizerMap(keras.optimizers.SGD(0.1, "
        "use_ema=True), {'.*kernel': keras.optimizers.Adam(0.02)}))",
    )
    module = definition(text)
    trainer = local(module)
    train(trainer, batches_of(4))
    folder = saved(module, 4, tmp_path / "version-4")
    used = definition(text)
    FixedTrainer(used.model, folder)
    trainer.values(ModelVersion(AVERAGE))  # as the job's own export has them
    for mine, theirs in zip(weights(used), weights(module), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_an_optimizer_whose_slots_begin_as_the_values_begins_with_those_restored(
    definition, mlp, batches_of, tmp_path
):
    module = definition(text_of(mlp, "SGD(0.05, momentum=0.9)"))
    train(local(module), batches_of(4))
    folder = saved(module, 4, tmp_path / "version-4")
    again = definition(text_of(mlp, "ScheduleFreeAdamW(0.01)"))
    for variable in again.model.trainable_variables:
        variable.assign(variable + 1.0)  # as those of another seed
    trainer = local(again)
    state_of(again).restore(folder)
    train(trainer, batches_of(3, seed=5))

    plain = definition(text_of(mlp, "ScheduleFreeAdamW(0.01)"))
    plain.model.set_weights(module.model.get_weights())  # before it is built
    train(local(plain), batches_of(3, seed=5))
    for mine, theirs in zip(weights(again), weights(plain), strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("after", ["Adam(0.01)", "SGD(0.01, momentum=0.9)"])
def test_ps_begin_with_a_checkpoint_of_strategy_local_and_the_jobs_optimizer(
    rig, ps_group, definition, mlp, batches_of, tmp_path, after
):
    before = definition(text_of(mlp, "Adam(0.05)"))
    train(local(before), batches_of(4))
    folder = saved(before, 4, tmp_path / "version-4")
    # What plain Keras does with these weights, and with Adam's slots if it is Adam.
    plain = definition(text_of(mlp, after))
    state_of(plain).restore(folder)
    train(local(plain, version=4), batches_of(3, seed=5))

    group = ps_group(2)
    group.rewind = 1
    for server in group.servers:
        server.begin(rewind=1, restore_dir=folder)
    group.publish()
    one = rig(group, definition(text_of(mlp, after)), pipeline=False)
    one.train(batches_of(3, seed=5))
    assert one.trainer.values(LIVE).version == 7
    for mine, theirs in zip(one.values().values(), weights(plain), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=2e-6)


def test_seeds_and_state_come_back(definition, mlp, batches_of, tmp_path):
    text = mlp.replace(DENSE, f"keras.layers.BatchNormalization(), {DENSE}")
    module = definition(text)
    train(local(module), batches_of(3))
    folder = saved(module, 3, tmp_path / "version-3")
    again = definition(text)
    state_of(again).restore(folder)
    for mine, theirs in zip(
        again.model.non_trainable_variables,
        module.model.non_trainable_variables,
        strict=True,
    ):
        np.testing.assert_array_equal(
            keras.ops.convert_to_numpy(mine), keras.ops.convert_to_numpy(theirs)
        )


TWO_OPTIMIZERS = """
import keras
import tensorflow as tf


class Two(keras.Model):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape(persistent=True) as tape:
            loss = tf.reduce_mean((self(x, training=True)[:, 0] - y) ** 2)
        for optimizer, layer in (
            (self.optimizer, self.first), (self.other, self.second)
        ):
            ours = layer.trainable_variables
            optimizer.apply(tape.gradient(loss, [v.value for v in ours]), ours)
        self.other.learning_rate = self.other.learning_rate * 0.9
        return {"loss": loss}


def model():
    inputs = keras.Input((3,))
    first, second = keras.layers.Dense(4), keras.layers.Dense(1)
    network = Two(inputs, second(first(inputs)))
    network.first, network.second = first, second
    network.other = keras.optimizers.Adam(0.01)
    network.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse")
    return network
"""


HELD = {  # how the model holds its further optimizer, and gets at it
    "attribute": ("network.other = {}", "self.other"),
    "list": ("network.others = [{}]", "self.others[0]"),
    "dict": ("network.named = {{'a': ({},)}}", "self.named['a'][0]"),
    "layer": ("second.mine = [{}]", "self.second.mine[0]"),
}


@pytest.mark.parametrize("held", HELD)
def test_a_models_further_optimizers_come_back_too(definition, tmp_path, held):
    adam = "keras.optimizers.Adam(0.01)"
    written, read = HELD[held]
    text = TWO_OPTIMIZERS.replace(f"network.other = {adam}", written.format(adam))
    text = text.replace("self.other", read)
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(32, 3)).astype("float32"), draw.random(32, "float32")

    def traced(module):
        step = OwnStep(module)
        step.trace(x, y)
        return step

    def state(module):
        others = other_optimizers(module.model)
        assert len(others) == 1
        config = module.optimizer_json()
        return LocalState(module.model, module.optimizer, config, beside=others)

    named = {"definition": "net.model", "files": {"net.py": text}}
    local_job = {"strategy": "local", "worker": {"replicas": 1}}
    module, again = (definition(model=named, **local_job) for _ in range(2))
    step = traced(module)
    begun = state(module)
    for _ in range(5):
        step.apply(x, y)
    entry = begun.write(5)(tmp_path, lambda _: None)
    manifest = Manifest(job="j", strategy="local", version=5, shards=[entry])
    store.write_manifest(tmp_path, manifest)
    resumed = traced(again)
    state(again).restore(tmp_path)
    for _ in range(5):
        step.apply(x, y)
        resumed.apply(x, y)
    for mine, theirs in zip(weights(again), weights(module), strict=True):
        np.testing.assert_array_equal(mine, theirs)


OWN_RATE = """

class OwnRate(keras.optimizers.SGD):
    def apply(self, grads, trainable_variables=None):
        super().apply(grads, trainable_variables)
        self.learning_rate = self.learning_rate * 0.9


def optimizer():
    return OwnRate(0.5)
"""


def test_a_rate_that_an_optimizer_moves_by_itself_comes_back_until_another_is_set(
    definition, batches_of, mlp, tmp_path
):
    batches = list(batches_of(6))
    undisturbed, first, second, edited = (definition(mlp + OWN_RATE) for _ in range(4))
    train(local(undisturbed), batches)
    rate = rate_of(first)
    train(local(first, rate=rate), batches[:4])
    folder = saved(first, 4, tmp_path / "checkpoint", rate)
    again = rate_of(second)
    state_of(second, again).restore(folder)
    train(local(second, version=4, rate=again), batches[4:])
    for mine, whole in zip(weights(second), weights(undisturbed), strict=True):
        np.testing.assert_allclose(mine, whole, rtol=1e-6)
    assert float(second.optimizer.learning_rate) == pytest.approx(0.5 * 0.9**6)

    edited.optimizer.learning_rate = 0.25  # as an edit of the job makes it
    other = rate_of(edited)
    state_of(edited, other).restore(folder)
    train(local(edited, version=4, rate=other), batches[4:5])
    assert float(edited.optimizer.learning_rate) == pytest.approx(0.25 * 0.9)


def test_a_rate_that_nobody_moves_is_that_of_the_job(definition, batches_of, tmp_path):
    first, second = definition(), definition()
    rate = rate_of(first)
    train(local(first, rate=rate), batches_of(2))
    folder = saved(first, 2, tmp_path / "checkpoint", rate)
    second.optimizer.learning_rate = 0.25
    again = rate_of(second)
    state_of(second, again).restore(folder)
    train(local(second, version=2, rate=again), batches_of(1))
    assert float(second.optimizer.learning_rate) == 0.25
