"""Callbacks are described for the master, run as schedules, or refused."""

import json

import pytest
from elasticdl.callbacks import MaxStepsStopping
from elasticdl.errors import UserCodeError

from tests.integration.model.conftest import CLASSIC

HEADER = """
from elasticdl.callbacks import MaxStepsStopping
from elasticdl.python.elasticdl.callbacks import LearningRateScheduler

def callbacks():
    return [{}]
"""


def with_callbacks(text):
    return CLASSIC + HEADER.format(text)


def test_callbacks_are_described_with_keras_names(built):
    definition = built(
        with_callbacks(
            "keras.callbacks.EarlyStopping('val_accuracy', patience=3, min_delta=0.01,"
            " restore_best_weights=True),"
            "keras.callbacks.ModelCheckpoint('best.keras', 'val_loss',"
            " save_best_only=True),"
            "keras.callbacks.ReduceLROnPlateau('val_loss', factor=0.5, min_lr=1e-4),"
            "MaxStepsStopping(100),"
            "LearningRateScheduler(lambda version: 0.1)"
        )
    )
    early, best, plateau, steps, schedule = json.loads(definition.callbacks_json())
    assert early == {
        "class": "EarlyStopping",
        "monitor": "accuracy",
        "mode": "max",
        "patience": 3,
        "min_delta": 0.01,
        "baseline": None,
        "restore_best_weights": True,
        "start_from_epoch": 0,
    }
    assert best["class"] == "ModelCheckpoint"
    assert (best["monitor"], best["mode"]) == ("loss", "min")
    assert plateau["factor"] == 0.5
    assert plateau["learning_rate"] == pytest.approx(0.1)
    assert steps == {"class": "MaxStepsStopping", "max_steps": 100}
    assert schedule == {"class": "LearningRateScheduler"}


def test_no_callbacks_are_an_empty_list(built):
    definition = built(CLASSIC)
    assert definition.callbacks_json() == "[]"
    assert definition.rate_schedule().learning_rate_of(5, 1) is None


def test_a_classic_schedule_goes_by_the_version(built):
    text = "LearningRateScheduler(lambda v: 0.1 if v < 10 else 0.01)"
    definition = built(with_callbacks(text))
    assert definition.rate_schedule().learning_rate_of(9, 0) == 0.1
    assert definition.rate_schedule().learning_rate_of(10, 0) == 0.01


def test_a_keras_schedule_builds_on_the_epoch_before(built):
    text = "keras.callbacks.LearningRateScheduler(lambda epoch, lr: lr * 0.5)"
    definition = built(with_callbacks(text))
    assert definition.rate_schedule().learning_rate_of(0, 2) == pytest.approx(0.0125)
    assert definition.rate_schedule().learning_rate_of(0, 0) == pytest.approx(0.05)
    text = "keras.callbacks.LearningRateScheduler(lambda epoch: 1.0 / (epoch + 1))"
    assert built(with_callbacks(text)).rate_schedule().learning_rate_of(7, 3) == 0.25


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("keras.callbacks.TensorBoard('x')", "TensorBoard is not supported: the scal"),
        ("keras.callbacks.CSVLogger('x')", "CSVLogger is not supported"),
        ("keras.callbacks.LambdaCallback()", "LambdaCallback .* has no Keras"),
        ("keras.callbacks.ModelCheckpoint('x.keras')", "without save_best_only"),
        (
            "keras.callbacks.EarlyStopping('val_acuracy')",
            "monitors `val_acuracy`, which is no evaluation metric; did you mean `accu",
        ),
        (
            "keras.callbacks.TensorBoard('x'), keras.callbacks.LambdaCallback()",
            "TensorBoard .*; LambdaCallback",
        ),
        (
            "keras.callbacks.ModelCheckpoint('x.keras', 'val_loss', "
            "save_best_only=True, save_freq=100)",
            r"ModelCheckpoint\(save_freq=100\) is not supported",
        ),
        (
            "keras.callbacks.ReduceLROnPlateau('val_loss'), "
            "keras.callbacks.ReduceLROnPlateau('val_accuracy')",
            "ReduceLROnPlateau is there more than once",
        ),
        (
            "type('Warm', (keras.callbacks.LearningRateScheduler,), "
            "{'on_train_batch_begin': lambda self, *a: None, '__module__': 'net'})"
            "(lambda epoch: 0.1)",
            r"Warm.on_train_batch_begin is not supported",
        ),
    ],
)
def test_other_callbacks_are_refused_with_the_reason(built, text, message):
    with pytest.raises(UserCodeError, match=message):
        built(with_callbacks(text)).callbacks_json()


def test_which_way_is_better_may_have_to_be_said(built):
    text = with_callbacks("keras.callbacks.EarlyStopping('val_oddity')").replace(
        '"accuracy":', '"oddity":'
    )
    text = text.replace(
        "keras.metrics.SparseCategoricalAccuracy()", "lambda labels, p: p[:, 0]"
    )
    with pytest.raises(UserCodeError, match="give mode='max' or mode='min'"):
        built(text).callbacks_json()


@pytest.mark.parametrize(
    "callback",
    [
        "keras.callbacks.LearningRateScheduler(lambda epoch, lr: lr)",
        "LearningRateScheduler(lambda version: 0.1)",
    ],
)
def test_a_schedule_beside_a_scheduled_optimizer_is_refused_at_start(built, callback):
    text = with_callbacks(callback).replace(
        "SGD(lr)", "SGD(keras.optimizers.schedules.CosineDecay(0.1, 10))"
    )
    with pytest.raises(UserCodeError, match="use one of the two"):
        built(text).callbacks_json()


def test_a_scheduler_of_ones_own_that_says_its_schedule_is_taken(built):
    text = with_callbacks(
        "type('Mine', (keras.callbacks.LearningRateScheduler,), "
        "{'__module__': 'net'})(lambda epoch: 0.1)"
    )
    assert json.loads(built(text).callbacks_json()) == [
        {"class": "LearningRateScheduler"}
    ]


def test_what_a_schedule_returns_and_raises_is_told(built):
    definition = built(with_callbacks("LearningRateScheduler(lambda version: 'high')"))
    with pytest.raises(UserCodeError, match="returned 'high', expected a number"):
        definition.rate_schedule().learning_rate_of(0, 0)
    definition = built(with_callbacks("LearningRateScheduler(lambda version: 1 / 0)"))
    with pytest.raises(
        UserCodeError, match=r"schedule raised ZeroDivisionError at .*net"
    ):
        definition.rate_schedule().learning_rate_of(0, 0)


def test_callbacks_that_are_no_list_are_refused(built):
    text = CLASSIC + "\ndef callbacks():\n    return 3\n"
    with pytest.raises(UserCodeError, match="returned int, expected a list"):
        built(text).callbacks_json()


def test_a_number_of_steps_below_one_is_refused():
    with pytest.raises(ValueError, match="max_steps is 0"):
        MaxStepsStopping(0)
