"""`scale`: a running job grows, shrinks, pauses or goes on.

Owns the verb's arguments and output. The job's specification is what changes (its file
here, its ConfigMap in a cluster); its master sees that.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from elasticdl.cli.options.arguments import Verbs, add_verb, whole_number
from elasticdl.cli.options.where import add_any_job, find_job
from elasticdl.errors import ExitCode

if TYPE_CHECKING:
    from elasticdl.client import Scaled
    from elasticdl.job.spec.job import JobSpec


def add_parser(verbs: Verbs) -> None:
    """Add the verb."""
    parser = add_verb(
        verbs,
        "scale",
        handler=scale,
        help_text="change the number of workers of a running job, pause or resume it",
        description="Changes the number of workers of a running job, the bounds of "
        "that number, or\nwhether the job is paused; at least one of them. Workers "
        "that stay are not\nrestarted; workers that go hand their tasks back. A paused "
        "job gives out no\ntask, and after worker.pauseSeconds (5) with nothing to do "
        "its workers leave;\nthe PS stay, and so do workers of the strategies local "
        "and allReduce, which hold\nthe model. In a cluster the next `helm upgrade` of "
        "the job sets what its values\nfile says.",
        examples=(
            "elasticdl scale digits --workers 5",
            "elasticdl scale digits --workers 8 --max 8",
            "elasticdl scale digits --workers 8 --fixed  # whatever a cluster decides",
            "elasticdl scale digits --pause     # the workers' CPUs are for others",
            "elasticdl scale digits --resume",
            "elasticdl scale digits -n ml --workers 5",
        ),
    )
    add_any_job(parser)
    for flag, help_text in (
        ("--workers", "workers wanted"),
        ("--min", "fewest workers that may be wanted; 0 is no minimum"),
        ("--max", "most workers that may be wanted; 0 is no maximum"),
    ):
        parser.add_argument(flag, type=whole_number, metavar="N", help=help_text)
    parser.add_argument(
        "--fixed",
        action="store_true",
        help="with --workers: set --min and --max to the same number, so that no "
        "controller of a cluster decides between them",
    )
    hold = parser.add_mutually_exclusive_group()
    hold.add_argument(
        "--pause",
        dest="paused",
        action="store_true",
        default=None,
        help="give out no task, and free the workers",
    )
    hold.add_argument(
        "--resume", dest="paused", action="store_false", default=None, help="go on"
    )
    parser.set_defaults(refuse=parser.error)


def scale(args: argparse.Namespace) -> int:
    from elasticdl.client import Scaling

    if args.fixed and (args.workers is None or args.min or args.max):
        args.refuse(
            "--fixed: expected --workers N beside it, and neither --min nor --max, "
            "which become N"
        )
    wanted = Scaling(args.workers, args.min, args.max, args.paused, args.fixed)
    if wanted == Scaling():
        args.refuse(
            "got nothing to change, expected one of --workers, --min, --max, --pause, "
            "--resume"
        )
    job = find_job(args)
    print(f"job {job.name}: {told(job.scale(wanted))}")
    return ExitCode.OK


def told(scaled: Scaled) -> str:
    """Return one line: the old and new values, and what happens next."""
    before, after = scaled.before, scaled.after
    changes = [
        f"{name} {old} -> {new}"
        for name, old, new in (
            ("workers", before.worker.replicas, after.worker.replicas),
            ("min", before.worker.min or "none", after.worker.min or "none"),
            ("max", before.worker.max or "none", after.worker.max or "none"),
            ("paused", _yes(before.paused), _yes(after.paused)),
        )
        if old != new
    ]
    if not changes:
        paused = ", paused" if after.paused else ""
        return f"nothing to change, it has {_workers(after.worker.replicas)}{paused}"
    line = f"{', '.join(changes)}; {_next(before, after)}"
    if after.worker.takes_part and before.worker.replicas != after.worker.replicas:
        least, most = after.worker.bounds
        line += (
            f"\nwhere the cluster has a controller, that decides between {least} and "
            f"{most} workers, and this number is for the time without it; --fixed "
            "makes it the only one"
        )
    if scaled.by_argo_cd:
        line += (
            "\nArgo CD keeps this job, and takes the change back where it heals by "
            "itself: make it in the job's values file in the repository"
        )
    return line


def _next(before: JobSpec, after: JobSpec) -> str:
    more = after.worker.replicas - before.worker.replicas
    if after.paused and not before.paused:
        return _pause(after)
    if before.paused and not after.paused:
        return f"it goes on where it was, with {_workers(after.worker.replicas)}"
    if after.paused and more:
        return f"it goes on with {_workers(after.worker.replicas)} at --resume"
    if more > 0:
        return f"{more} more to come, nobody who runs is restarted"
    if more < 0:
        return f"{-more} to leave, tasks are handed back; nobody else is restarted"
    return "nobody is restarted"


def _pause(spec: JobSpec) -> str:
    from elasticdl.job.spec.job import JobType, Strategy

    if spec.type is JobType.TRAIN and spec.strategy is Strategy.LOCAL:
        return "no task is given out; the worker stays, it holds the model"
    if spec.type is JobType.TRAIN and spec.strategy is Strategy.ALL_REDUCE:
        return "no task is given out; the workers stay, they hold the model"
    return (
        "no task is given out; workers leave after "
        f"{spec.worker.pause_seconds:g} s with nothing to do"
    )


def _workers(count: int) -> str:
    return f"{count} worker{'s' if count != 1 else ''}"


def _yes(value: bool) -> str:
    return "yes" if value else "no"
