"""The master's process: reads its surroundings, wires the parts, serves, exits.

Owns nothing but the wiring. Started as `python -m elasticdl.master.main` by the local
platform or a pod. The only module of the master that reads the environment.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping

from elasticdl.errors import ElasticDLError, ExitCode
from elasticdl.job.context import RoleContext, hold_lifeline, set_up_logging
from elasticdl.job.spec import JobSpec
from elasticdl.job.status import JobState
from elasticdl.job.values import load_values
from elasticdl.master.assembly import assemble, steady_clock
from elasticdl.master.ledger import Ledger
from elasticdl.metrics.registry import MasterMetrics
from elasticdl.metrics.server import MetricsServer
from elasticdl.proto import master_pb2_grpc
from elasticdl.rpc.server import aio_server, bind
from elasticdl.runner.local import LocalRunner

log = logging.getLogger("elasticdl.master.main")


async def serve(context: RoleContext, spec: JobSpec) -> ExitCode:
    """Run the job of `context`; return the exit code. Raises ElasticDLError."""
    host, _, port = context.master_address.rpartition(":")
    server = aio_server()
    bind(server, host, int(port))
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
        lambda: LocalRunner(context.platform_address),
        clock=clock,
        metrics=figures,
        # The launcher counts from 1 each time; elsewhere nobody launches by hand.
        launched=context.lifeline_fd is not None and context.generation == 1,
    )
    await ledger.commit()
    _end_on_signals(master.job.end)
    master_pb2_grpc.add_MasterServicer_to_server(master.servicer, server)
    metrics = MetricsServer(
        figures.registry,
        ready=lambda: not master.job.state.ended,
        healthy=lambda: True,
    )
    master.job.metrics_port = metrics.port
    await server.start()
    log.info(
        "master generation %d of job %s at %s, metrics on port %d",
        ledger.generation,
        spec.name,
        context.master_address,
        metrics.port,
    )
    ending = await master.run()
    await server.stop(grace=1.0)
    metrics.close()
    ledger.close()
    return ending.exit_code


def _end_on_signals(end: Callable[[JobState, str, ExitCode], None]) -> None:
    """The first signal ends the job in good order, the second one at once."""
    loop = asyncio.get_running_loop()
    seen = 0

    def on_signal() -> None:
        nonlocal seen
        seen += 1
        if seen > 1:
            os._exit(ExitCode.STOPPED)
        end(JobState.STOPPED, "asked to stop (signal)", ExitCode.STOPPED)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)


def main(environ: Mapping[str, str]) -> int:
    """Run the master; return the exit code."""
    set_up_logging("master-0", "info")
    try:
        context = RoleContext.from_environ(environ)
        spec = load_values(context.job_dir.spec_file).job
        set_up_logging(context.name, str(spec.log.level))
        hold_lifeline(context)
        return asyncio.run(serve(context, spec))
    except ElasticDLError as error:
        log.error("%s", error)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main(os.environ))
