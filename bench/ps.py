"""The PS: its kernels, and the wire to it.

Owns the baselines that a user could write instead: NumPy in place, one protobuf message
with a `bytes` field, a plain socket.
"""

from __future__ import annotations

import json
import multiprocessing
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import numpy as np
from elasticdl.proto import ps_pb2
from elasticdl.ps.apply import Gradient, ParameterShard, apply_gradient
from elasticdl.ps.optimizers.optimizer import optimizer_from_json
from elasticdl.rpc.channel import connect
from elasticdl.rpc.ps import wire as ps_wire
from elasticdl.rpc.server import serve
from elasticdl.tensor.placement import Variable, place
from frame import Benchmark, Row, interleaved, ratios, row, timed
from google.protobuf.wrappers_pb2 import BytesValue
from numba import njit
from roles import CORES, TOKEN

FLOATS = 10_000_000
WIRE_FLOATS = 5_800_000  # 23 MB
SOCKET_FLOATS = 4 << 20  # 16 MB
ADAM = {
    "module": "keras.optimizers",
    "class_name": "Adam",
    "registered_name": None,
    "config": {
        "learning_rate": 0.001,
        "beta_1": 0.9,
        "beta_2": 0.999,
        "epsilon": 1e-7,
        "amsgrad": False,
    },
}


def adam_step() -> Callable[[], None]:
    """Return one update of a PS that holds FLOATS parameters, on all cores."""
    optimizer = optimizer_from_json(json.dumps(ADAM))
    layout = place([Variable("v", (FLOATS,))], 1)
    rng = np.random.default_rng(0)
    shard = ParameterShard(
        layout, 0, rng.random(FLOATS, np.float32), optimizer.slots(FLOATS)
    )
    gradient = Gradient(rng.random(FLOATS, np.float32), {})
    threads = ThreadPoolExecutor(CORES)

    def step() -> None:
        apply_gradient(
            optimizer, shard, gradient,
            step=3, learning_rate=0.001, threads=threads, parts=CORES,
        )  # fmt: skip

    return step


@njit(nogil=True, error_model="numpy")
def _triad(a: Any, b: Any, c: Any, scale: Any) -> None:
    for i in range(a.size):
        a[i] = b[i] + scale * c[i]


