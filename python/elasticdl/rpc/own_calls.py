"""A master's calls to itself, by the way on which replicas' calls come.

Owns the connection. Called by `master.serving`; what follows from a late answer is
decided by `master.attention`. Knows nothing of jobs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import grpc.aio

from elasticdl.job.names import Role
from elasticdl.proto import master_pb2, master_pb2_grpc
from elasticdl.rpc.channel import Peer, connect_aio
from elasticdl.rpc.errors import raise_for
from elasticdl.rpc.tls.identity import Identity


@asynccontextmanager
async def own_calls(
    address: str, token: str, identity: Identity | None = None
) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Yield a call to the master at `host:port` that returns when it is answered.

    It waits as long as that takes, and raises RpcError if it cannot be made.
    """
    channel = connect_aio(address, token, Peer(Role.MASTER, 0, identity))
    stub = master_pb2_grpc.MasterStub(channel)

    async def call() -> None:
        try:
            await stub.Echo(master_pb2.EchoRequest())
        except grpc.aio.AioRpcError as error:
            raise_for(error, f"own call at {address}")

    try:
        yield call
    finally:
        await channel.close()
