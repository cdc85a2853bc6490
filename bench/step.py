"""Training steps: through a PS, and in one process, against the plain TensorFlow step.

Owns the two models (a CNN of 111 k and an MLP of 5.8 M parameters) and the plain loop
that a user without ElasticDL would write.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from frame import Benchmark, Row, interleaved, ratios, row
from roles import StandIn, parameter_server

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

def loss(labels, predictions):
    return keras.ops.mean(keras.losses.sparse_categorical_crossentropy(
        labels, predictions, from_logits=True))

def optimizer(name="Adam"):
    return getattr(keras.optimizers, name)(0.001)

def feed(dataset, mode, metadata):
    import tensorflow as tf
    def parse(record):
        row = tf.ensure_shape(tf.io.decode_raw(record, tf.float32), [785])
        return tf.reshape(row[:784], [28, 28, 1]), tf.cast(row[784], tf.int64)
    return dataset.map(parse)
"""


def batch(seed: int = 0) -> tuple[Any, Any]:
    """Return a batch of MNIST's shape, as tensors."""
    import numpy as np
    import tensorflow as tf

    rng = np.random.default_rng(seed)
    images = rng.random((BATCH, 28, 28, 1), np.float32)
    return tf.constant(images), tf.constant(rng.integers(0, 10, BATCH))


def definition(model: str, optimizer: str) -> Any:
    """Return a built definition of one of the models."""
    from elasticdl.job.names import JobDir
    from elasticdl.job.spec import JobSpec
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
    features, labels = batch()

    @tf.function
    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = made.loss(y, net(x, training=True))
        variables = net.trainable_variables
        rule.apply_gradients(
            zip(tape.gradient(loss, variables), variables, strict=True)
        )
        return loss

    return lambda: float(step(features, labels))


@contextmanager
def ps_trainer(
    model: str,
    optimizer: str,
    ps: StandIn,
    *,
    delay_seconds: float = 0.0,
    pull_steps: int = 1,
) -> Iterator[Any]:
    """Give the product's PS trainer, as worker.trainer_maker puts it together."""
    from elasticdl.metrics.ledger import GoodputLedger
    from elasticdl.metrics.registry import WorkerMetrics
    from elasticdl.model.state import non_trainable
    from elasticdl.model.variables import (
        layout_variables,
        to_buffers,
        trainable_variables,
    )
    from elasticdl.rpc.ps_client import PsClient
    from elasticdl.tensor.placement import place
    from elasticdl.worker.ps_link import PsLink
    from elasticdl.worker.ps_trainer import PsTrainer, PsTrainerOptions
    from elasticdl.worker.step_choice import choose_step
    from elasticdl.worker.transfer import Transfer

    made = definition(model, optimizer)
    step, kinds = choose_step(made, batch(), optimizer=None)
    variables = trainable_variables(made.model)
    named = {v.name: kind for v, kind in zip(variables, kinds, strict=True)}
    layout = place(layout_variables(variables, named), 1)
    metrics = WorkerMetrics()
    link = PsLink(
        PsClient(worker=0, generation=1, sync=False, delay_seconds=delay_seconds),
        ps,
        layout=layout,
        optimizer_json=made.optimizer_json(),
        initial=to_buffers([v.numpy() for v in variables], layout),
        leaving=threading.Event(),
        on_wait=lambda: None,
    )
    trainer = PsTrainer(
        step,
        Transfer(
            link,
            pull_seconds=metrics.pull_seconds,
            push_seconds=metrics.push_seconds,
            on_wait=lambda: None,
        ),
        link,
        state=non_trainable(made.model),
        options=PsTrainerOptions(
            worker="0-1",
            pipeline=True,
            pull_steps=pull_steps,
            skip_nan=False,
            learning_rate_of=lambda _version, _epoch: None,
            active_workers=lambda: 1,
        ),
        ledger=GoodputLedger(time.monotonic),
        metrics=metrics,
    )
    try:
        yield trainer
    finally:
        trainer.close()


def ps_step_times(
    model: str, optimizer: str, delay_seconds: float, *, rounds: int, steps: int
) -> dict[str, list[float]]:
    """Return seconds a step, by variant and round."""
    from elasticdl.worker.trainer import BatchPosition

    plain = plain_step(model, optimizer)
    features, labels = batch()
    at = BatchPosition(
        task_id=1, epoch=0, records_done=0, num_records=BATCH, last=False
    )

    def one_process() -> float:
        began = time.perf_counter()
        for _ in range(steps):
            plain()
        return (time.perf_counter() - began) / steps

    with (
        parameter_server() as ps,
        ps_trainer(model, optimizer, ps, delay_seconds=delay_seconds) as trainer,
    ):

        def through_ps() -> float:
            began = time.perf_counter()
            for _ in range(steps):
                trainer.train_batch(features, labels, at)
            trainer.flush()
            return (time.perf_counter() - began) / steps

        return interleaved({"plain": one_process, "ps": through_ps}, rounds)


def ps_step() -> list[Row]:
    """Compare the CNN's step through a PS over a slow network with the plain one."""
    times = ps_step_times("cnn", "Adam", DELAY_SECONDS, rounds=15, steps=40)
    what = "CNN: plain tf.function step / through 1 PS, pipelined, calls 10 ms slower"
    return [row("ps_step", what, ratios(times["plain"], times["ps"]), 0.85)]


def ps_step_mlp() -> list[Row]:
    """Compare the same for a model whose parameters are the load."""
    times = ps_step_times("mlp", "Adam", DELAY_SECONDS, rounds=11, steps=20)
    what = "MLP of 23 MB: plain step / through 1 PS, pipelined, calls 10 ms slower"
    return [row("ps_step_mlp", what, ratios(times["plain"], times["ps"]), 0.5)]


BENCHMARKS = {
    "ps_step": Benchmark(ps_step, 50),
    "ps_step_mlp": Benchmark(ps_step_mlp, 45),
}
