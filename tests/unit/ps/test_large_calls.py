"""What does not fit into one message or into a deadline, with the constants scaled."""

import numpy as np
import pytest
from elasticdl.errors import RefusedError
from elasticdl.proto import ps_pb2
from elasticdl.rpc import channel
from elasticdl.rpc.ps import client as ps_client
from elasticdl.rpc.ps import lent_calls as ps_lent
from elasticdl.rpc.ps import wire as ps_wire
from elasticdl.tensor.placement import Variable
from elasticdl.tensor.shared_state import (
    SharedState,
    StateLayout,
    StateShare,
    StateVariable,
)
from elasticdl.testing.scripted import TOKEN

BIG = [Variable("big", (1500, 1000))]


@pytest.fixture
def remote(monkeypatch):
    """As between machines: no memory can be lent."""
    monkeypatch.setattr(ps_lent, "can_lend", lambda: False)


@pytest.mark.usefixtures("remote")
def test_the_first_pull_of_a_large_shard_has_no_deadline(group, monkeypatch):
    ps = group(2, sync=False, variables=BIG)
    ps.ready()
    client = ps.client(1)
    monkeypatch.setattr(ps_client, "CALL_SECONDS", 0.0)
    assert client.pull().versions == [0, 0]


def test_a_worker_knows_the_size_of_its_first_pull_by_the_layout(group):
    ps = group(1, sync=False, variables=BIG)
    assert ps.ready()._pull_size(0) == 6_000_000


def test_a_state_larger_than_a_message_is_exchanged(group, monkeypatch):
    monkeypatch.setattr(channel, "MAX_MESSAGE_BYTES", 4 << 20)
    layout = StateLayout((StateVariable("moving", (1200, 2000)),))
    state = SharedState(layout, np.ones(layout.size, np.float32))
    ps = group(1, sync=False, state=state)
    client = ps.ready()
    share = StateShare(state.values)
    for step in range(2):
        pushed = ps.push(
            client, ps.gradients(1.0), f"{step}", [step], pull=True, state=share
        )
        assert pushed.pulled is not None
        np.testing.assert_array_equal(pushed.pulled.state, np.float32(step + 2))


@pytest.mark.parametrize(
    "tensors",
    [
        {"ids/0": np.zeros(1, np.int64)},
        {"dense": np.zeros(36, np.float32), "ids/0": np.zeros(1, np.int64)},
        {"dense": np.zeros(36, np.float32), "ids/x": np.zeros(1, np.int64)},
    ],
)
def test_a_push_that_lacks_what_it_names_is_refused(group, tensors):
    ps = group(1, sync=False)
    ps.ready()
    with channel.connect(ps.endpoints[0].address, TOKEN) as wire:
        stub = ps_wire.PsStub(wire, "ps-0")
        with pytest.raises(RefusedError, match="another version of ElasticDL"):
            stub.push(ps_pb2.PushRequest(), tensors, size=0, timeout=30)
