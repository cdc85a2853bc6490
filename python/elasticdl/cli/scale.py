"""`scale`: a running job grows or shrinks.

Owns the verb's arguments and output. The job's specification is what changes (its file
here, its ConfigMap in a cluster); its master sees that.
"""

from __future__ import annotations

import argparse

from elasticdl.cli.arguments import Verbs, add_verb, whole_number
from elasticdl.cli.where import add_any_job, find_job
from elasticdl.errors import ExitCode


def add_parser(verbs: Verbs) -> None:
    """Add the verb."""
    parser = add_verb(
        verbs,
        "scale",
        handler=scale,
        help_text="change the number of workers of a running job",
        description="Changes the number of workers of a running job. Workers that stay "
        "are not\nrestarted; workers that go hand their tasks back. In a cluster the "
        "next\n`helm upgrade` of the job sets what its values file says.",
        examples=(
            "elasticdl scale digits --workers 5",
            "elasticdl scale digits -n ml --workers 5",
        ),
    )
    add_any_job(parser)
    parser.add_argument(
        "--workers", type=whole_number, required=True, metavar="N", help="wanted"
    )


def scale(args: argparse.Namespace) -> int:
    job = find_job(args)
    before = job.scale(args.workers)
    print(f"job {job.name}: {before} -> {args.workers} workers")
    return ExitCode.OK
