"""The master's process: reads its surroundings, wires the parts, serves, exits.

Owns nothing but the wiring. Started as `python -m elasticdl.master.main` by the local
platform or a pod. The only module of the master that reads the environment, and the
one place that chooses between the platforms.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from elasticdl.errors import ElasticDLError, ExitCode
from elasticdl.job.context import RoleContext, hold_lifeline, set_up_logging
from elasticdl.job.names import Role
from elasticdl.job.spec import JobSpec
from elasticdl.job.status import JobState
from elasticdl.job.values import load_values
from elasticdl.master.assembly import Master, assemble, steady_clock
from elasticdl.master.job_state import Ending
from elasticdl.master.ledger import Ledger
from elasticdl.metrics.registry import MasterMetrics
from elasticdl.metrics.server import MetricsServer
from elasticdl.proto import master_pb2_grpc
from elasticdl.rpc.server import aio_server, bind
from elasticdl.runner.local import LocalRunner
from elasticdl.runner.publisher import Platform

log = logging.getLogger("elasticdl.master.main")

# What the event loop may take to answer before the master counts as hung.
_PULSE_SECONDS = 5.0


@dataclass(frozen=True)
class Start:
    """What the platforms differ in."""

    make_platform: Callable[[], Platform]
    launched: bool  # somebody has just begun the job, or begun it anew
    on_signal: Callable[[Master], None]  # the first one; the second ends at once


async def serve(context: RoleContext, spec: JobSpec, start: Start) -> Ending | None:
    """Run the job of `context`; return how it ended, None if it was handed over.

    Raises ElasticDLError.
    """
    server = aio_server(context.token)
    port = bind(server, context.host, context.port)
    clock = steady_clock()
    figures = MasterMetrics()
    ledger = Ledger.open(
        context.job_dir.journal_dir,
        now=clock(),
        wait_seconds=spec.master.journal_wait_seconds,
        on_commit=figures.journal_seconds.observe,
    )
    master = assemble(
        spec,
        context.job_dir,
        ledger,
        start.make_platform,
        clock=clock,
        metrics=figures,
        launched=start.launched,
    )
    await ledger.commit()
    _call_on_signals(lambda: start.on_signal(master))
    master_pb2_grpc.add_MasterServicer_to_server(master.servicer, server)
    loop = asyncio.get_running_loop()
    metrics = MetricsServer(
        figures.registry,
        ready=lambda: not master.job.state.ended,
        healthy=lambda: _answers(loop),
        host=context.host,
        port=context.metrics_port,
    )
    master.job.metrics_port = metrics.port
    await server.start()
    log.info(
        "master generation %d of job %s at %s, metrics on port %d",
        ledger.generation,
        spec.name,
        context.announced(port),
        metrics.port,
    )
    ending = await master.run()
    await server.stop(grace=1.0)
    metrics.close()
    ledger.close()
    return ending


def _answers(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether the event loop turns; called from the thread of the metrics server."""
    turned = threading.Event()
    try:
        loop.call_soon_threadsafe(turned.set)
    except RuntimeError:  # it is closed
        return False
    return turned.wait(_PULSE_SECONDS)


def _call_on_signals(first: Callable[[], None]) -> None:
    """Call on the first signal; the second one ends the process at once."""
    loop = asyncio.get_running_loop()
    seen = 0

    def on_signal() -> None:
        nonlocal seen
        seen += 1
        if seen > 1:
            os._exit(ExitCode.STOPPED)
        first()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)


async def serve_here(context: RoleContext) -> ExitCode:
    """Run a job whose replicas are processes of a launcher."""
    spec = load_values(context.job_dir.spec_file).job
    set_up_logging(context.name, str(spec.log.level))
    hold_lifeline(context)
    start = Start(
        make_platform=lambda: Platform(
            LocalRunner(context.platform_address, token=context.token)
        ),
        # The launcher counts from 1 each time; elsewhere nobody launches by hand.
        launched=context.lifeline_fd is not None and context.generation == 1,
        on_signal=lambda master: master.job.end(
            JobState.STOPPED, "asked to stop (signal)", ExitCode.STOPPED
        ),
    )
    ending = await serve(context, spec, start)
    return ending.exit_code if ending else ExitCode.HANDED_OVER


def main(environ: Mapping[str, str]) -> int:
    """Run the master; return the exit code."""
    set_up_logging("master-0", "info")
    try:
        context = RoleContext.from_environ(environ, Role.MASTER)
        return asyncio.run(serve_here(context))
    except ElasticDLError as error:
        log.error("%s", error)
        return error.exit_code
    except Exception as error:
        log.critical("the master crashed", exc_info=error)
        return ExitCode.CRASHED


if __name__ == "__main__":
    sys.exit(main(os.environ))
