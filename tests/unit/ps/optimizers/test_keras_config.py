"""D19: what a PS cannot run is refused, with the reason and what can be."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from elasticdl.errors import SpecError
from elasticdl.ps.optimizers.optimizer import optimizer_from_json
from elasticdl.tensor.placement import Variable, place

from tests.unit.ps.optimizers.cases import make, tree


def refusal(changed: Mapping[str, Any]) -> str:
    with pytest.raises(SpecError) as caught:
        optimizer_from_json(json.dumps(changed))
    return str(caught.value)


def test_d19_an_unknown_optimizer_of_keras() -> None:
    message = refusal(tree("SGD") | {"class_name": "Newton"})
    assert "optimizer Newton: no PS can run it yet" in message
    assert "supported are SGD, Adam, AdamW, Adagrad, RMSprop, Adadelta" in message
    assert "strategy: local" in message


@pytest.mark.parametrize("name", ["Lamb", "Adafactor", "Muon"])
def test_d19_an_optimizer_that_looks_at_whole_variables(name: str) -> None:
    message = refusal(tree("SGD") | {"class_name": name})
    assert "needs a whole variable at once" in message


def test_d19_an_own_class() -> None:
    for extra in ({"module": None}, {"registered_name": "My>Adam"}):
        message = refusal(tree("Adam") | extra)
        assert "not one of Keras's own" in message


def test_refused_are_options_that_need_what_no_ps_and_no_worker_has() -> None:
    message = refusal(tree("SGD", global_clipnorm=1.0, gradient_accumulation_steps=2))
    assert "global_clipnorm with gradient_accumulation_steps needs" in message
    assert make("SGD", global_clipnorm=1.0).config.clipnorm is None


def test_refused_is_a_loss_scale_that_the_worker_left_on() -> None:
    assert "loss_scale_factor is taken off" in refusal(tree("SGD", loss_scale_factor=8))


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
    message = refusal(tree("RMSprop", rho="some"))
    assert "optimizer RMSprop: could not convert" in message


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"class_name": "SGD"}', "null"])
def test_refused_are_what_is_no_serialized_optimizer(text: str) -> None:
    with pytest.raises(SpecError, match="expected the JSON of keras"):
        optimizer_from_json(text)


def test_refused_is_the_norm_of_an_accumulated_gradient_that_is_cut_over_ps() -> None:
    optimizer = make("SGD", clipnorm=1.0, gradient_accumulation_steps=2)
    variables = [Variable("big", (100, 10)), Variable("small", (3,))]
    optimizer.check(place(variables, 1))
    with pytest.raises(SpecError, match="but big is cut over 2 PS"):
        optimizer.check(place(variables, 2))
    make("SGD", clipnorm=1.0).check(place(variables, 2))


def test_refused_are_a_weight_decay_excluded_for_a_variable_that_is_not_there() -> None:
    changed = tree("AdamW", weight_decay=0.1)
    changed["exclude_from_weight_decay"] = ["nobody"]
    optimizer = optimizer_from_json(json.dumps(changed))
    with pytest.raises(SpecError, match="got nobody, expected names"):
        optimizer.check(place([Variable("w", (2,))], 1))
