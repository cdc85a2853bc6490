"""The toy model in place of the user's: its step counts records.

Owns the modules that replace those with TensorFlow in them: definition, feeding, step.
The model has one variable for each PS, with a number for each record of each epoch; a
step's gradient is -1 for each record of its batch, so that after training at rate 1
each number says how often its record was applied on that PS. Must not know the
protocol.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.simulation import toy_evaluation
from tests.simulation.kernel import kernel


@dataclass
class Settings:
    """What a run chooses; read by the toys of all its workers."""

    num_records: int = 64
    epochs: int = 1
    num_ps: int = 1
    sync: bool = False
    step_seconds: float = 0.05
    slowest_step: float = 1.0  # times as long
    feed_seconds: float = 0.0
    build_seconds: float = 1.0
    sources: int = 1
    batch_size: int = 4
    validation: int = 0  # records
    keeps_best: bool = False
    restores: bool = False

    @property
    def size(self) -> int:
        """Numbers of a variable: one for each record in each epoch."""
        return self.num_records * self.epochs


settings = Settings()
lose_a_record = False  # to see that it is found
VALIDATION = "toy-validation"


class _Value:
    """A Keras variable."""

    def __init__(self, path: str, size: int) -> None:
        self.path = self.name = path
        self.dtype = "float32"
        self.shape = (size,)
        self.value = np.zeros(size, np.float32)
        self.constraint = None
        self.trainable = True

    def assign(self, array: Any) -> None:
        self.value = np.array(array, np.float32)

    def numpy(self) -> Any:
        return self.value


class _Model:
    """A Keras model."""

    def __init__(self) -> None:
        self.trainable_variables = [
            _Value(f"count_{ps}", settings.size) for ps in range(settings.num_ps)
        ]
        self.variables = self.weights = list(self.trainable_variables)
        self.non_trainable_variables: list[Any] = []
        self.metrics_variables: list[Any] = []
        self.layers: list[Any] = []

    def count_params(self) -> int:
        return settings.num_ps * settings.size


class _Iteration(_Value):
    """How many steps an optimizer made."""

    def __init__(self) -> None:
        super().__init__("iteration", 1)
        self.dtype, self.shape = "int64", ()
        self.assign(0)

    def assign(self, array: Any) -> None:
        self.value = np.array(array, np.int64)


class _Optimizer:
    """SGD that adds exactly; in sync mode Lion, whose steps do not know a mean."""

    built = True
    loss_scale_factor = None
    clipnorm = None
    global_clipnorm = None
    weight_decay = None
    use_ema = False
    learning_rate = _learning_rate = 1.0

    def __init__(self) -> None:
        self.iteration = _Iteration()
        self.variables = [self.iteration]

    def finalize_variable_values(self, var_list: Any) -> None:
        """Leave the values as they are, as Keras's own optimizers do."""

    # Another one's would be an optimizer that ends training its own way.
    finalize_variable_values.__module__ = "keras.toy"

    def json(self) -> str:
        config: dict[str, Any] = {
            "name": "toy", "learning_rate": 1.0, "weight_decay": None, "clipnorm": None,
            "global_clipnorm": None, "clipvalue": None, "use_ema": False,
            "ema_momentum": 0.99, "ema_overwrite_frequency": None,
            "loss_scale_factor": None, "gradient_accumulation_steps": None,
        }  # fmt: skip
        if settings.sync:
            name = "Lion"
            config |= {"beta_1": 0.0, "beta_2": 0.5}
        else:
            name = "SGD"
            config |= {"momentum": 0.0, "nesterov": False}
        tree = {"module": "keras.optimizers", "class_name": name, "config": config}
        return json.dumps(tree | {"registered_name": None})


class _Code:
    main_file = "toy.py"

    def describe(self, what: str, error: BaseException) -> str:
        return f"{what}: {error!r}"

    @contextlib.contextmanager
    def running(self, what: str) -> Iterator[None]:
        yield


class ToyReader:
    """Records are their own numbers."""

    def __init__(self, origin: str) -> None:
        from elasticdl.data.records import Metadata

        self.metadata = Metadata()
        self._validates = origin == VALIDATION

    def shards(self) -> list[Any]:
        from elasticdl.data.records import Shard

        if self._validates:
            return [Shard(VALIDATION, 0, settings.validation)]
        each = settings.num_records // settings.sources
        return [
            Shard(f"source-{n}", n * each, (n + 1) * each)
            for n in range(settings.sources)
        ]

    def read(self, source: str, start: int, end: int, *, skip_bad: bool) -> Any:
        from elasticdl.data.records import Records

        return Records([str(record).encode() for record in range(start, end)])


class ToyDefinition:
    """elasticdl.model.definition.ModelDefinition."""

    jit_compile = False
    input_signature = None

    def __init__(self) -> None:
        self.model = _Model()
        self.optimizer = _Optimizer()
        self.code = _Code()

    def custom_reader(self, origin: str) -> ToyReader:
        return ToyReader(origin)

    def build_model(self, *sample: Any) -> _Model:
        kernel().sleep(settings.build_seconds)
        return self.model

    def callbacks_json(self) -> str:
        if not settings.keeps_best:
            return "[]"
        monitored = {"monitor": f"val_{toy_evaluation.AWAY}", "mode": "min"}
        described = [{"class": "ModelCheckpoint", **monitored}]
        if settings.restores:
            early = {"class": "EarlyStopping", "patience": 1000, **monitored}
            described.append(early | {"restore_best_weights": True})
        return json.dumps(described)

    def metrics(self) -> toy_evaluation.Metrics:
        return toy_evaluation.Metrics(settings.num_ps, settings.size / 2)

    def evaluate_batch(self, features: Any, labels: Any) -> Any:
        kernel().sleep(settings.step_seconds / 2)
        return 0.0, [one.value for one in self.model.trainable_variables], None

    def optimizer_json(self) -> str:
        return self.optimizer.json()

    def rate_schedule(self) -> ToyDefinition:
        return self

    def learning_rate_of(self, version: int, epoch: int) -> None:
        return None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(_Permissive(), name)


