"""`top`: a job, or all of them, live on one screen.

Owns the verb: what is asked how often, keys, and what comes after the screen. What is
shown of a job is `views.top.model`'s, how it looks `views.top.view`'s and
`views.top.jobs`'s.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from typing import TYPE_CHECKING

from elasticdl.cli.options.arguments import (
    Verbs,
    add_jobs_dir,
    add_verb,
    positive_seconds,
)
from elasticdl.cli.options.where import (
    add_cluster_options,
    find_job,
    is_cluster_asked,
    where,
)
from elasticdl.errors import ExitCode

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from elasticdl.cli.top_sources import Shown, Source

_EVERY_SECONDS = 2.0  # As often as the master takes samples.
_REDRAW_SECONDS = 0.25  # Ages and remaining times move on between two looks.
_LEAST_SECONDS = 0.2  # Faster looks would show the same figures.
_QUIT = ("q", "Q", "\x1b")


def add_parser(verbs: Verbs) -> None:
    """Add the verb."""
    parser = add_verb(
        verbs,
        "top",
        handler=top,
        help_text="watch a job, or all jobs, on one screen",
        description="Shows a job on one screen, and goes on until it has ended or q is "
        "pressed: progress\nand ETA, loss, tasks, workers and why they wait, where the "
        "workers' time goes, the\nlast change of who is there and what it cost, "
        "checkpoints, how full machine or\ncluster is, step times with stragglers "
        "(steps over 1.5 times the median), PS with\ntheir load (hot: bytes over 1.5 "
        "times the mean). Without JOB: all jobs in a table.",
        examples=(
            "elasticdl top digits",
            "elasticdl top                     # all jobs of this machine",
            "elasticdl top -A                  # all jobs of the context's cluster",
            "elasticdl top digits -n ml --every 5",
            "elasticdl top digits --once       # print one frame, for scripts",
        ),
    )
    parser.add_argument(
        "job",
        metavar="JOB",
        nargs="?",
        help="name of the job (`elasticdl list`); all jobs without it",
    )
    add_jobs_dir(parser)
    add_cluster_options(parser)
    parser.add_argument(
        "-A",
        "--all-namespaces",
        action="store_true",
        help="without JOB: the jobs of the whole cluster",
    )
    parser.add_argument(
        "--once",
        action="store_true",
        help="print one frame and end; so it is where the output is no terminal",
    )
    parser.add_argument(
        "--every",
        type=positive_seconds(_LEAST_SECONDS),
        default=_EVERY_SECONDS,
        metavar="SECONDS",
        help="look again after so long (default: %(default)g)",
    )


def top(args: argparse.Namespace) -> int:
    from rich.console import Console

    console = Console(highlight=False, markup=False)
    source = _source(args)
    first = source.look()
    if args.once or not console.is_terminal or console.is_dumb_terminal:
        console.print(_frame(console, first, whole=True), crop=False)
        return ExitCode.OK
    last = first if first.over else _watch(console, source, first, args.every)
    if last is not None:
        console.print(last.ending(time.time()), crop=False)
    return ExitCode.OK


def _source(args: argparse.Namespace) -> Source:
    from elasticdl.cli.top_sources import ClusterJobs, LocalJobs, OneJob
    from elasticdl.client import cluster

    if args.job:
        return OneJob(find_job(args))
    if is_cluster_asked(args):
        everywhere = args.all_namespaces
        return ClusterJobs(cluster.connect(where(args)), everywhere=everywhere)
    return LocalJobs(args.jobs_dir)


def _frame(
    console: Console, shown: Shown, *, whole: bool = False, trouble: str = ""
) -> RenderableType:
    from elasticdl.views.top.view import Screen

    height = None if whole else console.height - 1
    screen = Screen(console.width, height)
    return shown.frame(screen, time.time(), trouble)


def _watch(
    console: Console, source: Source, first: Shown, every: float
) -> Shown | None:
    """Show a source until it is over (then return its end) or the user quits."""
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    from elasticdl.views.terminal.keys import Keys
    from elasticdl.views.terminal.looking import Looking

    foot = Text(f"q: end   every {every:g} s", "dim", no_wrap=True)
    with (
        contextlib.suppress(KeyboardInterrupt),
        Looking(source.look, first, every=every) as looking,
        Keys() as keys,
        Live(console=console, screen=True, auto_refresh=False) as live,
    ):
        while not looking.newest.over:
            frame = _frame(console, looking.newest, trouble=looking.trouble)
            live.update(Group(frame, foot), refresh=True)
            if keys.pressed(_REDRAW_SECONDS) in _QUIT:
                return None
        return looking.newest
    return None
