"""Statistics of BatchNormalization: what plain Keras makes of the same batches.

What comes late, in async mode, is led over the versions between: then it is what each
worker's own change makes, added (tensor/shared_state.py).
"""

import time

import keras
import numpy as np
import pytest
from elasticdl.job.tasks import LIVE
from elasticdl.model.measures.moves import MEAN
from elasticdl.model.measures.portions import try_training
from elasticdl.model.state import non_trainable, read_state, write_state
from elasticdl.model.state_keeps import keep_of, state_layout
from elasticdl.worker.ps.shared_variables import SharedVariables
from elasticdl.worker.trainer import BatchPosition

DENSE = 'keras.layers.Dense(8, activation="tanh")'
# In front, so that its statistics are those of the data, whatever is trained behind.
NORMED = f"keras.layers.BatchNormalization(momentum=0.9), {DENSE}"
TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}


@pytest.fixture
def normed(definition, mlp):
    return lambda: definition(mlp.replace(DENSE, NORMED))


def of_keras(batches, model, *, start=None):
    """Statistics that a Keras layer has after these batches, in the model's order."""
    layer = keras.layers.BatchNormalization(momentum=0.9)
    if start is not None:
        layer.build(batches[0][0].shape)
        layer.moving_mean.assign(layer.moving_mean * 0.0 + start)
        layer.moving_variance.assign(layer.moving_variance * 0.0 + start)
    for features, _ in batches:
        layer(features, training=True)
    assert len(non_trainable(model).shared) == 2
    return [layer.moving_mean.numpy(), layer.moving_variance.numpy()]


def led(batches, late, model):
    """The same where each batch's share comes so many versions late.

    Of these, one counts with this momentum.
    """
    shares = [of_keras([batch], model, start=0.0) for batch in batches]
    seen = [[np.float32(0.0), np.float32(1.0)]]  # as Keras begins them
    for at, (share, behind) in enumerate(zip(shares, late, strict=True)):
        then, now = seen[at - min(behind, 1)], seen[at]
        seen.append(
            [
                0.9 * new + one + 0.1 * (new - old)
                for new, one, old in zip(now, share, then, strict=True)
            ]
        )
    return seen[-1]


def on_the_ps(one):
    return list(one.trainer.values(LIVE).state.values())


def equal(got, expected):
    for mine, theirs in zip(got, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, **TOLERANCE)


def wait_for_version(group, version):
    end = time.monotonic() + 60.0
    while group.servers[0]._live.parameters.version < version:
        assert time.monotonic() < end, f"no version {version}"
        time.sleep(0.001)


@pytest.mark.parametrize("pipeline", [False, True])
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_statistics_of_any_number_of_workers_are_those_of_plain_keras(
    rig, ps_group, normed, batches_of, workers, pipeline
):
    group = ps_group(2)
    rigs = [rig(group, normed(), worker=w, pipeline=pipeline) for w in range(workers)]
    batches = list(batches_of(24))
    for number, batch in enumerate(batches):
        rigs[number % workers].train([batch], task=number)
        # Pushes are under way beside the next step, but come in order: as in Keras.
        wait_for_version(group, number + 1)
    for one in rigs:
        one.trainer.flush()
    # Between a pull and its push all others push, and with a pipeline all push twice.
    behind = (2 * workers if pipeline else workers) - 1
    late = [min(number, behind) for number in range(24)]
    equal(on_the_ps(rigs[0]), led(batches, late, rigs[0].definition.model))
    if not behind:
        equal(on_the_ps(rigs[0]), of_keras(batches, rigs[0].definition.model))
    assert rigs[0].trainer.values(LIVE).version == 24


def test_a_sync_version_has_the_batches_of_all_its_workers(
    rig, ps_group, normed, batches_of
):
    group = ps_group(2, sync=True)
    group.control(quorum=3)
    rigs = [rig(group, normed(), worker=w) for w in range(3)]
    batches = list(batches_of(4))
    _beside([lambda one=one: one.train(batches) for one in rigs])
    same = [batch for batch in batches for _ in rigs]
    equal(on_the_ps(rigs[0]), of_keras(same, rigs[0].definition.model))
    assert rigs[0].trainer.values(LIVE).version == 4


