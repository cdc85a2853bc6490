"""Claims about the optimizers of a PS, against NumPy formulas in float64.

That they are Keras's numbers is shown in tests/integration/ps, which needs TensorFlow.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pytest
from elasticdl.errors import CheckpointError, SpecError
from elasticdl.ps.optimizers import kernels
from elasticdl.ps.optimizers.optimizer import ACCUMULATOR, Optimizer
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.ps.optimizers.cases import CASES, case, make

F = np.float32
Arrays = dict[str, np.ndarray]


@dataclass
class Textbook:
    """One dense step in float64, as papers and Keras's documentation write it."""

    options: Mapping[str, float]
    slots: Arrays
    step: int  # from 1
    rate: float = 0.1

    def keep(self, slot: str, decay: float, new: np.ndarray) -> np.ndarray:
        """Move a slot's decaying mean towards `new`."""
        self.slots[slot] = decay * self.slots[slot] + (1 - decay) * new
        return self.slots[slot]

    def sgd(self, values: np.ndarray, grads: np.ndarray) -> np.ndarray:
        momentum = self.options["momentum"]
        if not momentum:
            return values - self.rate * grads
        moment = momentum * self.slots["momentum"] - self.rate * grads
        self.slots["momentum"] = moment
        ahead = momentum * moment - self.rate * grads
        return values + (ahead if self.options["nesterov"] else moment)

    def adagrad(self, values: np.ndarray, grads: np.ndarray) -> np.ndarray:
        self.slots["accumulator"] = self.slots["accumulator"] + grads**2
        return values - self.rate * grads / np.sqrt(self.slots["accumulator"] + 1e-7)

    def adam(self, values: np.ndarray, grads: np.ndarray) -> np.ndarray:
        m, v = self.keep("m", 0.9, grads), self.keep("v", 0.99, grads**2)
        alpha = self.rate * np.sqrt(1 - 0.99**self.step) / (1 - 0.9**self.step)
        if self.options["amsgrad"]:
            v = self.slots["vhat"] = np.maximum(self.slots["vhat"], v)
        return values - alpha * m / (np.sqrt(v) + 1e-7)

    def rmsprop(self, values: np.ndarray, grads: np.ndarray) -> np.ndarray:
        divisor = self.keep("velocity", 0.9, grads**2)
        if self.options["centered"]:
            divisor = divisor - self.keep("average_gradient", 0.9, grads) ** 2
        move = self.rate * grads / np.sqrt(divisor + self.options["epsilon"])
        if self.options["momentum"]:
            move += self.options["momentum"] * self.slots["momentum"]
            self.slots["momentum"] = move
        return values - move

    def adadelta(self, values: np.ndarray, grads: np.ndarray) -> np.ndarray:
        squares = self.keep("accumulated_grad", 0.95, grads**2)
        moves = self.slots["accumulated_delta_var"]
        move = np.sqrt(moves + 1e-7) / np.sqrt(squares + 1e-7) * grads
        self.keep("accumulated_delta_var", 0.95, move**2)
        return values - self.rate * move

    def adamax(self, values: np.ndarray, grads: np.ndarray) -> np.ndarray:
        m = self.keep("momentum", 0.9, grads)
        norm = self.slots["norm"] = np.maximum(0.99 * self.slots["norm"], abs(grads))
        return values - self.rate / (1 - 0.9**self.step) * m / (norm + 1e-7)

    def nadam(self, values: np.ndarray, grads: np.ndarray) -> np.ndarray:
        momenta = 0.9 * (1 - 0.5 * 0.96 ** np.arange(1, self.step + 2))
        now, product = momenta[-2], np.prod(momenta[:-1])
        m, v = self.keep("momentum", 0.9, grads), self.keep("velocity", 0.99, grads**2)
        ahead = momenta[-1] * m / (1 - product * momenta[-1])
        ahead = ahead + (1 - now) * grads / (1 - product)
        return values - self.rate * ahead / (np.sqrt(v / (1 - 0.99**self.step)) + 1e-7)

    def ftrl(self, values: np.ndarray, grads: np.ndarray) -> np.ndarray:
        options, before = self.options, self.slots["accumulator"]
        power, l1 = (
            -options["learning_rate_power"],
            options["l1_regularization_strength"],
        )
        after = self.slots["accumulator"] = before + grads**2
        sigma = (after**power - before**power) / self.rate
        shrunk = 2 * options["l2_shrinkage_regularization_strength"] * values
        linear = self.slots["linear"] + grads + shrunk - sigma * values
        self.slots["linear"] = linear
        l2 = options["l2_regularization_strength"] + options["beta"] / (2 * self.rate)
        return (np.clip(linear, -l1, l1) - linear) / (after**power / self.rate + 2 * l2)

    def lion(self, values: np.ndarray, grads: np.ndarray) -> np.ndarray:
        moved = np.sign(0.9 * self.slots["momentum"] + 0.1 * grads)
        self.keep("momentum", 0.99, grads)
        return values - self.rate * moved


