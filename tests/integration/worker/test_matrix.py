"""Each cell of the matrix trains and evaluates as Keras's `fit`, or is refused."""

import dataclasses
import functools
import json
import os
import time
import types

import keras
import numpy as np
import pytest
import tensorflow as tf
from elasticdl.data.reader import Metadata
from elasticdl.errors import RefusedError, UserCodeError
from elasticdl.job.names import JobDir
from elasticdl.job.spec.job import JobSpec
from elasticdl.job.tasks import LIVE, Task
from elasticdl.model import building
from elasticdl.model.definition import load_definition
from elasticdl.model.feeding import Feeder
from elasticdl.model.variables import trainable_variables
from elasticdl.worker.local.own_step import OwnStep
from elasticdl.worker.local.trainer import LocalTrainer
from elasticdl.worker.progress import WorkerProgress
from elasticdl.worker.steps.learning_rate import LearningRate
from elasticdl.worker.steps.variable_step import VariableStep
from elasticdl.worker.tasks.records import LoadedTask
from elasticdl.worker.trainer import BatchPosition, InModel
from elasticdl.worker.uses.evaluator import Evaluator
from elasticdl.worker.uses.model_values import ModelValues

from tests.integration.worker import matrix_table
from tests.integration.worker.matrix import (
    AS_KERAS,
    BATCH,
    FORMS,
    ON_PS,
    RECORDS,
    STRATEGIES,
    records,
)
from tests.integration.worker.matrix_optimizers import USUAL
from tests.integration.worker.matrix_product import alone, cells_of_tests, product

# Names a part of the product, FIRST:END, in place of what `make test` runs.
CELLS = (
    product()[slice(*map(int, os.environ["MATRIX"].split(":")))]
    if "MATRIX" in os.environ
    else cells_of_tests()
)


# Ways to train that are Keras's where no loss is bad and one worker trains alone, with
# the strategy that each is of. Features that have once been wrong in one of them, and
# their like, are trained in both; the others take turns, in `make soak`.
VARIANTS = {"losses may be skipped": "local", "applied between pulls": "async"}
IN_BOTH = (
    "BatchNormalization",
    "dropout",
    "own schedule of the learning rate, Adam",
    "a variable that the model does not list",
)
VARIED = [
    pytest.param(
        case,
        variant,
        id=f"{case.name}-{variant}",
        marks=() if case.name in IN_BOTH else pytest.mark.soak,
    )
    for number, case in enumerate(alone())
    for place, variant in enumerate(VARIANTS)
    if case.name in IN_BOTH or (number < len(AS_KERAS) and place == number % 2)
]


@functools.cache
def data():
    return records()


@dataclasses.dataclass
class Trained:
    """Losses and weights after each step, and what an evaluation says."""

    losses: list
    weights: list
    state: dict
    evaluation: dict


