"""The master's process: reads its surroundings, chooses its platform, exits.

Started as `python -m elasticdl.master.main` by the local platform or a pod. The only
module of the master that reads the environment, and the one place that chooses between
the platforms.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from elasticdl.errors import ElasticDLError, ExitCode
from elasticdl.job.context import RoleContext, hold_lifeline, set_up_logging
from elasticdl.job.names import ENV_PLATFORM, PLATFORM_LOCAL, Role
from elasticdl.job.values.file import load_values
from elasticdl.job.words import JobState
from elasticdl.master.garbage import rare_collections
from elasticdl.master.live_edits import stamp, watch
from elasticdl.master.serving import Start, serve
from elasticdl.runner.local.runner import LocalRunner
from elasticdl.runner.local.targets import TargetsFile
from elasticdl.runner.publisher import Platform

log = logging.getLogger("elasticdl.master.main")

Serve = Callable[[RoleContext], Coroutine[Any, Any, ExitCode]]

# A disk that does not answer keeps the thread that asked it; the others need theirs.
_THREADS = 16
# All has been told then: no thread is worth waiting for any longer. Nobody answers any
# more: a launcher takes a longer time for silence.
_LEAVE_SECONDS = 2.0
_SAY_SECONDS = 0.5


async def serve_here(context: RoleContext) -> ExitCode:
    """Run a job whose replicas are local processes of a launcher."""
    seen = stamp(context.job_dir.spec_file)  # before it is read
    spec = load_values(context.job_dir.spec_file).job
    set_up_logging(context.name, str(spec.log.level), spec.log.file)
    hold_lifeline(context)
    start = Start(
        make_platform=lambda: Platform(
            LocalRunner(context.platform_address, token=context.token),
            TargetsFile(context.job_dir.targets_file, job=spec.name),
        ),
        launched=False,  # the journal knows whether this launch has begun
        launch=context.launch,
        on_signal=lambda master: master.job.end(
            JobState.STOPPED, "asked to stop (signal)", ExitCode.STOPPED
        ),
        edits=watch(context.job_dir.spec_file, seen=seen),
    )
    ending = await serve(context, spec, start)
    return ending.exit_code if ending else ExitCode.HANDED_OVER


async def serve_in_cluster(context: RoleContext) -> ExitCode:
    """Run a job whose replicas are pods; this process is in a pod too."""
    # Imported late: on one machine there need not be a Kubernetes client.
    from elasticdl.kube.api import ApiServer
    from elasticdl.master.pod import serve_in_pod

    return await serve_in_pod(context, ApiServer.in_cluster())


def main(
    environ: Mapping[str, str],
    serve_pod: Serve = serve_in_cluster,
    at_end: Callable[[ExitCode], None] = lambda _: None,
) -> int:
    """Run the master; return the exit code.

    `serve_pod` is for a master that reaches its cluster from outside; `at_end` is
    called when nothing is left but to leave.
    """
    set_up_logging("master-0", "info")

    async def whole() -> ExitCode:
        threads = ThreadPoolExecutor(_THREADS, "master")
        asyncio.get_running_loop().set_default_executor(threads)
        code = await _outcome(environ, serve_pod)
        at_end(code)
        return code

    with rare_collections():
        return asyncio.run(whole())


def leave_in_time(code: ExitCode) -> None:
    """End this process soon, though a thread waits for a disk that does not answer.

    Python waits for every thread of a pool before it ends.
    """

    def say() -> None:
        log.error("a thread still waits for a disk: the master ends without it")

    def leave() -> None:
        time.sleep(_LEAVE_SECONDS)
        # Where the log is on that disk too, this thread would wait as well.
        saying = threading.Thread(target=say, daemon=True)
        saying.start()
        saying.join(_SAY_SECONDS)
        os._exit(code)

    threading.Thread(target=leave, name="leave", daemon=True).start()


async def _outcome(environ: Mapping[str, str], serve_pod: Serve) -> ExitCode:
    try:
        context = RoleContext.from_environ(environ, Role.MASTER)
        return await (serve_pod if context.cluster else serve_here)(context)
    except ElasticDLError as error:
        log.error("%s", error)
        return _told(error.exit_code, environ)
    except Exception as error:
        log.critical("the master crashed", exc_info=error)
        return ExitCode.CRASHED


def _told(code: ExitCode, environ: Mapping[str, str]) -> ExitCode:
    """Return the exit code for a batch Job: never Python's own code for a crash."""
    platform = environ.get(ENV_PLATFORM, "") or PLATFORM_LOCAL
    if code is ExitCode.JOB_FAILED and platform != PLATFORM_LOCAL:
        return ExitCode.POD_JOB_FAILED
    return code


if __name__ == "__main__":
    sys.exit(main(os.environ, at_end=leave_in_time))
