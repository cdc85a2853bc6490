"""Claims about what a worker clips: norms that no PS can take."""

import numpy as np
import pytest
from elasticdl.tensor.placement import Variable, place
from elasticdl.worker.ps.clipping import Clipping
from elasticdl.worker.steps.packing import RowGradient

F = np.float32


def rows(numbers, values):
    return RowGradient(np.array(numbers, np.int64), np.array(values, F))


def test_the_global_norm_is_of_all_variables_with_repeated_rows_summed():
    gradients = [
        np.array([[3.0]], F),
        None,
        rows([2, 2], [[1.0, 0.0], [3.0, 0.0]]),
    ]
    dense, none, table = Clipping(global_norm=1.0).clip(gradients)
    np.testing.assert_allclose(dense, [[0.6]], 1e-6)
    assert none is None
    np.testing.assert_allclose(table.values, [[0.8, 0.0]], 1e-6)
    np.testing.assert_array_equal(gradients[0], [[3.0]])


def test_short_gradients_stay_as_they_are():
    gradients = [np.array([0.3, 0.4], F)]
    assert Clipping(global_norm=1.0).clip(gradients)[0] is gradients[0]
    assert Clipping().clip(gradients) is gradients


def test_a_norm_that_is_no_number_is_not_hidden():
    clipped = Clipping(global_norm=1.0).clip([np.array([1, np.nan], F)])
    assert np.isnan(clipped[0]).all()


def test_clipnorm_is_the_workers_for_variables_that_are_cut_alone():
    layout = place([Variable("big", (100, 10)), Variable("small", (3,))], 2)
    clipping = Clipping.of(layout, clipnorm=1.0, global_clipnorm=None)
    big, small = clipping.clip([np.ones((100, 10), F), np.ones(3, F)])
    assert np.linalg.norm(big) == pytest.approx(1.0, rel=1e-6)
    np.testing.assert_array_equal(small, 1)


@pytest.mark.parametrize("off", [None, 0.0, -1.0])
def test_norms_of_zero_or_less_are_off_as_in_keras(off):
    layout = place([Variable("big", (100, 10))], 2)
    assert Clipping.of(layout, clipnorm=off, global_clipnorm=off) == Clipping()
