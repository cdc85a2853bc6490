"""A PS and its master: the loop, and the whole process's wiring in one test process."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from elasticdl.errors import ExitCode, FencedError, RpcError
from elasticdl.job import names
from elasticdl.job.context import RoleContext
from elasticdl.job.heartbeats import PsView, Registration, RegistrationReply
from elasticdl.job.names import JobDir, Role
from elasticdl.job.spec.job import JobSpec
from elasticdl.job.values.document import ValuesFile
from elasticdl.job.values.file import write_values
from elasticdl.job.words import ExitReason
from elasticdl.proto import master_pb2, master_pb2_grpc, ps_pb2
from elasticdl.ps import main
from elasticdl.ps.control import ControlLoop, PsLife
from elasticdl.ps.figures import report_of
from elasticdl.ps.restore import PsPlace, ShardStore
from elasticdl.ps.server import ParameterServer
from elasticdl.ps.traffic import Traffic, Usage
from elasticdl.ps.updater import Control
from elasticdl.rpc.errors import status_of
from elasticdl.rpc.ps.client import PsClient
from elasticdl.rpc.server import bind
from elasticdl.runner.local.processes import Intent, explain
from elasticdl.testing.scripted import TOKEN

Reply = Callable[[int, master_pb2.PsSyncRequest], master_pb2.PsSyncReply]


class Master(master_pb2_grpc.MasterServicer):
    """Answers heartbeats by a script: a function of their number and content."""

    def __init__(self, script: Reply) -> None:
        self.script = script
        self.beats = 0
        self.registered: list[master_pb2.RegisterRequest] = []
        self.register_error: Exception | None = None
        self.restore_dir = ""
        self.rewind = 0
        self.min_version = 0
        self.problems: list[BaseException] = []

    def Register(self, request, context):
        if self.register_error is not None:
            context.abort(status_of(self.register_error), str(self.register_error))
        self.registered.append(request)
        return master_pb2.RegisterReply(
            master_generation=1,
            ps=master_pb2.PsView(rewind=self.rewind),
            restore_dir=self.restore_dir,
            min_version=self.min_version,
        )

    def PsSync(self, request, context):
        self.beats += 1
        try:
            return self.script(self.beats, request)
        except (FencedError, RpcError) as error:
            context.abort(status_of(error), str(error))
        except AssertionError as error:
            self.problems.append(error)
            return master_pb2.PsSyncReply(stop=True)


@pytest.fixture
def start(tmp_path: Path):
    """Run a PS's wiring against a scripted master; returns its exit code."""
    servers = []

    def run(master: Master, mode: str = "async", index: int = 0) -> int:
        server = grpc.server(ThreadPoolExecutor(4))
        master_pb2_grpc.add_MasterServicer_to_server(master, server)
        port = bind(server, "127.0.0.1", 0)
        server.start()
        servers.append(server)
        context = RoleContext(
            JobDir(tmp_path), Role.PS, index, 5, f"127.0.0.1:{port}", TOKEN
        )
        spec = JobSpec.model_validate(
            {
                "name": "job",
                "model": {"definition": "a.b"},
                "data": {"training": "data"},
                "ps": {
                    "mode": mode,
                    "replicas": 2,
                    "maxStaleness": 3 if mode == "async" else 0,
                    "resources": {"cpu": 2},
                },
                "worker": {"heartbeatSeconds": 0.2},
            }
        )
        handlers = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)}
        try:
            code = main.serve_until_stopped(context, spec)
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
        assert not master.problems
        return code

    yield run
    for server in servers:
        server.stop(0)


def stop_after(beats: int) -> Reply:
    return lambda number, _: master_pb2.PsSyncReply(
        revision=1, quorum=1, stop=number >= beats
    )


@pytest.mark.parametrize(("mode", "index"), [("async", 0), ("sync", 0), ("sync", 1)])
def test_a_ps_registers_reports_and_leaves_when_the_job_is_over(start, mode, index):
    master = Master(stop_after(3))
    assert start(master, mode, index) == ExitCode.OK
    registered = master.registered[0]
    assert registered.replica == master_pb2.Replica(
        role="ps", index=index, generation=5
    )
    assert registered.address.startswith("127.0.0.1:")
    assert registered.pid == os.getpid()
    assert registered.metrics_port > 0


