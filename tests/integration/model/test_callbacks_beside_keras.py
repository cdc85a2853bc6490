"""The master's callbacks do what Keras's own do, an evaluation in place of an epoch."""

import random
import warnings

import keras
import numpy as np
import pytest
from elasticdl.job.tasks import ExportTarget
from elasticdl.master.model.callbacks import (
    KeepModel,
    ScaleLearningRate,
    StopTraining,
    from_json,
)
from elasticdl.model.callbacks import callbacks_json
from elasticdl.model.measures.metrics import MetricSet

RATE = 0.5
EPOCHS = 14


class Model:
    """What Keras's callbacks see of a model; its weights are the epoch's number."""

    def __init__(self) -> None:
        self.optimizer = keras.optimizers.SGD(RATE)
        self.stop_training = False
        self.metrics: list[keras.Metric] = []
        self.epoch = -1
        self.saved: list[int] = []

    def get_weights(self) -> int:
        return self.epoch

    def set_weights(self, weights: int) -> None:
        self.epoch = weights

    def save(self, *_: object, **__: object) -> None:
        self.saved.append(self.epoch)


def by_keras(
    callback: keras.callbacks.Callback, values: list[float]
) -> tuple[int, int, list[float], list[int]]:
    """Return epochs made, whose weights are left, the rates, and epochs saved."""
    model = Model()
    callback.set_model(model)
    callback.on_train_begin()
    rates = []
    for epoch, value in enumerate(values):
        model.epoch = epoch
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            callback.on_epoch_begin(epoch)
            callback.on_epoch_end(epoch, {"val_loss": value})
        rates.append(float(np.asarray(model.optimizer.learning_rate)))
        if model.stop_training:
            break
    made = model.epoch + 1
    callback.on_train_end()
    return made, model.epoch, rates, model.saved


def by_master(
    callback: keras.callbacks.Callback, values: list[float]
) -> tuple[int, int, list[float], list[int]]:
    """Return the same of the master's callback, made of the same description."""
    described = callbacks_json([callback], MetricSet(None, []), RATE)
    made = from_json(described)
    rates, rate, saved, left = [], RATE, [], -1
    for epoch, value in enumerate(values):
        actions = made.on_evaluation({"loss": value})
        left = left if getattr(callback, "restore_best_weights", False) else epoch
        for action in actions:
            if isinstance(action, ScaleLearningRate):
                rate = RATE * action.scale
            elif isinstance(action, KeepModel) and action.target == ExportTarget.BEST:
                saved.append(epoch)
            elif isinstance(action, KeepModel):
                left = epoch
        rates.append(rate)
        if any(isinstance(action, StopTraining) for action in actions):
            return epoch + 1, left, rates, saved
    return len(values), left, rates, saved


def course(chance: random.Random) -> list[float]:
    return [round(chance.uniform(0, 1), 1) for _ in range(EPOCHS)]


def monitored(chance: random.Random) -> dict[str, object]:
    return {"monitor": "val_loss", "mode": chance.choice(["min", "max"])}


def early_stopping(chance: random.Random) -> keras.callbacks.Callback:
    return keras.callbacks.EarlyStopping(
        **monitored(chance),
        patience=chance.choice([0, 1, 2, 4, 20]),
        min_delta=chance.choice([0, 0.15, -0.15]),
        baseline=chance.choice([None, None, 0.0, 0.3, 0.6]),
        start_from_epoch=chance.choice([0, 0, 1, 3]),
        restore_best_weights=chance.random() < 0.5,
    )


def plateau(chance: random.Random) -> keras.callbacks.Callback:
    return keras.callbacks.ReduceLROnPlateau(
        **monitored(chance),
        factor=chance.choice([0.1, 0.5, 0.9]),
        patience=chance.choice([0, 1, 2, 4]),
        min_delta=chance.choice([0, 0.0001, 0.15]),
        cooldown=chance.choice([0, 1, 3]),
        min_lr=chance.choice([0, 0.06, 0.4]),
    )


def checkpoint(chance: random.Random, folder: str) -> keras.callbacks.Callback:
    return keras.callbacks.ModelCheckpoint(
        f"{folder}/best.keras",
        **monitored(chance),
        save_best_only=True,
        initial_value_threshold=chance.choice([None, None, 0.3, 0.7]),
    )


@pytest.mark.parametrize("kind", ["early stopping", "plateau", "checkpoint"])
def test_a_callback_does_what_keras_does(kind, tmp_path):
    for seed in range(400):
        chance = random.Random(f"{kind} {seed}")
        make = {
            "early stopping": early_stopping,
            "plateau": plateau,
            "checkpoint": lambda chance: checkpoint(chance, str(tmp_path)),
        }[kind]
        callback, values = make(chance), course(chance)
        ours = by_master(callback, values)
        theirs = by_keras(callback, values)
        course_of = f"seed {seed}: {vars(callback)}\n{values}\n{ours}\n{theirs}"
        assert (ours[0], ours[1], ours[3]) == (theirs[0], theirs[1], theirs[3]), (
            course_of
        )
        assert np.allclose(ours[2], theirs[2], rtol=1e-6), course_of
