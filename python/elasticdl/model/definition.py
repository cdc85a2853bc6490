"""A user's model module, found, imported, checked and ready to be used.

Owns which of the module's symbols play which part, in both forms: the classic
functions (`custom_model`, `loss`, `optimizer`, `feed`, `eval_metrics_fn`, ...) and the
short form, a function that returns a compiled Keras model. A part that the module does
not define is taken from the compiled model. Called by the worker; the master never
sees user code. Must not know tasks, PS or files of data.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from elasticdl.data.reader import Metadata, Reader
from elasticdl.errors import UserCodeError
from elasticdl.job.names import JobDir
from elasticdl.job.spec.job import JobSpec, JobType
from elasticdl.job.spec.kinds import Strategy, UpdateMode
from elasticdl.model import building, user_code
from elasticdl.model import callbacks as callback_rules
from elasticdl.model.classic_reader import ClassicReader
from elasticdl.model.export import check_exports
from elasticdl.model.feed.call import PREDICTION, Feed
from elasticdl.model.measures.losses import Loss, check_loss
from elasticdl.model.measures.masks import masks_of
from elasticdl.model.measures.metric_parts import (
    NamedMetric,
    compiled_metrics,
    full_precision,
    named_metrics,
    result_names,
)
from elasticdl.model.measures.metrics import MetricSet
from elasticdl.model.measures.targets import check_class_weights, class_weighted, parted
from elasticdl.model.optimizers import (
    base_learning_rate,
    choose_optimizer,
    optimizer_json,
)
from elasticdl.model.overrides import (
    compiled_with_xla,
    evaluates_itself,
    overrides,
    refuse_stateful,
    refuse_unsupported,
    refuse_unused,
    trains_itself,
)
from elasticdl.model.signature import signature_of
from elasticdl.model.state import non_trainable, read_state, write_state
from elasticdl.model.symbols import Symbols, find_symbols, write_files
from elasticdl.model.tracing import GraphFunction
from elasticdl.model.user_code import ModelCode, did_you_mean
from elasticdl.model.variables import refuse_unkept, trainable_variables

log = logging.getLogger(__name__)

_WEIGHED_BY_RECORDS = (
    "the loss is no mean over records, but a sum, or divided by a sum of weights or by "
    "what a mask leaves: with ps.mode sync the gradients of several workers are "
    "weighed by their records instead, which is not quite the gradient of all their "
    "batches together; strategy allReduce weighs them by what one loss divides by"
)


@dataclass(frozen=True)
class _Built:
    """The built model, and what is known only after building."""

    model: keras.Model
    optimizer: keras.optimizers.Optimizer
    features: Any  # an example batch, None if shapes are unknown
    targets: Any
    predictions: Any
    extents: building.Extents


class ModelDefinition:
    """The user's model module in use; `load_definition` creates it."""

    def __init__(
        self, spec: JobSpec, code: ModelCode, symbols: Symbols, policy: Any
    ) -> None:
        """Take the job, the module's code, its symbols and the policy that it sets."""
        self._spec = spec
        self._policy = policy
        self._symbols = symbols
        self._built: _Built | None = None
        self._said: frozenset[str] = frozenset()  # what an own test_step returns
        has_ps = spec.strategy is Strategy.PARAMETER_SERVER
        sync = has_ps and spec.ps.mode is UpdateMode.SYNC
        self._weighed_by_records = (
            sync and max(spec.worker.replicas, spec.worker.max) > 1
        )
        self.code = code

    # What is known before the model is built.

    @property
    def seed(self) -> int:
        """The job's seed."""
        return self._spec.training.seed

    @property
    def jit_compile(self) -> bool:
        """Whether the step is compiled with XLA: by the job, or by `compile`."""
        asked = self._built is not None and compiled_with_xla(self._built.model)
        return self._spec.model.jit_compile or asked

    @property
    def feed(self) -> Feed | None:
        """The module's feed; None for the default one (model/feed/default.py)."""
        return self._symbols.feed

    def custom_reader(self, origin: str) -> Reader | None:
        """Return the module's own reader of a data origin, None if it has none."""
        make = self._symbols.data_reader
        if make is None:
            return None
        training = self._spec.training
        with self.code.running(f"{self._spec.model.data_reader}({origin!r})"):
            reader = user_code.call_with_known(
                make,
                {"data_origin": origin},
                {"records_per_task": training.batch_size * training.batches_per_task},
                self._spec.data.reader_params,
            )
        return ClassicReader(reader, self.code)

    def outputs_processor(self) -> Any | None:
        """Return a new PredictionOutputsProcessor of the module's, None if none."""
        make = self._symbols.outputs_processor
        if make is None:
            return None
        with self.code.running(f"{self._spec.model.prediction_outputs_processor}()"):
            processor = make()
        if not callable(getattr(processor, "process", None)):
            raise UserCodeError(
                f"{type(processor).__name__} has no method `process(predictions, "
                "worker_id)`"
            )
        return processor

    # The model.

    def build_model(
        self, metadata: Metadata | None = None, sample: Sequence[bytes] = ()
    ) -> keras.Model:
        """Return the model with all its weights; checks loss, optimizer and metrics.

        Every process gets the same variable names and initial values: layer names are
        counted from the start and the seed is `training.seed`. Call it once.

        Args:
            metadata: what the reader knows of the records, for `feed`.
            sample: a few records of the data. Without them shapes come from `feed`
                alone; a model or feed whose shapes depend on the data needs them.
        """
        symbols = self._symbols
        mode = building.mode_of(self._spec.type)
        metadata = metadata or Metadata()
        mixed = self._spec.model.mixed_precision
        building.begin(
            seed=self.seed, policy=building.MIXED_POLICY if mixed else self._policy
        )
        model = building.call_model_function(
            self.code,
            symbols.model_function,
            symbols.model_name,
            self._spec.model.params,
        )
        refuse_stateful(model)
        optimizer = choose_optimizer(self._spec.model, self.code, symbols, model)
        example = building.example(
            self.feed, model, mode=mode, metadata=metadata, sample=sample
        )
        if example is None and not model.built:
            raise UserCodeError(
                f"the shapes of {type(model).__name__}'s inputs are not known; give "
                "every feature a shape in feed (tensor.set_shape), or the model "
                "keras.Input"
            )
        features, targets, extents = example or (None, None, {})
        predictions = None
        if features is not None:
            predictions = full_precision(
                building.build_weights(self.code, model, features, symbols.model_name)
            )
        if not model.weights:
            raise UserCodeError(
                f"{symbols.model_name}() made a model without weights: there is "
                "nothing to train"
            )
        refuse_unkept(model)
        self._built = _Built(model, optimizer, features, targets, predictions, extents)
        spec = self._spec
        strategy = spec.strategy if spec.type is JobType.TRAIN else None
        refuse_unsupported(model, optimizer, strategy)
        refuse_unused(model, spec, symbols)
        if targets is not None and predictions is not None and mode != PREDICTION:
            check_class_weights(targets, self._spec.training.class_weight)
            if not self.trains_itself:
                check_loss(self.code, self._loss, features, targets, predictions)
        if strategy is not None and spec.export.dir:
            check_exports(model, spec.export.formats, self.input_signature)
        return model

    def _known(self) -> _Built:
        if self._built is None:
            raise RuntimeError("build_model() has not been called")
        return self._built

    @property
    def model(self) -> keras.Model:
        """The model from build_model."""
        return self._known().model

    @property
    def optimizer(self) -> keras.optimizers.Optimizer:
        """The optimizer, from the module's function or from `compile`."""
        return self._known().optimizer

    def optimizer_json(self) -> str:
        """Return the optimizer's class and configuration as JSON, for the PS.

        Raises UserCodeError where Keras cannot say it, as of an own schedule of
        learning rates without `get_config`.
        """
        with self.code.running("get_config() of the optimizer"):
            return optimizer_json(self.optimizer, trainable_variables(self.model))

    @property
    def input_signature(self) -> Any | None:
        """Specs of the model's inputs (any batch size), for export; None if unknown."""
        built = self._known()
        if built.features is None:
            return None
        return signature_of(built.model, built.features, built.extents)

    def call(self, features: Any, *, training: bool) -> Any:
        """Return the model's outputs as float32; use it inside a tf.function."""
        return full_precision(building.call(self.model, features, training=training))

    # Loss.

    @property
    def _loss(self) -> Loss:
        return Loss(
            self.code, self._spec.model.loss, self._symbols.loss, self._known().model
        )

    def loss(self, labels: Any, predictions: Any) -> tf.Tensor:
        """Return the loss of a batch: float32 scalar, without regularisation terms.

        Raises UserCodeError when it is no scalar.
        """
        return self._loss.plain(labels, predictions)

    def training_loss(self, features: Any, targets: Any, predictions: Any) -> tf.Tensor:
        """Return the value that a training step minimises: loss and own losses.

        Call it right after `call(features, training=True)`, in the same tf.function.
        """
        weighted = class_weighted(targets, self._spec.training.class_weight)
        loss = self._loss.whole(features, weighted, predictions, training=True)
        if self._weighed_by_records:
            self._weighed_by_records = False  # said once
            if not self._loss.is_mean_over_records(weighted, predictions):
                log.warning(_WEIGHED_BY_RECORDS)
        return loss

    def loss_divisor(self, targets: Any, predictions: Any) -> tf.Tensor | None:
        """Return by what `training_loss` divides; None: by the number of records.

        Call it right after `training_loss`, in the same tf.function.
        """
        weighted = class_weighted(targets, self._spec.training.class_weight)
        return self._loss.divisor(weighted, predictions)

    # What the model's class brings of its own.

    @property
    def trains_itself(self) -> bool:
        """Whether the model overrides train_step."""
        return self._spec.type is JobType.TRAIN and trains_itself(self.model)

    @property
    def evaluates_itself(self) -> bool:
        """Whether the model overrides test_step or compute_metrics."""
        return evaluates_itself(self.model)

    def train_itself(self, features: Any, targets: Any) -> Any:
        """Run the model's own train_step; return its result."""
        with self.code.running("train_step"):
            return self.model.train_step((features, *_as_fit(targets)))

    def evaluate_batch(self, features: Any, targets: Any) -> tuple[Any, Any, list[Any]]:
        """Return loss, predictions and their masks, as in Keras's `evaluate`.

        Use it in a tf.function; masks do not leave one by themselves. Metrics of
        layers, and all where the model evaluates itself, are updated by it.
        """
        if self.evaluates_itself:
            with self.code.running("test_step"):
                said = self.model.test_step((features, *_as_fit(targets)))
            self._refuse_untracked(said)
            self._said = frozenset(said) if isinstance(said, dict) else frozenset()
            return tf.constant(0.0), (), []
        predictions = self.call(features, training=False)
        loss = self._loss.whole(features, targets, predictions, training=False)
        return loss, predictions, masks_of(predictions)

    def predict(self, features: Any) -> Any:
        """Return the prediction job's outputs for a batch; for use in a tf.function."""
        if not overrides(self.model, "predict_step"):
            return self.call(features, training=False)
        with self.code.running("predict_step"):
            return full_precision(self.model.predict_step((features,)))

    def _is_said(self, item: NamedMetric) -> bool:
        """Return whether test_step returns a metric; Keras shows no others."""
        names = result_names(item.metric) if item.compiled else [item.name]
        return not self._said.isdisjoint(names)

    def _refuse_untracked(self, said: Any) -> None:
        known = {metric.name for metric in self.model.metrics}
        for metric in self.model.metrics:
            if type(metric).__name__ == "CompileMetrics":
                known.update(result_names(metric))
        unknown = sorted(set(said) - known) if isinstance(said, dict) else []
        if unknown:
            raise UserCodeError(
                f"test_step of {type(self.model).__name__} returns `{unknown[0]}`, "
                "which no metric of the model keeps, so it is of one batch alone; "
                "keep it in a keras.metrics.Mean that the model has as an attribute"
            )

    # Metrics.

    def metrics(self) -> MetricSet:
        """Return the evaluation metrics with fresh states.

        Keep the set and `reset` it for the next task: each new one is traced again.
        """
        built = self._known()
        own = self.evaluates_itself
        if own:
            named = [
                NamedMetric(metric.name, metric, by_model=True)
                for metric in built.model.metrics
            ]
        elif self._symbols.metrics is not None:
            name = self._spec.model.eval_metrics
            with self.code.running(f"{name}()"):
                tree = self._symbols.metrics()
            named = named_metrics(tree)
        else:
            named = compiled_metrics(built.model)
        metrics = MetricSet(
            code=self.code,
            named=named,
            output_names=list(getattr(built.model, "output_names", [])),
            has_loss=not own,
        )
        targets, predictions = built.targets, built.predictions
        if targets is None and predictions is not None and named:
            # The default feed and no sample: one class number per record.
            targets = tf.nest.map_structure(
                lambda t: tf.zeros([t.shape[0]]), predictions
            )
        if own and built.features is not None and built.targets is not None:
            state = non_trainable(built.model).everything
            before = read_state(state)  # a test_step may change it
            GraphFunction(self.evaluate_batch)(built.features, built.targets)
            write_state(state, before)
            metrics.named = [item for item in named if self._is_said(item)]
            metrics.reset()
        elif targets is not None and predictions is not None:
            metrics.warm(targets, predictions)
        else:
            metrics.reset()
        return metrics

    # Callbacks.

    @cached_property
    def callbacks(self) -> list[Any]:
        """The module's callback objects."""
        function = self._symbols.callbacks
        if function is None:
            return []
        with self.code.running(f"{self._spec.model.callbacks}()"):
            found = function()
        if not isinstance(found, list | tuple):
            raise UserCodeError(
                f"{self._spec.model.callbacks}() returned {type(found).__name__}, "
                "expected a list of callbacks"
            )
        return list(found)

    def callbacks_json(self) -> str:
        """Return the callbacks as JSON for the master, which runs them.

        Raises UserCodeError naming every callback that cannot be used, with reasons.
        """
        return callback_rules.callbacks_json(
            self.callbacks, self.metrics(), base_learning_rate(self.optimizer)
        )

    def rate_schedule(self) -> callback_rules.Schedule:
        """Return the learning rates of scheduler callbacks.

        Ask before the optimizer takes another one's state over: a schedule of Keras
        builds on the rate that the user gave it.
        """
        return callback_rules.Schedule(
            self.callbacks, base_learning_rate(self.optimizer), self.code
        )