def triad() -> Callable[[], None]:
    """Return a triad over arrays as long as the parameters, on all cores."""
    a, b, c = (np.ones(FLOATS, np.float32) for _ in range(3))
    threads = ThreadPoolExecutor(CORES)
    cuts = [FLOATS * part // CORES for part in range(CORES + 1)]
    parts = [slice(cuts[i], cuts[i + 1]) for i in range(CORES)]

    def run() -> None:
        scale = np.float32(0.5)
        work = [threads.submit(_triad, a[p], b[p], c[p], scale) for p in parts]
        for one in work:
            one.result()

    return run


def dense_adam() -> list[Row]:
    """Compare the bytes a second of an update with those of a triad."""
    times = interleaved({"adam": timed(adam_step(), 5), "triad": timed(triad(), 5)}, 20)
    # Adam reads four arrays and writes three; a triad reads two and writes one.
    values = [r * 7 / 3 for r in ratios(times["triad"], times["adam"])]
    what = f"Adam on a PS, 10 M floats, {CORES} cores: bandwidth / that of a triad"
    return [row("dense_adam", what, values, 0.6)]


def numpy_adam() -> Callable[[], None]:
    """Return Adam in place with NumPy, the formulas of Keras."""
    rng = np.random.default_rng(0)
    values, grads = (rng.random(FLOATS, np.float32) for _ in range(2))
    m, v, work = (np.zeros(FLOATS, np.float32) for _ in range(3))

    def step() -> None:
        np.subtract(grads, m, out=work)
        np.multiply(work, np.float32(0.1), out=work)
        np.add(m, work, out=m)
        np.multiply(grads, grads, out=work)
        np.subtract(work, v, out=work)
        np.multiply(work, np.float32(0.001), out=work)
        np.add(v, work, out=v)
        np.sqrt(v, out=work)
        np.add(work, np.float32(1e-7), out=work)
        np.divide(m, work, out=work)
        np.multiply(work, np.float32(0.001), out=work)
        np.subtract(values, work, out=values)

    return step


def dense_adam_numpy() -> list[Row]:
    """Compare an update with NumPy's."""
    times = interleaved(
        {"ours": timed(adam_step(), 3), "numpy": timed(numpy_adam())}, 15
    )
    what = f"Adam, 10 M floats: NumPy in place / on a PS, {CORES} cores"
    return [row("dense_adam_numpy", what, ratios(times["numpy"], times["ours"]), 3)]


# -- the wire -----------------------------------------------------------------------


class Holder:
    """A PS that only holds values: the wire is measured, not the update."""

    def __init__(self, floats: int) -> None:
        self.values = np.ones(floats, np.float32)

    def probe(self, request: ps_pb2.InitRequest) -> ps_pb2.InitReply:
        del request
        return ps_pb2.InitReply()

    def init(
        self, request: ps_pb2.InitRequest, tensors: Mapping[str, Any]
    ) -> ps_pb2.InitReply:
        del request, tensors
        return ps_pb2.InitReply()

    def pull(
        self, request: ps_pb2.PullRequest
    ) -> tuple[ps_pb2.PullReply, Mapping[str, Any]]:
        del request
        return ps_pb2.PullReply(), {"values": self.values}

    def push(
        self, request: ps_pb2.PushRequest, tensors: Mapping[str, Any]
    ) -> tuple[ps_pb2.PushReply, Mapping[str, Any]]:
        del request, tensors
        return ps_pb2.PushReply(accepted=True), {}


def _protobuf(holder: Holder) -> grpc.GenericRpcHandler:
    def pull(request: BytesValue, context: grpc.ServicerContext) -> BytesValue:
        del request, context
        return BytesValue(value=holder.values.tobytes())

    def push(request: BytesValue, context: grpc.ServicerContext) -> BytesValue:
        del context
        np.frombuffer(request.value, np.float32)
        return BytesValue()

    def method(
        call: Callable[[BytesValue, grpc.ServicerContext], BytesValue],
    ) -> grpc.RpcMethodHandler[BytesValue, BytesValue]:
        return grpc.unary_unary_rpc_method_handler(
            call, BytesValue.FromString, BytesValue.SerializeToString
        )

    return grpc.method_handlers_generic_handler(
        "Protobuf", {"Pull": method(pull), "Push": method(push)}
    )


def _plain_socket(listener: socket.socket, values: Any) -> None:
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while connection.recv(1):
        connection.sendall(values)


def _serve(floats: int, ports: Any) -> None:
    """Serve all variants until the process is ended."""
    holder = Holder(floats)
    server = serve(
        [ps_wire.handlers(holder), _protobuf(holder)],
        host="127.0.0.1", port=0, threads=4, token=TOKEN,
    )  # fmt: skip
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(
        target=_plain_socket, args=(listener, holder.values), daemon=True
    ).start()
    ports.put((server.address, listener.getsockname()))
    time.sleep(3600)


@contextmanager
def wire_server(floats: int) -> Iterator[tuple[str, tuple[str, int]]]:
    """Give the addresses of gRPC and of the plain socket, in another process."""
    context = multiprocessing.get_context("spawn")
    ports = context.Queue()
    process = context.Process(target=_serve, args=(floats, ports), daemon=True)
    process.start()
    try:
        yield ports.get(timeout=60)
    finally:
        process.terminate()
        process.join()


def dense_pull() -> list[Row]:
    """Compare the pull of a dense buffer with the same as protobuf."""
    with wire_server(WIRE_FLOATS) as (address, _), connect(address, TOKEN) as channel:
        stub = ps_wire.PsStub(channel, "ps-0")
        pull = channel.unary_unary(
            "/Protobuf/Pull", BytesValue.SerializeToString, BytesValue.FromString
        )

        def ours() -> Any:
            request = ps_pb2.PullRequest()
            return stub.pull(request, size=0, timeout=60)[1]["values"]

        def protobuf() -> Any:
            return np.frombuffer(pull(BytesValue()).value, np.float32)

        times = interleaved({"ours": timed(ours), "pb": timed(protobuf)}, 25)
    what = "pull of 23 MB, seconds: as protobuf `bytes` / over the product's wire"
    return [row("dense_pull", what, ratios(times["pb"], times["ours"]), 2)]


def dense_push() -> list[Row]:
    """Compare the push of a dense gradient with the same as protobuf."""
    with wire_server(WIRE_FLOATS) as (address, _), connect(address, TOKEN) as channel:
        stub = ps_wire.PsStub(channel, "ps-0")
        push = channel.unary_unary(
            "/Protobuf/Push", BytesValue.SerializeToString, BytesValue.FromString
        )
        gradient = np.ones(WIRE_FLOATS, np.float32)

        def ours() -> Any:
            tensors = {"dense": gradient}
            return stub.push(ps_pb2.PushRequest(), tensors, size=0, timeout=60)

        def protobuf() -> Any:
            return push(BytesValue(value=gradient.tobytes()))

        times = interleaved({"ours": timed(ours), "pb": timed(protobuf)}, 25)
    what = "push of 23 MB, seconds: as protobuf `bytes` / over the product's wire"
    return [row("dense_push", what, ratios(times["pb"], times["ours"]), 2)]


def wire_socket() -> list[Row]:
    """Compare the pull of 16 MB with a plain socket's."""
    with (
        wire_server(SOCKET_FLOATS) as (address, plain),
        connect(address, TOKEN) as channel,
        socket.create_connection(plain) as connection,
    ):
        stub = ps_wire.PsStub(channel, "ps-0")
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        buffer = memoryview(bytearray(SOCKET_FLOATS * 4))

        def ours() -> Any:
            request = ps_pb2.PullRequest()
            return stub.pull(request, size=0, timeout=60)[1]["values"]

        def by_socket() -> None:
            connection.sendall(b"?")
            position = 0
            while position < len(buffer):
                position += connection.recv_into(buffer[position:])

        times = interleaved({"ours": timed(ours), "socket": timed(by_socket)}, 151)
    what = "pull of 16 MB, seconds: plain socket / over the product's wire"
    return [row("wire_socket", what, ratios(times["socket"], times["ours"]), 0.35)]


BENCHMARKS = {
    "dense_adam": Benchmark(dense_adam, 3),
    "dense_adam_numpy": Benchmark(dense_adam_numpy, 3),
    "dense_pull": Benchmark(dense_pull, 15),
    "dense_push": Benchmark(dense_push, 15, short=False),
    "wire_socket": Benchmark(wire_socket, 5),
}
