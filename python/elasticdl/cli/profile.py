"""`profile`: a short run of a job, and where the milliseconds of its steps went.

Owns the run's values and the picture. The arithmetic is `views.terminal.step_times`'s;
the figures are those that every worker and PS shows anyway.
"""

from __future__ import annotations

import argparse
import json
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from elasticdl.cli.options.arguments import Verbs, add_jobs_dir, add_overrides, add_verb
from elasticdl.errors import ExitCode
from elasticdl.job.names import Role
from elasticdl.job.words import ReplicaState

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from elasticdl.client import Launcher, LaunchOutcome
    from elasticdl.job.status import JobStatus
    from elasticdl.job.values.document import ValuesFile
    from elasticdl.views.terminal.step_times import Figures, StepTimes

_LOOK_SECONDS = 0.2  # Fine enough to catch the first step.
_SCRAPE_SECONDS = 2.0  # A process that does not answer its metrics page is left out.
_SUFFIX = "-profile"  # of the run's name
_BAR = 20  # Cells of the largest part's bar.
# The first steps of a process are slow and say nothing about the rest.
_WARM_STEPS = 10


def add_parser(verbs: Verbs) -> None:
    """Add the verb."""
    parser = add_verb(
        verbs,
        "profile",
        handler=profile,
        help_text="run some steps of a job and show where their milliseconds go",
        description="Runs the first steps of a training job under another name, "
        "without evaluation,\ncheckpoints or export, and shows where the time of a "
        "step goes: input, compute,\nwait; and beside them convert, push, pull. The "
        "first steps of each worker do not\ncount. Of strategy allReduce it also tells "
        "the round, and what a step sends.",
        examples=(
            "elasticdl profile -f values/digits.yaml",
            "elasticdl profile -f values/digits.yaml --steps 5000 "
            "--set job.worker.pipeline=false",
        ),
    )
    parser.add_argument(
        "-f", "--file", metavar="FILE", type=Path, required=True, help="values file"
    )
    add_overrides(parser)
    parser.add_argument(
        "--steps", type=int, default=2000, help="of all workers together (default 2000)"
    )
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    add_jobs_dir(parser)


def profile(args: argparse.Namespace) -> int:
    """Run the job and show its steps; its exit code."""
    from rich.console import Console

    from elasticdl import client
    from elasticdl.views.terminal.step_times import step_times

    launcher = client.launch(
        values_of(args.file, args.overrides, steps=args.steps),
        environ=args.environ,
        jobs_dir=args.jobs_dir,
        restart=True,
    )
    looks = Looks()
    outcome = _run(launcher, looks)
    if outcome.exit_code != ExitCode.OK:
        logs = launcher.job_dir.logs_dir
        why = outcome.report.message if outcome.report else outcome.message
        print(f"error: {why}; see {logs}", file=sys.stderr)
        return outcome.exit_code
    times = step_times(looks.of("worker"), looks.of("ps"))
    if times is None:
        text = "the job ended before enough steps were seen; ask for more with --steps"
        print(f"error: {text}", file=sys.stderr)
        return ExitCode.JOB_FAILED
    if args.json:
        print(json.dumps({**asdict(times), "group": looks.group}, indent=2))
    else:
        Console(highlight=False).print(picture(times, looks.group))
    return ExitCode.OK


def _run(launcher: Launcher, looks: Looks) -> LaunchOutcome:
    """Sample the job until it ends; Ctrl-C ends it at once."""
    try:
        while (outcome := launcher.wait(_LOOK_SECONDS)) is None:
            if launcher.status is not None:
                looks.take(launcher.status)
                _show(f"{looks.shows} ")
    except KeyboardInterrupt:
        launcher.kill()
        launcher.wait(10.0)
        raise
    _show("")
    return outcome


def _show(line: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)


