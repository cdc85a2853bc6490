"""What encrypted calls cost: the wire to a PS, and a step through one.

Owns a PS process whose calls are encrypted, beside the plain one of `roles`. On both
sides values go by messages, as between pods; on one machine they are lent otherwise.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from elasticdl.job import names
from elasticdl.job.names import Role
from elasticdl.master.calls.enrolling import JobAuthority
from elasticdl.proto import ps_pb2
from elasticdl.rpc.channel import Peer, connect
from elasticdl.rpc.master_service import Enrolled
from elasticdl.rpc.ps import wire as ps_wire
from elasticdl.rpc.server import serve
from elasticdl.rpc.tls.certificates import Authority, Credentials
from elasticdl.rpc.tls.identity import Identity
from elasticdl.rpc.tls.peer_name import PeerName
from elasticdl.rpc.tls.peers import caller_of
from elasticdl.runner.base import Launch, ReplicaKey
from frame import Benchmark, Row, interleaved, ratios, row, timed
from ps import WIRE_FLOATS, Holder
from roles import TOKEN, Encrypted, StandIn, parameter_server
from step import BATCH, DELAY_SECONDS, definition, example_batch, trainer_of

# Loopback by another address than those to which memory is lent.
_HOST = "::ffff:127.0.0.1"


def identity_of(authority: Authority, role: Role) -> Identity:
    """Return a replica's identity that is never renewed."""
    shown = authority.own(PeerName("ml", "bench", role, 0, 1), hours=1)

    def never() -> Credentials:
        return shown

    return Identity(shown, never)


def _serve(folder: Path, ports: Any) -> None:
    holder = Holder(WIRE_FLOATS)
    identity = identity_of(Authority.load(folder), Role.PS)
    servers = [
        serve(
            [ps_wire.handlers(holder)],
            host="127.0.0.1",
            port=0,
            threads=4,
            token=TOKEN,
            identity=shown,
        )
        for shown in (None, identity)
    ]
    ports.put([server.address for server in servers])
    time.sleep(3600)


@contextmanager
def both_wires() -> Iterator[dict[str, ps_wire.PsStub]]:
    """Give stubs of one PS process, whose calls are plain and encrypted."""
    context = multiprocessing.get_context("spawn")
    ports = context.Queue()
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        authority = Authority.new()
        authority.write(Path(name))
        process = context.Process(target=_serve, args=(Path(name), ports), daemon=True)
        process.start()
        stack.callback(process.join)
        stack.callback(process.terminate)
        plain, encrypted = ports.get(timeout=60)
        peer = Peer(Role.PS, 0, identity_of(authority, Role.WORKER))
        stubs = {}
        for key, address, of in (("plain", plain, Peer()), ("tls", encrypted, peer)):
            channel = stack.enter_context(connect(address, TOKEN, of))
            stubs[key] = ps_wire.PsStub(channel, "ps-0")
        yield stubs


def tls_price_wire() -> list[Row]:
    """Compare pulls and pushes of 23 MB, plain and encrypted."""
    gradient = {"dense": np.ones(WIRE_FLOATS, np.float32)}
    header = ps_pb2.RequestHeader(worker=0, generation=1)
    pull = ps_pb2.PullRequest(header=header)
    push = ps_pb2.PushRequest(header=header)
    with both_wires() as stubs:
        pulls = interleaved(
            {
                key: timed(lambda s=stub: s.pull(pull, size=0, timeout=60))
                for key, stub in stubs.items()
            },
            41,
        )
        pushes = interleaved(
            {
                key: timed(lambda s=stub: s.push(push, gradient, size=0, timeout=60))
                for key, stub in stubs.items()
            },
            41,
        )
    return [
        row(
            "tls_price_pull",
            "pull of 23 MB, seconds: in the clear / encrypted",
            ratios(pulls["plain"], pulls["tls"]),
            0.5,
        ),
        row(
            "tls_price_push",
            "push of 23 MB, seconds: in the clear / encrypted",
            ratios(pushes["plain"], pushes["tls"]),
            0.5,
        ),
    ]


class _Signing:
    def __init__(self, authority: JobAuthority) -> None:
        self._authority = authority

    def Enrol(  # noqa: N802 - the name is the RPC's
        self, request: bytes, context: grpc.ServicerContext
    ) -> Enrolled:
        caller = caller_of(context)
        assert caller is not None  # noqa: S101 - the server's own check
        return self._authority.sign(caller, request)


@contextmanager
def encrypted() -> Iterator[tuple[Encrypted, Identity]]:
    """Give what an encrypted PS process needs, and the identity of its worker."""
    with tempfile.TemporaryDirectory() as name:
        made = Authority.new()
        made.write(Path(name))
        authority = JobAuthority(
            Path(name), namespace="ml", job="bench", token=TOKEN, hours=1.0
        )
        launch = Launch(
            ReplicaKey(Role.PS, 0), 1, cpu=1, memory="", priority="", grace_seconds=1
        )
        environ = {
            names.ENV_AUTHORITY: made.pem.decode(),
            **authority.enrolment(launch),
        }
        yield (
            Encrypted(authority.identity, environ, _Signing(authority)),
            identity_of(made, Role.WORKER),
        )


def tls_price_step() -> list[Row]:
    """Compare a pipelined step through a PS, plain and encrypted."""
    from elasticdl.worker.trainer import BatchPosition

    batch = example_batch()
    at = BatchPosition(
        task_id=1, epoch=0, records_done=0, num_records=BATCH, last=False
    )
    steps = 30

    def timed_steps(trainer: Any) -> Any:
        def run() -> float:
            began = time.perf_counter()
            for _ in range(steps):
                trainer.train_batch(batch.features, batch.labels, at)
            trainer.flush()
            return (time.perf_counter() - began) / steps

        return run

    def trainer(ps: StandIn, identity: Identity | None) -> Any:
        made = definition("cnn", "Adam")
        return trainer_of(
            made, batch, ps, delay_seconds=DELAY_SECONDS, identity=identity
        )

    with (
        encrypted() as (surroundings, worker),
        parameter_server(host=_HOST) as open_ps,
        parameter_server(host=_HOST, encrypted=surroundings) as closed_ps,
        trainer(open_ps, None) as plain,
        trainer(closed_ps, worker) as tls,
    ):
        times = interleaved({"plain": timed_steps(plain), "tls": timed_steps(tls)}, 15)
    what = "CNN, step through 1 PS, pipelined, calls 10 ms slower: clear / encrypted"
    return [row("tls_price_step", what, ratios(times["plain"], times["tls"]), 0.93)]


BENCHMARKS = {
    "tls_price_wire": Benchmark(tls_price_wire, 20, short=False),
    "tls_price_step": Benchmark(tls_price_step, 30, short=False),
}
