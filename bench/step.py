"""Training steps: through a PS, and in one process, against the plain TensorFlow step.

Owns the models (a CNN of 111 k, an MLP of 5.8 M and convolutions of 1.8 M parameters,
as in VGG: most of these in the last layers, most work in the first, 23 products for
each parameter) and the plain loop that a user without ElasticDL would write.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from elasticdl.data.formats.example import encode_example
from frame import Benchmark, Row, interleaved, ratios, row
from roles import TOKEN, StandIn, parameter_server

if TYPE_CHECKING:
    from elasticdl.metrics.registry import WorkerMetrics
    from elasticdl.model.feeding import Batch
    from elasticdl.rpc.tls.identity import Identity
    from elasticdl.worker.ps.trainer import PsTrainer

BATCH = 64
DELAY_SECONDS = 0.010

MODELS = """
import keras

def cnn():
    return keras.Sequential([
        keras.Input((28, 28, 1)),
        keras.layers.Conv2D(32, 3, activation="relu"),
        keras.layers.Conv2D(64, 3, activation="relu"),
        keras.layers.MaxPooling2D(),
        keras.layers.Flatten(),
        keras.layers.Dense(10)])

def mlp():
    return keras.Sequential([
        keras.Input((28, 28, 1)),
        keras.layers.Flatten(),
        keras.layers.Dense(2048, activation="relu"),
        keras.layers.Dense(2048, activation="relu"),
        keras.layers.Dense(10)])

def conv():
    layers = [keras.Input((28, 28, 1))]
    for filters in (32, 48, None, 64, 64, None, 128, None, 256, 256, 320):
        layers.append(
            keras.layers.Conv2D(filters, 3, padding="same", activation="relu")
            if filters else keras.layers.MaxPooling2D())
    return keras.Sequential([
        *layers, keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(10)])

def loss(labels, predictions):
    return keras.ops.mean(keras.losses.sparse_categorical_crossentropy(
        labels, predictions, from_logits=True))

def optimizer(name="Adam"):
    return getattr(keras.optimizers, name)(0.001)

def feed(dataset, mode, metadata):
    import tensorflow as tf
    def parse(record):
        example = tf.io.parse_single_example(record, {
            "image": tf.io.FixedLenFeature([28, 28, 1], tf.float32),
            "label": tf.io.FixedLenFeature([], tf.int64)})
        return example["image"], example["label"]
    return dataset.map(parse)
"""


def records_of(count: int) -> list[bytes]:
    """Return records for MODELS' feed, of MNIST's shape."""
    rng = np.random.default_rng(0)
    return [
        encode_example({"image": rng.random(784, np.float32), "label": number % 10})
        for number in range(count)
    ]


def example_batch() -> Batch:
    """Return a batch as the feed makes it."""
    import tensorflow as tf
    from elasticdl.model.feeding import Batch

    rng = np.random.default_rng(0)
    return Batch(
        tf.constant(rng.random((BATCH, 28, 28, 1), np.float32)),
        tf.constant(rng.integers(0, 10, BATCH)),
        BATCH,
    )


def definition(model: str, optimizer: str) -> Any:
    """Return a built definition of one of the models."""
    from elasticdl.job.names import JobDir
    from elasticdl.job.spec.job import JobSpec
    from elasticdl.model.definition import load_definition

    spec = JobSpec.model_validate(
        {
            "name": "bench",
            "model": {
                "definition": f"net.{model}",
                "files": {"net.py": MODELS.replace('"Adam"', f'"{optimizer}"')},
            },
            "data": {"training": "none"},
        }
    )
    made = load_definition(spec, JobDir(Path(tempfile.mkdtemp()) / "job"))
    made.build_model()
    return made


def plain_step(model: str, optimizer: str) -> Callable[[], Any]:
    """Return the step of a loop in one process, as TensorFlow's guide has it."""
    import tensorflow as tf

    made = definition(model, optimizer)
    net, rule = made.model, made.optimizer
    batch = example_batch()

    @tf.function
    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = made.loss(y, net(x, training=True))
        variables = net.trainable_variables
        rule.apply_gradients(
            zip(tape.gradient(loss, variables), variables, strict=True)
        )
        return loss

    return lambda: float(step(batch.features, batch.labels))