def _beside(calls):
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(len(calls)) as pool:
        for done in [pool.submit(call) for call in calls]:
            done.result(60)


def test_a_refused_batch_moves_the_statistics_once(rig, ps_group, normed, batches_of):
    group = ps_group(1, max_staleness=2)
    late = rig(group, normed())
    first, *between, last, end = batches_of(8)
    late.train([first])
    late.trainer.flush()
    rig(group, normed(), worker=1, pipeline=False).train(between)
    late.train([last])
    late.train([end])
    late.trainer.flush()
    assert late.metrics.refused._value.get() >= 1
    batches = [first, *between, last, end]
    equal(on_the_ps(late), of_keras(batches, late.definition.model))
    # The worker's own are the same: nothing is under way.
    equal(
        read_state(non_trainable(late.definition.model).shared).values(),
        on_the_ps(late),
    )


def test_a_worker_goes_on_from_the_statistics_of_all(rig, ps_group, normed, batches_of):
    group = ps_group(1)
    one = rig(group, normed(), pipeline=False)
    one.train(batches_of(5))
    late = rig(group, normed(), worker=1)
    equal(
        read_state(non_trainable(late.definition.model).shared).values(), on_the_ps(one)
    )


def test_a_rewind_to_the_beginning_takes_the_statistics_back(
    rig, ps_group, normed, batches_of
):
    group = ps_group(1)
    one = rig(group, normed())
    before = [array.copy() for array in on_the_ps(one)]
    one.train(batches_of(3))
    one.trainer.flush()
    group.rewind = 1
    group.servers[0].begin(rewind=1, restore_dir=None)
    group.publish()
    one.trainer.recover()
    equal(on_the_ps(one), before)
    equal(read_state(non_trainable(one.definition.model).shared).values(), before)


def test_a_batch_that_is_skipped_leaves_the_statistics_alone(
    rig, ps_group, normed, batches_of
):
    one = rig(ps_group(1), normed(), skip_nan=True)
    nan = (np.full((4, 6), np.nan, np.float32), np.zeros(4, np.int32))
    batches = list(batches_of(3))
    one.train([batches[0], nan, *batches[1:]])
    one.trainer.flush()
    equal(on_the_ps(one), led(batches, [0, 0, 1], one.definition.model))


COUNTING = """
class Counting(keras.layers.Layer):
    def build(self, shape):
        self.seen = self.add_weight(
            shape=(), initializer="zeros", trainable=False, dtype="%s")

    def call(self, x, training=False):
        if training:
            self.seen.assign_add(1.0)
        return x
"""


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_count_in_any_float_counts_the_batches_of_all_workers(
    rig, ps_group, definition, mlp, batches_of, dtype
):
    text = (COUNTING % dtype) + mlp.replace(DENSE, f"Counting(), {DENSE}")
    text = "import keras\n" + text
    group = ps_group(1)
    rigs = [rig(group, definition(text), worker=w) for w in range(2)]
    for number, batch in enumerate(batches_of(6)):
        rigs[number % 2].train([batch], task=number)
    for one in rigs:
        one.trainer.flush()
    assert [float(a) for a in on_the_ps(rigs[0])] == [6.0]


def test_bfloat16_state_is_read_and_written_as_floats(definition, mlp):
    text = (COUNTING % "bfloat16") + mlp.replace(DENSE, f"Counting(), {DENSE}")
    model = definition("import keras\n" + text).model
    shared = non_trainable(model).shared
    write_state(shared, {shared[0].name: np.float32(1.0)})
    state = read_state(shared)
    assert state[shared[0].name].dtype == np.float32
    assert state[shared[0].name] == 1.0


def test_what_a_step_keeps_is_the_layers_momentum(normed, batches_of):
    module = normed()
    shared = non_trainable(module.model).shared
    layout = state_layout(module, shared, *next(batches_of(1)))
    assert [v.keep for v in layout.variables] == [0.9, 0.9]
    held = SharedVariables(shared, layout)
    assert held.values.size == layout.size == 12


