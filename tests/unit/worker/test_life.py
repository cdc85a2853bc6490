"""A worker's process as its master hears of it."""

import threading

import pytest
from elasticdl.errors import RpcError
from elasticdl.job.context import RoleContext
from elasticdl.job.heartbeats import ModelInfo
from elasticdl.job.names import JobDir, Role
from elasticdl.job.spec.job import JobSpec
from elasticdl.job.tasks import LeaseRequest
from elasticdl.proto import master_pb2, master_pb2_grpc
from elasticdl.rpc.server import bind, threaded_server
from elasticdl.worker.life import WorkerLife

TOKEN = "of this job"
SPEC = JobSpec.model_validate(
    {"name": "j", "model": {"definition": "m.f"}, "data": {"training": "t"}}
)


class Master(master_pb2_grpc.MasterServicer):
    """Notes what it is called with."""

    def __init__(self):
        self.leases = []
        self.address = ""

    def WorkerSync(self, request, context):
        return master_pb2.WorkerSyncReply()

    def Register(self, request, context):
        return master_pb2.RegisterReply()

    def ModelReady(self, request, context):
        return master_pb2.ModelReadyReply()

    def Lease(self, request, context):
        self.leases.append(request)
        return master_pb2.LeaseReply()


class Values:
    """Of two PS, after a rewind."""

    def answered(self):
        return 3, [12, 11]

    def offer(self, view):
        raise AssertionError("no PS waits for values")


@pytest.fixture
def master():
    made = Master()
    server = threaded_server(2, TOKEN)
    master_pb2_grpc.add_MasterServicer_to_server(made, server)
    made.address = f"127.0.0.1:{bind(server, '127.0.0.1', 0)}"
    server.start()
    yield made
    server.stop(0).wait()


def test_a_worker_that_waits_to_register_does_not_hang(master, tmp_path, monkeypatch):
    """A master may wait for its journal's disk for half an hour, or be away."""
    context = RoleContext(JobDir(tmp_path), Role.WORKER, 0, 1, master.address, TOKEN)
    life = WorkerLife(context, SPEC, threading.Event())
    since = []

    def failing(call):
        since.append(life.progress._since)
        if len(since) < 4:
            raise RpcError("deadline exceeded")
        return call()

    for name in ("register", "model_ready"):
        call = getattr(life.master, name)
        monkeypatch.setattr(
            life.master, name, lambda given, call=call: failing(lambda: call(given))
        )
    try:
        life.register()
        since.clear()
        life.tell_model_ready(ModelInfo())
    finally:
        life.close()
    assert since == sorted(set(since))  # each try is a sign of life
    assert len(since) == 4


def test_a_report_tells_at_which_versions_the_ps_have_what_is_reported(
    master, tmp_path
):
    context = RoleContext(JobDir(tmp_path), Role.WORKER, 0, 1, master.address, TOKEN)
    life = WorkerLife(context, SPEC, threading.Event())
    try:
        life.lease(LeaseRequest())  # nothing was pulled yet
        life.hold_values(Values())
        life.lease(LeaseRequest())
    finally:
        life.close()
    told = [(request.ps_rewind, list(request.ps_versions)) for request in master.leases]
    assert told == [(0, []), (3, [12, 11])]