@contextmanager
def trainer_of(
    made: Any,
    example: Batch,
    ps: StandIn,
    *,
    delay_seconds: float = 0.0,
    identity: Identity | None = None,
    lends: bool = True,
    metrics: WorkerMetrics | None = None,
) -> Iterator[Any]:
    """Give the product's PS trainer, as worker.trainer_maker puts it together."""
    from elasticdl.metrics.goodput import GoodputLedger
    from elasticdl.metrics.registry import WorkerMetrics
    from elasticdl.model.state import non_trainable
    from elasticdl.model.state_keeps import state_layout
    from elasticdl.model.variables import (
        layout_variables,
        to_buffers,
        trainable_variables,
    )
    from elasticdl.rpc.ps.client import PsClient
    from elasticdl.tensor.placement import place
    from elasticdl.worker.ps.link import PsLink
    from elasticdl.worker.ps.shared_variables import SharedVariables
    from elasticdl.worker.ps.trainer import PsTrainer, PsTrainerOptions
    from elasticdl.worker.ps.transfer import Transfer
    from elasticdl.worker.steps.choice import choose_step

    batch = (example.features, example.labels)
    step, kinds = choose_step(made, batch, optimizer=None)
    variables = trainable_variables(made.model)
    named = {v.name: kind for v, kind in zip(variables, kinds, strict=True)}
    layout = place(layout_variables(variables, named), 1)
    kept = non_trainable(made.model).shared
    shared = SharedVariables(kept, state_layout(made, kept, *batch))
    metrics = metrics or WorkerMetrics()
    link = PsLink(
        PsClient(
            worker=0,
            generation=1,
            sync=False,
            token=TOKEN,
            identity=identity,
            lends=lends,
            delay_seconds=delay_seconds,
        ),
        ps,
        layout=layout,
        optimizer_json=made.optimizer_json(),
        initial=to_buffers([v.numpy() for v in variables], layout),
        initial_state=shared.state,
        leaving=threading.Event(),
        on_wait=lambda: None,
    )
    trainer = PsTrainer(
        step,
        Transfer(
            link,
            pull_seconds=metrics.pull_seconds,
            push_seconds=metrics.push_seconds,
            convert_seconds=metrics.convert_seconds,
            on_wait=lambda: None,
        ),
        link,
        state=shared,
        options=PsTrainerOptions(
            pipeline=True,
            pull_steps=1,
            skip_nan=False,
            learning_rate_of=lambda _version, _epoch: None,
        ),
        goodput=GoodputLedger(time.monotonic),
        metrics=metrics,
    )
    try:
        yield trainer
    finally:
        trainer.close()


def ps_step_times(
    model: str, optimizer: str, delay_seconds: float, *, rounds: int, steps: int
) -> dict[str, list[float]]:
    """Return seconds a step, by variant and round.

    `plain` has no PS, `ps` has one with lent memory, `apart` one as between pods.
    """
    from elasticdl.worker.trainer import BatchPosition

    plain = plain_step(model, optimizer)
    batch = example_batch()
    at = BatchPosition(
        task_id=1, epoch=0, records_done=0, num_records=BATCH, last=False
    )

    def one_process() -> float:
        began = time.perf_counter()
        for _ in range(steps):
            plain()
        return (time.perf_counter() - began) / steps

    def through(trainer: PsTrainer) -> Callable[[], float]:
        def steps_of_it() -> float:
            began = time.perf_counter()
            for _ in range(steps):
                trainer.train_batch(batch.features, batch.labels, at)
            trainer.flush()
            return (time.perf_counter() - began) / steps

        return steps_of_it

    def trainer(ps: StandIn, *, lends: bool) -> AbstractContextManager[PsTrainer]:
        made = definition(model, optimizer)
        return trainer_of(made, batch, ps, delay_seconds=delay_seconds, lends=lends)

    with ExitStack() as stack:
        variants = {"plain": one_process}
        for name in ("ps", "apart"):
            ps = stack.enter_context(parameter_server())
            made = trainer(ps, lends=name == "ps")
            variants[name] = through(stack.enter_context(made))
        return interleaved(variants, rounds)


