"""`list`, `status`, `logs`, `stop`: what runs, here or in a cluster, and its end.

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

from elasticdl.cli.options.arguments import (
    Verbs,
    add_jobs_dir,
    add_replica,
    add_verb,
    whole_number,
)
from elasticdl.cli.options.where import (
    add_any_job,
    add_cluster_options,
    find_job,
    is_cluster_asked,
    where,
)
from elasticdl.errors import ExitCode, JobError

if TYPE_CHECKING:
    from elasticdl.client import JobHandle, JobView
    from elasticdl.client.cluster import ClusterJob

_WATCH_SECONDS = 0.5  # A change of the status is seen at once.


def add_parser(verbs: Verbs) -> None:
    """Add the verbs that look at jobs and stop them."""
    parser = add_verb(
        verbs,
        "list",
        handler=list_jobs,
        help_text="list the jobs of this machine, or of a cluster",
        examples=(
            "elasticdl list",
            "elasticdl list --all",
            "elasticdl list -n ml         # namespace ml of the kube context",
            "elasticdl list -A            # all its namespaces",
        ),
    )
    parser.add_argument(
        "--all", action="store_true", help="also finished ones moved aside (NAME~1)"
    )
    add_jobs_dir(parser)
    add_cluster_options(parser)
    parser.add_argument(
        "-A", "--all-namespaces", action="store_true", help="in the whole cluster"
    )
    parser = add_verb(
        verbs,
        "status",
        handler=status,
        help_text="show a job: progress, roles, relaunches with their reasons",
        examples=(
            "elasticdl status digits",
            "elasticdl status digits --watch",
            "elasticdl status digits --json    # also every metrics port",
            "elasticdl status digits -n ml     # the one in a cluster",
        ),
    )
    add_any_job(parser)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", help="print it as JSON")
    how.add_argument("--watch", action="store_true", help="keep showing it to its end")
    parser = add_verb(
        verbs,
        "logs",
        handler=logs,
        help_text="print the log of one replica",
        examples=(
            "elasticdl logs digits master",
            "elasticdl logs digits worker-0 -f",
            "elasticdl logs digits master -n ml --previous",
        ),
    )
    add_any_job(parser)
    add_replica(parser)
    parser.add_argument(
        "-f",
        "--follow",
        action="store_true",
        help="go on until the job (in a cluster: the pod) has ended",
    )
    parser.add_argument(
        "-p",
        "--previous",
        action="store_true",
        help="in a cluster: the pod before the newest of that name",
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
        examples=(
            "elasticdl stop digits",
            "elasticdl stop digits -n ml --remove",
        ),
    )
    add_any_job(parser)
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--no-wait", action="store_true", help="do not wait until it has ended"
    )
    how.add_argument(
        "--remove",
        action="store_true",
        help="in a cluster: then remove its release, as helm uninstall does; its "
        "folder on the volume stays",
    )


def list_jobs(args: argparse.Namespace) -> int:
    from rich.console import Console

    from elasticdl.views.terminal.tables import jobs_table

    if is_cluster_asked(args):
        views, nothing, elsewhere = _in_cluster(args)
    else:
        views, nothing, elsewhere = _here(args)
    if views:
        Console(highlight=False, markup=False).print(jobs_table(views, now=time.time()))
    else:
        print(nothing)
    for line in elsewhere:
        print(line, file=sys.stderr)
    return ExitCode.OK


def _here(args: argparse.Namespace) -> tuple[list[JobView], str, list[str]]:
    """Return the jobs, the text to show if there is none, and where else jobs are."""
    from elasticdl import client
    from elasticdl.client.cluster.records import read_records

    views = [job.view() for job in client.list_jobs(args.jobs_dir, aside=args.all)]
    nothing = f"no jobs in {args.jobs_dir}; start one with `elasticdl train -f FILE`"
    submitted = read_records(args.jobs_dir)
    if not submitted:
        return views, nothing, []
    newest = ", ".join(f"{one.job} ({one.namespace})" for one in submitted[:3])
    more = ", ..." if len(submitted) > 3 else ""
    return (
        views,
        nothing,
        [f"submitted to clusters: {newest}{more}; `elasticdl list -A` shows those"],
    )


def _in_cluster(args: argparse.Namespace) -> tuple[list[JobView], str, list[str]]:
    from elasticdl.client import cluster as clusters

    cluster = clusters.connect(where(args))
    everywhere = args.all_namespaces
    views = clusters.cluster_views(cluster, everywhere=everywhere)
    place = "any namespace" if everywhere else f"namespace {cluster.namespace}"
    nothing = (
        f"no jobs in {place} of kube context {cluster.context!r}; submit one with "
        "`elasticdl train -f FILE -n NS`"
    )
    return views, nothing, []


def status(args: argparse.Namespace) -> int:
    from rich.console import Console

    from elasticdl.views.terminal.tables import last_words, status_view

    job = find_job(args)
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

    from elasticdl.client import Condition
    from elasticdl.views.terminal.live import LineView
    from elasticdl.views.terminal.tables import last_words, status_view

    going = (Condition.PENDING, Condition.RUNNING)
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        lines = LineView(console)
        while (view := job.view()).condition in going:
            lines.update(view.status, [view.note] if view.note else [])
            time.sleep(_WATCH_SECONDS)
    else:
        with Live(console=console, refresh_per_second=4, transient=True) as screen:
            while (view := job.view()).condition in going:
                screen.update(status_view(view, now=time.time()))
                time.sleep(_WATCH_SECONDS)
    console.print(status_view(view, now=time.time()), crop=False)
    if view.report is not None:
        line = f"job {view.name} {last_words(view.report)}"
        console.print(line, soft_wrap=True)
    return ExitCode.OK


def logs(args: argparse.Namespace) -> int:
    job = find_job(args)
    lines = job.logs(
        args.replica, tail=args.tail, follow=args.follow, previous=args.previous
    )
    for line in lines:
        print(line, flush=args.follow)
    return ExitCode.OK


def stop(args: argparse.Namespace) -> int:
    from elasticdl.client.cluster import ClusterJob

    job = find_job(args)
    if args.remove:
        if not isinstance(job, ClusterJob):
            raise JobError(
                f"job {job.name} runs on this machine; --remove is for jobs in a "
                f"cluster, here all there is of it is {job.job_dir.root}"
            )
        return _remove(job, args)
    job.stop()
    if args.no_wait:
        print(f"job {job.name} is stopping")
        return ExitCode.OK
    print(f"job {job.name} is stopping ...", file=sys.stderr)
    report = job.wait()
    state = report.status if report else job.view().note or "ended without a report"
    print(f"job {job.name}: {state}; `elasticdl train` goes on where it was")
    return ExitCode.OK


def _remove(job: ClusterJob, args: argparse.Namespace) -> int:
    from elasticdl.client import Condition
    from elasticdl.client.cluster.helm import find_helm
    from elasticdl.client.cluster.submit import remove

    helm = find_helm(args.environ.get("PATH"))
    if job.view().condition in (Condition.RUNNING, Condition.PENDING):
        job.stop()
        print(f"job {job.name} is stopping ...", file=sys.stderr)
        job.wait()
    removed = remove(job, helm)
    print(f"job {job.name}: {removed} removed from {job.place}")
    return ExitCode.OK
