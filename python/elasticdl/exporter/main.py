"""The exporter's process: reads its arguments, watches the cluster, serves figures.

Started as `python -m elasticdl.exporter.main` in a pod of the platform, or by hand with
a kubeconfig. Decides nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import Sequence

from elasticdl.errors import ElasticDLError, ExitCode, SpecError
from elasticdl.exporter.watching import WatchedCluster
from elasticdl.job.chart.monitoring import ExporterValues
from elasticdl.job.context import set_up_logging
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
    parser.add_argument(
        "--kubeconfig", help="of a user; without it the account of this pod is used"
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument(
        "--serving-priority",
        type=int,
        default=ExporterValues().serving_priority,
        help="pods of at least this priority count as serving",
    )
    parser.add_argument(
        "--serving-labels",
        default="",
        metavar="KEY=VALUE,...",
        help="pods with all these labels count as serving too",
    )
    return parser


def labels_of(text: str) -> dict[str, str]:
    """Return labels out of `KEY=VALUE,...`. Raises SpecError."""
    found = {}
    for part in filter(None, text.split(",")):
        key, equals, value = part.partition("=")
        if not (key and equals):
            raise SpecError(
                f"--serving-labels: got {part!r}, expected KEY=VALUE, as tier=serving"
            )
        found[key.strip()] = value.strip()
    return found


async def export(args: argparse.Namespace, api: ApiServer) -> None:
    """Watch and serve until a signal comes. Raises ElasticDLError."""
    serving = Serving(args.serving_priority, labels_of(args.serving_labels))
    cluster = WatchedCluster(api, serving)
    metrics = ClusterMetrics()
    loop = asyncio.get_running_loop()
    watching = asyncio.create_task(cluster.watch(), name="watch")
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, watching.cancel)
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
        with contextlib.suppress(asyncio.CancelledError):
            await watching
    except* ElasticDLError as group:
        raise group.exceptions[0] from None
    finally:
        server.close()


def main(arguments: Sequence[str]) -> int:
    """Run the exporter; return the exit code."""
    set_up_logging("exporter", "info")
    args = make_parser().parse_args(arguments)
    try:
        if args.kubeconfig:
            api = ApiServer.from_kubeconfig(args.kubeconfig)
        else:
            api = ApiServer.in_cluster()
        asyncio.run(export(args, api))
    except ElasticDLError as error:
        log.error("%s", error)
        return error.exit_code
    return ExitCode.OK


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
