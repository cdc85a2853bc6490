"""`report`: one HTML file that shows how a job went, or goes.

Owns the verb's arguments and output. The page is `views.report.page`'s.
"""

from __future__ import annotations

import argparse
import sys
import time
import webbrowser
from datetime import datetime
from pathlib import Path

from elasticdl.cli.options.arguments import Verbs, add_verb
from elasticdl.cli.options.where import add_any_job, find_job
from elasticdl.errors import ExitCode
from elasticdl.views import formatting as text


def add_parser(verbs: Verbs) -> None:
    """Add the verb."""
    parser = add_verb(
        verbs,
        "report",
        handler=report,
        help_text="write one HTML file with the charts of a job",
        description="Writes one HTML file that needs nothing else: workers over time "
        "with what changed\nthem, goodput, task queue, loss, evaluation, step times, "
        "PS load, checkpoints.\nOf a job that runs it shows what was up to now.",
        examples=(
            "elasticdl report digits              # digits-report.html, here",
            "elasticdl report digits -o /tmp/digits.html --open",
            "elasticdl report digits -n ml        # of a job in a cluster",
        ),
    )
    add_any_job(parser)
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="the file to write (default: JOB-report.html in this folder)",
    )
    parser.add_argument(
        "--open", action="store_true", help="show it in the browser then"
    )


def report(args: argparse.Namespace) -> int:
    from elasticdl.views import pages

    pages.plotly_script()  # told now if it is missing

    from elasticdl.views.figures.job import MOST_SAMPLES
    from elasticdl.views.report.page import Subject, report_page

    job = find_job(args)
    view = job.view()
    now = time.time()
    zone = datetime.fromtimestamp(now).astimezone().tzinfo
    assert zone is not None  # noqa: S101 - astimezone() always sets one
    history = job.history()
    if len(history.samples) > MOST_SAMPLES:
        print(f"drawing {text.count(len(history.samples))} samples", file=sys.stderr)
    page = report_page(Subject(view, history, now, zone))
    file = args.output or Path(f"{job.name}-report.html")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(page, encoding="utf-8")
    print(f"report of job {job.name} ({view.condition}): {text.path(file)}")
    if args.open and not webbrowser.open(file.absolute().as_uri()):
        print("no browser was found here; open the file yourself")
    return ExitCode.OK
