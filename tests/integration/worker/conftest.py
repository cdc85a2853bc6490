"""Real PS in this process, a module of the user's, and a trainer over both."""

import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import threading
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from elasticdl.job.heartbeats import PsView
from elasticdl.job.names import JobDir
from elasticdl.job.spec.job import JobSpec
from elasticdl.job.tasks import LIVE
from elasticdl.metrics.goodput import GoodputLedger
from elasticdl.metrics.registry import PsMetrics, WorkerMetrics
from elasticdl.model.definition import load_definition
from elasticdl.model.optimizers import own_rate, without_loss_scale
from elasticdl.model.state import non_trainable
from elasticdl.model.state_keeps import state_layout
from elasticdl.model.variables import (
    layout_variables,
    to_buffers,
    trainable_variables,
)
from elasticdl.ps.async_updater import AsyncUpdater
from elasticdl.ps.restore import PsPlace, ShardStore
from elasticdl.ps.server import ParameterServer
from elasticdl.ps.servicer import PsServicer
from elasticdl.ps.snapshots import WantedSnapshot
from elasticdl.ps.sync_updater import SyncFollower, SyncUpdater
from elasticdl.ps.updater import Control
from elasticdl.rpc.ps import wire as ps_wire
from elasticdl.rpc.ps.client import PsClient
from elasticdl.rpc.server import serve
from elasticdl.tensor.placement import place
from elasticdl.testing.scripted import TOKEN
from elasticdl.worker.ps.clipping import Clipping
from elasticdl.worker.ps.link import PsLink
from elasticdl.worker.ps.shared_variables import SharedVariables
from elasticdl.worker.ps.trainer import PsTrainer, PsTrainerOptions
from elasticdl.worker.ps.transfer import Transfer
from elasticdl.worker.steps.choice import choose_step
from elasticdl.worker.steps.learning_rate import LearningRate
from elasticdl.worker.steps.loss_scale import LossScale
from elasticdl.worker.trainer import BatchPosition
from elasticdl.worker.untrained import UntrainedVariables

from tests.integration.worker.group.members import made_members


class PsGroup:
    """Some PS, and the views of them that a heartbeat would bring."""

    def __init__(self, num_ps, *, sync, max_staleness=0, pull_steps=1):
        self.num_ps, self.sync, self.max_staleness = num_ps, sync, max_staleness
        self.pull_steps = pull_steps
        self.changed = threading.Condition()
        self.generations = [1] * num_ps
        self.rewind = 0
        self.revision = 0
        self.servers, self.endpoints = [], []
        for index in range(num_ps):
            server, endpoint = self._start(index)
            self.servers.append(server)
            self.endpoints.append(endpoint)
        for server in self.servers:
            server.begin(rewind=0, restore_dir=None)
        self.view = PsView()
        self.publish()
        self.control()

    def _start(self, index):
        where = PsPlace(index, self.num_ps)
        server = ParameterServer(
            where,
            new_updater=self._updater(index),
            store=ShardStore(where, common_version=self.sync),
        )
        handlers = [ps_wire.handlers(PsServicer(server, PsMetrics()))]
        return server, serve(
            handlers, host="127.0.0.1", port=0, threads=16, token=TOKEN
        )

    def _updater(self, index):
        if not self.sync:
            bound = self.max_staleness if index == 0 else 0
            return lambda parameters, _changed, _pin, control: AsyncUpdater(
                parameters,
                control=control,
                staleness_modulation=False,
                max_staleness=bound,
                leads_state=self.pull_steps == 1,
            )
        if index == 0:
            return lambda parameters, changed, _pin, control: SyncUpdater(
                parameters, changed, control=control
            )
        return lambda parameters, _changed, pin, _control: SyncFollower(
            parameters, pin=pin
        )

    def publish(self, away=()):
        with self.changed:
            self.revision += 1
            self.view = PsView(
                revision=self.revision,
                addresses=[
                    "" if i in away else e.address for i, e in enumerate(self.endpoints)
                ],
                generations=self.generations,
                rewind=self.rewind,
            )
            self.changed.notify_all()

    def wait_for_view(self, newer_than, seconds):
        with self.changed:
            self.changed.wait_for(lambda: self.view.revision > newer_than, seconds)
            return self.view

    def kill(self, index):
        self.servers[index].close()
        self.endpoints[index].stop(0)

    def relaunch(self, index, restore_dir=None, min_version=0):
        self.servers[index], self.endpoints[index] = self._start(index)
        self.generations[index] += 1
        self.servers[index].begin(
            rewind=self.rewind, restore_dir=restore_dir, min_version=min_version
        )
        self.publish()

    def control(self, quorum=1, snapshots=()):
        for server in self.servers:
            server.control(
                Control(quorum=quorum), [WantedSnapshot(name, "") for name in snapshots]
            )

    def close(self):
        for server, endpoint in zip(self.servers, self.endpoints, strict=True):
            server.close()
            endpoint.stop(0)


@pytest.fixture
def ps_group():
    groups = []

    def make(num_ps=2, *, sync=False, **options):
        groups.append(PsGroup(num_ps, sync=sync, **options))
        return groups[-1]

    yield make
    for group in groups:
        group.close()


MLP = """
import keras

def custom_model():
    return keras.Sequential([
        keras.Input((6,)), keras.layers.Dense(8, activation="tanh"),
        keras.layers.Dense(3)])

def loss(labels, predictions):
    return keras.ops.mean(keras.losses.sparse_categorical_crossentropy(
        labels, predictions, from_logits=True))

def optimizer():
    return keras.optimizers.Adam(0.05)

def feed(dataset, mode, metadata):
    import tensorflow as tf
    def parse(record):
        numbers = tf.io.decode_raw(record, tf.float32)
        numbers = tf.ensure_shape(numbers, [7])
        if mode == "prediction":
            return numbers[:6]
        return numbers[:6], tf.cast(numbers[6], tf.int32)
    return dataset.map(parse)

def eval_metrics_fn():
    return {"accuracy": keras.metrics.SparseCategoricalAccuracy()}
"""


