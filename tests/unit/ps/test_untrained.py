"""Weights that no step moves: on PS 0, in its checkpoints, back from any of them."""

import numpy as np
import pytest
from elasticdl.errors import RefusedError
from elasticdl.tensor.placement import Variable

from tests.unit.ps.test_snapshots_service import checkpoint

BACK = np.arange(32, dtype=np.float32).reshape(8, 4)
FROZEN = {"back/kernel": BACK, "back/table": np.arange(3)}
HEAD = Variable("head/kernel", (4, 2))
ALL = (Variable("back/kernel", (8, 4)), HEAD)


def joined(ps, untrained, worker=0):
    """Join as a worker whose model has these; return what it gets from the PS."""
    client = ps.client(worker)
    values = ps.initial(2.0)
    client.initialize(ps.layout, ps.optimizer, values, untrained=lambda: untrained)
    return client.pull_untrained()


def same(got, expected):
    assert got.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(got[name], array)
        assert got[name].dtype == array.dtype


def other(arrays):
    """What another seed makes of them."""
    return {name: array + 7 for name, array in arrays.items()}


@pytest.mark.parametrize("num_ps", [1, 3])
def test_all_workers_and_later_jobs_get_the_frozen_weights_of_the_first(
    group, tmp_path, num_ps
):
    ps = group(2, sync=False, variables=[HEAD])
    ps.begin()
    same(joined(ps, FROZEN), FROZEN)
    same(joined(ps, other(FROZEN), worker=1), FROZEN)
    folder = checkpoint(ps, tmp_path)
    ps.relaunch(0, folder)
    same(joined(ps, other(FROZEN), worker=2), FROZEN)

    later = group(num_ps, sync=False, variables=[HEAD])
    later.begin(folder)
    same(joined(later, other(FROZEN)), FROZEN)


@pytest.mark.parametrize("num_ps", [1, 3])
def test_what_was_trained_before_it_is_frozen_is_among_the_values(
    group, tmp_path, num_ps
):
    ps = group(2, sync=False, variables=ALL)
    client = ps.ready()
    ps.push(client, ps.gradients(1.0), "p0", [0, 0])
    values = ps.whole(client.pull().buffers)
    later = group(num_ps, sync=False, variables=[HEAD])
    later.begin(checkpoint(ps, tmp_path))
    same(
        joined(later, {"back/kernel": BACK}),
        {"back/kernel": values["back/kernel"].reshape(8, 4)},
    )


@pytest.mark.parametrize("num_ps", [1, 3])
def test_what_was_frozen_before_it_is_trained_is_among_the_state(
    group, tmp_path, num_ps
):
    ps = group(2, sync=False, variables=[HEAD])
    ps.begin()
    joined(ps, FROZEN)
    later = group(num_ps, sync=False, variables=ALL)
    later.begin(checkpoint(ps, tmp_path))
    assert joined(later, {}) == {}
    whole = later.whole(later.clients[0].pull().buffers)
    np.testing.assert_array_equal(whole["back/kernel"].reshape(8, 4), BACK)


def test_frozen_weights_that_a_checkpoint_does_not_have_are_named(group, tmp_path):
    ps = group(2, sync=False, variables=ALL)
    ps.ready()
    later = group(1, sync=False, variables=[HEAD])
    later.begin(checkpoint(ps, tmp_path))
    new = {**FROZEN, "new/bias": np.zeros(4, np.float32)}
    expected = r"back/table: got none, expected \(3,\); new/bias: got none"
    with pytest.raises(RefusedError, match=expected):
        joined(later, new)
