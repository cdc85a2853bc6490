"""`audit`: proof from the journal that no record was missed.

Owns the verb's arguments, output and exit code. The count is `master.tasks.audit`'s.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from elasticdl.cli.options.arguments import Verbs, add_verb
from elasticdl.cli.options.where import add_any_job, find_job
from elasticdl.errors import ExitCode

if TYPE_CHECKING:
    from elasticdl.client.cluster import ClusterJob


def add_parser(verbs: Verbs) -> None:
    """Add the verb."""
    parser = add_verb(
        verbs,
        "audit",
        handler=audit,
        help_text="from the journal: how often each record was trained, and by whom",
        description="Counts from the journal how often the records of each epoch were "
        "trained, by\nwhom, and why some were given out again. Exit code 8 when a "
        "finished epoch missed\na record, or when a task went by other rules than "
        "once, or again after it came back.\nIn a cluster a short pod counts, since "
        "the journal is on a volume there.",
        examples=(
            "elasticdl audit digits",
            "elasticdl audit digits --json",
            "elasticdl audit digits -n ml   # counted by a pod there",
        ),
    )
    add_any_job(parser)
    parser.add_argument("--json", action="store_true", help="print it as JSON")


def audit(args: argparse.Namespace) -> int:
    from elasticdl.client.cluster import ClusterJob
    from elasticdl.master.tasks import audit as auditing

    job = find_job(args)
    if isinstance(job, ClusterJob):
        return _in_cluster(job, args)
    report = auditing.audit(job.job_dir.journal_dir)
    if args.json:
        print(json.dumps(auditing.to_json(report), indent=2))
    else:
        from rich.console import Console

        from elasticdl.views.terminal.audit import audit_view

        Console(highlight=False, markup=False).print(audit_view(report))
    return ExitCode.OK if report.ok else ExitCode.AUDIT


def _in_cluster(job: ClusterJob, args: argparse.Namespace) -> int:
    from elasticdl.client.cluster.errand import run_errand

    asked = ["--json"] if args.json else []
    audited = run_errand(
        job,
        "audit",
        lambda folder: [
            "audit",
            folder.name,
            "--jobs-dir",
            str(folder.parent),
            *asked,
        ],
    )
    failed = audited.exit_code not in (ExitCode.OK, ExitCode.AUDIT)
    print(audited.text, file=sys.stderr if failed else sys.stdout)
    return audited.exit_code