def test_heartbeats_tell_what_a_ps_uses_and_what_went_through_it():
    traffic = Traffic()
    traffic.add(received_bytes=40, calls=1, call_seconds=0.25)
    traffic.add(sent_bytes=24, calls=1, call_seconds=0.5)
    place = PsPlace(0, 1)
    server = ParameterServer(
        place,
        new_updater=lambda *_: None,
        store=ShardStore(place, common_version=False),
    )
    told = report_of(server.figures(), Usage(traffic, 1 << 30))
    assert (told.received_bytes, told.sent_bytes) == (40, 24)
    assert (told.calls, told.call_seconds) == (2, 0.75)
    assert told.memory_limit_bytes == 1 << 30
    assert told.memory_bytes > 0


def test_a_ps_that_was_replaced_ends_as_fenced(start):
    def script(number, _):
        raise FencedError("generation 5 was replaced by 6")

    with pytest.raises(FencedError, match="replaced by 6"):
        start(Master(script))


def test_a_ps_that_was_replaced_before_it_registered_ends_as_fenced(start):
    master = Master(stop_after(1))
    master.register_error = FencedError("old")
    with pytest.raises(FencedError):
        start(master)


def test_a_master_that_was_away_is_told_the_address_again(start):
    def script(number, request):
        if number == 2:
            raise RpcError("restarting")
        return master_pb2.PsSyncReply(revision=9, stop=number >= 4)

    master = Master(script)
    assert start(master) == ExitCode.OK
    assert len(master.registered) == 2


def test_a_rewind_begun_while_the_master_was_away_loads_its_checkpoint(start, tmp_path):
    """Registering again names no checkpoint; the heartbeat that follows does."""
    missing = str(tmp_path / "version-7")

    def script(number, request):
        if number == 2:
            master.rewind = 1
            raise RpcError("restarting")
        reply = master_pb2.PsSyncReply(revision=9)
        if number > 2:
            reply.rewind, reply.restore_dir = 1, missing
        reply.stop = request.status.unloadable == missing
        return reply

    master = Master(script)
    assert start(master, "sync", 1) == ExitCode.OK
    assert len(master.registered) == 2


def test_a_ps_tells_at_once_of_the_version_that_the_master_waits_for(start, sgd, group):
    """The master holds its heartbeat, and many short steps would go by meanwhile."""
    layout_of = group(2, sync=True)
    layout_of.begin()
    told = threading.Event()

    def script(number, request):
        if number == 1:
            return master_pb2.PsSyncReply(revision=1, awaited_version=7)
        if number == 2:
            client = PsClient(worker=0, generation=1, sync=False, token=TOKEN)
            client.set_view(
                PsView(
                    revision=1,
                    addresses=(
                        master.registered[0].address,
                        layout_of.endpoints[1].address,
                    ),
                    generations=(5, layout_of.generations[1]),
                )
            )
            client.initialize(layout_of.layout, sgd(), layout_of.initial())
            client.close()
        if request.status.version >= 7:
            told.set()
            return master_pb2.PsSyncReply(revision=1, stop=True)
        assert told.wait(60.0), "held, as long as there is nothing to tell"
        return master_pb2.PsSyncReply(revision=1)

    master = Master(script)
    master.min_version = 7
    assert start(master) == ExitCode.OK
    assert len(master.registered) == 1  # again, had the heartbeat run into its limit


def test_sigterm_ends_it_at_once(start):
    def script(number, request):
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Event().wait(0.2)
        return master_pb2.PsSyncReply(revision=1)

    assert start(Master(script)) == ExitCode.OK


def test_orders_of_the_master_are_carried_out(start, tmp_path, sgd, group):
    """A worker initializes it; the master asks for snapshots, then for a rewind."""
    layout_of = group(2, sync=True)
    layout_of.begin()
    other = layout_of.endpoints[1]
    directory = tmp_path / "version-0"
    clients = []

    def client(rewind: int) -> PsClient:
        client = PsClient(worker=0, generation=1, sync=False, token=TOKEN)
        client.set_view(
            PsView(
                revision=rewind,
                addresses=(master.registered[0].address, other.address),
                generations=(5, layout_of.generations[1]),
                rewind=rewind,
            )
        )
        clients.append(client)
        return client

    def script(number, request):
        status = request.status
        if number == 1:
            client(0).initialize(layout_of.layout, sgd(), layout_of.initial())
        reply = master_pb2.PsSyncReply(revision=1, quorum=1, rewind=0)
        seen["initialized"] |= status.initialized
        snapshots = {done.id: done for done in status.snapshots}
        if status.rewind == 1:
            assert status.memory_bytes > 0
            reply.stop = True
        elif "ckpt-1" in snapshots and not snapshots["ckpt-1"].pinned_only:
            done = snapshots["ckpt-1"]
            assert done.file == "shard-0-of-2.edl"
            assert done.file_bytes == (directory / done.file).stat().st_size
            assert done.HasField("ticket")
            assert status.initialized
            reply.rewind = 1
        elif number > 1:
            reply.snapshots.append(
                master_pb2.SnapshotRequest(
                    id="ckpt-1", dir=str(directory), ticket=ps_pb2.Ticket(rate_scale=1)
                )
                if "ckpt-1" not in snapshots
                else master_pb2.SnapshotRequest(id="ckpt-1", dir=str(directory))
            )
        return reply

    seen = {"initialized": False}
    master = Master(script)
    assert start(master, "sync") == ExitCode.OK
    assert seen["initialized"]
    for one in clients:
        one.close()


