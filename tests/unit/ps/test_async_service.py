"""Async mode over real gRPC."""

import threading

import numpy as np
import pytest
from elasticdl.errors import (
    FencedError,
    NotInitializedError,
    RefusedError,
    RpcError,
)
from elasticdl.rpc.ps.tensors import STALE, Gradients
from elasticdl.tensor.placement import Variable, place


@pytest.mark.parametrize("num_ps", [1, 2, 4])
def test_each_push_is_applied_as_it_comes(group, num_ps):
    ps = group(num_ps, sync=False)
    client = ps.ready()
    pushed = ps.push(client, ps.gradients(1.0, rows=[0, 9]), "a", [0] * num_ps)
    assert pushed.accepted
    assert pushed.versions == [1] * num_ps
    pulled = client.pull()
    values = ps.whole(pulled.buffers)
    np.testing.assert_array_equal(values["dense/kernel"], 0.5)
    np.testing.assert_array_equal(values["dense/bias"], 0.5)
    np.testing.assert_array_equal(values["table/embeddings"][[0, 9]], 0.5)
    np.testing.assert_array_equal(values["table/embeddings"][1:9], 1.0)
    np.testing.assert_array_equal(values["frozen/scale"], 1.0)
    assert pulled.ticket is None


def test_pulled_buffers_are_read_only_and_aligned(group):
    ps = group(2, sync=False)
    for buffer in ps.ready().pull().buffers:
        assert not buffer.flags.writeable
        assert buffer.ctypes.data % 64 == 0


def test_large_variables_travel_as_streams(group):
    ps = group(1, sync=False, variables=[Variable("big", (1500, 1000))])
    client = ps.ready()
    gradient = np.arange(1_500_000, dtype=np.float32)
    pushed = ps.push(client, Gradients([gradient], [{}]), "a", [0])
    assert pushed.accepted
    np.testing.assert_array_equal(client.pull().buffers[0], 1.0 - 0.5 * gradient)


def test_a_pull_of_the_version_one_has_sends_nothing(group):
    ps = group(2, sync=False)
    client = ps.ready()
    first = client.pull()
    again = client.pull(have=first.versions)
    assert again.unchanged
    assert [buffer.size for buffer in again.buffers] == [0, 0]
    ps.push(client, ps.gradients(1.0), "a", first.versions)
    assert not client.pull(have=first.versions).unchanged


def test_a_retried_push_is_applied_once(group):
    ps = group(2, sync=False)
    client = ps.ready()
    for _ in range(3):
        assert ps.push(client, ps.gradients(1.0), "same", [0, 0]).accepted
    pulled = client.pull()
    assert pulled.versions == [1, 1]
    np.testing.assert_array_equal(ps.whole(pulled.buffers)["dense/kernel"], 0.5)


def test_staleness_divides_the_learning_rate(group):
    ps = group(1, sync=False, staleness_modulation=True)
    client = ps.ready(value=0.0)
    for number in range(4):
        ps.push(client, ps.gradients(0.0), f"n{number}", [number])
    ps.push(client, ps.gradients(1.0), "late", [0])
    values = ps.whole(client.pull().buffers)
    np.testing.assert_allclose(values["dense/kernel"], -0.5 / 4)
    assert ps.servers[0].figures().staleness_sum == 4


def test_a_refused_gradient_says_so_and_changes_nothing(group):
    # D5: upstream took any answer for an acceptance.
    ps = group(2, sync=False, max_staleness=2)
    client = ps.client(1, first_admits=True)
    ps.ready()
    for number in range(3):
        ps.push(client, ps.gradients(0.0), f"n{number}", [number] * 2)
    before = client.pull()
    pushed = ps.push(client, ps.gradients(1.0), "late", [0, 0])
    assert pushed.accepted is False
    assert pushed.reason == STALE
    assert pushed.version == 3
    assert client.pull().versions == before.versions
    assert ps.servers[0].figures().rejected == 1


def test_the_pushed_learning_rate_and_the_scale_are_used(group):
    ps = group(1, sync=False)
    client = ps.ready(value=0.0)
    ps.control(quorum=1, scale=0.1)
    ps.push(client, ps.gradients(1.0), "a", [0], rate=2.0)
    values = ps.whole(client.pull().buffers)
    np.testing.assert_allclose(values["dense/kernel"], -0.2, rtol=1e-6)


def test_pulls_never_see_half_an_update(group, threads):
    # A buffer that is one number everywhere stays so under every update.
    ps = group(2, sync=False, variables=[Variable("big", (200, 2000))])
    client = ps.ready(value=0.0)
    done = threading.Event()

    def pull_until_done() -> int:
        torn = 0
        while not done.is_set():
            for buffer in client.pull().buffers:
                torn += bool(buffer.min() != buffer.max())
        return torn

    pullers = [threads.submit(pull_until_done) for _ in range(2)]
    try:
        for number in range(30):
            ps.push(client, ps.gradients(1.0), f"p{number}", [number] * 2)
    finally:
        done.set()
    assert [puller.result() for puller in pullers] == [0, 0]


def test_concurrent_pushes_are_all_applied(group, threads):
    ps = group(2, sync=False)
    client = ps.ready(value=0.0)
    jobs = [
        threads.submit(ps.push, client, ps.gradients(1.0), f"p{n}", [0, 0])
        for n in range(40)
    ]
    assert all(job.result().accepted for job in jobs)
    pulled = client.pull()
    assert pulled.versions == [40, 40]
    np.testing.assert_array_equal(ps.whole(pulled.buffers)["dense/bias"], -20.0)


