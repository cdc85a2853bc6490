"""The non-trainable state moves with the gradients: once for each batch."""

import gc
import weakref

import numpy as np
import pytest
from elasticdl.errors import RefusedError
from elasticdl.ps.apply import Gradient, ParameterShard
from elasticdl.ps.async_updater import AsyncUpdater
from elasticdl.ps.optimizers.optimizer import optimizer_from_json
from elasticdl.ps.parameters import Compute, ParameterOrigin, Parameters, Push
from elasticdl.ps.updater import Control
from elasticdl.rpc.ps.tensors import PushId
from elasticdl.tensor.placement import Variable, place
from elasticdl.tensor.shared_state import (
    SharedState,
    StateLayout,
    StateShare,
    StateVariable,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.ps.test_snapshots_service import checkpoint

MEAN, COUNT = StateVariable("bn/mean", (2,), 0.9), StateVariable("count", ())
LAYOUT = StateLayout((MEAN, COUNT))


def step(values, batch):
    """What a step does in one process: a moving mean, and a count of batches."""
    return np.float32([0.9, 0.9, 1.0]) * values + np.float32([0.1 * batch] * 2 + [1.0])


@given(
    st.lists(
        st.tuples(st.integers(0, 7), st.floats(-10, 10, width=32)),
        min_size=1,
        max_size=200,
    )
)
def test_shares_of_many_workers_make_what_one_process_makes_of_the_same_batches(turns):
    # Each worker has its own, older values: those after its own push before.
    live = expected = np.float32([100, 100, 0])
    own = [live] * 8
    for worker, batch in turns:
        share = LAYOUT.share(own[worker], step(own[worker], batch))
        live = own[worker] = LAYOUT.moved(live, share)
        expected = step(expected, batch)
    np.testing.assert_allclose(live, expected, rtol=1e-4, atol=1e-4)
    assert live[2] == len(turns)


def test_what_a_step_did_not_move_stays_as_other_workers_have_moved_it():
    old = np.float32([1, 1, 5])
    share = LAYOUT.share(old, np.float32([1, 1, 6]))
    assert share.still == (0,)
    np.testing.assert_array_equal(LAYOUT.moved(np.float32([3, 4, 7]), share), [3, 4, 8])


def lagging(keep, late, steps=3000):
    """How far an average is behind a mean that grows by one a step, in the end."""
    layout = StateLayout((StateVariable("mean", (), keep),))
    seen = [np.float32([0])]
    for batch in range(steps):
        at = max(0, batch - late)  # the version that this share was computed at
        share = layout.share(
            seen[at], np.float32(keep) * seen[at] + np.float32([(1 - keep) * at])
        )
        seen.append(layout.moved(seen[-1], share, seen[at:-1]))
    return steps - float(seen[-1][0])


@pytest.mark.parametrize("keep", [0.99, 0.9])
def test_late_shares_leave_an_average_no_further_behind_than_in_one_process(keep):
    most = {0.99: 10, 0.9: 1}[keep]  # a tenth of its memory
    assert lagging(keep, most) == pytest.approx(lagging(keep, 0), rel=0.02)
    # Over the bound each step more is a step more.
    over = lagging(keep, most + 6) - lagging(keep, most)
    assert over == pytest.approx(6, rel=0.1)


@pytest.mark.parametrize("keep", [0.995, 0.99, 0.9, 0.75, 0.5])
@pytest.mark.parametrize("late", [1, 7, 31, 200])
def test_late_shares_do_not_make_an_average_swing_or_a_variance_negative(keep, late):
    layout = StateLayout((StateVariable("variance", (), keep),))
    seen = [np.float32([1000])]
    for batch in range(3000):
        at = max(0, batch - late)
        share = layout.share(seen[at], np.float32(keep) * seen[at])  # a batch of zeros
        seen.append(layout.moved(seen[-1], share, seen[at:-1]))
    assert np.all(np.diff(np.ravel(seen)) <= 0)
    assert seen[-1][0] >= 0


def test_late_shares_lead_neither_counts_nor_what_follows_the_last_batch():
    layout = StateLayout((StateVariable("last", (), 0.0), StateVariable("count", ())))
    assert layout.past == 0
    values, share = np.float32([5, 7]), StateShare(np.float32([3, 1]))
    moved = layout.moved(values, share, [np.float32([1, 1])])
    np.testing.assert_array_equal(moved, [3, 8])


def test_a_state_of_many_megabytes_keeps_few_of_its_earlier_values():
    small = StateLayout((StateVariable("mean", (1000,), 0.99),))
    large = StateLayout((StateVariable("mean", (4 << 20,), 0.99),))
    assert (small.past, large.past) == (10, 4)


def test_a_layout_is_the_same_out_of_its_text():
    assert StateLayout.from_json(LAYOUT.to_json()) == LAYOUT
    assert StateLayout.from_json("") == StateLayout()
    with pytest.raises(ValueError, match="cannot be read"):
        StateLayout.from_json('{"a": 1')


@pytest.fixture
def started(group):
    def start(num_ps=2, *, sync=False, **options):
        ps = group(num_ps, sync=sync, state=initial(), **options)
        return ps, ps.ready()

    return start


def initial():
    return SharedState(LAYOUT, np.float32([0, 1, 0]))


def one_more():
    return StateShare(np.float32([0.1, 0.2, 1]))


def test_a_push_that_is_repeated_moves_the_state_once(started):
    ps, client = started()
    for _ in range(3):
        ps.push(client, ps.gradients(1.0), "a", [0, 0], state=one_more())
    np.testing.assert_allclose(client.pull().state, [0.1, 1.1, 1.0])


@pytest.mark.parametrize("leads", [True, False])
def test_earlier_values_are_kept_where_shares_are_led_alone(sgd, leads):
    optimizer = optimizer_from_json(sgd(1.0))
    layout = place([Variable("a", (2,))], 1)
    shard = ParameterShard(layout, 0, np.zeros(2, np.float32), optimizer.slots(2))
    parameters = Parameters(
        shard, optimizer, origin=ParameterOrigin(state=initial()), compute=Compute()
    )
    updater = AsyncUpdater(
        parameters,
        control=Control(quorum=1),
        staleness_modulation=False,
        max_staleness=0,
        leads_state=leads,
    )
    seen = []
    for number in range(2):
        seen.append(weakref.ref(parameters.state.values))
        gradient = Gradient(np.zeros(2, np.float32), {})
        push_id = PushId("worker-0", number + 1)
        updater.push(Push(push_id, number, gradient, state=one_more()))
    gc.collect()
    assert [values() is not None for values in seen] == [False, leads]  # one counts


@pytest.mark.parametrize("leads", [True, False])
def test_a_late_push_moves_averages_by_what_its_own_step_changed(started, leads):
    ps, client = started(1, leads_state=leads)
    at = [0]
    states = []
    for name in "ab":
        now = client.pull().versions
        ps.push(client, ps.gradients(1.0), name, now, state=one_more())
        states.append(client.pull().state)
    earlier, before = states  # over one version, with this momentum
    ps.push(client, ps.gradients(1.0), "late", at, state=one_more())
    lead = np.float32([0.1, 0.1, 0]) * (before - earlier) * leads
    np.testing.assert_allclose(
        client.pull().state, LAYOUT.moved(before, one_more()) + lead, rtol=1e-6
    )


def test_a_gradient_that_is_refused_leaves_the_state_alone(started):
    ps, client = started(1, max_staleness=1)
    for name in "abc":
        ps.push(client, ps.gradients(1.0), name, client.pull().versions)
    late = ps.push(client, ps.gradients(1.0), "d", [0], state=one_more())
    assert not late.accepted
    np.testing.assert_array_equal(client.pull().state, [0, 1, 0])


def test_a_sync_version_moves_the_state_once_for_each_of_its_batches(started, threads):
    ps, client = started(2, sync=True)
    ps.control(quorum=3)
    pushes = [
        threads.submit(
            ps.push, ps.client(w), ps.gradients(1.0), f"{w}", [0, 0], state=one_more()
        )
        for w in range(3)
    ]
    for push in pushes:
        assert push.result().accepted
    pulled = client.pull()
    assert pulled.version == 1
    expected = initial().values
    for _ in range(3):
        expected = LAYOUT.moved(expected, one_more())
    np.testing.assert_allclose(pulled.state, expected)


@pytest.mark.parametrize("pushes", [0, 2])
def test_a_rewind_takes_the_state_back_to_the_checkpoints_version(
    started, tmp_path, pushes
):
    ps, client = started()
    for step_ in range(pushes):
        ps.push(client, ps.gradients(1.0), f"{step_}", [step_] * 2, state=one_more())
    there = client.pull().state
    directory = checkpoint(ps, tmp_path)
    ps.push(client, ps.gradients(1.0), "undone", [pushes] * 2, state=one_more())
    assert not np.array_equal(client.pull().state, there)
    ps.rewind = 1
    ps.begin(directory)
    ps.tell_clients()
    np.testing.assert_array_equal(client.pull().state, there)
    ps.join(client)
    ps.push(client, ps.gradients(1.0), "again", [pushes] * 2, state=one_more())
    np.testing.assert_array_equal(client.pull().state, LAYOUT.moved(there, one_more()))


def test_state_that_a_checkpoint_does_not_have_is_the_workers(started, group, tmp_path):
    ps, client = started()
    ps.push(client, ps.gradients(1.0), "a", [0, 0], state=one_more())
    directory = checkpoint(ps, tmp_path)
    more = StateLayout((StateVariable("new", (1,)), COUNT))
    other = group(2, sync=False, state=SharedState(more, np.float32([7, 7])))
    other.begin(directory)
    joined = other.client()
    other.join(joined)
    np.testing.assert_array_equal(joined.pull().state, [7, 1])


def test_a_share_of_another_state_is_refused(started):
    ps, client = started()
    wrong = StateShare(np.zeros(2, np.float32))
    with pytest.raises(RefusedError, match="2 floats of non-trainable state"):
        ps.push(client, ps.gradients(1.0), "a", [0, 0], state=wrong)
    with pytest.raises(RefusedError, match="not the one that the job was started with"):
        client.initialize(ps.layout, ps.optimizer, ps.initial())
