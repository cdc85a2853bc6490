"""The job's token: real servers refuse every call that does not carry it."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from elasticdl.errors import RefusedError, SpecError
from elasticdl.job.names import JobDir
from elasticdl.job.tasks import ReplicaId
from elasticdl.proto import (
    master_pb2,
    master_pb2_grpc,
    platform_pb2,
    platform_pb2_grpc,
    ps_pb2,
)
from elasticdl.rpc.channel import client_options, connect, connect_aio
from elasticdl.rpc.errors import raise_for
from elasticdl.rpc.master_client import MasterClient
from elasticdl.rpc.ps import lent_calls as ps_lent
from elasticdl.rpc.ps import wire as ps_wire
from elasticdl.rpc.server import aio_server, bind, serve, threaded_server
from elasticdl.rpc.token import HEADER
from elasticdl.runner.local.platform import LocalPlatform
from elasticdl.runner.local.platform_server import PlatformServer
from elasticdl.runner.local.table import JobPlace
from elasticdl.tensor import codec
from elasticdl.testing.scripted import TOKEN

from tests.unit.rpc.ps.test_wire import Echo

REPLICA = ReplicaId(role="worker", index=0, generation=1)


def strangers(address: str) -> Iterator[grpc.Channel]:
    """Channels of processes that do not belong to the job."""
    yield grpc.insecure_channel(address, options=client_options())
    for wrong in ("another token", TOKEN + "x", TOKEN[:-1]):
        yield connect(address, wrong)
    # A token alone is not how it is carried.
    for value in (TOKEN, f"Basic {TOKEN}", ""):
        yield Metadata(address, value)


class Metadata:
    """A channel whose header says exactly this."""

    def __init__(self, address: str, value: str) -> None:
        self.channel = grpc.insecure_channel(address, options=client_options())
        self.metadata = ((HEADER, value),)

    def __getattr__(self, kind: str):
        make = getattr(self.channel, kind)
        if kind == "close":
            return make
        return lambda *args, **more: (
            lambda request, timeout: make(*args, **more)(
                request, timeout=timeout, metadata=self.metadata
            )
        )


def refused(call: Callable[[], object]) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert "does not carry the job's token" in caught.value.details()


def refuses_all(channel: grpc.Channel, frame: bytes) -> None:
    def name(method: str) -> str:
        return f"/{ps_wire.SERVICE}/{method}"

    for method in ("Probe", "PullSmall", "PushSmall", "State", ps_lent.METHOD):
        refused(lambda m=method: channel.unary_unary(name(m))(frame, timeout=10))
    refused(lambda: list(channel.unary_stream(name("Pull"))(frame, timeout=10)))
    # Also where the caller sends nothing, or much.
    for requests in ([], [frame] * 1000):
        init = channel.stream_unary(name("Init"))
        refused(lambda c=init, r=requests: c(iter(r), timeout=10))
        push = channel.stream_stream(name("Push"))
        refused(lambda c=push, r=requests: list(c(iter(r), timeout=10)))


def test_every_method_of_a_ps_asks_for_the_token() -> None:
    calls = Echo()
    asked = []
    calls.probe = asked.append
    server = serve(
        [ps_wire.handlers(calls)], host="127.0.0.1", port=0, threads=2, token=TOKEN
    )
    frame = codec.join(codec.encode(b"", {}))

    for channel in strangers(server.address):
        refuses_all(channel, frame)
        channel.close()
    assert not asked
    with connect(server.address, TOKEN) as channel:
        stub = ps_wire.PsStub(channel, "ps-0", server.address)
        assert stub.init(ps_pb2.InitRequest(version=3), {}).version == 3
    server.stop(0)


class Master(master_pb2_grpc.MasterServicer):
    async def Status(self, request, context):
        return master_pb2.StatusReply(json="{}")


def test_the_masters_service_asks_for_the_token() -> None:
    async def story() -> None:
        server = aio_server(TOKEN)
        master_pb2_grpc.add_MasterServicer_to_server(Master(), server)
        address = f"127.0.0.1:{bind(server, '127.0.0.1', 0)}"
        await server.start()

        def ask() -> None:
            request = master_pb2.StatusRequest()
            for channel in strangers(address):
                stub = master_pb2_grpc.MasterStub(channel)
                refused(lambda s=stub: s.Status(request, timeout=10))
                refused(lambda s=stub: s.Lease(master_pb2.LeaseRequest(), timeout=10))
                channel.close()
            client = MasterClient(address, REPLICA, token="wrong")
            with pytest.raises(RefusedError, match="unauthenticated"):
                client.status()
            client.close()
            client = MasterClient(address, REPLICA, token=TOKEN)
            assert client.status() == "{}"
            client.close()

        await asyncio.to_thread(ask)
        # An event loop's client too.
        async with grpc.aio.insecure_channel(address) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await master_pb2_grpc.MasterStub(channel).Status(
                    master_pb2.StatusRequest(), timeout=10
                )
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        channel = connect_aio(address, TOKEN)
        stub = master_pb2_grpc.MasterStub(channel)
        assert (await stub.Status(master_pb2.StatusRequest(), timeout=10)).json == "{}"
        await channel.close()
        await server.stop(0)

    asyncio.run(story())


def test_the_local_platform_asks_for_the_token(tmp_path: Path) -> None:
    platform = LocalPlatform(JobPlace(JobDir(tmp_path), "127.0.0.1:1", TOKEN, {}))
    server = PlatformServer(platform, token=TOKEN)
    for channel in strangers(server.address):
        stub = platform_pb2_grpc.LocalPlatformStub(channel)
        launch = platform_pb2.StartRequest(role="worker", index=0, generation=1)
        refused(lambda s=stub, r=launch: s.Start(r, timeout=10))
        kill = platform_pb2.SignalRequest(role="worker", index=0, signal=9)
        refused(lambda s=stub, r=kill: s.Signal(r, timeout=10))
        watch = platform_pb2.WatchRequest()
        refused(lambda s=stub, r=watch: list(s.Watch(r, timeout=10)))
        channel.close()
    assert not platform.states().states
    with connect(server.address, TOKEN) as channel:
        stub = platform_pb2_grpc.LocalPlatformStub(channel)
        watch = stub.Watch(platform_pb2.WatchRequest(), timeout=10)
        assert next(iter(watch)).resync
    server.close()
    platform.close(grace_seconds=0.0)


def test_nobody_serves_or_calls_without_a_token() -> None:
    for make in (
        lambda: threaded_server(1, ""),
        lambda: aio_server(""),
        lambda: connect("127.0.0.1:1", ""),
    ):
        with pytest.raises(SpecError, match="token is empty"):
            make()


def test_a_refusal_for_want_of_a_token_is_not_tried_again() -> None:
    server = threaded_server(1, TOKEN)
    port = bind(server, "127.0.0.1", 0)
    server.start()
    with connect(f"127.0.0.1:{port}", "wrong") as channel:
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary("/any/method")(b"", timeout=10)
        with pytest.raises(RefusedError, match="a call: unauthenticated"):
            raise_for(caught.value, "a call")
    server.stop(0)
