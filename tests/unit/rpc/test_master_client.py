"""Calls to a master, over real gRPC on loopback."""

import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from elasticdl.errors import (
    ElasticDLError,
    FencedError,
    NotInitializedError,
    PlatformError,
    RefusedError,
    RpcError,
)
from elasticdl.job.heartbeats import (
    ModelInfo,
    PsHeartbeat,
    Registration,
    WorkerHeartbeat,
)
from elasticdl.job.tasks import LeaseRequest, ReplicaId
from elasticdl.proto import master_pb2, master_pb2_grpc
from elasticdl.rpc.errors import status_of
from elasticdl.rpc.master_client import MasterClient
from elasticdl.rpc.server import bind, serve
from elasticdl.rpc.task_messages import replica_from_wire
from elasticdl.running import RunningClock
from elasticdl.testing.scripted import TOKEN

REPLICA = ReplicaId(role="worker", index=3, generation=7)


class Master(master_pb2_grpc.MasterServicer):
    """Echoes who calls; answers `Stop` with a status."""

    def __init__(self) -> None:
        self.seen: list[ReplicaId] = []
        self.answer: ElasticDLError | None = None
        self.journal = threading.Event()  # set when it can be written again

    def Echo(self, request, context):
        return master_pb2.EchoReply()

    def _note(self, request) -> None:
        self.seen.append(replica_from_wire(request.replica))

    def Register(self, request, context):
        self._note(request)
        return master_pb2.RegisterReply(master_generation=2)

    def ModelReady(self, request, context):
        self._note(request)
        return master_pb2.ModelReadyReply()

    def Lease(self, request, context):
        self._note(request)
        return master_pb2.LeaseReply(finished=True)

    def WorkerSync(self, request, context):
        self._note(request)
        if request.hold_seconds < 0:
            self.journal.wait()
        return master_pb2.WorkerSyncReply(revision=1)

    def PsSync(self, request, context):
        self._note(request)
        return master_pb2.PsSyncReply(revision=1)

    def Status(self, request, context):
        return master_pb2.StatusReply(json="{}")

    def Stop(self, request, context):
        if self.answer is not None:
            context.abort(status_of(self.answer), str(self.answer))
        return master_pb2.StopReply()


@pytest.fixture
def master():
    servicer = Master()
    server = grpc.server(ThreadPoolExecutor(8))
    master_pb2_grpc.add_MasterServicer_to_server(servicer, server)
    port = bind(server, "127.0.0.1", 0)
    server.start()
    client = MasterClient(f"127.0.0.1:{port}", REPLICA, token=TOKEN)
    yield servicer, client
    client.close()
    server.stop(0).wait()


def test_every_call_says_who_calls(master):
    servicer, client = master
    assert client.register(Registration()).master_generation == 2
    client.model_ready(ModelInfo())
    assert client.lease(LeaseRequest(want=1)).finished
    assert client.worker_sync(WorkerHeartbeat()).revision == 1
    assert client.ps_sync(PsHeartbeat()).revision == 1
    assert servicer.seen == [REPLICA] * 5
    assert client.replica == REPLICA
    assert client.status() == "{}"
    client.stop("enough")


@pytest.mark.parametrize(
    "error",
    [
        FencedError("old"),
        NotInitializedError("empty"),
        RefusedError("wrong"),
        RpcError("later"),
    ],
)
def test_errors_cross_the_wire_as_what_they_are(master, error):
    servicer, client = master
    servicer.answer = error
    with pytest.raises(RpcError) as caught:
        client.stop()
    assert type(caught.value) is type(error)
    assert str(error) in str(caught.value)
    assert "stop at master 127.0.0.1" in str(caught.value)


def test_an_error_of_ours_that_is_not_rpc_refuses_the_call(master):
    servicer, client = master
    servicer.answer = PlatformError("no")
    with pytest.raises(RefusedError):
        client.stop()


def test_a_master_that_is_away_is_an_rpc_error():
    client = MasterClient("127.0.0.1:1", REPLICA, token=TOKEN)
    with pytest.raises(RpcError, match="unavailable"):
        client.status()
    client.close()
    with pytest.raises(RpcError):
        client.status()


def of_master(clock, address="127.0.0.1:1"):  # there is none
    return MasterClient(
        address,
        REPLICA,
        token=TOKEN,
        most_silence_seconds=600.0,
        clock=clock,
    )


def test_a_master_that_is_silent_for_too_long_has_left_the_job():
    now = [0.0]
    client = of_master(lambda: now[0])
    for seconds, kind in ((599.0, RpcError), (600.0, FencedError)):
        now[0] = seconds
        with pytest.raises(RpcError) as caught:
            client.status()
        assert type(caught.value) is kind
    assert "no master answered for 600 s" in str(caught.value)
    client.close()


def test_a_replica_that_was_frozen_for_long_does_not_leave_its_job():
    now = [0.0]
    frozen = of_master(RunningClock(lambda: now[0]))
    now[0] = 3600.0  # the call on the way had its deadline meanwhile
    with pytest.raises(RpcError) as caught:
        frozen.status()
    assert type(caught.value) is RpcError
    frozen.close()


def test_each_answer_of_the_master_counts_as_a_sign_of_life(master):
    _, client = master
    now = [0.0]
    patient = of_master(lambda: now[0], client._address)
    for _ in range(3):
        now[0] += 590.0
        assert patient.status() == "{}"
    patient.close()


def test_a_master_whose_answers_wait_for_its_journal_is_not_left(master):
    """Storage may be away for half an hour; heartbeats of a rewind wait for it."""
    servicer, client = master
    now = [0.0]
    waiting = of_master(lambda: now[0], client._address)
    for _ in range(3):
        now[0] += 600.0
        with pytest.raises(RpcError, match="deadline_exceeded") as caught:
            waiting.worker_sync(WorkerHeartbeat(hold_seconds=-4.9))
        assert type(caught.value) is RpcError
    waiting.close()
    servicer.journal.set()


def test_a_port_in_use_is_a_clear_error():
    first = serve([], host="127.0.0.1", port=0, threads=1, token=TOKEN)
    port = int(first.address.rpartition(":")[2])
    with pytest.raises(PlatformError, match="choose another port"):
        serve([], host="127.0.0.1", port=port, threads=1, token=TOKEN)
    first.stop(0)
