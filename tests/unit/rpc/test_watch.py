"""Streams are ended when they stand still, never because they are long."""

import threading

import numpy as np
import pytest
from elasticdl.errors import RpcError
from elasticdl.proto import ps_pb2
from elasticdl.rpc.channel import connect
from elasticdl.rpc.ps import wire as ps_wire
from elasticdl.rpc.server import serve
from elasticdl.rpc.watch import CallWatch
from elasticdl.tensor import codec
from elasticdl.testing.scripted import TOKEN


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.mark.parametrize("way", ["given", "taken"])
def test_a_stream_may_take_any_time_while_each_chunk_comes_in_time(way):
    clock, ended = Clock(), []
    watch = CallWatch(clock)
    with watch.over(lambda: ended.append(1)) as call:

        def slow():
            for number in range(50):
                clock.now += 9.0
                watch.look()
                yield number

        for _ in getattr(call, way)(slow(), 10.0):
            clock.now += 9.0
            watch.look()
        assert not ended
        assert clock.now == 900.0


def test_a_stream_is_ended_once_when_its_next_chunk_does_not_come():
    clock, ended = Clock(), []
    watch = CallWatch(clock)
    with watch.over(lambda: ended.append(1)) as call:
        chunks = call.given(iter("ab"), 10.0)
        next(chunks)
        clock.now = 1000.0  # what is done with a chunk is nobody's business
        watch.look()
        assert not call.stalled
        call.expect(10.0)
        clock.now = 1011.0
        watch.look()
        watch.look()
        assert call.stalled
        assert ended == [1]


class Large:
    """A PS whose answers are larger than what a connection buffers."""

    def __init__(self):
        self.values = np.ones(20_000_000, np.float32)
        self.go_on = threading.Event()
        self.go_on.set()

    def probe(self, request):
        return ps_pb2.InitReply(accepted=True)

    def pull(self, request):
        self.go_on.wait()
        return ps_pb2.PullReply(version=5), {"values": self.values}


@pytest.fixture
def large():
    """A PS with one thread; its address."""
    calls = Large()
    server = serve(
        [ps_wire.handlers(calls)], host="127.0.0.1", port=0, threads=1, token=TOKEN
    )
    yield calls, server.address
    calls.go_on.set()
    server.stop(0)


def test_a_caller_that_stands_still_in_the_middle_of_a_pull_holds_no_thread(
    large, monkeypatch
):
    monkeypatch.setattr(ps_wire, "CHUNK_SECONDS", 0.1)
    _, address = large
    request = codec.join(codec.encode(ps_pb2.PullRequest().SerializeToString(), {}))
    with connect(address, TOKEN) as frozen, connect(address, TOKEN) as channel:
        answer = frozen.unary_stream(f"/{ps_wire.SERVICE}/Pull")(request)
        next(answer)  # and then nothing more
        other = ps_wire.PsStub(channel, "ps-0")
        assert other.probe(ps_pb2.InitRequest(), timeout=60).accepted
        answer.cancel()


def test_a_ps_of_which_nothing_comes_is_given_up_with_a_sentence(large, monkeypatch):
    monkeypatch.setattr(ps_wire, "FIRST_CHUNK_SECONDS", 0.1)
    calls, address = large
    calls.go_on.clear()
    with connect(address, TOKEN) as channel:
        stub = ps_wire.PsStub(channel, "ps-0")
        with pytest.raises(RpcError, match=r"pull at ps-0: nothing moved for 0\.1 s"):
            stub.pull(ps_pb2.PullRequest(), size=0, timeout=60)


def test_a_stream_has_no_deadline_of_its_own(large):
    _, address = large
    with connect(address, TOKEN) as channel:
        stub = ps_wire.PsStub(channel, "ps-0")
        reply, tensors = stub.pull(ps_pb2.PullRequest(), size=0, timeout=0.0)
        assert reply.version == 5
        assert tensors["values"].size == 20_000_000
