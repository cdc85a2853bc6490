"""The exporter's process: reads its arguments, watches the cluster, serves figures.

Started as `python -m elasticdl.exporter.main` in a pod of the platform, or by hand with
a kubeconfig. Decides nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import Sequence

from elasticdl.exporter.watching import WatchedCluster
from elasticdl.job.chart.monitoring import ExporterValues
from elasticdl.kube import process
from elasticdl.kube.api import ApiServer
from elasticdl.kube.inventory import Serving
from elasticdl.metrics.event_loop import answers, in_loop
from elasticdl.metrics.registry import ClusterMetrics
from elasticdl.metrics.server import MetricsServer

log = logging.getLogger("elasticdl.exporter.main")


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m elasticdl.exporter.main",
        description="Shows what a cluster has for pods and who holds it, as Prometheus "
        "metrics. Only reads.",
    )
    process.add_arguments(parser, listens="address to listen on")
    process.add_serving_arguments(parser, priority=ExporterValues().serving_priority)
    return parser


async def export(args: argparse.Namespace, api: ApiServer) -> None:
    """Watch and serve until a signal comes. Raises ElasticDLError."""
    labels = process.pairs_of(args.serving_labels, "--serving-labels")
    cluster = WatchedCluster(api, Serving(args.serving_priority, labels))
    metrics = ClusterMetrics()
    loop = asyncio.get_running_loop()
    server = MetricsServer(
        metrics.registry,
        ready=lambda: cluster.known,
        healthy=lambda: answers(loop),
        refresh=lambda: in_loop(loop, lambda: cluster.update(metrics)),
        host=args.host,
        port=args.port,
    )
    log.info("watching %s, metrics on port %d", api.address, server.port)
    try:
        await process.until_told(cluster.watch())
    finally:
        server.close()


def main(arguments: Sequence[str]) -> int:
    """Run the exporter; return the exit code."""
    return process.run("exporter", make_parser().parse_args(arguments), export)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