def test_a_ps_without_parameters_asks_for_them(group):
    ps = group(2, sync=False)
    ps.begin()
    client = ps.client()
    assert client.is_initialized() == [False, False]
    with pytest.raises(NotInitializedError):
        client.pull()
    client.initialize(ps.layout, ps.optimizer, ps.initial(3.0))
    assert client.is_initialized() == [True, True]
    # The first worker wins.
    client.initialize(ps.layout, ps.optimizer, ps.initial(7.0))
    assert client.pull().buffers[0][0] == 3.0


def test_before_the_master_answered_every_call_is_to_be_tried_again(group, monkeypatch):
    monkeypatch.setattr("elasticdl.ps.server.LOADING_WAIT_SECONDS", 0.01)
    ps = group(1, sync=False)
    with pytest.raises(RpcError, match="loading; try again"):
        ps.client().pull()


def test_another_model_is_refused(group):
    ps = group(1, sync=False)
    client = ps.ready()
    other = place([Variable("other", (3,))], 1)
    with pytest.raises(RefusedError, match="layout"):
        client.initialize(other, ps.optimizer, [np.zeros(3, np.float32)])


@pytest.mark.parametrize("size", [1, 35, 37, 5000])
def test_a_gradient_of_the_wrong_size_is_refused(group, size):
    ps = group(1, sync=False)
    client = ps.ready()
    wrong = Gradients([np.zeros(size, np.float32)], [{}])
    with pytest.raises(RefusedError, match="dense gradient of shape"):
        ps.push(client, wrong, "a", [0])


def test_values_of_the_wrong_size_or_number_of_ps_are_refused(group):
    ps = group(1, sync=False)
    ps.begin()
    client = ps.client()
    with pytest.raises(RefusedError, match="values of shape"):
        client.initialize(ps.layout, ps.optimizer, [np.zeros(3, np.float32)])
    with pytest.raises(RefusedError, match="layout for 2 PS"):
        client.initialize(place(ps.layout.variables, 2), ps.optimizer, ps.initial())
    client.initialize(ps.layout, ps.optimizer, ps.initial())


def test_an_optimizer_that_a_ps_cannot_run_is_refused(group):
    ps = group(1, sync=False)
    ps.begin()
    with pytest.raises(RefusedError, match="the PS cannot start"):
        ps.client().initialize(ps.layout, '{"local": true}', ps.initial())


def test_a_lost_ps_takes_values_handed_back_and_uses_no_version_twice(group):
    ps = group(2, sync=False)
    client = ps.ready()
    for number in range(5):
        ps.push(client, ps.gradients(1.0), f"p{number}", [number] * 2)
    have = client.pull()
    ps.relaunch(1, min_version=8, handback=True)
    with pytest.raises(NotInitializedError):
        client.pull(have=have.versions)
    client.initialize(
        ps.layout, ps.optimizer, list(have.buffers), versions=have.versions
    )
    pulled = client.pull(have=have.versions)
    assert pulled.versions == [5, 8]
    assert pulled.buffers[0].size == 0
    np.testing.assert_array_equal(pulled.buffers[1], have.buffers[1])
    assert ps.servers[1].figures().began_at == 5


def test_a_ps_of_a_job_that_has_begun_takes_no_initial_values(group):
    ps = group(2, sync=False)
    client = ps.ready()
    ps.push(client, ps.gradients(1.0), "p0", [0, 0])
    ps.relaunch(1, handback=True)
    with pytest.raises(NotInitializedError, match="the job has begun"):
        client.initialize(ps.layout, ps.optimizer, ps.initial(7.0))
    assert client.is_initialized() == [True, False]


def test_calls_of_an_older_rewind_are_fenced(group):
    ps = group(2, sync=False)
    client = ps.ready()
    ps.rewind = 1
    ps.begin()
    with pytest.raises(FencedError):
        client.pull()
    with pytest.raises(FencedError):
        ps.push(client, ps.gradients(1.0), "a", [0, 0])
    ps.tell_clients()
    with pytest.raises(NotInitializedError):
        client.pull()


def test_a_ps_that_is_away_is_named(group):
    ps = group(2, sync=False)
    client = ps.ready()
    view = ps.view
    view.addresses[1] = ""
    client.set_view(view)
    with pytest.raises(RpcError, match="ps-1 is away"):
        client.pull()


def test_an_older_view_is_ignored(group):
    ps = group(1, sync=False)
    old = ps.view
    old.addresses[0] = "127.0.0.1:1"
    client = ps.ready()
    client.set_view(old)
    assert client.pull().version == 0


def test_a_closed_client_fails_cleanly(group):
    ps = group(2, sync=False)
    client = ps.ready()
    client.close()
    with pytest.raises(RpcError):
        client.pull()


@pytest.mark.parametrize("num_ps", [1, 2])
def test_a_push_brings_the_values_after_it(group, num_ps):
    ps = group(num_ps, sync=False)
    client = ps.ready(value=0.0)
    assert ps.push(client, ps.gradients(1.0), "a", [0] * num_ps).pulled is None
    for push_id in ("b", "b"):  # a retry brings them as well
        pushed = ps.push(client, ps.gradients(1.0), push_id, [1] * num_ps, pull=True)
        assert pushed.accepted
        fresh = client.pull()
        assert pushed.pulled.versions == fresh.versions == [2] * num_ps
        for got, expected in zip(pushed.pulled.buffers, fresh.buffers, strict=True):
            np.testing.assert_array_equal(got, expected)
    known = client.pull(have=pushed.pulled.versions)
    assert known.unchanged


def test_a_refused_push_brings_the_values_to_compute_it_again_at(group):
    ps = group(1, sync=False, max_staleness=1)
    client = ps.ready(value=0.0)
    for number in range(3):
        ps.push(client, ps.gradients(1.0), f"n{number}", [number])
    pushed = ps.push(client, ps.gradients(1.0), "late", [0], pull=True)
    assert not pushed.accepted
    assert pushed.pulled.versions == [3]