class _Permissive:
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Permissive()

    def __call__(self, *_: Any, **__: Any) -> Any:
        return _Permissive()

    def __bool__(self) -> bool:
        return False


def in_epoch(record: bytes, epoch: int) -> bytes:
    """Return what is read for a record of an epoch: its place in the variables."""
    return str(int(record) + epoch * settings.num_records).encode()


def load_definition(*_: Any, **__: Any) -> ToyDefinition:
    return ToyDefinition()


class Feeder:
    """elasticdl.model.feeding.Feeder."""

    order_preserved = True

    def __init__(self, *_: Any, batch_size: int, **__: Any) -> None:
        self._size = batch_size
        self.bad: list[Any] = []

    def batches(self, records: list[bytes]) -> Iterator[Any]:
        from elasticdl.model.feeding import Batch

        for start in range(0, len(records), self._size):
            part = records[start : start + self._size]
            if settings.feed_seconds:
                kernel().sleep(settings.feed_seconds)
            yield Batch([int(record) for record in part], None, len(part))

    def together(self, tasks: Sequence[list[bytes]]) -> Iterator[list[Any]] | None:
        """Feed several tasks in one call, where the feed is of a kind that can."""
        if settings.feed_seconds:
            return None
        return iter([list(self.batches(records)) for records in tasks])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(_Permissive(), name)


def kind_of(batch: Any) -> int:
    """elasticdl.model.feeding.kind_of."""
    return len(batch.features)


class ToyStep:
    """A GradientStep: counts the records of its batch."""

    def load(self, arena: Any) -> None:
        self._arena = arena

    def kinds(self, features: Any, labels: Any) -> list[Any]:
        from elasticdl.tensor.placement import GradientKind

        return [GradientKind.DENSE] * settings.num_ps

    def run(self, features: Any, labels: Any, shapes: Any) -> Any:
        from elasticdl.worker.steps.step import StepResult

        run = kernel()
        slower = run.random.uniform(1.0, settings.slowest_step)
        run.sleep(settings.step_seconds * slower)
        gradient = np.zeros(settings.size, np.float32)
        np.add.at(gradient, features, np.float32(-1))
        if lose_a_record:
            gradient[0] = 0
        gradients = [gradient.copy() for _ in range(settings.num_ps)]
        return StepResult(1.0, gradients)


class ToyLocalStep:
    """A VariableStep of strategy local: counts in the model's own variable."""

    def __init__(self, definition: ToyDefinition, **_: Any) -> None:
        self.variables = definition.model.trainable_variables
        self._iteration = definition.optimizer.iteration

    def kinds(self, features: Any, labels: Any) -> None:
        pass

    def apply(self, features: Any, labels: Any) -> float:
        run = kernel()
        slower = run.random.uniform(1.0, settings.slowest_step)
        run.sleep(settings.step_seconds * slower)
        for variable in self.variables:
            counts = variable.value.copy()
            np.add.at(counts, features, np.float32(1))
            if lose_a_record:
                counts[0] = 0
            variable.assign(counts)
        self._iteration.assign(self._iteration.value + 1)
        return 1.0


def export_model(
    model: _Model, directory: Any, formats: Sequence[str], **_: Any
) -> list[Any]:
    """elasticdl.model.export.export_model: the numbers, aside and then renamed."""
    from elasticdl.errors import CheckpointError

    kernel().sleep(settings.step_seconds)
    whole = {one.name: one.value.tolist() for one in model.trainable_variables}
    path = directory / toy_evaluation.MODEL
    aside = directory / f".model-{kernel().random.random()}"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        aside.write_text(json.dumps(whole))
        aside.replace(path)
    except OSError as error:
        raise CheckpointError(f"{directory}: {error}") from error
    return [path]


def choose_step(*_: Any, **__: Any) -> tuple[ToyStep, list[Any]]:
    step = ToyStep()
    return step, step.kinds(None, None)


class MetricsServer:
    """elasticdl.metrics.server.MetricsServer, without a port."""

    port = 1

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def close(self) -> None:
        pass


def replaced() -> dict[str, dict[str, Any]]:
    """Return what is replaced, by the product's module that has it."""
    return {
        "elasticdl.model.definition": {
            "load_definition": load_definition,
            "ModelDefinition": ToyDefinition,
        },
        "elasticdl.model.feeding": {"Feeder": Feeder, "kind_of": kind_of},
        "elasticdl.model.variables": {"view": lambda variable: variable.value.copy()},
        "elasticdl.model.measures.masks": {"put_masks": lambda outputs, masks: outputs},
        "elasticdl.worker.steps.step": {"Traced": toy_evaluation.Traced},
        "elasticdl.worker.uses.model_values": {
            "ModelValues": toy_evaluation.ModelValues
        },
        "elasticdl.worker.steps.variable_step": {"VariableStep": ToyLocalStep},
        "elasticdl.model.export": {"export_model": export_model},
        "elasticdl.worker.steps.choice": {"choose_step": choose_step},
        "elasticdl.metrics.server": {"MetricsServer": MetricsServer},
    }
