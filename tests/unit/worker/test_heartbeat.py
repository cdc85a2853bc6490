"""The heartbeat: newest orders, lost leases, a master that is away, fencing."""

import threading

import pytest
from elasticdl.errors import FencedError, RpcError
from elasticdl.job.heartbeats import (
    LocalSnapshot,
    PsView,
    SnapshotDone,
    WorkerOrders,
    WorkerReport,
)
from elasticdl.job.tasks import ReplicaId
from elasticdl.rpc.held_call import LEAST_SECONDS
from elasticdl.worker.heartbeat import Heartbeat

SECONDS = 20.0


class Master:
    """Answers each heartbeat with the next reply, then holds."""

    def __init__(self, replies):
        self.replies = list(replies)
        self.requests = []
        self.used_up = threading.Event()
        self.more = threading.Event()

    def sync(self, request):
        self.requests.append(request)
        if not self.replies:
            self.used_up.set()
            self.more.wait(SECONDS)
            raise RpcError("closed")
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply


def view(revision):
    return PsView(revision=revision, addresses=["h:1"], generations=[1])


@pytest.fixture
def beat():
    made = []

    def make(replies, on_fenced=lambda _: None):
        master = Master(replies)
        one = Heartbeat(
            master.sync,
            ReplicaId(role="worker"),
            status=lambda snapshots: WorkerReport(phase="train", snapshots=snapshots),
            seconds=0.01,
            on_fenced=on_fenced,
            on_reply=lambda _: None,
        )
        made.append((master, one))
        one.start()
        return master, one

    yield make
    for master, one in made:
        one.stop()
        master.more.set()


def test_the_newest_view_wins_whatever_way_it_came(beat):
    master, one = beat([WorkerOrders(revision=1, ps=view(3))])
    assert master.used_up.wait(SECONDS)
    assert one.wait_for_view(2, SECONDS).revision == 3
    one.learn_view(view(2))
    assert one.view.revision == 3
    one.learn_view(view(5))
    assert one.view.revision == 5
    assert one.wait_for_view(5, 0.0).revision == 5


def test_orders_arrive_and_the_seen_revision_goes_back(beat):
    reply = WorkerOrders(revision=7, drain=True, lost_leases=[4], active_workers=3)
    master, one = beat([reply])
    assert master.used_up.wait(SECONDS)
    assert one.drain.is_set()
    assert one.is_lost(4)
    assert not one.is_lost(5)
    assert one.latest.active_workers == 3
    assert master.requests[-1].seen_revision == 7


def test_a_worker_that_told_the_awaited_version_is_not_held_for_long():
    """Only an answer names the next version; many short steps would go by till then."""
    master = Master([WorkerOrders(awaited_version=5)])
    one = Heartbeat(
        master.sync,
        ReplicaId(role="worker"),
        status=lambda _: WorkerReport(model_version=5),
        seconds=20.0,
        on_fenced=lambda _: None,
        on_reply=lambda _: None,
    )
    one.start()
    assert master.used_up.wait(SECONDS)
    one.stop()
    master.more.set()
    assert [r.hold_seconds for r in master.requests] == [20.0, LEAST_SECONDS]


def test_a_master_that_is_away_is_tried_again(beat):
    master, one = beat([RpcError("away"), RpcError("away"), WorkerOrders(revision=1)])
    assert master.used_up.wait(SECONDS)
    assert one.latest.revision == 1


def test_a_fenced_worker_is_told_once(beat):
    told = []
    gone = threading.Event()

    def fenced(why):
        told.append(why)
        gone.set()

    master, _ = beat([FencedError("old")], on_fenced=fenced)
    assert gone.wait(SECONDS)
    assert told == ["old"]
    assert len(master.requests) == 1


def test_news_of_a_local_checkpoint_is_repeated_until_the_request_goes(beat):
    asked = WorkerOrders(local_snapshot=LocalSnapshot(id="ckpt-1", dir="d"))
    _, one = beat([])
    one.tell_snapshot(SnapshotDone(id="ckpt-1", version=3))
    one._take(asked)
    assert [s.id for s in one._snapshots] == ["ckpt-1"]
    one._take(WorkerOrders())
    assert one._snapshots == []
