"""`elasticdl validate`: all mistakes of values files at once.

Owns the printing; what is a mistake is in `job.values`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from elasticdl.cli.arguments import Verbs, add_verb
from elasticdl.errors import ExitCode

if TYPE_CHECKING:
    from elasticdl.job.spec import JobSpec


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


def validate(args: argparse.Namespace) -> int:
    """Print one line per good file and per mistake; SPEC if there is any mistake."""
    from elasticdl.job.values import read_values

    mistakes = 0
    wrong = 0
    for file in args.files:
        values, problems = read_values(file, overrides=args.overrides)
        if values is not None:
            print(f"{file}: ok ({summary(values.job)})")
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


def summary(job: JobSpec) -> str:
    """Return a job in a few words: `job digits: train, 2 PS, 3 workers`."""
    workers = (
        "1 worker" if job.worker.replicas == 1 else f"{job.worker.replicas} workers"
    )
    ps = f"{job.ps.replicas} PS" if job.strategy == "parameterServer" else "no PS"
    return f"job {job.name}: {job.type}, {ps}, {workers}"