def test_what_cannot_be_restored_reaches_the_master(start, tmp_path):
    def script(number, request):
        told = request.status
        stop = told.unloadable.endswith("version-9") and bool(told.unloadable_reason)
        return master_pb2.PsSyncReply(revision=1, stop=stop)

    master = Master(script)
    master.restore_dir = str(tmp_path / "version-9")
    assert start(master) == ExitCode.OK


def test_metrics_show_the_figures(group):
    from elasticdl.metrics.registry import PsMetrics

    ps = group(1, sync=False)
    ps.ready()
    metrics = PsMetrics()
    main._refresh(metrics, ps.servers[0])
    value = metrics.registry.get_sample_value
    assert value("elasticdl_ps_initialized") == 1
    assert value("elasticdl_ps_parameter_bytes") > 0
    assert Control().quorum == 0


def test_a_role_that_was_started_by_hand_says_so(monkeypatch, capsys):
    monkeypatch.delenv("ELASTICDL_JOB_DIR", raising=False)
    assert main.run() == ExitCode.SPEC
    assert "not by hand" in capsys.readouterr().err


def test_kernels_are_cached_where_it_may_write(monkeypatch):
    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.delitem(os.environ, "NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setattr(os, "access", lambda *_: True)
    main._choose_kernel_cache()
    assert "NUMBA_CACHE_DIR" not in os.environ
    monkeypatch.setattr(os, "access", lambda *_: False)
    main._choose_kernel_cache()
    assert "elasticdl-kernels" in os.environ["NUMBA_CACHE_DIR"]


def process_environ(tmp_path: Path, port: int) -> dict[str, str]:
    job_dir = JobDir(tmp_path)
    write_values(
        job_dir.spec_file,
        ValuesFile.model_validate(
            {
                "kind": "job",
                "job": {
                    "name": "job",
                    "model": {"definition": "a.b"},
                    "data": {"training": "data"},
                },
            }
        ),
    )
    return {
        **os.environ,
        names.ENV_JOB_DIR: str(tmp_path),
        names.ENV_ROLE: "ps",
        names.ENV_INDEX: "0",
        names.ENV_GENERATION: "5",
        names.ENV_MASTER_ADDRESS: f"127.0.0.1:{port}",
        names.ENV_PLATFORM_ADDRESS: "127.0.0.1:1",
        names.ENV_TOKEN: TOKEN,
    }


def test_a_ps_does_not_outlive_a_thread_that_a_bug_ends(start, tmp_path: Path):
    """No folder's name has a zero byte: only a bug would send one."""
    master = Master(stop_after(1_000_000))
    master.restore_dir = "no\0folder"
    server = grpc.server(ThreadPoolExecutor(4))
    master_pb2_grpc.add_MasterServicer_to_server(master, server)
    port = bind(server, "127.0.0.1", 0)
    server.start()
    done = subprocess.run(
        [sys.executable, "-m", "elasticdl.ps.main"],
        env=process_environ(tmp_path, port),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    server.stop(0)
    assert master.registered
    assert done.returncode == ExitCode.JOB_FAILED
    assert explain(done.returncode, Intent.NONE).reason is ExitReason.ERROR
    assert "restore died of a bug" in done.stderr
    assert "Traceback" in done.stderr
    assert "embedded null" in done.stderr


class BrokenClient:
    """A master that answers nothing that can be understood."""

    def register(self, request):
        return RegistrationReply()

    def ps_sync(self, request, _held):
        raise ZeroDivisionError("no such figure")


def test_what_breaks_the_control_loop_ends_the_ps(tmp_path: Path):
    place = PsPlace(0, 1)
    loop = ControlLoop(
        ParameterServer(
            place,
            new_updater=lambda *_: None,
            store=ShardStore(place, common_version=False),
        ),
        BrokenClient(),
        Registration(),
        life=PsLife(),
        heartbeat_seconds=0.2,
        keep_versions=True,
        usage=Usage(Traffic()),
    )
    with pytest.raises(ZeroDivisionError, match="no such figure"):
        loop.run()
