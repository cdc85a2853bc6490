"""Frames over gRPC streams."""

import grpc
import numpy as np
import pytest
from elasticdl.errors import RefusedError
from elasticdl.metrics.registry import PsMetrics
from elasticdl.proto import ps_pb2
from elasticdl.rpc import ps_wire
from elasticdl.rpc.channel import connect
from elasticdl.rpc.errors import raise_for
from elasticdl.rpc.server import serve
from elasticdl.tensor import codec
from elasticdl.tensor.codec import FrameError
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

    def state(self, request, tensors):
        return ps_pb2.StateReply(known=True), tensors


@pytest.fixture
def address():
    server = serve([ps_wire.handlers(Echo())], host="127.0.0.1", port=0, threads=2)
    yield server.address
    server.stop(0)


@pytest.mark.parametrize("size", [1, 1000, 1_000_000])
def test_small_and_large_messages_take_their_ways(address, size):
    with connect(address) as channel:
        stub = ps_wire.PsStub(channel, "ps-0")
        array = {"dense": np.zeros(size, np.float32)}
        for pull in (False, True):
            order = ps_pb2.PushRequest(pull=pull)
            small = size <= 1000
            reply, back = stub.push(order, array, small=small, timeout=10)
            assert (reply.version, len(back)) == (size, pull)
        request = ps_pb2.InitRequest(version=3)
        assert stub.init(request, array, timeout=10).version == 3
        for small in (True, False):
            _, tensors = stub.pull(ps_pb2.PullRequest(), small=small, timeout=10)
            np.testing.assert_array_equal(tensors["values"], 1.0)


def test_bytes_that_are_no_frame_are_refused(address):
    with connect(address) as channel:
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