class Steps(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.weights, self.losses = [], []

    def on_train_batch_end(self, batch, logs=None):
        self.weights.append([v.numpy() for v in self.model.trainable_variables])
        self.losses.append(logs["loss"])


@functools.lru_cache(maxsize=8)
def plain_keras(text, mixed, fit, summed):
    """Train the module by `fit`; `summed`: with rows of one id added up before."""
    building.begin(
        seed=0, policy=building.MIXED_POLICY if mixed else building.FULL_POLICY
    )
    module = types.ModuleType("plain")
    exec(compile(text, "plain", "exec"), module.__dict__)
    model = module.model()
    source = tf.data.Dataset.from_tensor_slices(data())
    dataset = module.feed(source, "training", None).batch(BATCH)
    batch = next(iter(dataset))
    model(batch[0])
    # `fit` makes the variables of optimizer and metrics while it traces, and then
    # traces once more: half of the time of a cell. Made of dense tensors alone.
    parts = tf.nest.flatten(batch, expand_composites=False)
    if all(isinstance(part, tf.Tensor) for part in parts):
        model._symbolic_build(data_batch=batch)
    if summed:
        apply = model.optimizer.apply
        model.optimizer.apply = lambda gradients, variables=None: apply(
            [tf.convert_to_tensor(g) for g in gradients], variables
        )
    steps = Steps()
    model.fit(dataset, verbose=0, shuffle=False, callbacks=[steps],
              class_weight=dict(fit) or None)  # fmt: skip
    for variable, value in zip(
        model.trainable_variables, steps.weights[-1], strict=True
    ):
        variable.assign(value)  # `fit` ends with the averages of `use_ema`
    evaluation = model.evaluate(dataset, verbose=0, return_dict=True)
    state = {v.path: v.numpy() for v in model.non_trainable_variables}
    return Trained(steps.losses, steps.weights, state, evaluation)


@pytest.fixture
def module(tmp_path):
    """Makes a built definition and its feeders."""

    def make(case, form, strategy):
        model = {
            "definition": "net.model",
            "files": {"net.py": case.text(form)},
            **case.job.get("model", {}),
        }
        spec = JobSpec.model_validate({
            "name": "cell", "data": {"training": "none"}, **case.job,
            "model": model,
            "strategy": "local" if strategy == "local" else "parameterServer",
        })  # fmt: skip
        made = load_definition(spec, JobDir(tmp_path / "job"))
        made.build_model(Metadata(), data()[:2])
        return made, lambda mode: Feeder(
            made, mode=mode, batch_size=BATCH, metadata=Metadata()
        )

    return make


def local(definition, batch, *, skip_nan):
    step: OwnStep | VariableStep
    if definition.trains_itself:
        step = own = OwnStep(definition)
        own.trace(batch.features, batch.labels)
    else:
        optimizer = definition.optimizer
        step = ours = VariableStep(definition, optimizer=optimizer, guard=skip_nan)
        ours.kinds(batch.features, batch.labels)
    return LocalTrainer(
        step,
        definition.optimizer,
        rate=LearningRate(definition.optimizer, lambda *_: None, lambda: 1.0),
        version=0,
        skip_nan=skip_nan,
        between_steps=lambda version, applied: None,
    )


@pytest.fixture
def product_of(module, rig, ps_group):
    """Trains a cell as a worker does, and evaluates it."""

    def train(case, form, strategy, variant=""):
        definition, feeder = module(case, form, strategy)
        batches = list(feeder("training").batches(data()))
        first = batches[0]
        if strategy == "local":
            trainer = local(definition, first, skip_nan=bool(variant))
        else:
            pulls = 3 if variant else 1
            group = ps_group(2, sync=strategy == "sync", pull_steps=pulls)
            trainer = rig(group, definition, pipeline=False, pull_steps=pulls,
                          batch=(first.features, first.labels)).trainer  # fmt: skip
        losses, weights, done = [], [], 0
        for batch in batches:
            done += batch.num_records
            at = BatchPosition(1, 0, done, batch.num_records, batch is batches[-1])
            losses.append(trainer.train_batch(batch.features, batch.labels, at).loss)
            values = trainer.values(LIVE)
            variables = trainable_variables(definition.model)
            weights.append(
                [v.numpy() for v in variables]
                if isinstance(values, InModel)
                else [np.array(v) for v in values.trainable]
            )
        state = {v.path: v.numpy() for v in definition.model.non_trainable_variables}
        evaluator = Evaluator(
            definition,
            feeder("evaluation"),
            trainer=trainer,
            borrowed=ModelValues(definition.model, trainer),
            progress=WorkerProgress(time.monotonic),
        )
        task = Task(task_id=2, lease_id=2)
        report = evaluator.evaluate(LoadedTask(task, data(), []))
        summary = evaluator.summarize(Task(state=report.state))
        return Trained(losses, weights, state, json.loads(summary.results_json))

    return train


def running_means(losses):
    """Return what Keras shows after each batch: the mean over all records so far."""
    sizes = [BATCH] * (len(losses) - 1) + [RECORDS % BATCH]
    return np.cumsum(np.multiply(losses, sizes)) / np.cumsum(sizes)


def assert_same(ours, theirs, case):
    tolerance = {"rtol": case.rtol, "atol": case.atol}
    assert len(ours.weights) == len(theirs.weights)
    shown = ours.losses if case.kind == "Doubled" else running_means(ours.losses)
    np.testing.assert_allclose(shown, theirs.losses, **tolerance, err_msg="losses")
    for step, (mine, others) in enumerate(
        zip(ours.weights, theirs.weights, strict=True)
    ):
        for number, (one, other) in enumerate(zip(mine, others, strict=True)):
            np.testing.assert_allclose(
                one, other, **tolerance, err_msg=f"variable {number}, step {step}"
            )
    for path, value in theirs.state.items():
        np.testing.assert_allclose(ours.state[path], value, **tolerance, err_msg=path)
    assert ours.evaluation.keys() == theirs.evaluation.keys()
    for name, value in theirs.evaluation.items():
        np.testing.assert_allclose(
            ours.evaluation[name], value, **tolerance, err_msg=f"evaluation: {name}"
        )


@pytest.mark.parametrize("cell", CELLS, ids=[cell.name for cell in CELLS])
def test_a_cell_equals_keras_or_is_refused(product_of, cell):
    equals_keras_or_is_refused(product_of, cell.case, cell.form, cell.strategy)


@pytest.mark.parametrize(("case", "variant"), VARIED)
def test_a_feature_equals_keras_in_other_ways_to_train_too(product_of, case, variant):
    equals_keras_or_is_refused(
        product_of, case, case.forms[0], VARIANTS[variant], variant
    )


def equals_keras_or_is_refused(product_of, case, form, strategy, variant=""):
    if sentence := case.refused.get(strategy):
        with pytest.raises((UserCodeError, RefusedError), match=sentence):
            product_of(case, form, strategy, variant)
        return
    mixed = case.job.get("model", {}).get("mixedPrecision", False)
    fit = tuple(case.fit.get("class_weight", {}).items())
    summed = case.summed and strategy in ON_PS
    theirs = plain_keras(case.text(form), mixed, fit, summed)
    ours = product_of(case, form, strategy, variant)
    assert_same(ours, theirs, case)


def test_each_feature_meets_two_forms_each_strategy_and_each_optimizer_a_feature():
    cells = cells_of_tests()
    of_features = {(cell.case.feature, cell.form) for cell in cells}
    of_features |= {(cell.case.feature, cell.strategy) for cell in cells}
    for feature in AS_KERAS:
        for strategy in STRATEGIES:
            assert (feature.name, strategy) in of_features
        met = [form for form in feature.forms if (feature.name, form) in of_features]
        assert len(met) >= min(len(feature.forms), 2)
    crossed = [cell for cell in cells if cell.case.crossed]
    assert {cell.case.optimizer for cell in crossed} >= {each.text for each in USUAL}
    assert len({(cell.form, cell.strategy) for cell in crossed}) == 9


def test_the_product_has_each_cell_once_and_in_rounds():
    cells = product()
    assert len({cell.name for cell in cells}) == len(cells)
    pairs = {(cell.case.name, cell.strategy) for cell in cells}
    first = cells[: len(pairs)]
    assert {(cell.case.name, cell.strategy) for cell in first} == pairs
    assert {cell.form for cell in first} == set(FORMS)


def test_the_table_in_the_docs_is_made_of_these_cells():
    page = matrix_table.DOCS.read_text()
    assert page == matrix_table.with_table(page), (
        "run `python -m tests.integration.worker.matrix_table`"
    )
