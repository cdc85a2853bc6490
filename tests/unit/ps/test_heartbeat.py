"""A PS answers its master while something else of it takes long."""

import logging
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from elasticdl.job.heartbeats import Registration
from elasticdl.job.tasks import ReplicaId
from elasticdl.proto import master_pb2, master_pb2_grpc
from elasticdl.ps.control import ControlLoop, PsLife
from elasticdl.ps.snapshots import WantedSnapshot
from elasticdl.ps.traffic import Traffic, Usage
from elasticdl.ps.updater import Control
from elasticdl.rpc.master_client import MasterClient
from elasticdl.rpc.server import bind
from elasticdl.testing.scripted import TOKEN

from tests.unit.ps.test_control import Master

# Only a test that fails waits so long.
LIMIT_SECONDS = 60


@pytest.fixture
def loop_of():
    """Makes the control loop of a PS whose master follows a script."""
    servers = []

    def make(server, master: Master) -> ControlLoop:
        rpc = grpc.server(ThreadPoolExecutor(4))
        master_pb2_grpc.add_MasterServicer_to_server(master, rpc)
        port = bind(rpc, "127.0.0.1", 0)
        rpc.start()
        replica = ReplicaId(role="ps", index=0, generation=1)
        client = MasterClient(f"127.0.0.1:{port}", replica, token=TOKEN)
        servers.append((rpc, client))
        return ControlLoop(
            server,
            client,
            Registration(address="127.0.0.1:1"),
            life=PsLife(),
            heartbeat_seconds=0.05,
            keep_versions=True,
            usage=Usage(Traffic(), 0),
        )

    yield make
    for rpc, client in servers:
        client.close()
        rpc.stop(0)


def test_a_ps_that_copies_or_updates_for_long_goes_on_with_its_heartbeats(
    group, threads, loop_of
):
    ps = group(1, sync=False)
    ps.ready()
    server = ps.servers[0]
    told = []

    def script(number, request):
        told.append(request.status)
        reply = master_pb2.PsSyncReply(revision=1, quorum=1, stop=number >= 5)
        # To take a snapshot, the lock is needed as well.
        reply.snapshots.append(master_pb2.SnapshotRequest(id="eval-1"))
        return reply

    loop = loop_of(server, Master(script))
    with server._changed:  # as whoever copies or updates has it
        threads.submit(loop.run).result(LIMIT_SECONDS)
    assert len(told) == 5
    assert all(status.initialized and status.bytes for status in told)


def test_an_order_is_carried_out_and_reported_beside_the_heartbeats(group, loop_of):
    ps = group(1, sync=False)
    ps.ready()

    def script(_number, request):
        held = [done.id for done in request.status.snapshots]
        reply = master_pb2.PsSyncReply(revision=1, stop=held == ["eval-7"])
        reply.snapshots.append(master_pb2.SnapshotRequest(id="eval-7"))
        return reply

    loop_of(ps.servers[0], Master(script)).run()
    assert [done.snapshot for done in ps.servers[0].figures().snapshots] == ["eval-7"]


def test_a_ps_logs_at_the_level_that_an_edit_of_its_job_says(group, loop_of):
    ps = group(1, sync=False)
    ps.ready()
    levels = ["", "error", "error", "debug"]
    log, seen = logging.getLogger("elasticdl"), []
    before = log.level
    log.setLevel(logging.INFO)

    def script(number, _request):
        seen.append(log.level)
        level = levels[number - 1]
        return master_pb2.PsSyncReply(revision=1, stop=number == 4, log_level=level)

    try:
        loop_of(ps.servers[0], Master(script)).run()
        seen.append(log.level)
    finally:
        log.setLevel(before)
    assert seen == [
        *[logging.INFO] * 2, *[logging.ERROR] * 2, logging.DEBUG
    ]  # fmt: skip


def test_an_order_from_before_a_rewind_is_passed_over(group):
    ps = group(1, sync=False)
    ps.ready()
    server = ps.servers[0]
    server.begin(rewind=1, restore_dir=None)
    ps.rewind = 1
    client = ps.client()
    client.initialize(ps.layout, ps.optimizer, ps.initial())
    server.control(Control(), (WantedSnapshot("ckpt-old"),), rewind=0)
    assert not server.figures().snapshots
    server.control(Control(), (WantedSnapshot("ckpt-new"),), rewind=1)
    assert [done.snapshot for done in server.figures().snapshots] == ["ckpt-new"]


def test_what_breaks_while_an_order_is_carried_out_ends_the_loop(group, loop_of):
    ps = group(1, sync=False)
    ps.ready()
    server = ps.servers[0]
    # Only a bug would take it away.
    server._live.updater = None

    def script(_number, _request):
        reply = master_pb2.PsSyncReply(revision=1)
        reply.snapshots.append(master_pb2.SnapshotRequest(id="eval-1"))
        return reply

    try:
        with pytest.raises(AttributeError):
            loop_of(server, Master(script)).run()
    finally:
        server._live = None
