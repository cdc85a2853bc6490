"""`elasticdl validate`: all mistakes of values files at once.

Owns the printing; what is a mistake is in `job.values.file`, what the platform of a
namespace adds to a job or refuses in `job.values.defaults`, and the chart has the last
word on files that are for a cluster.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from elasticdl.cli.options.arguments import Verbs, add_verb
from elasticdl.cli.options.where import add_cluster_options, is_cluster_asked, where
from elasticdl.errors import ExitCode, PlatformError
from elasticdl.job.spec.kinds import Strategy

if TYPE_CHECKING:
    from elasticdl.job.spec.job import JobSpec
    from elasticdl.job.spec.problems import Problem
    from elasticdl.job.values.defaults import PlatformDefaults
    from elasticdl.job.values.document import ValuesFile


def add_parser(verbs: Verbs) -> None:
    """Add the verb."""
    parser = add_verb(
        verbs,
        "validate",
        handler=validate,
        help_text="check values files: all mistakes, with file and line",
        examples=(
            "elasticdl validate values/digits.yaml",
            "elasticdl validate values/*.yaml",
            "elasticdl validate values/digits.yaml -n ml  # and its platform's words",
        ),
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument(
        "--set",
        dest="overrides",
        action="append",
        default=[],
        metavar="PATH=VALUE",
        help="check the files with one field set, as job.worker.replicas=2",
    )
    add_cluster_options(parser)


def validate(args: argparse.Namespace) -> int:
    """Print one line per good file and per mistake; SPEC if there is any mistake."""
    from elasticdl.job.values.file import read_values

    mistakes = 0
    wrong = 0
    for file in args.files:
        values, found = read_values(file, overrides=args.overrides)
        problems, shown = list(map(str, found)), list[str]()
        if values is not None:
            problems, shown = _beyond_the_file(args, file, values)
        if not problems and values is not None:
            print(f"{file}: ok ({summary(values.job)})")
            for line in shown:
                print(f"  {line}")
            continue
        wrong += 1
        mistakes += len(problems)
        for problem in problems:
            print(problem, file=sys.stderr)
    if not mistakes:
        return ExitCode.OK
    counted = "1 mistake" if mistakes == 1 else f"{mistakes} mistakes"
    files = "1 file" if wrong == 1 else f"{wrong} files"
    print(f"{counted} in {files}", file=sys.stderr)
    return ExitCode.SPEC


def _beyond_the_file(
    args: argparse.Namespace, file: Path, values: ValuesFile
) -> tuple[list[str], list[str]]:
    """Return what platform and chart refuse of a good file, and lines to show."""
    from elasticdl.job.values.defaults import PlatformDefaults

    platform, namespace = PlatformDefaults(), values.job.namespace or "default"
    shown: list[str] = []
    if is_cluster_asked(args):
        platform, namespace, shown, found = _in_cluster(args, values, str(file))
        if found:
            return list(map(str, found)), []
    if not _is_for_chart(args, values):
        return [], shown
    return _of_chart(args, file, values, platform, namespace), shown


def _is_for_chart(args: argparse.Namespace, values: ValuesFile) -> bool:
    """Whether a file is for a cluster: a job of this machine needs no Helm."""
    from elasticdl.client.cluster.submit import is_for_cluster

    beside = values.model_fields_set - {"kind", "job"}
    return is_cluster_asked(args) or is_for_cluster(values.job) or bool(beside)


def _of_chart(
    args: argparse.Namespace,
    file: Path,
    values: ValuesFile,
    platform: PlatformDefaults,
    namespace: str,
) -> list[str]:
    """Return what the chart refuses, as `train` tells it; nothing without Helm."""
    from elasticdl.client.cluster.chart import find_chart
    from elasticdl.client.cluster.helm import find_helm
    from elasticdl.client.cluster.submit import refusal
    from elasticdl.job.values.file import read_tree

    try:
        helm, chart = find_helm(args.environ.get("PATH")), find_chart()
    except PlatformError as error:
        print(f"{file}: not asked of the chart: {error}", file=sys.stderr)
        return []
    tree = read_tree(file, overrides=args.overrides)
    said = refusal(tree, values, platform, helm=helm, chart=chart, namespace=namespace)
    return [f"{file}: {said}"] if said else []


def _in_cluster(
    args: argparse.Namespace, values: ValuesFile, file: str
) -> tuple[PlatformDefaults, str, list[str], list[Problem]]:
    """Return what the platform says, where, as lines, and the cluster's problems.

    Raises PlatformError where the cluster does not answer.
    """
    from elasticdl.client.cluster import Where, connect
    from elasticdl.client.cluster.defaults import platform_of, told
    from elasticdl.job.values.defaults import (
        origins,
        refused,
        sections_of,
        without_registry,
    )

    named = where(args)
    cluster = connect(Where(named.context, named.namespace or values.job.namespace))
    platform, given = platform_of(cluster), sections_of(values)
    problems = refused(platform, given, values.job, namespace=cluster.namespace)
    problems += without_registry(platform, given, values.job)
    fixed = [f"{path}: fixed by the platform" for path in platform.fixed]
    head = f"in namespace {cluster.namespace} of {cluster.context}, beside `job`:"
    shown = [head, *(f"  {line}" for line in told(origins(platform, given)) + fixed)]
    placed = [replace(problem, place=file) for problem in problems]
    return platform, cluster.namespace, shown, placed


def summary(job: JobSpec) -> str:
    """Return a job in a few words: `job digits: train, 2 PS, 3 workers`."""
    workers = (
        "1 worker" if job.worker.replicas == 1 else f"{job.worker.replicas} workers"
    )
    ps = (
        f"{job.ps.replicas} PS"
        if job.strategy == Strategy.PARAMETER_SERVER
        else "no PS"
    )
    return f"job {job.name}: {job.type}, {ps}, {workers}"
