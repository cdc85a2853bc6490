"""The controller's process: reads its arguments, takes the Lease, watches, decides.

Started as `python -m elasticdl.controller.main` in pods of the platform, or by hand
with a kubeconfig. Only wires; decides nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import math
import socket
import sys
import uuid
from collections.abc import Sequence
from dataclasses import replace

from elasticdl.controller.ceilings import with_ceilings
from elasticdl.controller.deciding import Deciding, Pace, Rules
from elasticdl.controller.jobs import Classes
from elasticdl.controller.lease import Leadership, LeaseTimes
from elasticdl.controller.watching import WatchedCluster, Watches
from elasticdl.errors import SpecError
from elasticdl.job.chart.monitoring import ExporterValues
from elasticdl.kube import process
from elasticdl.kube.api import ApiServer
from elasticdl.kube.inventory import Serving
from elasticdl.metrics.event_loop import answers, in_loop
from elasticdl.metrics.registry import ControllerMetrics
from elasticdl.metrics.server import MetricsServer
from elasticdl.planner.plan import plan
from elasticdl.planner.view import Settings

log = logging.getLogger("elasticdl.controller.main")

LEASE = "elasticdl-controller"
_LEAST_STALE = 2.0  # watches are of whole seconds, and shorter than this
_MOST_SECONDS = 86_400.0


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m elasticdl.controller.main",
        description="Decides how many workers each elastic job of a cluster has, and "
        "writes that as an annotation of the job's ConfigMap.",
    )
    process.add_arguments(parser, listens="address to listen on")
    process.add_serving_arguments(parser, priority=ExporterValues().serving_priority)
    parser.add_argument(
        "--namespace", required=True, help="of the Lease, and of this platform's jobs"
    )
    parser.add_argument(
        "--also-in",
        default="",
        metavar="NAMESPACE,...",
        help="namespaces in which jobs are looked for before they have pods",
    )
    parser.add_argument("--lease", default=LEASE, help="name of the Lease")
    parser.add_argument(
        "--priority-class",
        action="append",
        default=[],
        metavar="WORD=NAME[:VALUE]",
        help="the PriorityClass behind `high` or `low`",
    )
    parser.add_argument(
        "--ceilings",
        default="",
        metavar="RESOURCE=SHARE,...",
        help="part of what nodes have that may be held, as cpu=0.97,memory=0.97",
    )
    for name, default, text in (
        ("freeze", Settings.freeze_seconds, "a job that fairness moved is left alone"),
        ("grant", Settings.grant_seconds, "a grant is good for"),
        ("stale", Pace.stale, "age from which a view is too old for a plan"),
        ("rest", Pace.at_rest, "between plans when nothing happens"),
        ("lease", LeaseTimes.lasts, "until another one may take the Lease"),
        ("renew", LeaseTimes.every, "between renewals of the Lease"),
        ("fence", LeaseTimes.fence, "after a renewal in which grants may be written"),
    ):
        parser.add_argument(
            f"--{name}-seconds", type=float, default=default, metavar="S", help=text
        )
    return parser


def settings_of(args: argparse.Namespace) -> Settings:
    """Return the planner's settings. Raises SpecError."""
    _check("--freeze-seconds", args.freeze_seconds, least=0.0, below=math.inf)
    _check("--grant-seconds", args.grant_seconds, least=60.0)
    return replace(
        with_ceilings(Settings(), args.ceilings, "--ceilings"),
        freeze_seconds=args.freeze_seconds,
        grant_seconds=args.grant_seconds,
    )


def pace_of(args: argparse.Namespace) -> Pace:
    """Return when plans are made. Raises SpecError."""
    _check("--stale-seconds", args.stale_seconds, least=_LEAST_STALE)
    _check("--rest-seconds", args.rest_seconds, least=0.1)
    return Pace(at_rest=args.rest_seconds, stale=args.stale_seconds)


def times_of(args: argparse.Namespace) -> LeaseTimes:
    """Return the Lease's times, in the order that it rests on. Raises SpecError."""
    renew, fence, lasts = args.renew_seconds, args.fence_seconds, args.lease_seconds
    _check("--renew-seconds", renew, least=0.1, below=fence)
    _check("--fence-seconds", fence, least=0.1, below=lasts)
    _check("--lease-seconds", lasts, least=1.0)
    return LeaseTimes(lasts, renew, fence)


def _check(
    option: str, seconds: float, *, least: float, below: float = _MOST_SECONDS
) -> None:
    if not least <= seconds < below:
        raise SpecError(
            f"{option}: got {seconds:g}, expected {least:g} seconds or more, and less "
            f"than {below:g}"
        )


def classes_of(said: Sequence[str]) -> Classes:
    """Return the PriorityClasses of `WORD=NAME[:VALUE]`. Raises SpecError."""
    words, values = dict(Classes().names), {}
    for one in said:
        word, _, rest = one.partition("=")
        name, _, value = rest.partition(":")
        whole = not value or value.removeprefix("-").isdecimal()
        if word not in words or not name or not whole:
            raise SpecError(
                f"--priority-class: got {one!r}, expected WORD=NAME or "
                f"WORD=NAME:VALUE, with one of {', '.join(words)}"
            )
        words[word] = name
        if value:
            values[name] = int(value)
    return Classes(words, values)


async def control(args: argparse.Namespace, api: ApiServer) -> None:
    """Watch and decide until a signal comes. Raises ElasticDLError."""
    by = f"{args.namespace}/{args.lease}"
    serving = Serving(
        args.serving_priority,
        process.pairs_of(args.serving_labels, "--serving-labels"),
    )
    also = tuple(filter(None, args.also_in.split(",")))
    watches = Watches(
        serving=serving,
        namespaces=(args.namespace, *also),
        by=by,
        classes=classes_of(args.priority_class),
        stale_seconds=args.stale_seconds,
    )
    cluster = WatchedCluster(api, watches)
    leadership = Leadership(
        api,
        args.namespace,
        args.lease,
        f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}",
        times_of(args),
    )
    metrics = ControllerMetrics()
    deciding = Deciding(
        api,
        cluster,
        leadership,
        Rules(
            plan,
            settings_of(args),
            by,
            pace_of(args),
        ),
        metrics,
    )
    loop = asyncio.get_running_loop()
    server = MetricsServer(
        metrics.registry,
        # One that waits for the Lease is ready to take it.
        ready=lambda: cluster.age is not None,
        healthy=lambda: answers(loop),
        refresh=lambda: in_loop(loop, deciding.update),
        host=args.host,
        port=args.port,
    )
    log.info(
        "controller %s, watching %s, metrics on port %d", by, api.address, server.port
    )
    try:
        await process.until_told(cluster.watch(), leadership.run(), deciding.run())
    finally:
        await leadership.give_back()
        server.close()


def main(arguments: Sequence[str]) -> int:
    """Run the controller; return the exit code."""
    return process.run("controller", make_parser().parse_args(arguments), control)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
