"""Sync training on parameter servers gives the weights of plain Keras training."""

import importlib.util
import signal
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from elasticdl.checkpoint.reshard import load_all
from elasticdl.data.reader import open_reader
from elasticdl.job.spec.job import DataFormat
from elasticdl.job.values.file import edit_values

pytestmark = pytest.mark.usefixtures("unmeasured")

STEPS = 24
# float32: sums in another order, over at most 24 steps of Adam.
RTOL, ATOL = 2e-4, 2e-6


@pytest.fixture(scope="session")
def net():
    """The jobs' own model module, for the reference."""
    file = Path(__file__).parent.parent / "models" / "net.py"
    spec = importlib.util.spec_from_file_location("reference_net", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def versions(one):
    """Weights by version, from the checkpoints of a job."""
    found = {}
    for folder in one.job_dir.checkpoints_dir.glob("version-*"):
        if (folder / "manifest.json").exists():
            whole = load_all(folder)
            found[whole.version] = whole.values
    return found


def plain_keras(net, one, batches):
    """Weights after each step of a plain loop over `batches` (lists of records)."""
    keras.utils.clear_session()  # the same names as in the job
    keras.utils.set_random_seed(one.values.job.training.seed)  # the same beginning
    model, optimizer = net.custom_model(), net.optimizer()
    history = [{v.path: v.numpy() for v in model.trainable_variables}]
    for batch in batches:
        dataset = net.feed(tf.data.Dataset.from_tensor_slices(batch), "training", None)
        images, labels = next(iter(dataset.batch(len(batch))))
        with tf.GradientTape() as tape:
            loss = net.loss(labels, model(images, training=True))
        gradients = tape.gradient(loss, [v.value for v in model.trainable_variables])
        optimizer.apply_gradients(
            zip(gradients, model.trainable_variables, strict=True)
        )
        history.append({v.path: v.numpy() for v in model.trainable_variables})
    return history


def records_of(digits, source, start, end):
    reader = open_reader(
        "data/digits/train", data_root=digits, format=DataFormat.AUTO, params={}
    )
    return reader.read(source, start, end, skip_bad=False).values


def assert_same(ours, theirs, where):
    assert ours.keys() == theirs.keys()
    for name in theirs:
        np.testing.assert_allclose(
            ours[name], theirs[name], rtol=RTOL, atol=ATOL, err_msg=f"{where}: {name}"
        )


def test_one_worker_in_sync_mode_equals_keras_step_by_step(job, digits, net, unhurried):
    jobs = {
        num_ps: job(
            f"equal-{num_ps}",
            model=unhurried(0.1),  # for a checkpoint of nearly each step
            data={"shuffle": False},
            training={"epochs": 1, "maxSteps": STEPS, "batchesPerTask": 5},
            checkpoint={"everySteps": 1, "everySeconds": 0, "keep": 0},
            ps={"mode": "sync", "replicas": num_ps},
            worker={"replicas": 1},
        )
        for num_ps in (1, 3)
    }
    for num_ps, one in jobs.items():
        one.finish()
        ours = versions(one)
        # Checkpoints are taken in the background: not every step has one.
        assert STEPS in ours
        assert len(ours) > 2
        batches = []
        for done in sorted(one.audit().trained, key=lambda t: t.task_id):
            records = records_of(digits, done.source, done.start, done.end)
            batches += [records[i : i + 16] for i in range(0, len(records), 16)]
        history = plain_keras(net, one, batches)
        for version, values in ours.items():
            assert_same(values, history[version], f"{num_ps} PS, version {version}")


def test_n_workers_in_sync_mode_equal_one_worker_with_the_n_fold_batch(
    job, digits, net, unhurried
):
    one = job(
        "n-fold",
        model=unhurried(0.05),
        paused=True,  # until both are there: versions are made of two from the start
        data={"shuffle": False},
        training={"epochs": 1, "maxSteps": 2 * STEPS, "batchesPerTask": 1},
        checkpoint={"everySteps": 1, "everySeconds": 0, "keep": 0},
        ps={"mode": "sync", "replicas": 2},
        worker={"replicas": 2},
    )
    one.wait_until(
        lambda s: sum(r.phase == "idle" for r in s.replicas) == 2, "two idle workers"
    )
    edit_values(one.job_dir.spec_file, {"job.paused": False})
    report = one.finish()
    ours = versions(one)
    by_worker = {}
    for done in one.audit().trained:
        records = records_of(digits, done.source, done.start, done.end)
        by_worker.setdefault(done.worker, []).append(records)
    # Towards the end one worker may be without a task: versions of one gradient.
    rounds = zip(*by_worker.values(), strict=False)
    batches = [[r for part in parts for r in part] for parts in rounds][: STEPS - 4]
    assert {len(batch) for batch in batches} == {32, 24}  # 24: a file's short end
    assert STEPS <= report.version < STEPS + 4
    history = plain_keras(net, one, batches)
    compared = [version for version in ours if version <= len(batches)]
    assert len(compared) >= 2
    for version in compared:
        assert_same(ours[version], history[version], f"2 workers, version {version}")


@pytest.mark.soak
def test_killed_and_resumed_sync_job_equals_an_undisturbed_one(job, digits, net):
    one = job(
        "resumed",
        data={"shuffle": False},
        training={"epochs": 1, "maxSteps": 80, "batchesPerTask": 4},
        checkpoint={"everySteps": 7, "everySeconds": 0, "keep": 0},
        ps={"mode": "sync", "replicas": 2},
        worker={"replicas": 1},
    )
    one.wait_until(lambda s: (s.checkpoint_version or 0) > 10, "a checkpoint")
    one.fault("ps", signal.SIGKILL)
    report = one.finish()
    assert report.rewinds == 1
    assert report.version == 80
    ours = versions(one)
    valid = sorted(
        (t for t in one.audit().trained if t.valid), key=lambda t: (t.task_id, t.start)
    )
    batches = []
    for done in valid:
        records = records_of(digits, done.source, done.start, done.end)
        batches += [records[i : i + 16] for i in range(0, len(records), 16)]
    history = plain_keras(net, one, batches)
    assert_same(ours[80], history[-1], "after a rewind")