def test_a_layer_with_state_may_stand_beside_a_regulariser(definition, mlp, batches_of):
    scaled = f"keras.layers.Normalization(), {DENSE[:-1]}, kernel_regularizer='l2')"
    module = definition(mlp.replace(DENSE, scaled))
    shared = non_trainable(module.model).shared
    layout = state_layout(module, shared, *next(batches_of(1)))
    assert [v.keep for v in layout.variables] == [1.0, 1.0]  # nothing moves them
    # The same where workers make steps together.
    own = [v.variable for v in shared]
    assert try_training(module, own, *next(batches_of(1))) == [MEAN, MEAN]


def test_a_model_without_state_sends_none(rig, batches_of):
    one = rig()
    features, labels = next(batches_of(1))
    one.trainer.train_batch(features, labels, BatchPosition(1, 0, 16, 16, True))
    one.trainer.flush()
    assert one.trainer.values(LIVE).state == {}


OWN_STATE = """
import keras

class Own(keras.layers.Layer):
    def build(self, shape):
        def make(name):
            return self.add_weight(
                name=name, shape=(), initializer="zeros", trainable=False)
        self.average, self.last = make("average"), make("last")
        self.seen = make("seen")

    def call(self, x, training=False):
        if training:
            mean = keras.ops.mean(x)
            self.average.assign(0.8 * self.average + 0.2 * mean)
            self.last.assign(mean)
            self.seen.assign_add(1.0)
        return x
"""


def next_average(average, mean):
    """What an own average is next: with so short a memory it is not led."""
    return 0.8 * average + 0.2 * mean


def test_state_of_own_layers_is_put_together_as_its_steps_make_it(
    rig, ps_group, definition, mlp, batches_of
):
    text = OWN_STATE + mlp.replace(DENSE, f"Own(), {DENSE}")
    group = ps_group(1)
    rigs = [rig(group, definition(text), worker=w) for w in range(4)]
    average = 0.0
    for number, (features, labels) in enumerate(batches_of(40)):
        rigs[number % 4].train([(features, labels)], task=number)
        # The PS takes pushes in the order in which they come: one after the other here.
        rigs[number % 4].trainer.flush()
        mean = float(features.mean())
        average = next_average(average, mean)
    got = {n.split("/")[-1]: a for n, a in rigs[0].trainer.values(LIVE).state.items()}
    assert got["average"] == pytest.approx(average, abs=1e-5)
    assert got["last"] == pytest.approx(mean, abs=1e-5)
    assert got["seen"] == 40


OF_THE_LOSS = """
import keras

class Net(keras.Sequential):
    def __init__(self, layers):
        super().__init__(layers)
        self.average = self.add_weight(
            name="average", shape=(), initializer="zeros", trainable=False)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None,
                     training=True):
        if training:
            mean = keras.ops.mean(x)
            self.average.assign(0.8 * self.average + 0.2 * mean)
        return super().compute_loss(x, y, y_pred, sample_weight)
"""


def test_state_that_an_own_loss_moves_is_put_together_in_the_same_way(
    rig, ps_group, definition, mlp, batches_of
):
    net = mlp.replace("return keras.Sequential(", "net = Net(").replace(
        "keras.layers.Dense(3)])",
        "keras.layers.Dense(3)])\n    net.compile(loss='sparse_categorical_"
        "crossentropy')\n    return net",
    )
    text = OF_THE_LOSS + net.replace("def loss(", "def unused(")
    group = ps_group(1)
    rigs = [rig(group, definition(text), worker=w) for w in range(4)]
    average = 0.0
    for number, (features, labels) in enumerate(batches_of(40)):
        rigs[number % 4].train([(features, labels)], task=number)
        rigs[number % 4].trainer.flush()
        mean = float(features.mean())
        average = next_average(average, mean)
    (got,) = rigs[0].trainer.values(LIVE).state.values()
    assert got == pytest.approx(average, abs=1e-5)


@pytest.mark.parametrize(
    ("slopes", "keep"),
    [
        ([0.99, 0.99, 0.990001], 0.99),
        ([1.0, 1.0], 1.0),
        ([1.0, 0.9, 1.0], 1.0),  # some rows alone
        ([0.0, 0.0], 0.0),
        ([0.3, -0.4], 0.0),
        ([np.nan, 1.0], 0.0),
        ([2.0, 2.0], 0.0),
    ],
)
def test_what_a_step_keeps_is_told_by_a_state_that_was_shifted(slopes, keep):
    assert keep_of(np.array(slopes)) == keep
