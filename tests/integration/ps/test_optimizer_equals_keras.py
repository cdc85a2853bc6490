"""A PS's optimizers give the numbers that Keras 3 on TensorFlow gives, step by step.

Tolerance: values within 1e-6 relative or 2e-7 absolute over 25 steps with usual
options; 1e-4 relative or 2e-6 absolute over 60 steps with any. BITWISE come out bit for
bit; the graph's own rewrites (reciprocal roots, reordered products), its float32 sums
of squares and its `pow` make the rest.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import keras
import numpy as np
import pytest
import tensorflow as tf
from elasticdl.ps.apply import Gradient, ParameterShard, apply_gradient
from elasticdl.ps.optimizers.kernels import sum_rows
from elasticdl.ps.optimizers.optimizer import Optimizer, optimizer_from_json
from elasticdl.ps.optimizers.schedules import schedule_from_config
from elasticdl.tensor.placement import GradientKind, Layout, Variable, place
from hypothesis import given, settings
from hypothesis import strategies as st

STEPS = 25
RELATIVE, ABSOLUTE = 1e-6, 2e-7
schedules = keras.optimizers.schedules

OPTIMIZERS: dict[str, Callable[[], keras.optimizers.Optimizer]] = {
    "sgd": lambda: keras.optimizers.SGD(0.1),
    "momentum": lambda: keras.optimizers.SGD(0.05, momentum=0.9),
    "nesterov": lambda: keras.optimizers.SGD(0.05, momentum=0.9, nesterov=True),
    "sgd-decay": lambda: keras.optimizers.SGD(0.1, weight_decay=0.01),
    "adam": lambda: keras.optimizers.Adam(0.01),
    "adam-far-betas": lambda: keras.optimizers.Adam(
        0.02, beta_1=0.5, beta_2=0.9999, epsilon=1e-3
    ),
    "amsgrad": lambda: keras.optimizers.Adam(0.01, amsgrad=True),
    "adamw": lambda: keras.optimizers.AdamW(0.01, weight_decay=0.05),
    "adagrad": lambda: keras.optimizers.Adagrad(0.1),
    "adagrad-start": lambda: keras.optimizers.Adagrad(
        0.1, initial_accumulator_value=0.7, epsilon=1e-3
    ),
    "adagrad-decay": lambda: keras.optimizers.Adagrad(0.1, weight_decay=0.01),
    "rmsprop": lambda: keras.optimizers.RMSprop(0.01),
    "rmsprop-momentum": lambda: keras.optimizers.RMSprop(0.01, momentum=0.9),
    "rmsprop-centered": lambda: keras.optimizers.RMSprop(0.01, centered=True),
    "rmsprop-both": lambda: keras.optimizers.RMSprop(
        0.01, rho=0.8, momentum=0.5, centered=True, epsilon=1e-3
    ),
    "adadelta": lambda: keras.optimizers.Adadelta(1.0),
    "adamax": lambda: keras.optimizers.Adamax(0.01),
    "nadam": lambda: keras.optimizers.Nadam(0.01),
    "nadam-decay": lambda: keras.optimizers.Nadam(0.01, beta_1=0.99, weight_decay=0.01),
    "ftrl": lambda: keras.optimizers.Ftrl(0.1),
    "ftrl-regularized": lambda: keras.optimizers.Ftrl(
        0.1,
        l1_regularization_strength=0.01,
        l2_regularization_strength=0.1,
        l2_shrinkage_regularization_strength=0.05,
        beta=0.2,
    ),
    "lion": lambda: keras.optimizers.Lion(0.01),
    "lion-decay": lambda: keras.optimizers.Lion(0.01, weight_decay=0.1),
    "clipvalue": lambda: keras.optimizers.Adam(0.01, clipvalue=0.3),
    "clipnorm": lambda: keras.optimizers.SGD(0.1, momentum=0.5, clipnorm=0.7),
    "average-overwrite": lambda: keras.optimizers.Adam(
        0.01, use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=4
    ),
    "accumulation-average": lambda: keras.optimizers.SGD(
        0.1,
        gradient_accumulation_steps=2,
        use_ema=True,
        ema_momentum=0.75,
        ema_overwrite_frequency=3,
    ),
    "accumulation": lambda: keras.optimizers.Adam(0.01, gradient_accumulation_steps=3),
    "accumulation-nadam": lambda: keras.optimizers.Nadam(
        0.01, gradient_accumulation_steps=3
    ),
    "accumulation-decay-clip": lambda: keras.optimizers.SGD(
        0.1, gradient_accumulation_steps=2, weight_decay=0.01, clipnorm=0.5
    ),
    "schedule": lambda: keras.optimizers.Adam(
        schedules.ExponentialDecay(0.05, decay_steps=7, decay_rate=0.7)
    ),
    "accumulation-schedule": lambda: keras.optimizers.SGD(
        schedules.CosineDecay(0.1, 20), gradient_accumulation_steps=4
    ),
}


@dataclass(frozen=True)
class Step:
    """Gradients of one step: dense ones, and the unique rows of the table."""

    kernel: np.ndarray
    bias: np.ndarray
    ids: np.ndarray
    rows: np.ndarray


SHAPES = {"dense/kernel": (13, 7), "dense/bias": (7,), "embedding/table": (40, 5)}


def some_steps(count: int = STEPS, seed: int = 3) -> list[Step]:
    rng = np.random.default_rng(seed)
    steps = []
    for number in range(count):
        ids = rng.permutation(40)[: rng.integers(1, 12)].astype(np.int64)
        scale = np.float32(10.0 ** rng.integers(-4, 1))
        steps.append(
            Step(
                scale * rng.standard_normal((13, 7)).astype(np.float32),
                rng.standard_normal(7).astype(np.float32),
                ids,
                rng.standard_normal((len(ids), 5)).astype(np.float32) * (number + 1),
            )
        )
    return steps


def initial_values(seed: int = 1) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        name: rng.standard_normal(shape).astype(np.float32)
        for name, shape in SHAPES.items()
    }


def keras_run(
    optimizer: keras.optimizers.Optimizer,
    steps: Sequence[Step],
    *,
    densify: bool = False,
) -> list[dict[str, np.ndarray]]:
    variables = [
        keras.Variable(value, name=name.replace("/", "_"))
        for name, value in initial_values().items()
    ]
    optimizer.build(variables)

    @tf.function(reduce_retracing=True)
    def apply(kernel: tf.Tensor, bias: tf.Tensor, ids: tf.Tensor, rows: tf.Tensor):
        table = tf.IndexedSlices(rows, ids, tf.constant(SHAPES["embedding/table"]))
        if densify:
            table = tf.convert_to_tensor(table)
        optimizer.apply([kernel, bias, table], variables)

    seen = []
    for step in steps:
        apply(*map(tf.constant, (step.kernel, step.bias, step.ids, step.rows)))
        seen.append({n: v.numpy() for n, v in zip(SHAPES, variables, strict=True)})
    return seen


def our_layout(num_ps: int) -> Layout:
    return place(
        [
            Variable(
                name,
                shape,
                GradientKind.ROWWISE if "table" in name else GradientKind.DENSE,
            )
            for name, shape in SHAPES.items()
        ],
        num_ps,
    )


def our_run(
    optimizer: Optimizer, layout: Layout, steps: Sequence[Step]
) -> list[dict[str, np.ndarray]]:
    optimizer.check(layout)
    start = initial_values()
    shards = []
    for ps, pieces in enumerate(layout.pieces):
        values = np.empty(layout.size(ps), np.float32)
        for piece in pieces:
            rows = start[layout.variables[piece.variable].name][piece.start : piece.end]
            values[piece.offset : piece.offset + piece.size] = rows.reshape(-1)
        shards.append(ParameterShard(layout, ps, values, optimizer.slots(values.size)))
    seen = []
    for number, step in enumerate(steps):
        for shard in shards:
            apply_gradient(
                optimizer,
                shard,
                gradient_of(shard, step),
                step=number,
                learning_rate=optimizer.learning_rate_at(number),
            )
        seen.append(gather(layout, shards))
    return seen


def gradient_of(shard: ParameterShard, step: Step) -> Gradient:
    full = {"dense/kernel": step.kernel, "dense/bias": step.bias}
    dense, rows = [], {}
    for index, piece in enumerate(shard.layout.pieces[shard.ps]):
        name = shard.layout.variables[piece.variable].name
        if name in full:
            dense.append(full[name][piece.start : piece.end].reshape(-1))
        else:
            mine = (step.ids >= piece.start) & (step.ids < piece.end)
            rows[index] = (step.ids[mine] - piece.start, step.rows[mine])
    return Gradient(np.concatenate(dense) if dense else np.empty(0, np.float32), rows)


def gather(layout: Layout, shards: Sequence[ParameterShard]) -> dict[str, np.ndarray]:
    full = {name: np.empty(shape, np.float32) for name, shape in SHAPES.items()}
    for shard in shards:
        for piece in layout.pieces[shard.ps]:
            part = full[layout.variables[piece.variable].name][piece.start : piece.end]
            part[...] = shard.values[piece.offset : piece.offset + piece.size].reshape(
                part.shape
            )
    return full


def ours(optimizer: keras.optimizers.Optimizer) -> Optimizer:
    return optimizer_from_json(json.dumps(keras.optimizers.serialize(optimizer)))


def assert_same(
    mine: list[dict[str, np.ndarray]],
    theirs: list[dict[str, np.ndarray]],
    relative: float = RELATIVE,
    absolute: float = ABSOLUTE,
) -> None:
    for number, (a, b) in enumerate(zip(mine, theirs, strict=True)):
        for name in SHAPES:
            np.testing.assert_allclose(
                a[name], b[name], relative, absolute, err_msg=f"{name} step {number}"
            )


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_dense_and_row_wise_updates_equal_keras_at_every_step(name: str) -> None:
    steps = some_steps()
    mine = our_run(ours(OPTIMIZERS[name]()), our_layout(1), steps)
    theirs = keras_run(OPTIMIZERS[name](), steps)
    assert_same(mine, theirs)


@pytest.mark.parametrize("name", ["nesterov", "adamw", "adagrad", "accumulation"])
@pytest.mark.parametrize("num_ps", [2, 3, 4])
def test_any_number_of_ps_gives_bitwise_what_one_gives(name: str, num_ps: int) -> None:
    steps = some_steps()
    optimizer = ours(OPTIMIZERS[name]())
    one = our_run(optimizer, our_layout(1), steps)
    many = our_run(optimizer, our_layout(num_ps), steps)
    for a, b in zip(one, many, strict=True):
        for variable in SHAPES:
            np.testing.assert_array_equal(a[variable], b[variable])


def test_variables_excluded_from_weight_decay_do_not_shrink() -> None:
    steps = some_steps()
    theirs = keras.optimizers.AdamW(0.01, weight_decay=0.5)
    theirs.exclude_from_weight_decay(var_names=["bias"])
    tree = keras.optimizers.serialize(keras.optimizers.AdamW(0.01, weight_decay=0.5))
    tree["exclude_from_weight_decay"] = ["dense/bias"]
    mine = optimizer_from_json(json.dumps(tree))
    assert_same(our_run(mine, our_layout(2), steps), keras_run(theirs, steps))


def shares(low: float, high: float) -> st.SearchStrategy[float]:
    """Floats that float32 has too, so that both sides start from the same option."""
    return st.floats(low, high, width=32)


_BETAS = {"beta_1": shares(0.125, 0.9375), "beta_2": shares(0.5, 0.9990234375)}
_EPSILON = {"epsilon": st.sampled_from([1e-7, 1e-5, 1e-3])}
_AMSGRAD = {"amsgrad": st.booleans()}
ANY_OPTIONS: dict[str, dict[str, st.SearchStrategy]] = {
    "SGD": {"momentum": shares(0, 0.9375), "nesterov": st.booleans()},
    "Adam": _BETAS | _EPSILON | _AMSGRAD,
    "AdamW": _BETAS | _EPSILON | _AMSGRAD,
    "Adagrad": _EPSILON | {"initial_accumulator_value": shares(0.125, 1)},
    "RMSprop": {
        "rho": shares(0.5, 0.9375),
        "momentum": shares(0, 0.875),
        "centered": st.booleans(),
        # Centered, it divides by a difference of nearly equal numbers without it.
        "epsilon": st.sampled_from([1e-3, 1e-2]),
    },
    "Adadelta": _EPSILON | {"rho": shares(0.5, 0.9375)},
    "Adamax": _BETAS | _EPSILON,
    "Nadam": _BETAS | _EPSILON,
    "Ftrl": {
        "learning_rate_power": st.sampled_from([-0.5, -0.25, -0.75]),
        "initial_accumulator_value": shares(0.125, 1),
        "l1_regularization_strength": shares(0, 0.125),
        "l2_regularization_strength": shares(0, 0.5),
        "l2_shrinkage_regularization_strength": shares(0, 0.125),
        "beta": shares(0, 1),
    },
    "Lion": {"beta_1": shares(0.125, 0.9375), "beta_2": shares(0.5, 0.9375)},
}


@pytest.mark.parametrize("name", ANY_OPTIONS)
@settings(max_examples=5)
@given(data=st.data())
def test_any_options_give_keras_values_over_many_steps(
    name: str, data: st.DataObject
) -> None:
    options = data.draw(st.fixed_dictionaries(ANY_OPTIONS[name]), "options")
    options["learning_rate"] = data.draw(shares(0.0009765625, 0.125), "learning rate")
    steps = some_steps(60, seed=data.draw(st.integers(0, 99), "seed"))
    make = getattr(keras.optimizers, name)
    mine = our_run(ours(make(**options)), our_layout(2), steps)
    assert_same(mine, keras_run(make(**options), steps), 1e-4, 2e-6)


def with_repeated_rows(count: int = 6) -> tuple[list[Step], list[Step]]:
    """Steps whose rows repeat, and the same ones as a worker sends them."""
    rng = np.random.default_rng(5)
    raw, summed = [], []
    for _ in range(count):
        ids = rng.integers(0, 12, 9).astype(np.int64)
        ids[:2] = 3
        rows = rng.standard_normal((9, 5)).astype(np.float32)
        step = Step(np.zeros((13, 7), np.float32), np.zeros(7, np.float32), ids, rows)
        raw.append(step)
        summed.append(Step(step.kernel, step.bias, *sum_rows(ids, rows)))
    return raw, summed


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_repeated_rows_give_what_keras_gives_for_the_dense_gradient(name: str) -> None:
    raw, summed = with_repeated_rows()
    mine = our_run(ours(OPTIMIZERS[name]()), our_layout(1), summed)
    # Sums of some rows in another order.
    theirs = keras_run(OPTIMIZERS[name](), raw, densify=True)
    assert_same(mine, theirs, 5e-6, 1e-6)


# With IndexedSlices Keras gives the same only where all is linear in the gradient; else
# it squares, clips or measures each occurrence of a row by itself.
LINEAR = {"sgd", "momentum", "nesterov", "sgd-decay", "lion", "lion-decay"}
LINEAR |= {name for name in OPTIMIZERS if name.startswith("accumulation")}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_keras_takes_repeated_rows_one_by_one_where_it_squares_them(name: str) -> None:
    raw, _ = with_repeated_rows()
    slices = keras_run(OPTIMIZERS[name](), raw)[-1]["embedding/table"]
    dense = keras_run(OPTIMIZERS[name](), raw, densify=True)[-1]["embedding/table"]
    assert np.allclose(slices, dense, 5e-6, 1e-6) == (name in LINEAR)


SCHEDULES = {
    "exponential": schedules.ExponentialDecay(0.1, 10, 0.9),
    "exponential-stairs": schedules.ExponentialDecay(0.1, 10, 0.5, staircase=True),
    "inverse-time": schedules.InverseTimeDecay(0.1, 10, 0.5),
    "inverse-time-stairs": schedules.InverseTimeDecay(0.1, 10, 0.5, staircase=True),
    "piecewise": schedules.PiecewiseConstantDecay([10, 20], [1.0, 0.5, 0.1]),
    "piecewise-one": schedules.PiecewiseConstantDecay([10], [1.0, 0.5]),
    "polynomial": schedules.PolynomialDecay(0.1, 50, 0.01, power=2.0),
    "polynomial-cycle": schedules.PolynomialDecay(0.1, 20, 0.01, 0.5, cycle=True),
    "cosine": schedules.CosineDecay(0.1, 60, alpha=0.1),
    "cosine-warm-up": schedules.CosineDecay(
        0.0, 60, alpha=0.05, warmup_target=0.2, warmup_steps=12
    ),
    "restarts": schedules.CosineDecayRestarts(0.1, 10, t_mul=2.0, m_mul=0.9),
    "restarts-1.5": schedules.CosineDecayRestarts(0.1, 7, t_mul=1.5, alpha=0.1),
    "restarts-even": schedules.CosineDecayRestarts(0.1, 10, t_mul=1.0, m_mul=0.5),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_equal_keras_at_every_step(name: str) -> None:
    tree = schedules.serialize(SCHEDULES[name])
    mine = schedule_from_config(json.loads(json.dumps(tree)))
    assert mine is not None
    for step in range(100):
        theirs = float(SCHEDULES[name](tf.constant(step, tf.int64)))
        assert math.isclose(mine(step), theirs, rel_tol=2e-6, abs_tol=2e-8), step


class OwnSchedule(keras.optimizers.schedules.LearningRateSchedule):
    def __call__(self, step: tf.Tensor) -> float:
        return 0.5

    def get_config(self) -> dict[str, float]:
        return {}


BITWISE = [
    "sgd", "momentum", "nesterov", "adam", "adam-far-betas", "amsgrad", "adamax",
    "nadam", "ftrl", "ftrl-regularized", "lion",
]  # fmt: skip


@pytest.mark.parametrize("name", BITWISE)
def test_most_optimizers_equal_keras_bit_for_bit(name: str) -> None:
    steps = some_steps(seed=11)
    mine = our_run(ours(OPTIMIZERS[name]()), our_layout(2), steps)
    theirs = keras_run(OPTIMIZERS[name](), steps)
    for a, b in zip(mine, theirs, strict=True):
        for variable in SHAPES:
            np.testing.assert_array_equal(a[variable], b[variable])


def test_an_own_schedule_class_asks_for_the_workers_learning_rate() -> None:
    optimizer = ours(keras.optimizers.SGD(OwnSchedule()))
    assert optimizer.needs_worker_learning_rate
