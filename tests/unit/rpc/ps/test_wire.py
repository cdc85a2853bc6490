"""Frames over gRPC streams."""

import grpc
import numpy as np
import pytest
from elasticdl.errors import FencedError, RefusedError
from elasticdl.metrics.registry import PsMetrics
from elasticdl.proto import ps_pb2
from elasticdl.rpc.channel import connect
from elasticdl.rpc.errors import raise_for
from elasticdl.rpc.ps import wire as ps_wire
from elasticdl.rpc.server import serve
from elasticdl.tensor import codec
from elasticdl.tensor.codec import FrameError
from elasticdl.testing.scripted import TOKEN
from hypothesis import given
from hypothesis import strategies as st


@given(st.integers(0, 5000), st.integers(128, 4096))
def test_a_frame_survives_any_cut_into_chunks(size, chunk):
    array = np.arange(size, dtype=np.float32)
    frame = codec.encode(b"meta", {"values": array})
    got = ps_wire.assemble(codec.chunks(frame, chunk))
    assert got.meta == b"meta"
    np.testing.assert_array_equal(got.tensors["values"], array)
    if size:
        assert got.tensors["values"].ctypes.data % 64 == 0


def test_a_cut_stream_is_an_error():
    chunks = list(codec.chunks(codec.encode(b"", {"v": np.zeros(500)}), 1024))
    with pytest.raises(FrameError, match="it was cut"):
        ps_wire.assemble(chunks[:-1])
    with pytest.raises(FrameError, match="it was cut"):
        ps_wire.assemble([])
    with pytest.raises(FrameError, match="got more than"):
        ps_wire.assemble([*chunks, b"more"])


class Echo:
    def probe(self, request):
        return ps_pb2.InitReply(accepted=True)

    def init(self, request, tensors):
        return ps_pb2.InitReply(version=request.version)

    def pull(self, request):
        return ps_pb2.PullReply(), {"values": np.ones(3, np.float32)}

    def push(self, request, tensors):
        total = int(sum(array.size for array in tensors.values()))
        reply = ps_pb2.PushReply(accepted=True, version=total)
        return reply, {"values": np.ones(total, np.float32)} if request.pull else {}


@pytest.fixture
def address():
    server = serve(
        [ps_wire.handlers(Echo())], host="127.0.0.1", port=0, threads=2, token=TOKEN
    )
    yield server.address
    server.stop(0)


@pytest.mark.parametrize("size", [1, 1000, 1_000_000])
def test_small_and_large_messages_take_their_ways(address, size):
    with connect(address, TOKEN) as channel:
        stub = ps_wire.PsStub(channel, "ps-0")
        array = {"dense": np.zeros(size, np.float32)}
        for pull in (False, True):
            order = ps_pb2.PushRequest(pull=pull)
            reply, back = stub.push(order, array, size=4 * size, timeout=10)
            assert (reply.version, len(back)) == (size, pull)
        request = ps_pb2.InitRequest(version=3)
        assert stub.init(request, array).version == 3
        for known in (12, 0):
            _, tensors = stub.pull(ps_pb2.PullRequest(), size=known, timeout=10)
            np.testing.assert_array_equal(tensors["values"], 1.0)


def test_bytes_that_are_no_frame_are_refused(address):
    with connect(address, TOKEN) as channel:
        call = channel.unary_unary(f"/{ps_wire.SERVICE}/Probe")
        with pytest.raises(grpc.RpcError) as caught:
            call(b"x" * 100, timeout=10)
        with pytest.raises(RefusedError, match="magic"):
            raise_for(caught.value, "probe")


def test_a_ps_counts_what_it_does():
    metrics = PsMetrics()
    metrics.pushes.labels("accepted").inc()
    assert (
        metrics.registry.get_sample_value(
            "elasticdl_ps_pushes_total", {"answer": "accepted"}
        )
        == 1
    )


class Keeper(Echo):
    """Keeps what it was sent, and gives values that are large."""

    def __init__(self):
        self.kept = []
        self.values = np.arange(300_000, dtype=np.float32)

    def pull(self, request):
        return ps_pb2.PullReply(version=4), {"values": self.values}

    def push(self, request, tensors):
        self.kept.append(tensors["dense"])
        if request.source == "stale":
            raise FencedError("rewound")
        return ps_pb2.PushReply(accepted=True), {"values": self.values}


@pytest.mark.parametrize("keeps", [True, False])
def test_frames_in_lent_memory_say_the_same_as_messages(keeps):
    keeper = Keeper()
    handlers = ps_wire.handlers(keeper, keeps=keeps)
    server = serve([handlers], host="127.0.0.1", port=0, threads=2, token=TOKEN)
    size = keeper.values.nbytes
    with connect(server.address, TOKEN) as channel:
        stub = ps_wire.PsStub(channel, "ps-0", server.address)
        for round_number in range(10):
            gradient = {"dense": np.full(200_000, round_number, np.float32)}
            _, back = stub.push(ps_pb2.PushRequest(), gradient, size=size, timeout=10)
            np.testing.assert_array_equal(back["values"], keeper.values)
            reply, back = stub.pull(ps_pb2.PullRequest(), size=size, timeout=10)
            assert reply.version == 4
            np.testing.assert_array_equal(back["values"], keeper.values)
            with pytest.raises(FencedError, match="rewound"):
                stub.push(
                    ps_pb2.PushRequest(source="stale"), gradient, size=0, timeout=10
                )
            # More than was thought comes as a message.
            _, back = stub.pull(ps_pb2.PullRequest(), size=600_000, timeout=10)
            np.testing.assert_array_equal(back["values"], keeper.values)
    if keeps:
        numbers = [float(kept[0]) for kept in keeper.kept]
        assert numbers == sorted(numbers), "a gradient was overwritten"
    server.stop(0)


def test_values_that_are_still_read_are_not_overwritten():
    keeper = Keeper()
    server = serve(
        [ps_wire.handlers(keeper)], host="127.0.0.1", port=0, threads=2, token=TOKEN
    )
    with connect(server.address, TOKEN) as channel:
        stub = ps_wire.PsStub(channel, "ps-0", server.address)
        held = []
        for number in range(12):
            keeper.values = np.full(300_000, number, np.float32)
            size = keeper.values.nbytes
            held.append(stub.pull(ps_pb2.PullRequest(), size=size, timeout=10)[1])
        for number, tensors in enumerate(held):
            np.testing.assert_array_equal(tensors["values"], number)
    server.stop(0)
