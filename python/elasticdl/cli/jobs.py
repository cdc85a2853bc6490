"""`list`, `status`, `logs`, `stop`: what runs here, and its end.

Owns these verbs' arguments and output. Must not know how a job is reached: that is
`client`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

from elasticdl.cli.arguments import (
    Verbs,
    add_job,
    add_jobs_dir,
    add_replica,
    add_verb,
    whole_number,
)
from elasticdl.errors import ExitCode

if TYPE_CHECKING:
    from elasticdl.client import JobHandle, JobView

_WATCH_SECONDS = 0.5


def add_parser(verbs: Verbs) -> None:
    """Add the verbs that look at jobs and stop them."""
    parser = add_verb(
        verbs,
        "list",
        handler=list_jobs,
        help_text="list the jobs of this machine",
        examples=("elasticdl list", "elasticdl list --all"),
    )
    parser.add_argument(
        "--all", action="store_true", help="also finished ones moved aside (NAME~1)"
    )
    add_jobs_dir(parser)
    parser = add_verb(
        verbs,
        "status",
        handler=status,
        help_text="show a job: progress, roles, relaunches with their reasons",
        examples=(
            "elasticdl status digits",
            "elasticdl status digits --watch",
            "elasticdl status digits --json    # also every metrics port",
        ),
    )
    add_job(parser)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", help="print it as JSON")
    how.add_argument("--watch", action="store_true", help="keep showing it to its end")
    parser = add_verb(
        verbs,
        "logs",
        handler=logs,
        help_text="print the log of one replica",
        examples=("elasticdl logs digits master", "elasticdl logs digits worker-0 -f"),
    )
    add_job(parser)
    add_replica(parser)
    parser.add_argument(
        "-f", "--follow", action="store_true", help="go on until the job has ended"
    )
    parser.add_argument(
        "--tail",
        type=whole_number,
        metavar="N",
        help="only the last N lines (default: all)",
    )
    parser = add_verb(
        verbs,
        "stop",
        handler=stop,
        help_text="stop a job cleanly: tasks handed back, checkpoint written",
        examples=("elasticdl stop digits",),
    )
    add_job(parser)
    parser.add_argument(
        "--no-wait", action="store_true", help="do not wait until it has ended"
    )


def list_jobs(args: argparse.Namespace) -> int:
    from rich.console import Console

    from elasticdl import client
    from elasticdl.cli.views import jobs_table

    handles = client.list_jobs(args.jobs_dir, aside=args.all)
    if not handles:
        print(f"no jobs in {args.jobs_dir}; start one with `elasticdl train -f FILE`")
        return ExitCode.OK
    views = [handle.view() for handle in handles]
    Console(highlight=False, markup=False).print(jobs_table(views, now=time.time()))
    return ExitCode.OK


def status(args: argparse.Namespace) -> int:
    from rich.console import Console

    from elasticdl import client
    from elasticdl.cli.views import last_words, status_view

    job = client.find(args.job, args.jobs_dir)
    if args.watch:
        return _watch(job)
    view = job.view()
    if args.json:
        print(json.dumps(_document(view), indent=2))
        return ExitCode.OK
    console = Console(highlight=False, markup=False)
    console.print(status_view(view, now=time.time()), crop=False)
    if view.report is not None:
        line = f"job {view.name} {last_words(view.report)}"
        console.print(line, soft_wrap=True)
    return ExitCode.OK


def _document(view: JobView) -> dict[str, object]:
    document = asdict(view)
    for part in ("status", "report"):
        value = getattr(view, part)
        document[part] = None if value is None else value.model_dump(mode="json")
    return document


def _watch(job: JobHandle) -> int:
    from rich.console import Console
    from rich.live import Live

    from elasticdl.cli.live import LineView
    from elasticdl.cli.views import last_words, status_view
    from elasticdl.client import Condition

    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        lines = LineView(console)
        while (view := job.view()).condition is Condition.RUNNING:
            lines.update(view.status, [view.note] if view.note else [])
            time.sleep(_WATCH_SECONDS)
    else:
        with Live(console=console, refresh_per_second=4, transient=True) as live:
            while (view := job.view()).condition is Condition.RUNNING:
                live.update(status_view(view, now=time.time()))
                time.sleep(_WATCH_SECONDS)
    console.print(status_view(view, now=time.time()), crop=False)
    if view.report is not None:
        line = f"job {view.name} {last_words(view.report)}"
        console.print(line, soft_wrap=True)
    return ExitCode.OK


def logs(args: argparse.Namespace) -> int:
    from elasticdl import client

    job = client.find(args.job, args.jobs_dir)
    for line in job.logs(args.replica, tail=args.tail, follow=args.follow):
        print(line, flush=args.follow)
    return ExitCode.OK


def stop(args: argparse.Namespace) -> int:
    from elasticdl import client

    job = client.find(args.job, args.jobs_dir)
    job.stop()
    if args.no_wait:
        print(f"job {job.name} is stopping")
        return ExitCode.OK
    print(f"job {job.name} is stopping ...", file=sys.stderr)
    report = job.wait()
    state = report.status if report else "ended without a report"
    print(f"job {job.name}: {state}; `elasticdl train` goes on where it was")
    return ExitCode.OK
