"""A server that is busy for a moment answers later; it refuses nobody."""

import asyncio
import threading

import grpc
from elasticdl.proto import master_pb2, master_pb2_grpc
from elasticdl.rpc.channel import client_options
from elasticdl.rpc.server import aio_server, bind
from elasticdl.rpc.token import HEADER, header_value
from elasticdl.testing.scripted import TOKEN

CALLS = 4000
SECONDS = 60.0


class Master(master_pb2_grpc.MasterServicer):
    async def Echo(self, request, context):
        return master_pb2.EchoReply()


def test_thousands_of_calls_wait_for_a_loop_that_is_busy() -> None:
    ports: list[int] = []
    busy, free, over = threading.Event(), threading.Event(), threading.Event()

    async def serve() -> None:
        server = aio_server(TOKEN)
        master_pb2_grpc.add_MasterServicer_to_server(Master(), server)
        ports.append(bind(server, "127.0.0.1", 0))
        await server.start()
        busy.set()
        free.wait(SECONDS)  # the loop itself: nobody is served meanwhile
        await asyncio.to_thread(over.wait, SECONDS)
        await server.stop(0)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert busy.wait(SECONDS)
        address = f"127.0.0.1:{ports[0]}"
        with grpc.insecure_channel(address, options=client_options()) as channel:
            stub = master_pb2_grpc.MasterStub(channel)
            calls = [
                stub.Echo.future(
                    master_pb2.EchoRequest(),
                    timeout=SECONDS,
                    metadata=((HEADER, header_value(TOKEN)),),
                )
                for _ in range(CALLS)
            ]
            free.set()
            codes = [call.code() for call in calls]
        assert set(codes) == {grpc.StatusCode.OK}
    finally:
        free.set()
        over.set()
        thread.join(SECONDS)
