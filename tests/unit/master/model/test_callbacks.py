"""Callbacks of the master behave as Keras's of the same names."""

import math

import pytest
from elasticdl.errors import UserCodeError
from elasticdl.job.tasks import ExportTarget
from elasticdl.master.model.callbacks import (
    BestModel,
    EarlyStopping,
    KeepModel,
    ReduceLROnPlateau,
    ScaleLearningRate,
    StopTraining,
    from_json,
)


def test_early_stopping_waits_for_its_patience() -> None:
    stop = EarlyStopping({"monitor": "val_loss", "patience": 2})
    seen = [stop.on_evaluation({"loss": x}) for x in (1.0, 0.5, 0.6, 0.5, 0.1)]
    assert [bool(actions) for actions in seen] == [False, False, False, True, False]
    assert isinstance(seen[3][0], StopTraining)
    assert "val_loss" in seen[3][0].reason


def test_small_improvements_do_not_count() -> None:
    stop = EarlyStopping({"monitor": "loss", "patience": 1, "min_delta": 0.1})
    stop.on_evaluation({"loss": 1.0})
    assert stop.on_evaluation({"loss": 0.95})


def test_accuracy_is_better_when_greater_unless_the_mode_says_otherwise() -> None:
    best = BestModel({"monitor": "val_accuracy"})
    assert best.on_evaluation({"accuracy": 0.5})
    assert not best.on_evaluation({"accuracy": 0.4})
    assert best.on_evaluation({"accuracy": 0.6}) == [KeepModel("val_accuracy is 0.6")]
    least = BestModel({"monitor": "val_accuracy", "mode": "min"})
    assert least.on_evaluation({"accuracy": 0.5})
    assert least.on_evaluation({"accuracy": 0.4})


def test_what_improves_below_a_baseline_goes_on_and_does_not_begin_patience_anew():
    stop = EarlyStopping({"monitor": "loss", "patience": 2, "baseline": 0.3})
    seen = [bool(stop.on_evaluation({"loss": x})) for x in (0.6, 0.5, 0.4, 0.45)]
    assert seen == [False, False, False, True]


def test_the_best_model_is_kept_to_be_restored_and_an_undone_one_stays_to_be_beaten():
    described = {"monitor": "loss", "patience": 9, "restore_best_weights": True}
    stop = EarlyStopping(described)

    def keeps(loss: float) -> bool:
        (action,) = stop.on_evaluation({"loss": loss}) or (None,)
        return isinstance(action, KeepModel) and action.target == ExportTarget.RESTORED

    assert [keeps(x) for x in (0.5, 0.6, 0.4, 0.4)] == [True, False, True, False]
    stop = EarlyStopping(described)
    stop.kept({"loss": 0.4}, ExportTarget.RESTORED)
    stop.kept({"loss": 0.1}, ExportTarget.BEST)  # for another callback
    assert [keeps(x) for x in (0.5, 0.3)] == [False, True]


def test_the_first_evaluations_can_be_skipped() -> None:
    stop = EarlyStopping({"monitor": "loss", "patience": 1, "start_from_epoch": 2})
    seen = [bool(stop.on_evaluation({"loss": x})) for x in (0.1, 0.2, 0.3, 0.4)]
    assert seen == [False, False, False, True]


def test_nan_is_never_an_improvement() -> None:
    best = BestModel({"monitor": "loss"})
    assert not best.on_evaluation({"loss": math.nan})
    assert best.on_evaluation({"loss": 1.0})


def test_an_unknown_metric_warns_once_and_does_nothing(caplog) -> None:  # type: ignore[no-untyped-def]
    stop = EarlyStopping({"monitor": "val_auc"})
    assert not stop.on_evaluation({"loss": 1.0})
    assert not stop.on_evaluation({"loss": 1.0})
    assert caplog.text.count("val_auc") == 1
    for callback in (BestModel, ReduceLROnPlateau):
        assert not callback({"monitor": "val_auc"}).on_evaluation({})


def scales(callback: ReduceLROnPlateau, values: list[float]) -> list[float]:
    found = []
    for value in values:
        for action in callback.on_evaluation({"loss": value}):
            assert isinstance(action, ScaleLearningRate)
            found.append(action.scale)
    return found


def test_the_learning_rate_is_reduced_on_a_plateau_down_to_its_least() -> None:
    reduce = ReduceLROnPlateau(
        {
            "monitor": "loss",
            "patience": 1,
            "factor": 0.1,
            "learning_rate": 0.1,
            "min_lr": 0.001,
        }
    )
    assert scales(reduce, [1.0] * 6) == pytest.approx([0.1, 0.01])


def test_the_learning_rate_rests_while_it_cools_down() -> None:
    reduce = ReduceLROnPlateau(
        {"monitor": "loss", "patience": 1, "factor": 0.5, "cooldown": 2}
    )
    assert scales(reduce, [1.0, 1.0, 1.0, 1.0]) == [0.5, 0.25]
    assert scales(reduce, [0.1]) == []


def test_callbacks_are_read_from_what_a_worker_describes() -> None:
    found = from_json(
        '[{"class": "EarlyStopping", "patience": 1}, {"class": "Mine"},'
        ' {"class": "MaxStepsStopping", "max_steps": 7}]'
    )
    assert len(found.callbacks) == 1
    assert found.max_steps == 7
    assert from_json("").callbacks == ()


def test_a_description_that_cannot_be_read_names_itself() -> None:
    with pytest.raises(UserCodeError, match="expected a list"):
        from_json('[{"class": "EarlyStopping", "patience": "x"}]')
