"""`jobs clean`: old folders of ended jobs, removed by age and state.

Owns the verb's arguments and output. What may go is `client.cleaning`'s rule; in a
cluster the same verb runs in a pod that mounts the claim.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING

from elasticdl.cli.options.arguments import Verbs, add_jobs_dir, add_verb
from elasticdl.cli.options.where import add_cluster_options, is_cluster_asked, where
from elasticdl.errors import ExitCode, NotFoundError

if TYPE_CHECKING:
    from elasticdl.client.cleaning import JobFolder
    from elasticdl.client.cluster import ClusterJob

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_STATES = ("succeeded", "failed", "stopped", "interrupted")
_ENDED = _STATES[:3]


def add_parser(verbs: Verbs) -> None:
    """Add the verb `jobs` and its one command."""
    jobs = verbs.add_parser(
        "jobs",
        help="clean up what ended jobs have left",
        description="Look after the folders of jobs: journal, logs, checkpoints.",
        epilog="examples:\n  elasticdl jobs clean --older-than 30d --dry-run\n"
        "\n`elasticdl jobs clean --help` tells more.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = jobs.add_subparsers(
        dest="jobs_command", required=True, metavar="COMMAND"
    )
    parser = add_verb(
        commands,
        "clean",
        handler=clean,
        help_text="remove old folders of ended jobs",
        description="Removes the folders of jobs that have ended and in which nothing "
        "was written for\nso long: journal, logs, checkpoints, and models exported "
        "into them. A folder\nstays that a job holds now, or whose checkpoint an "
        "unfinished job begins with.\nIn a cluster a short pod does it, for the jobs "
        "of the namespace on their claims.",
        examples=(
            "elasticdl jobs clean --older-than 30d --dry-run",
            "elasticdl jobs clean --older-than 12h --state failed,stopped",
            "elasticdl jobs clean --older-than 30d -n ml",
        ),
    )
    parser.add_argument(
        "--older-than",
        type=age,
        required=True,
        metavar="AGE",
        help="since anything was written there last: 90s, 45m, 12h, 30d, 8w",
    )
    parser.add_argument(
        "--state",
        type=states,
        default=_ENDED,
        metavar="STATE,...",
        help=f"of {', '.join(_STATES)} (default: {','.join(_ENDED)}); an interrupted "
        "job may only wait to be launched again",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="only tell what would be removed"
    )
    # Of jobs of the cluster, for the pod that has the folders and sees no job.
    parser.add_argument(
        "--to-come", action="append", default=[], help=argparse.SUPPRESS
    )
    add_jobs_dir(parser)
    add_cluster_options(parser)


def age(text: str) -> float:
    """`30d` -> seconds. Raises what argparse shows."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text.strip())
    if not found:
        raise argparse.ArgumentTypeError(
            f"got {text!r}, expected a number and a unit of s, m, h, d, w, as 30d"
        )
    return float(found[1]) * _UNITS[found[2]]


def states(text: str) -> tuple[str, ...]:
    """`failed,stopped` -> both. Raises what argparse shows."""
    given = tuple(filter(None, (one.strip() for one in text.split(","))))
    wrong = [one for one in given if one not in _STATES]
    if wrong or not given:
        raise argparse.ArgumentTypeError(
            f"got {(wrong or [text])[0]!r}, expected some of {','.join(_STATES)}"
        )
    return given


def clean(args: argparse.Namespace) -> int:
    if is_cluster_asked(args):
        return _in_cluster(args)
    from elasticdl.client.cleaning import finish_removals, look, remove
    from elasticdl.job.folder import Condition

    gone: list[JobFolder] = []
    kept, failed = 0, 0
    if not args.dry_run:
        for problem in finish_removals(args.jobs_dir):
            failed += 1
            print(problem, file=sys.stderr)
    for folder in look(
        args.jobs_dir,
        older_seconds=args.older_than,
        conditions=[Condition(one) for one in args.state],
        now=time.time(),
        to_come=dict(one.split("=", 1) for one in args.to_come),
    ):
        seen = folder
        if not folder.kept and not args.dry_run:
            try:
                seen = remove(folder)
            except OSError as error:
                failed += 1
                print(f"{_told(folder)}: not removed: {error}", file=sys.stderr)
                continue
        if seen.kept:
            kept += 1
            print(f"{_told(seen)}: kept, {seen.kept}", flush=True)
        else:
            gone.append(seen)
            what = "would be removed" if args.dry_run else "removed"
            print(f"{_told(seen)}: {what}", flush=True)
    print(_summary(gone, kept, failed, dry_run=args.dry_run))
    return ExitCode.STORAGE if failed else ExitCode.OK


def _told(folder: JobFolder) -> str:
    from elasticdl.views.formatting import duration, size

    return (
        f"{folder.path.name}: {folder.condition}, {size(folder.bytes)}, last written "
        f"{duration(folder.idle_seconds)} ago"
    )


def _summary(gone: list[JobFolder], kept: int, failed: int, *, dry_run: bool) -> str:
    from elasticdl.views.formatting import plural, size

    freed = size(sum(one.bytes for one in gone))
    done = "would be removed" if dry_run else "removed"
    text = f"{plural(len(gone), 'folder')} {done} ({freed}), {kept} kept"
    return f"{text}, {failed} could not be removed" if failed else text


def words_there(
    args: argparse.Namespace, jobs_dir: PurePath, to_come: Mapping[str, str]
) -> list[str]:
    """Return the same command line for a pod with the folders at `jobs_dir`.

    `to_come`: jobs that have not succeeded, and the checkpoints that they begin with.
    """
    words = ["jobs", "clean", f"--jobs-dir={jobs_dir}"]
    words += [f"--to-come={name}={source}" for name, source in to_come.items()]
    words += [f"--older-than={args.older_than:f}s", f"--state={','.join(args.state)}"]
    return [*words, "--dry-run"] if args.dry_run else words


def _in_cluster(args: argparse.Namespace) -> int:
    from elasticdl.client import cluster
    from elasticdl.client.cluster.errand import begins_with, place_of, run_errand
    from elasticdl.client.cluster.listing import cluster_views
    from elasticdl.job.folder import Condition

    there = cluster.connect(where(args))
    views = cluster_views(there)
    if not views:
        raise NotFoundError(
            f"namespace {there.namespace} has no job, whose pods would say where the "
            "folders are; in a pod that mounts the claim it is `elasticdl jobs clean "
            "--jobs-dir DIR`"
        )
    # One pod for each claim that a job of the namespace has its folder on.
    places: dict[tuple[str, str, PurePath], ClusterJob] = {}
    to_come: dict[str, str] = {}
    for view in views:
        job = cluster.find_in_cluster(there, view.name)
        config_map = job.config_map()
        places.setdefault(place_of(config_map), job)
        source = begins_with(config_map)
        if source and view.condition is not Condition.SUCCEEDED:
            to_come[view.name] = source
    worst = 0
    for place, job in places.items():
        done = run_errand(
            job, "clean", lambda folder: words_there(args, folder.parent, to_come)
        )
        out = sys.stderr if done.exit_code else sys.stdout
        if len(places) > 1:
            claim, inside, _ = place
            print(f"on {claim}{f' in {inside}' if inside else ''}:", file=out)
        print(done.text, file=out, flush=True)
        worst = worst or done.exit_code
    return worst
