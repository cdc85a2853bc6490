"""A real PS process without a job around it, and a trainer that works with it.

Owns the stand-in for the master that the PS registers with. What is measured is the
product's: process, wire, client, transfer and step.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import grpc
import psutil
from elasticdl.job.heartbeats import PsView
from elasticdl.job.names import (
    ENV_GENERATION,
    ENV_INDEX,
    ENV_JOB_DIR,
    ENV_LIFELINE_FD,
    ENV_MASTER_ADDRESS,
    ENV_PLATFORM_ADDRESS,
    ENV_POD_IP,
    ENV_ROLE,
    ENV_TOKEN,
    JobDir,
)
from elasticdl.job.values.document import ValuesFile
from elasticdl.job.values.file import write_values
from elasticdl.proto import master_pb2, master_pb2_grpc
from elasticdl.rpc.channel import server_options
from elasticdl.rpc.master_service import add_enrolment
from elasticdl.rpc.server import bind
from elasticdl.rpc.tls.identity import Identity

CORES = len(psutil.Process().cpu_affinity() or [0]) if hasattr(
    psutil.Process, "cpu_affinity"
) else os.cpu_count() or 1  # fmt: skip

TOKEN = "secret"


@dataclass(frozen=True)
class Encrypted:
    """What a PS process needs whose calls are encrypted, and its master."""

    master: Identity
    environ: Mapping[str, str]
    enrolment: object  # serves Enrol


class StandIn(master_pb2_grpc.MasterServicer):
    """Answers a PS as a master without a job would."""

    def __init__(self) -> None:
        self.registered = threading.Event()
        self.view = PsView()
        self.metrics_port = 0
        self.pid = 0

    def Register(  # noqa: N802 - the name is the RPC's
        self, request: master_pb2.RegisterRequest, context: grpc.ServicerContext
    ) -> master_pb2.RegisterReply:
        del context
        self.view = PsView(
            revision=1,
            addresses=(request.address,),
            generations=(request.replica.generation,),
        )
        self.metrics_port, self.pid = request.metrics_port, request.pid
        self.registered.set()
        return master_pb2.RegisterReply(master_generation=1)

    def PsSync(  # noqa: N802 - the name is the RPC's
        self, request: master_pb2.PsSyncRequest, context: grpc.ServicerContext
    ) -> master_pb2.PsSyncReply:
        del context
        time.sleep(request.hold_seconds)
        return master_pb2.PsSyncReply(revision=1, quorum=1, learning_rate_scale=1.0)

    def wait_for_view(self, newer_than: int, seconds: float) -> PsView:
        """Wait, as for a view that never changes (worker.ps.link.Views)."""
        del newer_than
        time.sleep(seconds)
        return self.view


def values_of(**job: Any) -> ValuesFile:
    """Return a values file of a job that is never run as a whole."""
    return ValuesFile.model_validate(
        {
            "kind": "job",
            "job": {
                "name": "bench",
                "model": {"definition": "net.custom_model", "files": {"net.py": ""}},
                "data": {"training": "none"},
                **job,
            },
        }
    )


def start_role(  # noqa: PLR0913 - all that a platform tells a role
    role: str,
    folder: Path,
    values: ValuesFile,
    *,
    master: str,
    log: Path,
    platform: str = "127.0.0.1:1",
    program: list[str] | None = None,
    further: Mapping[str, str] = MappingProxyType({}),
) -> subprocess.Popen[bytes]:
    """Start a role's process as the local platform does, without a lifeline."""
    job_dir = JobDir(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_values(job_dir.spec_file, values)
    environ = {
        **os.environ,
        ENV_JOB_DIR: str(folder),
        ENV_ROLE: role,
        ENV_INDEX: "0",
        ENV_GENERATION: "1",
        ENV_MASTER_ADDRESS: master,
        ENV_PLATFORM_ADDRESS: platform,
        ENV_TOKEN: TOKEN,
        **further,
    }
    environ.pop(ENV_LIFELINE_FD, None)
    with log.open("wb") as file:
        return subprocess.Popen(
            [sys.executable, *(program or ["-m", f"elasticdl.{role}.main"])],
            env=environ,
            stdout=file,
            stderr=file,
        )


@contextmanager
def parameter_server(
    *,
    cpu: int = CORES,
    program: list[str] | None = None,
    host: str = "",
    encrypted: Encrypted | None = None,
) -> Iterator[StandIn]:
    """Give the view of a PS process that waits for its parameters.

    `program`: what is executed in place of the product's main. `host`: by what name it
    is called, if not by its number. `encrypted`: its calls are, with these.
    """
    stand_in = StandIn()
    server = grpc.server(ThreadPoolExecutor(4), options=server_options())
    master_pb2_grpc.add_MasterServicer_to_server(stand_in, server)
    if encrypted:
        add_enrolment(encrypted.enrolment, server)
    port = bind(server, "127.0.0.1", 0, encrypted.master if encrypted else None)
    further = {**({ENV_POD_IP: host} if host else {})}
    further |= encrypted.environ if encrypted else {}
    server.start()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        process = start_role(
            "ps",
            folder / "job",
            values_of(ps={"resources": {"cpu": cpu}}),
            master=f"127.0.0.1:{port}",
            log=folder / "ps.log",
            program=program,
            further=further,
        )
        try:
            if not stand_in.registered.wait(60):
                raise RuntimeError((folder / "ps.log").read_text())
            yield stand_in
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(5)
            process.kill()
            process.wait()
            server.stop(0)
