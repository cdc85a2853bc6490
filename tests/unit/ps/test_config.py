"""D19: what a PS cannot run is refused, with the reason and what can be."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from elasticdl.errors import SpecError
from elasticdl.ps.optimizer import Optimizer, optimizer_from_json
from elasticdl.tensor.placement import Variable, place

F = np.float32

COMMON = {
    "learning_rate": 0.1, "weight_decay": None, "clipnorm": None, "clipvalue": None,
    "loss_scale_factor": None, "gradient_accumulation_steps": None,
}  # fmt: skip
OWN: dict[str, dict[str, Any]] = {
    "SGD": {"momentum": 0.0, "nesterov": False},
    "Adam": {"beta_1": 0.9, "beta_2": 0.99, "epsilon": 1e-7, "amsgrad": False},
    "AdamW": {"beta_1": 0.9, "beta_2": 0.99, "epsilon": 1e-7, "amsgrad": False},
    "Adagrad": {"initial_accumulator_value": 0.1, "epsilon": 1e-7},
}


def tree(kind: str, **options: Any) -> dict[str, Any]:
    return {
        "module": "keras.optimizers",
        "class_name": kind,
        "config": COMMON | OWN[kind] | options,
        "registered_name": None,
    }


def make(kind: str, **options: Any) -> Optimizer:
    return optimizer_from_json(json.dumps(tree(kind, **options)))


def refusal(changed: Mapping[str, Any]) -> str:
    with pytest.raises(SpecError) as caught:
        optimizer_from_json(json.dumps(changed))
    return str(caught.value)


def test_d19_an_unknown_optimizer_of_keras() -> None:
    message = refusal(tree("SGD") | {"class_name": "Ftrl"})
    assert "optimizer Ftrl: no PS can run it yet" in message
    assert "supported are SGD, Adam, AdamW, Adagrad" in message
    assert "strategy: local" in message


def test_d19_an_own_class() -> None:
    for extra in ({"module": None}, {"registered_name": "My>Adam"}):
        message = refusal(tree("Adam") | extra)
        assert "not one of Keras's own" in message


def test_refused_are_a_loss_scale_optimizer() -> None:
    message = refusal(tree("SGD") | {"class_name": "LossScaleOptimizer"})
    assert "mixed_bfloat16" in message


def test_refused_are_options_that_need_all_variables_in_one_place() -> None:
    message = refusal(tree("SGD", global_clipnorm=1.0, use_ema=True))
    assert "global_clipnorm needs the gradients of all variables" in message
    assert "use_ema" in message


def test_refused_are_options_of_a_later_keras() -> None:
    message = refusal(tree("SGD", sharpness=2.0))
    assert "option sharpness: got 2.0, which this version does not know" in message
    assert make("SGD", sharpness=None).name == "SGD"


def test_refused_are_a_config_that_lacks_something_or_has_no_numbers() -> None:
    bare = tree("SGD")
    bare["config"] = {"learning_rate": 0.1, "momentum": 0.0}
    assert "its config lacks nesterov" in refusal(bare)
    message = refusal(tree("SGD", weight_decay="much"))
    assert "'much' is not a number" in message


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"class_name": "SGD"}', "null"])
def test_refused_are_what_is_no_serialized_optimizer(text: str) -> None:
    with pytest.raises(SpecError, match="expected the JSON of keras"):
        optimizer_from_json(text)


def test_refused_are_a_clipnorm_of_a_variable_that_is_cut_over_ps() -> None:
    optimizer = make("SGD", clipnorm=1.0)
    variables = [Variable("big", (100, 10)), Variable("small", (3,))]
    optimizer.check(place(variables, 1))
    with pytest.raises(SpecError, match="but big is cut over 2 PS"):
        optimizer.check(place(variables, 2))
    make("SGD").check(place(variables, 2))


def test_refused_are_a_weight_decay_excluded_for_a_variable_that_is_not_there() -> None:
    changed = tree("AdamW", weight_decay=0.1)
    changed["exclude_from_weight_decay"] = ["nobody"]
    optimizer = optimizer_from_json(json.dumps(changed))
    with pytest.raises(SpecError, match="got nobody, expected names"):
        optimizer.check(place([Variable("w", (2,))], 1))