def reference(
    optimizer: Optimizer,
    values: np.ndarray,
    grads: np.ndarray,
    slots: Arrays,
    step: int,
) -> np.ndarray:
    """One dense step in float64; changes `slots`."""
    if optimizer.config.accumulation_steps:
        slots[ACCUMULATOR] = slots[ACCUMULATOR] + grads
        if step % 2 == 0:
            return values
        grads, step = slots[ACCUMULATOR] / 2, step // 2
        slots[ACCUMULATOR] = np.zeros_like(grads)
    if optimizer.config.clipvalue:
        grads = np.clip(grads, -0.5, 0.5)
    if optimizer.config.weight_decay:
        values = values * (1 - 0.1 * optimizer.config.weight_decay)
    book = Textbook(optimizer.config.options, slots, step + 1)
    formula: Callable[..., np.ndarray] = getattr(
        book, optimizer.name.lower().replace("adamw", "adam")
    )
    return formula(values, grads)


def run_dense(
    optimizer: Optimizer, values: np.ndarray, steps: list[np.ndarray]
) -> Arrays:
    values, slots = values.copy(), optimizer.slots(values.size)
    for step, grads in enumerate(steps):
        optimizer.apply_dense(
            values, kernels.read_only(grads), slots, step=step, learning_rate=0.1
        )
    return {"values": values, **slots}


def run_reference(
    optimizer: Optimizer, values: np.ndarray, steps: list[np.ndarray]
) -> Arrays:
    slots = {n: s.astype(float) for n, s in optimizer.slots(values.size).items()}
    values = values.astype(float)
    for step, grads in enumerate(steps):
        values = reference(optimizer, values, grads.astype(float), slots, step)
    return {"values": values, **slots}


