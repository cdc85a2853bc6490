"""A heartbeat that the master holds ends early when there is something to tell."""

import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from elasticdl.errors import FencedError
from elasticdl.job.heartbeats import PsHeartbeat, WorkerHeartbeat
from elasticdl.job.tasks import ReplicaId
from elasticdl.proto import master_pb2, master_pb2_grpc
from elasticdl.rpc.held_call import LEAST_SECONDS, HeldCall
from elasticdl.rpc.master_client import MasterClient
from elasticdl.rpc.server import bind
from elasticdl.testing.scripted import TOKEN

SECONDS = 60.0


class Master(master_pb2_grpc.MasterServicer):
    """Holds every heartbeat until it is let go or withdrawn; notes which came."""

    def __init__(self) -> None:
        self.address = ""
        self.came = threading.Semaphore(0)
        self.free = threading.Event()

    def _hold(self, context):
        self.came.release()
        ended = threading.Event()
        context.add_callback(ended.set)
        while not (self.free.wait(0.01) or ended.is_set()):
            pass

    def WorkerSync(self, request, context):
        self._hold(context)
        return master_pb2.WorkerSyncReply(revision=1)

    def PsSync(self, request, context):
        self._hold(context)
        return master_pb2.PsSyncReply(revision=1)


@pytest.fixture
def master():
    servicer = Master()
    server = grpc.server(ThreadPoolExecutor(4))
    master_pb2_grpc.add_MasterServicer_to_server(servicer, server)
    port = bind(server, "127.0.0.1", 0)
    server.start()
    servicer.address = f"127.0.0.1:{port}"
    yield servicer
    servicer.free.set()
    server.stop(0).wait()


@pytest.fixture
def client(master):
    made = MasterClient(master.address, ReplicaId(role="ps"), token=TOKEN)
    yield made
    made.close()


@pytest.fixture
def pool():
    with ThreadPoolExecutor(1) as made:
        yield made


@pytest.mark.parametrize("of_worker", [True, False])
def test_the_awaited_version_ends_it(master, client, pool, of_worker):
    held = HeldCall()
    held.awaits(100)
    held.begins()
    held.tells(90)
    if of_worker:
        beat = pool.submit(client.worker_sync, WorkerHeartbeat(hold_seconds=90), held)
    else:
        beat = pool.submit(client.ps_sync, PsHeartbeat(hold_seconds=90), held)
    assert master.came.acquire(timeout=SECONDS)
    held.reached(99)
    assert not beat.done()
    held.reached(100)
    assert beat.result(SECONDS) is None


def test_what_was_told_ends_no_other_heartbeat(master, client, pool):
    """Else a master that does not name the next version would be called in a circle."""
    held = HeldCall()
    held.awaits(100)
    held.begins()
    held.tells(100)
    beat = pool.submit(client.ps_sync, PsHeartbeat(hold_seconds=90), held)
    assert master.came.acquire(timeout=SECONDS)
    held.reached(101)
    assert not beat.done()
    master.free.set()
    assert beat.result(SECONDS).revision == 1


def test_who_told_the_awaited_version_hears_soon_of_the_next_one():
    """Nothing else may come of it: a round of evaluation is under way already."""
    held = HeldCall()
    held.awaits(100)
    held.tells(99)
    assert held.hold_seconds(20.0) == 20.0
    held.tells(100)
    assert held.hold_seconds(20.0) == LEAST_SECONDS
    assert held.hold_seconds(0.01) == 0.01
    held.awaits(200)
    assert held.hold_seconds(20.0) == 20.0
    held.awaits(0)
    assert held.hold_seconds(20.0) == 20.0


def test_news_between_two_heartbeats_is_not_forgotten(master, client):
    held = HeldCall()
    held.awaits(100)
    held.begins()
    held.reached(100)  # after the figures were read, before the call was made
    held.tells(99)
    assert client.ps_sync(PsHeartbeat(hold_seconds=90), held) is None


def test_a_withdrawn_heartbeat_is_no_answer_of_the_master(master, client):
    """Who hears of no master for too long leaves, whatever it has to tell."""
    now = [0.0]
    lonely = MasterClient(
        master.address,
        ReplicaId(role="ps"),
        token=TOKEN,
        most_silence_seconds=10.0,
        clock=lambda: now[0],
    )
    held = HeldCall()
    held.begins()
    held.withdraw()
    now[0] = 11.0
    assert lonely.ps_sync(PsHeartbeat(hold_seconds=90), held) is None
    held.begins()
    with pytest.raises(FencedError, match="no master answered"):
        lonely.ps_sync(PsHeartbeat(hold_seconds=-4.9), held)
    lonely.close()
