"""Submitting a job to a cluster: the options, what is told, and the wait for its start.

Owns the rule which jobs go to a cluster. Called by `cli.train`. How a job gets there is
`client.cluster`'s.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from elasticdl.cli.options import flags
from elasticdl.cli.options.where import add_cluster_options
from elasticdl.errors import ExitCode, SpecError
from elasticdl.job.words import JobState
from elasticdl.views import formatting as text

if TYPE_CHECKING:
    from rich.console import Console

    from elasticdl.client import JobView
    from elasticdl.client.cluster import Submission
    from elasticdl.job.spec.job import JobSpec
    from elasticdl.job.values.document import ValuesFile

_LOOK_SECONDS = 1.0  # Pods change their state in seconds.
_GROUP_TEXT = (
    "A job that names an image (job.image, --image_name), or any of these options,\n"
    "goes to the cluster of the kube context; all others run on this machine."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add options for where a job runs; `-n` and `--namespace` are classic flags."""
    group = parser.add_argument_group("in a cluster", _GROUP_TEXT)
    add_cluster_options(group, namespace=False)
    group.add_argument(
        "-n",
        dest="classic_flags",
        action=flags.TakeDown,
        metavar="NS",
        help="namespace, as --namespace; made with --create-namespace",
    )
    group.add_argument(
        "--create-namespace", action="store_true", help="make the namespace"
    )
    group.add_argument(
        "--local", action="store_true", help="run here, whatever image is named"
    )
    group.add_argument(
        "--yaml",
        metavar="FILE",
        help="write the manifests that would be applied (`-`: print them); submit "
        "nothing",
    )
    group.add_argument(
        "--chart",
        metavar="PATH",
        type=Path,
        help="another chart than the one of this package",
    )
    group.add_argument(
        "--follow",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="wait until the job runs, and tell why it does not (default: on a "
        "terminal)",
    )


def given_options(args: argparse.Namespace) -> list[str]:
    """Return the given options that are not part of a values file, as written."""
    switches = ("cluster", "create_namespace", "local", "follow")
    words = [
        f"--{name.replace('_', '-')}" for name in switches if getattr(args, name, None)
    ]
    for name in ("context", "yaml", "chart"):
        if value := getattr(args, name, None):
            words += [f"--{name}", str(value)]
    return words


def goes_to_cluster(args: argparse.Namespace, job: JobSpec | None = None) -> bool:
    """Whether the job goes to a cluster; without `job` as far as the options say.

    Raises SpecError when they contradict each other.
    """
    wants = ("cluster", "context", "yaml", "chart", "create_namespace")
    asked = [f"--{name.replace('_', '-')}" for name in wants if getattr(args, name)]
    if flags.namespace_of(args):
        asked.append("--namespace")
    if args.local:
        if asked:
            raise SpecError(
                f"--local: got it beside {asked[0]}, which means a cluster; take one "
                "of them out"
            )
        return False
    if asked or job is None:
        return bool(asked)
    from elasticdl.client.cluster.submit import is_for_cluster

    return is_for_cluster(job)


def jobs_dir(args: argparse.Namespace, values: ValuesFile) -> PurePath:
    """Return the folder of the jobs' folders in the cluster, on the state's volume."""
    from elasticdl.client.cluster import Where, connect
    from elasticdl.client.cluster.submit import state_path

    namespace = values.job.namespace
    if not namespace:  # the kube config says it
        namespace = connect(Where(args.context or "")).namespace
    return state_path(values) / ".elasticdl" / "jobs" / namespace


def submit_job(args: argparse.Namespace, values: ValuesFile) -> int:
    """Write the manifests, or submit the job and tell what was made; the exit code."""
    from rich.console import Console

    from elasticdl.client import cluster as clusters
    from elasticdl.client.cluster.helm import find_helm
    from elasticdl.client.cluster.records import Record, remember

    if args.restart:
        raise SpecError(
            "--restart: got it for a job in a cluster, expected one of this machine; "
            "give the job another name (job.name) to begin afresh there"
        )
    helm = find_helm(args.environ.get("PATH"))
    where = clusters.Where(args.context or "", values.job.namespace)
    if args.yaml:
        made = clusters.render(values, helm=helm, chart=args.chart, where=where)
        return _write(args.yaml, made)
    cluster = clusters.connect(where)
    submission = clusters.submit(
        values,
        cluster=cluster,
        helm=helm,
        chart=args.chart,
        create_namespace=args.create_namespace,
    )
    record = Record(values.job.name, cluster.namespace, cluster.context, time.time())
    remember(args.jobs_dir, record)
    console = Console(highlight=False, markup=False)
    for line in told(submission, values.job):
        console.print(line, soft_wrap=True)
    follow = sys.stdout.isatty() if args.follow is None else args.follow
    return _follow(submission, console) if follow else ExitCode.OK


def told(submission: Submission, job: JobSpec) -> list[str]:
    """Return the lines about the created objects and the next commands."""
    from elasticdl.views.terminal.live import greeting

    cluster = submission.job.cluster
    named = f"{job.name} -n {cluster.namespace}"
    return [
        *submission.notices,
        greeting(job),
        f"submitted to {submission.job.place} of kube context {cluster.context}:",
        *(f"  {one}" for one in submission.made),
        "next:",
        f"  elasticdl status {named} --watch",
        f"  elasticdl logs {named} master --follow",
        f"  elasticdl scale {named} --workers {job.worker.replicas + 1}",
        f"  elasticdl stop {named} --remove   # at the end",
    ]


def _write(file: str, manifests: str) -> int:
    if file == "-":
        print(manifests, end="")
        return ExitCode.OK
    Path(file).write_text(manifests, encoding="utf-8")
    count = manifests.count("\nkind: ")
    print(f"{file}: {text.plural(count, 'object')}; apply with kubectl apply -f {file}")
    return ExitCode.OK


def _follow(submission: Submission, console: Console) -> int:
    """Print what the job waits for until it runs or has ended; return the exit code."""
    from elasticdl.client import Condition

    said = ""
    try:
        while True:
            view = submission.job.view()
            line = state_of(view)
            if line != said:
                said = line
                console.print(f"{time.strftime('%H:%M:%S')} {line}", soft_wrap=True)
            if view.condition in (Condition.FAILED, Condition.INTERRUPTED):
                return ExitCode.JOB_FAILED
            if view.condition is not Condition.PENDING and not _begins(view):
                return ExitCode.OK
            time.sleep(_LOOK_SECONDS)
    except KeyboardInterrupt:
        console.print("the job goes on in the cluster, whether anybody looks or not")
        return ExitCode.OK


def _begins(view: JobView) -> bool:
    return view.status is not None and view.status.state in (
        JobState.STARTING,
        JobState.PREPARING,
    )


def state_of(view: JobView) -> str:
    """Return in one line what a job does, and what its pods wait for."""
    from elasticdl.views.terminal.live import roles

    status = view.status
    if status is None:
        if view.report is not None:
            return f"{view.condition}: {text.first_line(view.report.message)}"
        return f"{view.condition}: {view.note}" if view.note else str(view.condition)
    waiting = sorted({r.reason for r in status.replicas if r.reason})
    parts = [str(status.state), *roles(status), *waiting[:2], view.note]
    return ", ".join(filter(None, parts))
