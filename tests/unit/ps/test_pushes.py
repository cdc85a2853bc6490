"""Which pushes pass for repeats: those that are one, whatever came in between."""

import itertools

import numpy as np
import pytest
from elasticdl.ps.apply import Gradient, ParameterShard
from elasticdl.ps.optimizers.optimizer import optimizer_from_json
from elasticdl.ps.parameters import Compute, ParameterOrigin, Parameters, Push
from elasticdl.ps.pushes import MOST_SOURCES, LastPushes
from elasticdl.ps.sync_updater import SyncUpdater
from elasticdl.ps.updater import Control
from elasticdl.rpc.ps.tensors import PushId, PushIds, new_source
from elasticdl.tensor.placement import Variable, place
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.ps.test_snapshots_service import checkpoint


@pytest.mark.parametrize("sync", [False, True])
def test_a_job_that_starts_from_anothers_checkpoint_applies_its_first_gradients(
    group, tmp_path, sync
):
    earlier = group(2, sync=sync)
    client = earlier.ready()
    for version in range(3):
        push_id = client.next_push_id()
        earlier.push(client, earlier.gradients(1.0), push_id, [version] * 2)
        client.pull()
    directory = checkpoint(earlier, tmp_path)
    later = group(2, sync=sync)
    later.begin(directory)
    later.control(quorum=1)
    client = later.client()  # worker 0 of generation 1, as before
    later.join(client)
    before = client.pull()
    pushed = later.push(
        client, later.gradients(1.0), client.next_push_id(), before.versions
    )
    assert pushed.accepted
    after = client.pull()
    assert after.version == before.version + 1
    for old, new in zip(before.buffers, after.buffers, strict=True):
        assert not np.array_equal(old, new)


def test_two_lives_of_a_worker_have_no_push_id_in_common():
    # The same index and generation: of two jobs, one of which begins with the other.
    assert new_source(0, 1) != new_source(0, 1)
    ids = PushIds("a")
    assert [ids.next(), ids.next()] == [PushId("a", 1), PushId("a", 2)]


@pytest.mark.parametrize("sync", [False, True])
def test_a_late_repeat_is_known_however_many_pushes_came_in_between(group, sync):
    ps = group(1, sync=sync, variables=[Variable("v", (2,))])
    client = ps.ready()
    late = client.next_push_id()
    ps.push(client, ps.gradients(1.0), late, [0])
    parameters = ps.servers[0]._live.parameters
    others = PushIds("other")
    for _ in range(5000):
        push = Push(others.next(), 0, Gradient(np.zeros(2, np.float32), {}))
        parameters.apply((push,), rate_factor=1.0)
    before = client.pull()
    assert ps.push(client, ps.gradients(1.0), late, [0]).accepted
    assert client.pull(have=before.versions).unchanged


def test_a_repeat_of_a_push_before_the_last_one_is_not_applied(group):
    ps = group(2, sync=False)
    client = ps.ready()
    first, second = client.next_push_id(), client.next_push_id()
    for push_id in (first, second, first):
        assert ps.push(client, ps.gradients(1.0), push_id, [0, 0]).accepted
    assert client.pull().versions == [2, 2]


def test_a_relaunched_ps_knows_the_pushes_that_are_in_its_checkpoint(group, tmp_path):
    ps = group(2, sync=False)
    client = ps.ready()
    contained, lost = client.next_push_id(), client.next_push_id()
    ps.push(client, ps.gradients(1.0), contained, [0, 0])
    directory = checkpoint(ps, tmp_path)
    ps.push(client, ps.gradients(1.0), lost, [1, 1])
    ps.relaunch(1, directory)
    ps.join(client)
    # Its answer was lost: the one PS has both, the other has lost the second.
    for push_id in (contained, lost):
        ps.push(client, ps.gradients(1.0), push_id, [1, 1])
    values = ps.whole(client.pull().buffers)
    for name in ("dense/kernel", "dense/bias"):
        np.testing.assert_array_equal(values[name], 0.0)


def test_values_that_are_handed_back_bring_no_pushes_so_a_repeat_is_not_lost(group):
    ps = group(2, sync=False)
    client, other = ps.ready(), ps.client(1)
    unanswered = other.next_push_id()
    ps.push(other, ps.gradients(1.0), unanswered, [0, 0])
    have = client.pull()
    ps.relaunch(1, min_version=1, handback=True)
    client.initialize(
        ps.layout, ps.optimizer, list(have.buffers), versions=have.versions
    )
    # The PS cannot know whether it is in these values: twice rather than never.
    ps.push(other, ps.gradients(1.0), unanswered, [0, 0])
    assert client.pull().versions == [1, 2]


def test_after_a_rewind_a_workers_next_push_is_applied(group, tmp_path):
    ps = group(2, sync=True)
    client = ps.ready()
    ps.push(client, ps.gradients(1.0), client.next_push_id(), [0, 0])
    client.pull()
    directory = checkpoint(ps, tmp_path)
    for version in (1, 2):
        push_id = client.next_push_id()
        ps.push(client, ps.gradients(1.0), push_id, [version] * 2)
        client.pull()
    ps.rewind = 1
    ps.begin(directory)
    ps.control(quorum=1)
    ps.tell_clients()
    ps.join(client)
    assert client.pull().versions == [1, 1]
    ps.push(client, ps.gradients(1.0), client.next_push_id(), [1, 1])
    assert client.pull().versions == [2, 2]


def test_what_is_remembered_stays_bounded_when_workers_come_and_go():
    known = LastPushes()
    for life in range(3 * MOST_SOURCES):
        known.add(PushId(f"worker-{life}", 7))
        # One that lives through it all, and repeats its push now and then.
        if life == 0:
            known.add(PushId("lasting", 1))
        assert PushId("lasting", 1) in known
    assert len(known) == MOST_SOURCES


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_a_version_is_the_same_in_whatever_order_its_gradients_come(sgd, data):
    # Numbers of which each order of adding rounds otherwise.
    values = data.draw(
        st.lists(
            st.floats(-1e6, 1e6, width=32, allow_subnormal=False),
            min_size=3,
            max_size=5,
        )
    )
    orders = list(itertools.permutations(range(len(values))))
    order = data.draw(st.sampled_from(orders))
    results = []
    for arrival in (orders[0], order):
        parameters = small(sgd)
        updater = SyncUpdater(
            parameters, Immediate(), control=Control(len(values)), wait_seconds=0.0
        )
        for worker in arrival:
            gradient = Gradient(np.full(2, values[worker], np.float32), {})
            # Whoever computes it: another worker in each run.
            push_id = PushIds(new_source(arrival.index(worker), 1)).next()
            updater.push(Push(push_id, 0, gradient, worker, 8, records=worker + 1))
        assert parameters.version == 1
        results.append(parameters.shard.values)
    np.testing.assert_array_equal(*results)


class Immediate:
    """A condition on which nobody waits: one thread."""

    def wait_for(self, predicate, _seconds):
        return predicate()

    def notify_all(self):
        pass


def small(sgd) -> Parameters:
    layout = place([Variable("a", (2,))], 1)
    optimizer = optimizer_from_json(sgd(1.0))
    shard = ParameterShard(layout, 0, np.zeros(2, np.float32), optimizer.slots(2))
    return Parameters(shard, optimizer, origin=ParameterOrigin(), compute=Compute())
