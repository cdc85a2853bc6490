"""A job whose calls are encrypted: its master's server, and replicas of it."""

import asyncio
import threading
from pathlib import Path

from elasticdl.errors import FencedError
from elasticdl.job import names
from elasticdl.job.context import RoleContext
from elasticdl.job.names import Role
from elasticdl.job.tasks import ReplicaId
from elasticdl.master.calls.enrolling import Enrolling, JobAuthority
from elasticdl.proto import master_pb2, master_pb2_grpc
from elasticdl.rpc.master_service import add_enrolment
from elasticdl.rpc.server import aio_server, bind
from elasticdl.rpc.tls.certificates import Authority
from elasticdl.rpc.tls.identity import Identity, identity_of
from elasticdl.runner.base import Launch, ReplicaKey
from elasticdl.testing.scripted import TOKEN


class Answers(master_pb2_grpc.MasterServicer):
    """Answers all that a master is asked."""

    async def Register(self, _request, _context):
        return master_pb2.RegisterReply(master_generation=7)

    async def ModelReady(self, _request, _context):
        return master_pb2.ModelReadyReply()

    async def Lease(self, _request, _context):
        return master_pb2.LeaseReply()

    async def WorkerSync(self, request, _context):
        await asyncio.sleep(request.hold_seconds)
        return master_pb2.WorkerSyncReply()

    async def PsSync(self, _request, _context):
        return master_pb2.PsSyncReply()

    async def Echo(self, _request, _context):
        return master_pb2.EchoReply()

    async def Status(self, _request, _context):
        return master_pb2.StatusReply()

    async def Stop(self, _request, _context):
        return master_pb2.StopReply()


def authority_in(folder: Path) -> Path:
    """A folder as the Secret of an authority is mounted."""
    folder.mkdir(exist_ok=True)
    Authority.new().write(folder)
    return folder


class EncryptedMaster:
    """A master's server in a thread, with its job's authority."""

    def __init__(
        self,
        folder: Path,
        *,
        job: str = "digits",
        hours: float = 1.0,
        token: str = TOKEN,
        port: int = 0,
    ) -> None:
        self.authority = JobAuthority(
            folder, namespace="ml", job=job, token=token, hours=hours
        )
        self.token = token
        self.fenced: set[tuple[str, int]] = set()
        self.address = ""
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._thread = threading.Thread(
            target=self._loop.run_until_complete, args=(self._run(port),)
        )
        self._thread.start()
        assert self._started.wait(20)

    async def _run(self, port: int) -> None:
        self._over = asyncio.Event()
        identity = self.authority.identity
        server = aio_server(self.token, identity)
        self.address = f"127.0.0.1:{bind(server, '127.0.0.1', port, identity)}"
        master_pb2_grpc.add_MasterServicer_to_server(Answers(), server)
        add_enrolment(Enrolling(self.authority, self._require), server)
        await server.start()
        self._started.set()
        await self._over.wait()
        await server.stop(0)

    def _require(self, replica: ReplicaId) -> None:
        if (replica.role, replica.index) in self.fenced:
            raise FencedError("it was replaced, leave")

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()
        self._loop.close()

    def launched(self, role: Role, index: int = 0, generation: int = 1) -> RoleContext:
        """What a pod that the master has made knows."""
        launch = Launch(
            ReplicaKey(role, index),
            generation,
            cpu=1.0,
            memory="",
            priority="",
            grace_seconds=1.0,
        )
        environ = {
            names.ENV_JOB_DIR: "/nowhere",
            names.ENV_INDEX: str(index),
            names.ENV_GENERATION: str(generation),
            names.ENV_MASTER_ADDRESS: self.address,
            names.ENV_TOKEN: self.token,
            names.ENV_POD_IP: "127.0.0.1",
            **self.authority.enrolment(launch),
        }
        return RoleContext.from_environ(environ, role)

    def replica(self, role: Role, index: int = 0, generation: int = 1) -> Identity:
        """The identity of a replica that has enrolled."""
        context = self.launched(role, index, generation)
        identity = identity_of(context, threading.Event())
        assert identity is not None
        identity.close()
        return identity
