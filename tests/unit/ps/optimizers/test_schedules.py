"""Claims about learning-rate schedules. Equality with Keras: tests/integration/ps."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from elasticdl.errors import SpecError
from elasticdl.ps.optimizers.schedules import Schedule, schedule_from_config


def schedule(name: str, **config: Any) -> Schedule:
    tree = {
        "module": "keras.optimizers.schedules",
        "class_name": name,
        "config": config | {"name": None},
        "registered_name": None,
    }
    made = schedule_from_config(tree)
    assert made is not None
    return made


def near(value: float) -> Any:
    return pytest.approx(value, rel=1e-5, abs=1e-7)


def test_a_number_is_the_learning_rate_of_every_step_in_float32() -> None:
    made = schedule_from_config(0.1)
    assert made is not None
    assert made(0) == made(1000) == float(np.float32(0.1))


def test_exponential_decay_runs_smoothly_or_in_stairs() -> None:
    options = {"initial_learning_rate": 0.1, "decay_steps": 10, "decay_rate": 0.5}
    smooth = schedule("ExponentialDecay", **options, staircase=False)
    stairs = schedule("ExponentialDecay", **options, staircase=True)
    assert smooth(5) == near(0.1 * 0.5**0.5)
    assert [stairs(9), stairs(10)] == [near(0.1), near(0.05)]


def test_inverse_time_decay_runs_smoothly_or_in_stairs() -> None:
    options = {"initial_learning_rate": 0.1, "decay_steps": 10, "decay_rate": 0.5}
    smooth = schedule("InverseTimeDecay", **options, staircase=False)
    stairs = schedule("InverseTimeDecay", **options, staircase=True)
    assert smooth(5) == near(0.1 / 1.25)
    assert [stairs(9), stairs(10)] == [near(0.1), near(0.1 / 1.5)]


def test_piecewise_constants_change_after_their_boundary() -> None:
    made = schedule("PiecewiseConstantDecay", boundaries=[3, 5], values=[1.0, 0.5, 0.1])
    assert [made(step) for step in range(7)] == [1, 1, 1, 1, 0.5, 0.5, near(0.1)]


def test_polynomial_decay_ends_or_begins_anew() -> None:
    options = {
        "initial_learning_rate": 1.0, "end_learning_rate": 0.2, "decay_steps": 10,
        "power": 2.0,
    }  # fmt: skip
    once = schedule("PolynomialDecay", **options, cycle=False)
    again = schedule("PolynomialDecay", **options, cycle=True)
    assert [once(0), once(5), once(50)] == [1.0, near(0.4), near(0.2)]
    assert [again(0), again(10), again(15)] == [1.0, near(0.2), near(0.25)]


def test_cosine_decay_warms_up_first() -> None:
    options = {"decay_steps": 10, "alpha": 0.1}
    plain = schedule("CosineDecay", initial_learning_rate=1.0, **options)
    assert [plain(0), plain(5), plain(99)] == [1.0, near(0.55), near(0.1)]
    warm = schedule(
        "CosineDecay", initial_learning_rate=0.0, warmup_target=2.0, warmup_steps=4,
        **options,
    )  # fmt: skip
    assert [warm(0), warm(1), warm(4)] == [0.0, near(0.5), near(2.0)]
    assert [warm(9), warm(14)] == [near(1.1), near(0.2)]


def test_cosine_restarts_come_later_and_lower_each_time() -> None:
    made = schedule(
        "CosineDecayRestarts", initial_learning_rate=1.0, first_decay_steps=10,
        t_mul=2.0, m_mul=0.5, alpha=0.0,
    )  # fmt: skip
    assert [made(0), made(5), made(10), made(20)] == [1.0, near(0.5), 0.5, near(0.25)]
    even = schedule(
        "CosineDecayRestarts", initial_learning_rate=1.0, first_decay_steps=10,
        t_mul=1.0, m_mul=0.5, alpha=0.0,
    )  # fmt: skip
    assert [even(10), even(25)] == [0.5, near(0.25 * (1 + math.cos(math.pi / 2)) / 2)]


@pytest.mark.parametrize(
    "tree",
    [
        {"class_name": "__lambda__", "config": {"value": []}},
        {"module": "zoo.my", "class_name": "CosineDecay", "config": {}},
        {"module": "keras.optimizers.schedules", "class_name": "New", "config": {}},
        "a function",
        None,
        True,
    ],
)
def test_what_only_the_users_python_can_compute_has_no_schedule_here(
    tree: object,
) -> None:
    assert schedule_from_config(tree) is None


def test_an_integer_start_is_refused_as_keras_would_compute_in_integers() -> None:
    with pytest.raises(SpecError, match=r"got 0, expected a float.*write 0\.0"):
        schedule("CosineDecay", initial_learning_rate=0, decay_steps=5, alpha=0.0)


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("ExponentialDecay", {}),
        ("CosineDecay", {"decay_steps": 0, "alpha": 0.0}),
        ("PiecewiseConstantDecay", {"boundaries": [1], "values": [1.0]}),
        ("PolynomialDecay", {"decay_steps": "x", "end_learning_rate": 0.1}),
    ],
)
def test_a_config_without_sense_is_refused(name: str, config: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match=f"the config of {name} cannot be read"):
        schedule(name, initial_learning_rate=0.1, **config)


def test_a_schedule_without_config_is_refused() -> None:
    tree = {"module": "keras.optimizers.schedules", "class_name": "CosineDecay"}
    with pytest.raises(SpecError, match="without a config"):
        schedule_from_config(tree)
