"""The process of the controller of TrainingJobs: reads its arguments, starts the loop.

Started as `python -m elasticdl.training_jobs.main` in a pod of the platform, or by hand
with a kubeconfig. Decides nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Sequence

from prometheus_client import CollectorRegistry

from elasticdl.client.cluster.api import ClusterClient
from elasticdl.client.cluster.chart import find_chart
from elasticdl.client.cluster.helm import find_helm
from elasticdl.errors import ElasticDLError, ExitCode
from elasticdl.job.context import set_up_logging
from elasticdl.kube.api import ApiServer
from elasticdl.metrics.event_loop import answers
from elasticdl.metrics.server import MetricsServer
from elasticdl.training_jobs.controller import Controller
from elasticdl.training_jobs.rendering import Renderer

log = logging.getLogger("elasticdl.training_jobs.main")


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m elasticdl.training_jobs.main",
        description="Makes of each TrainingJob of a namespace what a release of the "
        "chart makes of a job.",
    )
    parser.add_argument("--namespace", required=True, help="of the TrainingJobs")
    parser.add_argument(
        "--kubeconfig", help="of a user; without it the account of this pod is used"
    )
    parser.add_argument("--host", default="127.0.0.1", help="address of the probes")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    return parser


async def control(args: argparse.Namespace, api: ApiServer) -> None:
    """Watch and act until a signal comes. Raises ElasticDLError."""
    cluster = ClusterClient(api, "", args.namespace)
    helm = find_helm(os.environ.get("PATH"))
    controller = Controller(api, args.namespace, Renderer(helm, find_chart(), cluster))
    loop = asyncio.get_running_loop()
    acting = asyncio.create_task(controller.run(), name="controller")
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, acting.cancel)
    server = MetricsServer(
        CollectorRegistry(),
        ready=lambda: controller.known,
        healthy=lambda: answers(loop),
        host=args.host,
        port=args.port,
    )
    log.info("TrainingJobs of namespace %s at %s", args.namespace, api.address)
    try:
        with contextlib.suppress(asyncio.CancelledError):
            await acting
    except* ElasticDLError as group:
        raise _first(group) from None
    finally:
        server.close()


def _first(group: BaseExceptionGroup[ElasticDLError]) -> ElasticDLError:
    """Return one error of a group, however deep."""
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


def main(arguments: Sequence[str]) -> int:
    """Run the controller; return the exit code."""
    set_up_logging("training-jobs", "info")
    args = make_parser().parse_args(arguments)
    try:
        if args.kubeconfig:
            api = ApiServer.from_kubeconfig(args.kubeconfig)
        else:
            api = ApiServer.in_cluster()
        asyncio.run(control(args, api))
    except ElasticDLError as error:
        log.error("%s", error)
        return error.exit_code
    return ExitCode.OK


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