def gradients(size: int, count: int, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [
        (rng.standard_normal(size) * 10.0 ** rng.integers(-2, 1)).astype(F)
        for _ in range(count)
    ]


@pytest.mark.parametrize("name", CASES)
def test_many_dense_steps_follow_the_textbook(name: str) -> None:
    optimizer = case(name)
    start = np.random.default_rng(9).standard_normal(1003).astype(F)
    steps = gradients(1003, 30)
    mine, theirs = (f(optimizer, start, steps) for f in (run_dense, run_reference))
    assert mine.keys() == theirs.keys()
    for array in mine:
        np.testing.assert_allclose(
            mine[array], theirs[array], 2e-4, 2e-5, err_msg=array
        )


@pytest.mark.parametrize("name", CASES)
@given(st.integers(0, 60), st.lists(st.integers(0, 60), max_size=4))
def test_applying_any_pieces_equals_applying_the_whole(
    name: str, size: int, cuts: list[int]
) -> None:
    optimizer = case(name)
    start = np.random.default_rng(size).standard_normal(size).astype(F)
    steps = gradients(size, 3, seed=size)
    bounds = sorted({0, size, *(min(cut, size) for cut in cuts)})
    whole = run_dense(optimizer, start, steps)
    parts = [
        run_dense(optimizer, start[a:b], [grads[a:b] for grads in steps])
        for a, b in itertools.pairwise(bounds)
    ]
    for array in whole if parts else ():
        together = np.concatenate([part[array] for part in parts])
        np.testing.assert_array_equal(together, whole[array])


@pytest.mark.parametrize("name", CASES)
@given(st.integers(1, 40), st.integers(1, 6), st.lists(st.integers(0, 39), max_size=12))
def test_rows_equal_a_dense_gradient_that_is_zero_elsewhere(
    name: str, num_rows: int, row_size: int, numbers: list[int]
) -> None:
    # SGD without momentum and Adagrad do not move a row whose gradient is zero, so the
    # claim holds for the optimizers that touch given rows alone too.
    optimizer = case(name)
    rng = np.random.default_rng(num_rows)
    values = rng.standard_normal((num_rows, row_size)).astype(F)
    dense = values.copy()
    slots = optimizer.slots(values.size)
    dense_slots = optimizer.slots(values.size)
    tables = {n: s.reshape(values.shape) for n, s in slots.items()}
    for step in range(3):
        unique = list(dict.fromkeys(n for n in numbers if n + step < num_rows))
        ids = np.array(unique, np.int64)
        rows = rng.standard_normal((ids.size, row_size)).astype(F)
        full = np.zeros_like(values)
        full[ids] = rows
        optimizer.apply_rows(
            values, ids, kernels.read_only(rows), tables, step=step, learning_rate=0.1
        )
        optimizer.apply_dense(
            dense.reshape(-1), full.reshape(-1), dense_slots, step=step,
            learning_rate=0.1,
        )  # fmt: skip
    np.testing.assert_array_equal(values, dense)
    for slot in slots:
        np.testing.assert_array_equal(slots[slot], dense_slots[slot])


def test_a_large_table_is_passed_over_in_chunks_without_a_row_left_out() -> None:
    optimizer = make("SGD", momentum=0.5)
    rng = np.random.default_rng(0)
    values = np.zeros((5000, 20), F)
    slots = {"momentum": np.ones_like(values)}
    ids = rng.permutation(5000)[:700].astype(np.int64)
    optimizer.apply_rows(
        values, ids, np.ones((700, 20), F), slots, step=0, learning_rate=1.0
    )
    expected = np.full((5000, 20), 0.5, F)
    expected[ids] -= 1
    np.testing.assert_array_equal(values, expected)
    np.testing.assert_array_equal(slots["momentum"], expected)


@pytest.mark.parametrize("name", ["sgd", "adagrad"])
def test_rows_without_gradient_stay_as_in_keras(name: str) -> None:
    optimizer = case(name)
    assert not optimizer.rule.touches_all_rows
    values = np.ones((4, 2), F)
    slots = {n: s.reshape(4, 2) for n, s in optimizer.slots(8).items()}
    before = {n: s.copy() for n, s in slots.items()}
    ids = np.array([2], np.int64)
    optimizer.apply_rows(
        values, ids, np.ones((1, 2), F), slots, step=0, learning_rate=1
    )
    assert (values[[0, 1, 3]] == 1).all()
    assert (values[2] != 1).all()
    for slot in slots:
        np.testing.assert_array_equal(slots[slot][0], before[slot][0])


def test_d9_slots_start_at_keras_values_not_at_the_weights_initializer() -> None:
    for name, slot in make("Adam", amsgrad=True).slots(5).items():
        assert name in {"m", "v", "vhat"}
        assert not slot.any()
    accumulator = make("Adagrad", initial_accumulator_value=0.7).slots(5)["accumulator"]
    np.testing.assert_array_equal(accumulator, F(0.7))


def test_d11_amsgrad_applies_its_own_update_and_not_the_plain_one_too() -> None:
    optimizer = make("Adam", amsgrad=True)
    values, slots = np.zeros(1, F), optimizer.slots(1)
    for step, gradient in enumerate([10.0, 0.1]):
        before = values.copy()
        grads = np.array([gradient], F)
        optimizer.apply_dense(values, grads, slots, step=step, learning_rate=0.1)
    # By hand: v falls from 1.0 to 0.9901, the largest one stays.
    alpha = 0.1 * np.sqrt(1 - 0.99**2) / (1 - 0.9**2)
    moved = alpha * (0.9 * 1.0 + 0.1 * 0.1) / (np.sqrt(1.0) + 1e-7)
    np.testing.assert_allclose(before - values, [moved], 1e-5)
    np.testing.assert_allclose(slots["vhat"], [1.0], 1e-6)
    np.testing.assert_allclose(slots["v"], [0.9901], 1e-5)


def test_clip_values_of_zero_are_off_as_in_keras() -> None:
    config = make("SGD", clipnorm=0.0, global_clipnorm=0.0).config
    assert config.clipnorm is None


def test_clipnorm_shrinks_a_long_gradient_and_leaves_a_short_one() -> None:
    optimizer = make("SGD", clipnorm=1.0)
    for grads, moved in ([3.0, 4.0], [0.6, 0.8]), ([0.3, 0.4], [0.3, 0.4]):
        values = np.zeros(2, F)
        optimizer.apply_dense(values, np.array(grads, F), {}, step=0, learning_rate=1.0)
        np.testing.assert_allclose(values, -np.array(moved), 1e-6)


def test_an_own_schedule_needs_the_workers_learning_rate() -> None:
    optimizer = make("SGD", learning_rate={"class_name": "Mine", "module": None})
    assert optimizer.needs_worker_learning_rate
    with pytest.raises(SpecError, match="the user's own code"):
        optimizer.learning_rate_at(0)
    assert not make("SGD").needs_worker_learning_rate
    assert make("SGD").learning_rate_at(5) == F(0.1)


def test_a_checkpoint_of_another_optimizer_is_refused_not_filled_with_zeros() -> None:
    sgd_slots = make("SGD", momentum=0.9).slots(4)
    with pytest.raises(CheckpointError, match=r"slot 'm' of optimizer Adam.*momentum"):
        make("Adam").restore_slots(4, sgd_slots)
    with pytest.raises(CheckpointError, match="got 4 floats"):
        make("SGD", momentum=0.9).restore_slots(5, sgd_slots)
    assert make("SGD").restore_slots(4, sgd_slots) == {}


def test_after_warm_up_no_step_compiles_anything() -> None:
    # In a process of its own, where no other test has compiled the kernels.
    program = """
import json, sys
import numpy as np
from numba.core.dispatcher import Dispatcher
from elasticdl.ps.optimizers import kernels, update_kernels
from elasticdl.ps.optimizers.optimizer import optimizer_from_json
optimizer = optimizer_from_json(sys.argv[1])
optimizer.warm_up()
def compiled():
    found = {**vars(kernels), **vars(update_kernels)}.values()
    return sum(len(k.signatures) for k in found if isinstance(k, Dispatcher))
before = compiled()
buffer = np.zeros((8, 4), np.float32)
slots = {n: s.reshape(8, 4) for n, s in optimizer.slots(32).items()}
for received in (False, True):
    ids, rows = np.zeros(1, np.int64), np.zeros((1, 4), np.float32)
    grads = np.zeros(32, np.float32)
    for array in (ids, rows, grads):
        array.flags.writeable = not received
    for step in range(2):
        optimizer.apply_rows(buffer, ids, rows, slots, step=step, learning_rate=0.1)
        flat = {n: s.reshape(-1) for n, s in slots.items()}
        optimizer.apply_dense(
            buffer.reshape(-1), grads, flat, step=step, learning_rate=0.1
        )
assert before and compiled() == before, (before, compiled())
"""
    for optimizer in (make("SGD"), make("AdamW", weight_decay=0.1), make("Nadam")):
        subprocess.run([sys.executable, "-c", program, optimizer.text], check=True)
