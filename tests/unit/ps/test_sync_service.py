"""Sync mode over real gRPC: all PS apply the same gradients to every version."""

import random

import numpy as np
import pytest
from elasticdl.errors import FencedError, RpcError
from elasticdl.job.tasks import Ticket
from elasticdl.ps.apply import Gradient, ParameterShard
from elasticdl.ps.optimizers.optimizer import optimizer_from_json
from elasticdl.ps.parameters import Compute, ParameterOrigin, Parameters, Push
from elasticdl.ps.sync_updater import SyncFollower
from elasticdl.ps.updater import Control
from elasticdl.rpc.ps.tensors import STALE, PushId
from elasticdl.tensor.placement import Variable, place
from hypothesis import given, settings
from hypothesis import strategies as st


def wait_for_admitted(ps, count):
    """Wait, by the PS's own condition, until so many gradients are admitted."""
    server = ps.servers[0]
    with server._changed:
        while server._live.updater.num_admitted < count:
            server._changed.wait(0.005)


@pytest.mark.parametrize("num_ps", [1, 2, 4])
@pytest.mark.parametrize("quorum", [1, 3])
def test_a_version_is_the_mean_of_its_gradients(group, threads, num_ps, quorum):
    ps = group(num_ps, sync=True)
    client = ps.ready(value=0.0)
    ps.control(quorum=quorum)
    pulled = client.pull()
    assert pulled.ticket.version == 0
    jobs = [
        threads.submit(
            ps.push, client, ps.gradients(float(n), rows=[n]), f"w{n}", pulled.versions
        )
        for n in range(quorum)
    ]
    assert all(job.result().accepted for job in jobs)
    pulled = client.pull()
    assert pulled.versions == [1] * num_ps
    assert sorted(pulled.ticket.push_ids) == [f"w{n}/1" for n in range(quorum)]
    values = ps.whole(pulled.buffers)
    mean = sum(range(quorum)) / quorum
    np.testing.assert_allclose(values["dense/kernel"], -0.5 * mean)
    for n in range(quorum):
        np.testing.assert_allclose(
            values["table/embeddings"][n], -0.5 * n / quorum, rtol=1e-6
        )


def test_any_number_of_ps_gives_the_same_numbers(group, sgd):
    results = []
    for num_ps in (1, 2, 4):
        ps = group(num_ps, sync=True, optimizer=sgd(0.1, momentum=0.9))
        client = ps.ready()
        for step in range(4):
            gradients = ps.gradients(0.3 * (step + 1), rows=[step, 7])
            ps.push(client, gradients, f"s{step}", client.pull().versions)
        results.append(ps.whole(client.pull().buffers))
    for other in results[1:]:
        for name, values in results[0].items():
            np.testing.assert_array_equal(other[name], values)


@pytest.mark.parametrize("num_ps", [1, 2, 4])
def test_all_ps_apply_the_same_set_whatever_the_order(group, sgd, threads, num_ps):
    """Workers race; each gradient is a power of two, so sums name their members."""
    one = [Variable("big", (64, 2))]
    ps = group(num_ps, sync=True, optimizer=sgd(1.0), variables=one)
    ps.ready(value=0.0)
    ps.control(quorum=2)
    steps = 12

    def work(worker: int) -> list[str]:
        client, chance = ps.client(worker), random.Random(worker)
        accepted = []
        for step in range(1000):
            pulled = client.pull()
            values = {float(b[0]) for b in pulled.buffers if b.size}
            assert len(values) == 1, "the PS are of different versions"
            assert len(set(pulled.versions)) == 1
            if pulled.version >= steps:
                break
            if chance.random() < 0.3:
                client.pull()
            pushed = ps.push(
                client,
                ps.gradients(float(2**worker)),
                f"{worker}-{step}",
                pulled.versions,
            )
            if pushed.accepted:
                accepted.append(f"{worker}-{step}")
            else:
                assert pushed.reason == STALE
            if pushed.version >= steps:
                break
        # Nobody is left waiting for a gradient that will not come.
        ps.servers[0].control(Control(1), ())
        return accepted

    jobs = [threads.submit(work, worker) for worker in range(4)]
    accepted = [push for job in jobs for push in job.result()]
    assert len(set(accepted)) == len(accepted)
    final = ps.client(9).pull()
    applied = set(ps.servers[0]._live.parameters.pushed.by_source())
    assert applied == set(accepted)
    for server in ps.servers:
        assert set(server._live.parameters.pushed.by_source()) == applied
        assert server._live.parameters.version == final.version


