"""Claims about the compiled loops, against NumPy in float64."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from elasticdl.ps.optimizers import kernels, update_kernels
from hypothesis import given
from hypothesis import strategies as st

F = np.float32


def floats(size: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(size).astype(F)


@given(st.integers(0, 300), st.integers(0, 9))
def test_add_scaled_adds_the_scaled_gradient(size: int, seed: int) -> None:
    total, grads = floats(size, seed), floats(size, seed + 1)
    expected = total.astype(float) + grads.astype(float) * 0.25
    kernels.add_scaled(total, kernels.read_only(grads), F(0.25))
    np.testing.assert_allclose(total, expected, 1e-6, 1e-6)


@given(st.integers(0, 300), st.integers(0, 9))
def test_square_sum_keeps_more_digits_than_float32(size: int, seed: int) -> None:
    grads = floats(size, seed) * F(1e3)
    expected = np.sum(np.square(grads.astype(float)))
    assert kernels.square_sum(grads) == pytest.approx(expected, rel=1e-12)


@given(
    st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 2), max_size=60),
    st.integers(0, 5),
)
def test_sum_rows_gives_each_id_once_in_order_with_its_sum(
    numbers: list[int], row_size: int
) -> None:
    ids = np.array(numbers, np.int64)
    rows = floats(len(numbers) * row_size, 1).reshape(len(numbers), row_size)
    unique, sums = kernels.sum_rows(ids, rows)
    assert unique.tolist() == list(dict.fromkeys(numbers))
    for place, number in enumerate(unique):
        expected = rows[ids == number].astype(float).sum(0)
        np.testing.assert_allclose(sums[place], expected, 1e-5, 1e-5)


def test_sum_rows_does_not_slow_down_on_ids_that_share_low_bits() -> None:
    # A table indexed by low bits alone would probe 2**19 places for each of these.
    ids = np.arange(1 << 10, dtype=np.int64) << 40
    unique, sums = kernels.sum_rows(
        np.concatenate([ids, ids]), np.ones((2 << 10, 1), F)
    )
    np.testing.assert_array_equal(unique, ids)
    np.testing.assert_array_equal(sums, 2)


@given(st.lists(st.integers(0, 7), max_size=30), st.integers(1, 4))
def test_scatter_add_adds_repeated_rows_too(numbers: list[int], row_size: int) -> None:
    ids = np.array(numbers, np.int64)
    rows = floats(ids.size * row_size, 2).reshape(ids.size, row_size)
    table = np.zeros((8, row_size), F)
    expected = np.zeros((8, row_size))
    np.add.at(expected, ids, rows.astype(float) * 0.5)
    kernels.scatter_add(table, ids, rows, F(0.5))
    np.testing.assert_allclose(table, expected, 1e-5, 1e-6)
    kernels.fill_rows(table, ids, F(0))
    assert not table.any()


def test_kernels_run_at_the_same_time_on_slices_and_give_what_one_thread_gives() -> (
    None
):
    size, parts = 400_000, 4
    values, grads = floats(size, 3), floats(size, 4)
    alone, together = values.copy(), values.copy()
    update_kernels.sgd(alone, grads, F(0.1))
    cuts = [slice(size * k // parts, size * (k + 1) // parts) for k in range(parts)]
    with ThreadPoolExecutor(parts) as threads:
        list(
            threads.map(
                lambda cut: update_kernels.sgd(together[cut], grads[cut], F(0.1)), cuts
            )
        )
    np.testing.assert_array_equal(alone, together)


def arguments(kernel: str) -> tuple[object, ...]:
    """Return fresh arguments of a kernel, the same ones at each call."""
    flat = [np.abs(floats(13, seed)) for seed in range(5)]
    table, rows, slot = (np.abs(floats(12, seed)).reshape(6, 2) for seed in (6, 7, 8))
    ids = np.array([5, 0, 3, 5, 0, 1], np.int64)
    half = F(0.5)
    return {
        "sgd": (*flat[:2], half),
        "sgd_rows": (table, ids, rows, half),
        "momentum": (*flat[:3], half, half),
        "nesterov": (*flat[:3], half, half),
        "adam": (*flat[:4], half, half, half, half),
        "amsgrad": (*flat, half, half, half, half),
        "adagrad": (*flat[:3], half, half),
        "rmsprop": (*flat, half, half, half, half, F(10)),
        "adadelta": (*flat[:4], half, half, half, half),
        "adamax": (*flat[:4], half, half, half, half, half),
        "nadam": (*flat[:4], *[half] * 9),
        "nadam_product": (F(0.9), 7),
        "ftrl": (*flat[:4], half, half, half, half, half),
        "lion": (*flat[:3], half, half, half, half, half),
        "average": (*flat[:2], half, half),
        "adagrad_rows": (table, ids, rows, slot, half, half),
        "decay": (flat[0], half, half),
        "add_scaled": (*flat[:2], half),
        "square_sum": (flat[0],),
        "scatter_add": (table, ids, rows, half),
        "fill_rows": (table, ids, half),
        "sum_rows": (ids, rows),
    }[kernel]


KERNELS = {
    name: found
    for name, found in {**vars(kernels), **vars(update_kernels)}.items()
    if hasattr(found, "py_func")
}


@pytest.mark.parametrize("name", KERNELS)
def test_the_compiled_kernel_rounds_as_its_python_text_does(name: str) -> None:
    kernel = KERNELS[name]
    compiled, interpreted = arguments(name), arguments(name)
    results = [kernel(*compiled)]
    with np.errstate(over="ignore"):  # the hash wraps around on purpose
        results.append(kernel.py_func(*interpreted))
    for mine, theirs in zip(compiled, interpreted, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    np.testing.assert_equal(results[0], results[1])