def _as_fit(targets: Any) -> tuple[Any, ...]:
    """Return the tuple that follows the features in the input of Keras's steps."""
    labels, weights = parted(targets)
    return (labels,) if weights is None else (labels, weights)


def load_definition(
    spec: JobSpec, job_dir: JobDir, *, base: Path | None = None
) -> ModelDefinition:
    """Import the user's model module and find its parts.

    `model.files` are written to the job's folder first if they are not there. A
    relative `model.zoo` begins at `base`; None is the current folder. Raises
    UserCodeError naming what is missing and what is there.
    """
    model = spec.model
    root = (base or Path()) / model.zoo
    if model.files:
        root = job_dir.model_dir
        write_files(root, model.files)
    code, function_name = user_code.locate(root, model.definition)
    module, policy = building.with_policy(
        lambda: user_code.import_module(code, code.main_file, again=True)
    )
    code = code.with_others(module)
    function = getattr(module, function_name, None)
    if function is None or not callable(function):
        raise UserCodeError(
            f"model.definition `{model.definition}`: {code.main_file} has no "
            f"function or class `{function_name}`"
            + did_you_mean(function_name, user_code.public_names(module))
        )
    return ModelDefinition(
        spec, code, find_symbols(spec, code, module, function_name, function), policy
    )