def test_a_late_gradient_is_refused_and_changes_nothing(group):
    ps = group(3, sync=True)
    client = ps.ready()
    assert ps.push(client, ps.gradients(1.0), "first", [0] * 3).accepted
    late = ps.push(client, ps.gradients(100.0), "late", [0] * 3)
    assert (late.accepted, late.reason, late.version) == (False, STALE, 1)
    values = ps.whole(client.pull().buffers)
    np.testing.assert_array_equal(values["dense/kernel"], 0.5)
    assert all(not s._live.updater.num_staged for s in ps.servers[1:])


def test_a_smaller_quorum_releases_those_who_wait(group, threads):
    ps = group(2, sync=True)
    client = ps.ready(value=0.0)
    ps.control(quorum=3)
    jobs = [
        threads.submit(ps.push, client, ps.gradients(1.0), f"w{n}", [0, 0])
        for n in range(2)
    ]
    wait_for_admitted(ps, 2)
    ps.control(quorum=2)
    assert [job.result().accepted for job in jobs] == [True, True]
    values = ps.whole(client.pull().buffers)
    np.testing.assert_array_equal(values["dense/kernel"], -0.5)


def test_without_a_quorum_from_the_master_nothing_is_made(group, threads):
    ps = group(1, sync=True)
    client = ps.ready()
    ps.control(quorum=0)
    job = threads.submit(ps.push, client, ps.gradients(1.0), "a", [0])
    wait_for_admitted(ps, 1)
    assert client.pull().version == 0
    ps.control(quorum=1)
    assert job.result().accepted


def test_a_worker_that_dies_before_admission_leaves_nothing(group):
    ps = group(3, sync=True)
    client = ps.ready()
    dying = ps.client(7)
    # Its gradient reaches the followers; PS 0 it cannot reach any more.
    view = ps.view
    view.addresses[0] = ""
    dying.set_view(view)
    with pytest.raises(RpcError):
        ps.push(dying, ps.gradients(100.0), "ghost", [0] * 3)
    assert all(s._live.updater.num_staged == 1 for s in ps.servers[1:])
    assert ps.push(client, ps.gradients(1.0), "real", [0] * 3).accepted
    values = ps.whole(client.pull().buffers)
    np.testing.assert_array_equal(values["dense/kernel"], 0.5)
    np.testing.assert_array_equal(values["dense/bias"], 0.5)
    assert all(s._live.updater.num_staged == 0 for s in ps.servers[1:])


def test_a_push_that_waits_too_long_is_tried_again_under_its_id(group, threads):
    ps = group(2, sync=True, wait_seconds=0.01)
    client = ps.ready(value=0.0)
    ps.control(quorum=2)
    job = threads.submit(ps.push, client, ps.gradients(1.0), "a", [0, 0])
    wait_for_admitted(ps, 1)
    assert ps.push(client, ps.gradients(3.0), "b", [0, 0]).accepted
    assert job.result().accepted
    values = ps.whole(client.pull().buffers)
    np.testing.assert_array_equal(values["dense/kernel"], -1.0)


def test_a_push_repeated_after_its_version_gets_the_same_answer(group):
    ps = group(2, sync=True)
    client = ps.ready(value=0.0)
    for _ in range(2):
        assert ps.push(client, ps.gradients(1.0), "a", [0, 0]).accepted
        assert client.pull().version == 1
    values = ps.whole(client.pull().buffers)
    np.testing.assert_array_equal(values["dense/kernel"], -0.5)


def test_a_rewind_wakes_and_fences_those_who_wait(group, threads):
    ps = group(2, sync=True)
    client = ps.ready()
    ps.control(quorum=2)
    job = threads.submit(ps.push, client, ps.gradients(1.0), "a", [0, 0])
    wait_for_admitted(ps, 1)
    ps.rewind = 1
    ps.begin()
    with pytest.raises(FencedError):
        job.result()


