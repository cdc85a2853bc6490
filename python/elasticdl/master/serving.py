"""A master that serves: port, journal, parts, figures, from the first call to the last.

Owns the order in which they begin and end. Called by `master.main` and `master.pod`,
which say what is different where they run. Decides nothing.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from elasticdl.errors import FINAL_EXITS, ElasticDLError, ExitCode, SpecError
from elasticdl.job.context import RoleContext
from elasticdl.job.spec.job import JobSpec
from elasticdl.job.words import JobState
from elasticdl.master.assembly import assemble
from elasticdl.master.job_state import JobEnding
from elasticdl.master.master import Master
from elasticdl.master.patience import patiently
from elasticdl.master.tasks import facts
from elasticdl.master.tasks.ledger import Ledger
from elasticdl.master.telling import on_end
from elasticdl.metrics.event_loop import answers, in_loop
from elasticdl.metrics.registry import MasterMetrics
from elasticdl.metrics.server import MetricsServer
from elasticdl.rpc.master_service import add_enrolment, add_master
from elasticdl.rpc.own_calls import own_calls
from elasticdl.rpc.server import aio_server, bind
from elasticdl.rpc.tls.https import secure_metrics
from elasticdl.runner.publisher import Platform
from elasticdl.running import RunningClock

if TYPE_CHECKING:
    from elasticdl.master.calls.enrolling import JobAuthority

log = logging.getLogger(__name__)

GRACE_SECONDS = 1.0  # for calls that are under way when all is done


@dataclass(frozen=True)
class Start:
    """The start of a master, as far as platforms differ."""

    make_platform: Callable[[], Platform]
    # Somebody has just begun the job, or begun it anew: that is known, or told by a
    # name of the launch that the journal does not have yet.
    launched: bool
    on_signal: Callable[[Master], None]  # the first one; the second ends at once
    edits: AsyncIterator[JobSpec | SpecError] | None  # of a file that users edit
    attend: Callable[[Master], None] = lambda _: None  # before the first call
    authority: JobAuthority | None = None  # None: calls are not encrypted
    launch: str = ""


async def serve(context: RoleContext, spec: JobSpec, start: Start) -> JobEnding | None:
    """Run the job of `context`; return its end, None if it was handed over.

    Raises ElasticDLError.
    """
    try:
        return await _serve(context, spec, start)
    except ElasticDLError as error:
        if error.exit_code in FINAL_EXITS:  # nobody tries again
            end = on_end.End(
                spec.name,
                context.namespace,
                JobState.FAILED,
                str(error),
                context.job_dir.report_file,
                environ=context.environ,
            )
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(None, on_end.tell, spec.on_end, end)
        raise


async def _serve(context: RoleContext, spec: JobSpec, start: Start) -> JobEnding | None:
    authority = start.authority
    identity = authority.identity if authority else None
    server = aio_server(context.token, identity)
    port = bind(server, context.host, context.port, identity)
    clock = RunningClock()
    figures = MasterMetrics()
    patience = spec.master.journal_wait_seconds
    ledger = patiently(
        lambda: Ledger.open(
            context.job_dir.journal_dir,
            now=clock(),
            wait_seconds=patience,
            on_commit=figures.journal_seconds.observe,
            clock=clock,
        ),
        seconds=patience,
    )
    master = assemble(
        spec,
        context.job_dir,
        ledger,
        start.make_platform,
        clock=clock,
        metrics=figures,
        launched=start.launched or _begins(ledger, start.launch),
    )
    master.job.leaves_out(lambda: clock.stopped, unix=clock.unix)
    if start.launch:
        # In one write with all of the beginning.
        ledger.record(facts.LaunchFact(of=start.launch))
    await ledger.commit()
    _call_on_signals(lambda: start.on_signal(master))
    patiently(lambda: start.attend(master), seconds=patience)
    add_master(master.servicer, server)
    if authority is not None:
        # Imported late: on one machine nobody needs its libraries.
        from elasticdl.master.calls.enrolling import Enrolling

        authority.identity.keep_young()
        enrolling = Enrolling(authority, master.job.parts.table.require)
        add_enrolment(enrolling, server)
    loop = asyncio.get_running_loop()
    metrics = MetricsServer(
        figures.registry,
        ready=lambda: not master.job.state.ended,
        healthy=lambda: answers(loop),
        refresh=lambda: in_loop(loop, lambda: master.gauges.update(now=clock())),
        host=context.host,
        port=context.metrics_port,
        secure=secure_metrics(identity, context.metrics_token),
    )
    master.job.serves_metrics(metrics.port)
    await server.start()
    log.info(
        "master generation %d of job %s at %s, metrics on port %d",
        ledger.generation,
        spec.name,
        context.announced(port),
        metrics.port,
    )
    itself = context.announced(port)
    async with own_calls(itself, context.token, identity) as call_itself:
        ending = await master.run(call_itself, edits=start.edits)
    if ending is not None:
        await on_end.tell_once(
            master.job, ending, namespace=context.namespace, environ=context.environ
        )
    await server.stop(grace=GRACE_SECONDS)
    if identity is not None:
        identity.close()
    metrics.close()
    ledger.close()
    return ending


def _begins(ledger: Ledger, launch: str) -> bool:
    """Whether a launch's name is new to the journal.

    Its first masters may have died before they wrote a word: they began nothing.
    """
    known = ledger.newest_of(facts.LaunchFact)
    return bool(launch) and (known is None or known.of != launch)


def _call_on_signals(first: Callable[[], None]) -> None:
    """Call `first` on the first signal; the second signal ends the process at once."""
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
