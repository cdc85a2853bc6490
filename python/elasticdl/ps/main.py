"""Wiring of a PS process: reads environment and specification, builds, serves.

Started by a runner as `python -m elasticdl.ps.main`. The only reader of the
environment in `ps`. Decides nothing.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import functools
import logging
import os
import shutil
import signal
import stat
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import psutil

from elasticdl.errors import ElasticDLError, ExitCode, FencedError, exit_code_of
from elasticdl.job.context import RoleContext, hold_lifeline, set_up_logging
from elasticdl.job.heartbeats import Registration
from elasticdl.job.in_force import in_force
from elasticdl.job.names import Role
from elasticdl.job.spec.job import JobSpec, UpdateMode
from elasticdl.job.tasks import ReplicaId
from elasticdl.metrics.memory import container_limit_bytes
from elasticdl.metrics.registry import PsMetrics
from elasticdl.metrics.server import MetricsServer
from elasticdl.rpc.master_client import MasterClient
from elasticdl.rpc.ps import wire as ps_wire
from elasticdl.rpc.server import serve
from elasticdl.rpc.tls.https import secure_metrics
from elasticdl.rpc.tls.identity import identity_of
from elasticdl.running import RunningClock, keep_reading

if TYPE_CHECKING:
    from elasticdl.ps.restore import PsPlace
    from elasticdl.ps.server import ParameterServer
    from elasticdl.ps.updater import NewUpdater

log = logging.getLogger("elasticdl.ps.main")

# Sync: each worker of a version waits in a thread of PS 0 until it is made.
_SYNC_THREADS = 1024


def run() -> int:
    """Run a PS until the master or a signal ends it; return the exit code."""
    try:
        context = RoleContext.from_environ(os.environ, Role.PS)
        spec = in_force(context.job_dir)
        set_up_logging(context.name, spec.log.level, spec.log.file)
        hold_lifeline(context)
        # Where native code crashes the log shows the line that called it.
        faulthandler.enable(all_threads=False)
        set_up_numba()
        threading.excepthook = _die_with_thread
        return serve_until_stopped(context, spec)
    except FencedError as error:
        log.warning("This PS is not needed any more: %s", error)
        return ExitCode.FENCED
    except (ElasticDLError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201 - before logging is set
        return exit_code_of(error)


def serve_until_stopped(context: RoleContext, spec: JobSpec) -> int:
    """Build the parts, register, serve. Raises FencedError when replaced."""
    # Imported late: numba reads where its cache is when it is imported.
    from elasticdl.ps import watchdog
    from elasticdl.ps.control import ControlLoop, PsLife
    from elasticdl.ps.optimizers import kernels
    from elasticdl.ps.parameters import Compute
    from elasticdl.ps.restore import PsPlace, ShardStore
    from elasticdl.ps.server import ParameterServer
    from elasticdl.ps.servicer import PsServicer
    from elasticdl.ps.traffic import Usage

    life = PsLife()
    _stop_on_signals(life.stop)
    identity = identity_of(context, life.stop)
    sync = spec.ps.mode is UpdateMode.SYNC
    place = PsPlace(context.index, spec.ps.replicas)
    metrics = PsMetrics()
    if context.in_pod:
        metrics.memory_limit.set(container_limit_bytes())

    def wrote(seconds: float, written: bool) -> None:
        metrics.checkpoint_seconds.observe(seconds)
        metrics.checkpoint_failures.inc(not written)

    parts = max(1, round(spec.ps.resources.cpu))
    clock = keep_reading(RunningClock())
    server = ParameterServer(
        place,
        new_updater=_updater_of(spec, place),
        store=ShardStore(place, common_version=sync, observe=wrote),
        compute=Compute(
            ThreadPoolExecutor(parts) if parts > 1 else None,
            parts,
            metrics.apply_seconds.observe,
        ),
        clock=clock,
        reached=life.held.reached,
    )
    servicer = PsServicer(server, metrics)
    endpoint = serve(
        # Async, a gradient is applied while its push is answered; sync, it waits.
        [ps_wire.handlers(servicer, keeps=sync)],
        host=context.host,
        port=context.port,
        threads=spec.ps.threads + (_SYNC_THREADS if sync else 0),
        token=context.token,
        identity=identity,
    )
    # Beside registration, so that the PS listens early; what the job's optimizer needs
    # is compiled, this included, before there are parameters.
    threading.Thread(target=kernels.warm_up, name="warm-up").start()
    master = MasterClient(
        context.master_address,
        ReplicaId(
            role=context.role, index=context.index, generation=context.generation
        ),
        token=context.token,
        identity=identity,
        most_silence_seconds=context.most_silence_seconds,
        clock=clock,
    )
    monitor = MetricsServer(
        metrics.registry,
        ready=lambda: life.registered.is_set() and not life.stop.is_set(),
        healthy=lambda: True,
        refresh=functools.partial(_refresh, metrics, server),
        host=context.host,
        port=context.metrics_port,
        secure=secure_metrics(identity, context.metrics_token),
    )
    control = ControlLoop(
        server,
        master,
        Registration(
            address=context.announced(endpoint.port),
            metrics_port=monitor.port,
            pid=os.getpid(),
        ),
        life=life,
        heartbeat_seconds=spec.worker.heartbeat_seconds,
        keep_versions=not sync,
        usage=Usage(servicer.traffic, container_limit_bytes() if context.in_pod else 0),
    )
    threading.Thread(
        target=watchdog.watch, args=(server, life.stop), name="watchdog", daemon=True
    ).start()
    log.info("Serving on %s", endpoint.address)
    try:
        control.run()
    finally:
        server.close()
        endpoint.stop(grace_seconds=0.5)
        master.close()
        monitor.close()
    return ExitCode.OK


def _updater_of(spec: JobSpec, place: PsPlace) -> NewUpdater:
    """Return the updater for the job: the one place where async and sync differ."""
    # Imported late: see serve_until_stopped.
    from elasticdl.ps.async_updater import AsyncUpdater
    from elasticdl.ps.sync_updater import SyncFollower, SyncUpdater

    if spec.ps.mode is UpdateMode.ASYNC:
        bound = spec.ps.max_staleness if place.index == 0 else 0
        return lambda parameters, _changed, _pin, control: AsyncUpdater(
            parameters,
            control=control,
            staleness_modulation=spec.ps.staleness_modulation,
            max_staleness=bound,
            leads_state=spec.worker.pull_steps == 1,
        )
    if place.index == 0:
        return lambda parameters, changed, _pin, control: SyncUpdater(
            parameters, changed, control=control
        )
    return lambda parameters, _changed, pin, _control: SyncFollower(parameters, pin=pin)


def _refresh(metrics: PsMetrics, server: ParameterServer) -> None:
    figures = server.figures()
    metrics.initialized.set(figures.initialized)
    metrics.version.set(figures.version)
    metrics.parameter_bytes.set(figures.nbytes)
    metrics.embedding_rows.set_by(figures.embedding_rows)
    metrics.memory.set(psutil.Process().memory_info().rss)
    metrics.snapshots.set(len(figures.snapshots))


def _die_with_thread(died: threading.ExceptHookArgs) -> None:
    """End the process, since it would look alive without this thread."""
    name = died.thread.name if died.thread else "a thread"
    error = died.exc_value or died.exc_type()
    log.critical("%s died of a bug", name, exc_info=error)
    logging.shutdown()
    os._exit(ExitCode.JOB_FAILED)


def _stop_on_signals(stop: threading.Event) -> None:
    def on_signal(number: int, _frame: FrameType | None) -> None:
        log.info("Got %s, leaving", signal.Signals(number).name)
        stop.set()

    signal.signal(signal.SIGTERM, on_signal)
    # Ctrl-C reaches the whole foreground group; the launcher decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def set_up_numba() -> None:
    """Import numba, with a cache that is our own and no settings of the current folder.

    It takes settings from a `.numba_config.yaml` there, the cache's folder among them,
    whose files are code; on a claim workers of all jobs can write it. It reads that
    file as long as it finds PyYAML, which nothing else in a PS needs.
    """
    _choose_kernel_cache()
    known = sys.modules.get("yaml")
    sys.modules["yaml"] = None  # type: ignore[assignment]  # "not to be found"
    try:
        import numba  # noqa: F401
    finally:
        del sys.modules["yaml"]
        if known is not None:
            sys.modules["yaml"] = known


def _choose_kernel_cache() -> None:
    """Give numba a writable folder for compiled kernels, if the package's is not.

    It begins with those that an image was built with: numba uses no cache that it
    cannot write.
    """
    package = Path(__file__).parent
    if "NUMBA_CACHE_DIR" in os.environ or os.access(package, os.W_OK):
        return
    user = os.getuid()
    folder = Path(tempfile.gettempdir()) / f"elasticdl-kernels-{user}"
    os.environ["NUMBA_CACHE_DIR"] = str(
        own_folder(folder, filled_from=Path(sys.prefix) / "kernels", user=user)
    )


def own_folder(folder: Path, *, filled_from: Path, user: int) -> Path:
    """Return `folder`, made and filled if missing; another one if not one's own.

    Whoever can write compiled kernels there can run code in this process. So a folder
    that somebody else made, or can write, is left alone: a new one takes its place,
    which is removed when this process ends.
    """
    if not (folder.exists() or folder.is_symlink()):
        # Complete before it has its name: two PS may start at the same time.
        made = Path(tempfile.mkdtemp(prefix=f"{folder.name}-", dir=folder.parent))
        if filled_from.is_dir():
            shutil.copytree(filled_from, made, dirs_exist_ok=True)
            made.chmod(stat.S_IRWXU)
        with contextlib.suppress(OSError):
            made.rename(folder)
            return folder
        shutil.rmtree(made)  # the other one was first
    found = folder.lstat()
    others = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if stat.S_ISDIR(found.st_mode) and found.st_uid == user and not others:
        return folder
    mine = Path(tempfile.mkdtemp(prefix=f"{folder.name}-", dir=folder.parent))
    atexit.register(shutil.rmtree, mine, ignore_errors=True)
    log.warning(
        "%s was made by somebody else, or others can write it; kernels are compiled "
        "into %s instead. Remove it, or set NUMBA_CACHE_DIR",
        folder,
        mine,
    )
    return mine


if __name__ == "__main__":
    sys.exit(run())