def test_a_learning_rate_scale_is_the_same_on_all_ps(group):
    ps = group(2, sync=True)
    client = ps.ready(value=0.0)
    # PS 0 has heard of it, the other not yet.
    ps.servers[0].control(Control(1, 0.1), ())
    ps.push(client, ps.gradients(1.0), "a", [0, 0])
    values = ps.whole(client.pull().buffers)
    for name in ("dense/kernel", "dense/bias"):
        np.testing.assert_allclose(values[name], -0.05, rtol=1e-6)


def test_a_follower_that_lost_its_stage_waits_for_the_rewind(group):
    ps = group(2, sync=True)
    client = ps.ready()
    ps.push(client, ps.gradients(1.0), "a", [0, 0])
    ps.relaunch(1)
    client.initialize(ps.layout, ps.optimizer, ps.initial())
    with pytest.raises(RpcError, match="waits to be rewound"):
        client.pull()


def follower(sgd) -> tuple[SyncFollower, Parameters, list[str]]:
    layout = place([Variable("a", (2,)), Variable("b", (2,))], 2)
    optimizer = optimizer_from_json(sgd(1.0))
    shard = ParameterShard(layout, 1, np.zeros(2, np.float32), optimizer.slots(2))
    parameters = Parameters(
        shard, optimizer, origin=ParameterOrigin(), compute=Compute()
    )
    pinned: list[str] = []
    return SyncFollower(parameters, pin=pinned.append), parameters, pinned


def staged(push_id: str, version: int, value: float) -> Push:
    gradient = Gradient(np.full(2, value, np.float32), {})
    return Push(PushId(push_id, 1), version, gradient)


@settings(max_examples=40)
@given(data=st.data())
def test_a_follower_applies_exactly_what_tickets_name(sgd, data):
    updater, parameters, _ = follower(sgd)
    expected = 0.0
    for version in range(data.draw(st.integers(1, 6))):
        workers = data.draw(st.permutations(range(4)))
        quorum = data.draw(st.integers(1, 4))
        for worker in workers:
            updater.push(staged(f"{version}-{worker}", version, float(2**worker)))
        admitted = data.draw(st.permutations(workers))[:quorum]
        ticket = Ticket(version + 1, tuple(f"{version}-{w}/1" for w in admitted))
        for _ in range(data.draw(st.integers(1, 3))):
            updater.advance(ticket)
        # Late ones are not held.
        updater.push(staged(f"late-{version}", version, 1e6))
        expected -= sum(2**w for w in admitted) / quorum
        assert parameters.version == version + 1
        assert updater.num_staged == 0
    np.testing.assert_allclose(parameters.shard.values, expected, rtol=1e-5)


def test_a_follower_takes_announced_snapshots_before_applying(sgd):
    updater, parameters, pinned = follower(sgd)
    updater.push(staged("a", 0, 1.0))
    updater.advance(Ticket(1, ("a/1",), ("ckpt-1",)))
    assert pinned == ["ckpt-1"]
    assert parameters.version == 1
    # Nothing else of a follower does anything.
    updater.announce("ckpt-2")
    updater.close(RuntimeError())
    assert updater.ticket is None
    assert updater.follows


@pytest.mark.parametrize("num_ps", [1, 3])
def test_a_push_brings_the_values_of_the_version_it_made(group, num_ps):
    ps = group(num_ps, sync=True)
    client = ps.ready(value=0.0)
    pushed = ps.push(client, ps.gradients(1.0), "a", [0] * num_ps, pull=True)
    assert pushed.accepted
    fresh = client.pull()
    assert pushed.pulled.versions == fresh.versions == [1] * num_ps
    for got, expected in zip(pushed.pulled.buffers, fresh.buffers, strict=True):
        np.testing.assert_array_equal(got, expected)
    late = ps.push(client, ps.gradients(9.0), "late", [0] * num_ps, pull=True)
    assert not late.accepted
    assert late.pulled.versions == [1] * num_ps
