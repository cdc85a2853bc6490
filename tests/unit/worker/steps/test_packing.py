"""Whole variables, flat buffers and row gradients."""

import numpy as np
from elasticdl.tensor.placement import GradientKind, Variable, place
from elasticdl.worker.steps.packing import (
    Arena,
    RowGradient,
    pack_dense,
    pack_rows,
    scatter,
    sum_repeated,
)
from hypothesis import given
from hypothesis import strategies as st

VARIABLES = [
    Variable("table", (40, 3), GradientKind.ROWWISE),
    Variable("kernel", (7, 5)),
    Variable("bias", (5,)),
    Variable("scale", ()),
    Variable("fixed", (4,), GradientKind.FROZEN),
]


def gradient_of(values, layout):
    """Put packed gradients together again, by variable."""
    whole = [np.zeros((v.num_rows, v.row_size), np.float32) for v in layout.variables]
    for ps, pieces in enumerate(layout.pieces):
        dense, rows = values[0][ps], values[1][ps]
        for index, piece in enumerate(pieces):
            target = whole[piece.variable][piece.start : piece.end]
            kind = layout.variables[piece.variable].kind
            if kind is GradientKind.DENSE:
                target[:] = dense[piece.offset : piece.offset + piece.size].reshape(
                    target.shape
                )
            elif index in rows:
                numbers, parts = rows[index]
                assert np.all(np.diff(numbers) > 0)
                target[numbers] = parts
    return whole


@given(num_ps=st.integers(1, 5), rows=st.lists(st.integers(0, 39), max_size=30))
def test_packed_gradients_are_the_gradients_whatever_the_number_of_ps(num_ps, rows):
    layout = place(VARIABLES, num_ps)
    rng = np.random.default_rng(len(rows))
    values = rng.normal(size=(len(rows), 3)).astype(np.float32)
    kernel = rng.normal(size=(7, 5)).astype(np.float32)
    gradients = [
        RowGradient(np.array(rows, np.int64), values),
        kernel,
        np.ones(5, np.float32),
        np.full((), 2.0, np.float32),
        None,
    ]
    found = gradient_of(
        (pack_dense(layout, gradients), pack_rows(layout, gradients)), layout
    )
    table = np.zeros((40, 3), np.float32)
    np.add.at(table, rows, values)
    np.testing.assert_allclose(found[0], table, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(found[1], kernel)
    assert found[3][0, 0] == 2.0


def test_each_repeated_row_counts_once_with_the_sum():
    summed = sum_repeated(
        RowGradient(np.array([5, 2, 5]), np.array([[1.0], [2.0], [4.0]], np.float32))
    )
    assert summed.rows.tolist() == [2, 5]
    assert summed.values.tolist() == [[2.0], [5.0]]


def test_a_dense_variable_takes_a_gradient_of_rows_and_none_as_zeros():
    layout = place([Variable("a", (3, 2)), Variable("b", (2,))], 1)
    dense = pack_dense(
        layout, [RowGradient(np.array([1, 1]), np.ones((2, 2), np.float32)), None]
    )
    assert sorted(dense[0].tolist()) == [0, 0, 0, 0, 0, 0, 2, 2]


def test_a_row_wise_variable_takes_a_whole_gradient():
    layout = place([Variable("table", (4, 2), GradientKind.ROWWISE)], 2)
    packed = pack_rows(layout, [np.arange(8, dtype=np.float32).reshape(4, 2)])
    assert sum(len(rows) for ps in packed for rows, _ in ps.values()) == 4


def test_an_arena_is_aligned_and_takes_the_values_of_all_ps():
    layout = place(VARIABLES, 3)
    buffers = [np.arange(layout.size(ps), dtype=np.float32) for ps in range(3)]
    arena = Arena.of(layout)
    scatter(layout, buffers, arena)
    assert all(array.ctypes.data % 64 == 0 for array in arena.arrays)
    total = sum(float(array.sum()) for array in arena.arrays)
    assert total == sum(float(buffer.sum()) for buffer in buffers)
