"""Moving statistics of BatchNormalization keep pace, however many workers there are."""

import math
from statistics import fmean

import keras
import numpy as np
import pytest
from elasticdl.checkpoint.reshard import load_all
from elasticdl.data.making.builtin import load_arrays
from elasticdl.data.reader import open_reader
from elasticdl.job.values.file import edit_values

from tests.soak.true_statistics import Statistics

pytestmark = [pytest.mark.usefixtures("unmeasured"), pytest.mark.timeout(400)]

# A low rate: what late gradients do to weights is another matter (docs/models.md).
NORMED = """
import keras

def model():
    network = keras.Sequential([
        keras.Input((64,), name="image"),
        keras.layers.Rescaling(1 / 16),
        keras.layers.Dense(32, activation="relu"),
        keras.layers.BatchNormalization(name="normal"),
        keras.layers.Dense(10),
    ])
    network.compile(
        keras.optimizers.Adam(0.0003),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    return network
"""
# A layer counts batches. The other one is fed with ones, so that its moving mean tells
# how often it was moved.
COUNTING = """
import keras

class Counting(keras.layers.Layer):
    def build(self, shape):
        self.seen = self.add_weight(
            name="seen", shape=(), initializer="zeros", trainable=False)

    def call(self, x, training=False):
        if training:
            self.seen.assign_add(1.0)
        return x

def model():
    inputs = keras.Input((64,), name="image")
    ones = keras.layers.Rescaling(0.0, offset=1.0)(Counting()(inputs))
    counted = keras.layers.BatchNormalization(name="moved", momentum=0.999)(ones)
    x = keras.layers.Concatenate()([inputs, counted])
    network = keras.Model(inputs, keras.layers.Dense(10)(x))
    network.compile(
        keras.optimizers.Adam(0.0003),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    return network
"""
EPOCHS, BATCH, RECORDS = 8, 16, 1797
PER_EPOCH = -(-RECORDS // BATCH)
WORKERS = 4


def made(seed):
    keras.utils.clear_session()  # the same names as in the job
    keras.utils.set_random_seed(seed)
    space = {}
    exec(NORMED, space)
    return space["model"]()


@pytest.fixture(scope="module")
def data():
    arrays = load_arrays("digits")
    return arrays.x.reshape(RECORDS, -1).astype(np.float32), arrays.y


@pytest.fixture(scope="module")
def measured(data):
    """The mean distance of some weights' moving statistics from the true ones.

    Of several moments of a training: one alone tells as much of chance.
    """
    model = made(0)
    statistics = Statistics(model, data[0])

    def measure(looks):
        found = []
        for weights in looks:
            model.set_weights([weights[v.path] for v in model.weights])
            found += statistics.put_true()
        return fmean(d.mean for d in found), fmean(d.variance for d in found)

    return measure


@pytest.fixture(scope="module")
def fitted(data, measured):
    """The same of plain Keras, by the seed of its order and the size of its batches."""

    def fitted(seed, batch=BATCH):
        model, looks = made(0), []  # as the job begins
        keras.utils.set_random_seed(seed)  # of the order of its batches
        # The same steps, with less Python between them.
        model.compile(
            model.optimizer, model.loss, steps_per_execution=20, jit_compile=False
        )

        def look(epoch, logs):
            looks.append({v.path: v.numpy() for v in model.weights})

        after = keras.callbacks.LambdaCallback(on_epoch_end=look)
        model.fit(*data, batch_size=batch, epochs=EPOCHS, verbose=0, callbacks=[after])
        print(seed, batch, found := measured(looks[EPOCHS // 2 :]))
        return found

    return fitted


@pytest.fixture(scope="module")
def of_keras(fitted):
    return [fitted(seed) for seed in (1, 2, 3)]


def looks_of_job(job, mode, model, *, num_ps=1):
    """Train with four workers; return the weights of each checkpoint by version."""
    batches = 1 if mode == "async" else WORKERS  # in a version
    one = job(
        f"normed-{mode}",
        limit_seconds=300.0,
        paused=True,  # until all four are there
        model={"definition": "net.model", "files": {"net.py": model}},
        data={"training": "data/digits/train,data/digits/test"},
        training={"epochs": EPOCHS, "batchSize": BATCH, "batchesPerTask": 5},
        checkpoint={"everySteps": PER_EPOCH // batches, "everySeconds": 0, "keep": 0},
        ps={"replicas": num_ps, "mode": mode},
        worker={"replicas": WORKERS},
    )
    one.wait_until(
        lambda s: sum(r.phase == "idle" for r in s.replicas) == WORKERS, "idle workers"
    )
    edit_values(one.job_dir.spec_file, {"job.paused": False})
    report = one.finish()
    looks = {}
    for folder in one.job_dir.checkpoints_dir.glob("version-*"):
        whole = load_all(folder)
        looks[whole.version] = {**whole.values, **whole.states}
    assert report.version == max(looks)
    return looks


def errors_of_job(job, measured, mode):
    looks = looks_of_job(job, mode, NORMED)
    late = [looks[version] for version in looks if version >= max(looks) // 2]
    print(mode, found := measured(late))
    return found


@pytest.mark.parametrize(
    "mode", [pytest.param("sync", marks=pytest.mark.soak), "async"]
)
def test_each_batch_of_any_worker_moves_the_statistics_once(job, digits, mode):
    moves, counts = {}, {}
    for version, weights in looks_of_job(job, mode, COUNTING, num_ps=2).items():
        (mean,) = [v for k, v in weights.items() if k.endswith("/moving_mean")]
        assert np.ptp(mean) < 1e-6
        moves[version] = math.log(1 - float(mean[0])) / math.log(0.999)
        (seen,) = [v for k, v in weights.items() if k.endswith("/seen")]
        counts[version] = float(seen)
    # No batch has records of two files.
    files = [
        shard
        for part in ("train", "test")
        for shard in open_reader(f"data/digits/{part}", data_root=digits).shards()
    ]
    batches = EPOCHS * sum(-(-(file.end - file.start) // BATCH) for file in files)
    assert counts[max(counts)] == batches
    for version, count in counts.items():
        if mode == "async":
            assert count == version
            # What comes late by k versions is led by a thousandth of each of them.
            assert count - 0.1 <= moves[version] <= count * 1.02
        else:  # of the last versions of an epoch not all workers are
            assert moves[version] == pytest.approx(count, abs=0.1)
            assert WORKERS * (version - EPOCHS) <= count <= WORKERS * version


@pytest.mark.soak
def test_statistics_of_four_sync_workers_are_as_near_the_true_ones_as_those_of_keras(
    job, measured, of_keras, fitted
):
    ours = errors_of_job(job, measured, "sync")
    # A version is a step of Keras with a batch of all workers.
    for one, theirs in zip(ours, fitted(1, WORKERS * BATCH), strict=True):
        assert one <= 1.05 * theirs
    # Each worker's move counts as one of a batch of its own, but the weights that they
    # follow are changed a quarter as often. Measured: 1.0 to 1.6 times the errors of
    # Keras with such batches; a quarter of the moves: 6.5.
    for one, theirs in zip(ours, zip(*of_keras, strict=True), strict=True):
        assert one <= 3 * fmean(theirs)


@pytest.mark.soak
def test_statistics_of_four_async_workers_are_not_those_of_a_quarter_of_the_batches(
    job, measured, of_keras
):
    ours = errors_of_job(job, measured, "async")
    for one, theirs in zip(ours, zip(*of_keras, strict=True), strict=True):
        # Measured: 1.1 to 1.6 times those of Keras (docs/models.md says why they are
        # larger at all); a quarter of the moves, as by averages over workers: 6.5.
        assert one <= 3 * fmean(theirs)