def ps_step() -> list[Row]:
    """Compare the CNN's step through a PS over a slow network with the plain one."""
    times = ps_step_times("cnn", "Adam", DELAY_SECONDS, rounds=11, steps=30)
    what = "CNN: plain tf.function step / through 1 PS, pipelined, calls 10 ms slower"
    return _with_apart("ps_step", what, times, 0.85)


def ps_step_mlp() -> list[Row]:
    """Compare the same for a model whose parameters are the load."""
    times = ps_step_times("mlp", "Adam", DELAY_SECONDS, rounds=11, steps=20)
    what = "MLP of 23 MB: plain step / through 1 PS, pipelined, calls 10 ms slower"
    return _with_apart("ps_step_mlp", what, times, 0.5)


def _with_apart(
    name: str, what: str, times: dict[str, list[float]], bar: float
) -> list[Row]:
    apart = f"{what}, without lent memory, as between pods"
    return [
        row(name, what, ratios(times["plain"], times["ps"]), bar),
        row(f"{name}_apart", apart, ratios(times["plain"], times["apart"]), bar),
    ]


def local_step() -> list[Row]:
    """Compare strategy local with Keras's own loop, both from records."""
    import keras
    import tensorflow as tf
    from elasticdl.data.reader import Metadata
    from elasticdl.model.feeding import Feeder
    from elasticdl.worker.local.trainer import LocalTrainer
    from elasticdl.worker.steps.learning_rate import LearningRate
    from elasticdl.worker.steps.variable_step import VariableStep
    from elasticdl.worker.trainer import BatchPosition

    records = records_of(32 * BATCH)
    made = definition("cnn", "Adam")
    variable_step = VariableStep(made, optimizer=made.optimizer, guard=False)
    trainer = LocalTrainer(
        variable_step,
        made.optimizer,
        rate=LearningRate(
            made.optimizer, made.rate_schedule().learning_rate_of, lambda: 1.0
        ),
        version=0,
        skip_nan=False,
        between_steps=lambda _version, _applied: None,
    )
    feeder = Feeder(made, mode="training", batch_size=BATCH, metadata=Metadata())

    def ours() -> float:
        began = time.perf_counter()
        for number, batch in enumerate(feeder.batches(records), 1):
            at = BatchPosition(1, 0, number * BATCH, BATCH, last=False)
            trainer.train_batch(batch.features, batch.labels, at)
        return time.perf_counter() - began

    plain = definition("cnn", "Adam")
    model = plain.model
    model.compile(
        plain.optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )

    features = {
        "image": tf.io.FixedLenFeature([28, 28, 1], tf.float32),
        "label": tf.io.FixedLenFeature([], tf.int64),
    }

    def parse(record: Any) -> Any:
        example = tf.io.parse_single_example(record, features)
        return example["image"], example["label"]

    dataset = tf.data.Dataset.from_tensor_slices(records).map(parse).batch(BATCH)
    dataset = dataset.prefetch(tf.data.AUTOTUNE)

    def fit() -> float:
        began = time.perf_counter()
        model.fit(dataset, verbose=0, shuffle=False)
        return time.perf_counter() - began

    times = interleaved({"ours": ours, "fit": fit}, 11)
    what = "CNN, 32 batches from records, seconds: model.fit / strategy local"
    return [row("local_step", what, ratios(times["fit"], times["ours"]), 0.95)]


BENCHMARKS = {
    "local_step": Benchmark(local_step, 30, short=False),
    "ps_step": Benchmark(ps_step, 55, short=False),
    "ps_step_mlp": Benchmark(ps_step_mlp, 75, short=False),
}
