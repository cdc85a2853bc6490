"""`audit`: proof from the journal that no record was missed.

Owns the verb's arguments, output and exit code. The count is `master.audit`'s.
"""

from __future__ import annotations

import argparse
import json

from elasticdl.cli.arguments import Verbs, add_job, add_verb
from elasticdl.errors import ExitCode


def add_parser(verbs: Verbs) -> None:
    """Add the verb."""
    parser = add_verb(
        verbs,
        "audit",
        handler=audit,
        help_text="from the journal: how often each record was trained, and by whom",
        description="Counts from the journal how often the records of each epoch were "
        "trained, by\nwhom, and why some were given out again. Exit code 8 when a "
        "finished epoch missed\na record.",
        examples=("elasticdl audit digits", "elasticdl audit digits --json"),
    )
    add_job(parser)
    parser.add_argument("--json", action="store_true", help="print it as JSON")


def audit(args: argparse.Namespace) -> int:
    from elasticdl import client
    from elasticdl.master import audit as auditing

    job = client.find(args.job, args.jobs_dir)
    report = auditing.audit(job.job_dir.journal_dir)
    if args.json:
        print(json.dumps(auditing.to_json(report), indent=2))
    else:
        from rich.console import Console

        from elasticdl.cli.audit_view import audit_view

        Console(highlight=False, markup=False).print(audit_view(report))
    return ExitCode.OK if report.ok else ExitCode.AUDIT