def values_of(file: Path, overrides: Sequence[str], *, steps: int) -> ValuesFile:
    """Return the values of the run: what the job's own run leaves behind stays away.

    It has a folder for checkpoints of its own, as one that holds another job's is
    refused, tells nobody of its end, and listens where nobody else does.
    """
    from elasticdl.job.spec.base import MAX_NAME_LENGTH
    from elasticdl.job.values.file import load_values

    name = load_values(file, overrides=overrides).job.name
    return load_values(
        file,
        overrides=[
            *overrides,
            "job.type=train",
            f"job.name={name[: MAX_NAME_LENGTH - len(_SUFFIX)].rstrip('-')}{_SUFFIX}",
            f"job.training.maxSteps={steps}",
            "job.training.epochs=0",
            "job.data.validation=",
            "job.checkpoint.dir=",
            "job.checkpoint.everySeconds=0",
            "job.checkpoint.everySteps=0",
            "job.export.dir=",
            "job.master.port=0",
            "job.onEnd.command=[]",
            "job.onEnd.webhook=",
            "job.onEnd.webhookFrom=",
        ],
    )


class Looks:
    """The first and the last look at each process of a running job."""

    def __init__(self) -> None:
        """Start without samples."""
        self.shows = ""
        self.group: list[str] = []  # of strategy allReduce, when most made steps
        self._members = 0
        self._first: dict[str, Figures] = {}
        self._last: dict[str, Figures] = {}

    def take(self, status: JobStatus) -> None:
        """Sample every process that serves metrics now."""
        from elasticdl.views.group import group_lines

        for replica in status.replicas:
            if replica.state != ReplicaState.RUNNING or not replica.metrics_port:
                continue
            if replica.role == Role.WORKER and replica.step < _WARM_STEPS:
                continue
            figures = _scrape(replica.metrics_port)
            if figures:
                self._first.setdefault(replica.name, figures)
                self._last[replica.name] = figures
        if status.group and len(status.group.members) >= self._members:
            self._members = len(status.group.members)
            self.group = list(group_lines(status.group, status.replicas))
        progress = status.progress
        self.shows = f"{status.state}: {progress.steps} steps"

    def of(self, role: str) -> list[tuple[Figures, Figures]]:
        """Return the first and last sample of every process of a role."""
        return [
            (first, self._last[name])
            for name, first in self._first.items()
            if name.startswith(f"{role}-")
        ]


def _scrape(port: int) -> Figures:
    from elasticdl.views.terminal.step_times import figures_of

    try:
        url = f"http://127.0.0.1:{port}/metrics"
        with urllib.request.urlopen(url, timeout=_SCRAPE_SECONDS) as page:
            return figures_of(page.read().decode())
    except (urllib.error.URLError, OSError, ValueError):
        return {}  # it has just left


def picture(times: StepTimes, group: Sequence[str] = ()) -> RenderableType:
    """Return the parts as a table with bars; `group`: lines below it."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=None, pad_edge=False, header_style="bold dim", padding=(0, 2, 0, 0)
    )
    for column in ("PART", "MS", "SHARE", "", ""):
        table.add_column(column, justify="left" if column in ("PART", "") else "right")
    for part in times.line:
        _row(table, part.name, part.milliseconds, times.milliseconds, part.what)
    table.add_row("step", f"{times.milliseconds:.2f}", "", "", f"mean of {times.steps}")
    if times.beside:
        table.add_row("")
        table.add_row("beside the step", style="bold dim")
        for part in times.beside:
            _row(table, part.name, part.milliseconds, times.milliseconds, part.what)
    below = [Text(""), *map(Text, group)] if group else []
    return Group(table, *below)


def _row(table: Table, name: str, milliseconds: float, whole: float, what: str) -> None:
    share = milliseconds / whole if whole else 0.0
    bar = "█" * min(_BAR, round(_BAR * share))
    table.add_row(name, f"{milliseconds:.2f}", f"{100 * share:.0f} %", bar, what)
