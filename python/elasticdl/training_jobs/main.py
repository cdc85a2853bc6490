"""The process of the controller of TrainingJobs: reads its arguments, starts the loop.

Started as `python -m elasticdl.training_jobs.main` in a pod of the platform, or by hand
with a kubeconfig. Decides nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Sequence

from prometheus_client import CollectorRegistry

from elasticdl.client.cluster.api import ClusterClient
from elasticdl.client.cluster.chart import find_chart
from elasticdl.client.cluster.helm import find_helm
from elasticdl.kube import process
from elasticdl.kube.api import ApiServer
from elasticdl.metrics.event_loop import answers
from elasticdl.metrics.server import MetricsServer
from elasticdl.training_jobs.controller import Controller
from elasticdl.training_jobs.rendering import Renderer

log = logging.getLogger("elasticdl.training_jobs.main")

# A chart takes a second, and some more where the node is busy or its disk away. What
# takes longer may never be done, and holds a place meanwhile.
_RENDERING_SECONDS = 60.0


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m elasticdl.training_jobs.main",
        description="Makes of each TrainingJob of a namespace what a release of the "
        "chart makes of a job.",
    )
    parser.add_argument("--namespace", required=True, help="of the TrainingJobs")
    process.add_arguments(parser, listens="address of the probes")
    return parser


async def control(args: argparse.Namespace, api: ApiServer) -> None:
    """Watch and act until a signal comes. Raises ElasticDLError."""
    cluster = ClusterClient(api, "", args.namespace)
    helm = find_helm(os.environ.get("PATH"), limit_seconds=_RENDERING_SECONDS)
    controller = Controller(api, args.namespace, Renderer(helm, find_chart(), cluster))
    loop = asyncio.get_running_loop()
    server = MetricsServer(
        CollectorRegistry(),
        ready=lambda: controller.known,
        healthy=lambda: answers(loop),
        host=args.host,
        port=args.port,
    )
    log.info("TrainingJobs of namespace %s at %s", args.namespace, api.address)
    try:
        await process.until_told(controller.run())
    finally:
        server.close()


def main(arguments: Sequence[str]) -> int:
    """Run the controller; return the exit code."""
    return process.run("training-jobs", make_parser().parse_args(arguments), control)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