def records_of(count, seed=0):
    """Records for MLP's feed: six floats and the class of their sum."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(count, 6)).astype(np.float32)
    labels = (features.sum(1) > 0).astype(np.float32) + (features[:, 0] > 1)
    return [
        np.r_[x, y].astype(np.float32).tobytes()
        for x, y in zip(features, labels, strict=True)
    ]


def make_batches(count, size=16, seed=0):
    """Batches as MLP's feed makes them."""
    rows = np.stack(
        [np.frombuffer(r, np.float32) for r in records_of(count * size, seed)]
    )
    for part in np.split(rows, count):
        yield part[:, :6], part[:, 6].astype(np.int32)


@pytest.fixture
def mlp():
    return MLP


@pytest.fixture
def batches_of():
    return make_batches


@pytest.fixture
def definition(tmp_path):
    """Makes a built ModelDefinition of a module's text."""

    def make(text=MLP, **changes):
        spec = JobSpec.model_validate(
            {
                "name": "test",
                "model": {"definition": "net.custom_model", "files": {"net.py": text}},
                "data": {"training": "none"},
                **changes,
            }
        )
        made = load_definition(spec, JobDir(tmp_path / "job"))
        made.build_model()
        return made

    return make


@dataclass
class Rig:
    """A PS trainer and everything it is made of."""

    trainer: PsTrainer
    definition: Any
    group: PsGroup
    leaving: threading.Event
    goodput: GoodputLedger
    metrics: WorkerMetrics
    seen: list = field(default_factory=list)

    def train(self, batches, *, task=1):
        batches = list(batches)
        done = 0
        for number, (features, labels) in enumerate(batches):
            done += len(labels)
            at = BatchPosition(task, 0, done, len(labels), number == len(batches) - 1)
            self.seen.append(self.trainer.train_batch(features, labels, at))
        return self.seen

    def values(self):
        """Live values on the PS, by variable."""
        got = self.trainer.values(LIVE)
        names = [v.name for v in trainable_variables(self.definition.model)]
        return dict(zip(names, got.trainable, strict=True))


@pytest.fixture
def rig(ps_group, definition):
    """Makes a Rig; arguments choose mode and pipeline."""
    made = []

    def make(
        group=None,
        module=None,
        *,
        worker=0,
        pipeline=True,
        pull_steps=1,
        skip_nan=False,
        learning_rate_of=lambda version, epoch: None,
        sends_own_rate=True,
        batch=None,
    ):
        group = group or ps_group()
        module = module or definition()
        features, labels = batch or next(make_batches(1, 4))
        scale = LossScale.of(module.optimizer)
        optimizer = without_loss_scale(module.optimizer)
        step, kinds = choose_step(
            module,
            (features, labels),
            optimizer=optimizer if pull_steps > 1 else None,
            scale=scale,
        )
        variables = trainable_variables(module.model)
        named = {v.name: kind for v, kind in zip(variables, kinds, strict=True)}
        layout = place(layout_variables(variables, named), group.num_ps)
        kept = non_trainable(module.model).shared
        frozen = non_trainable(module.model).frozen
        shared = SharedVariables(kept, state_layout(module, kept, features, labels))
        leaving = threading.Event()
        client = PsClient(
            worker=worker,
            generation=1,
            sync=group.sync,
            token=TOKEN,
            first_admits=group.max_staleness > 0,
        )
        link = PsLink(
            client,
            group,
            layout=layout,
            optimizer_json=module.optimizer_json(),
            initial=to_buffers([v.numpy() for v in variables], layout),
            initial_state=shared.state,
            untrained=UntrainedVariables(frozen) if frozen else None,
            leaving=leaving,
            on_wait=lambda: None,
        )
        metrics = WorkerMetrics()
        goodput = GoodputLedger(time.monotonic)
        trainer = PsTrainer(
            step,
            Transfer(
                link,
                pull_seconds=metrics.pull_seconds,
                push_seconds=metrics.push_seconds,
                convert_seconds=metrics.convert_seconds,
                on_wait=lambda: None,
                clipping=Clipping.of(
                    layout,
                    clipnorm=optimizer.clipnorm,
                    global_clipnorm=optimizer.global_clipnorm,
                ),
            ),
            link,
            state=shared,
            options=PsTrainerOptions(
                pipeline=pipeline and not group.sync,
                pull_steps=pull_steps,
                skip_nan=skip_nan,
                learning_rate_of=learning_rate_of,
                own_rate=own_rate(module.optimizer, module.code)
                if sends_own_rate
                else None,
                between_pulls=LearningRate(optimizer, learning_rate_of, lambda: 1.0)
                if pull_steps > 1
                else None,
            ),
            goodput=goodput,
            metrics=metrics,
        )
        made.append(Rig(trainer, module, group, leaving, goodput, metrics))
        return made[-1]

    yield make
    for one in made:
        one.leaving.set()
        one.trainer.close()


@pytest.fixture
def members(definition, mlp, batches_of):
    """Makes members of a group whose models are equal."""
    (features, labels), *_ = batches_of(1)

    def make(number, *, optimizer="Adam(0.05)", text=mlp):
        return made_members(definition, text, features, labels, number, optimizer)

    return make
