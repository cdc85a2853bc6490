"""Tables of jobs, of one job and of its final report.

Owns their look. Called by the verbs. Must not ask jobs anything, nor decide exit codes.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.table import Table
from rich.text import Text

from elasticdl.client import JobView
from elasticdl.job.names import Role
from elasticdl.job.spec.kinds import JobType
from elasticdl.job.status import (
    EvaluationResult,
    JobReport,
    JobStatus,
    Relaunch,
    ReplicaStatus,
)
from elasticdl.job.words import JobState, ReplicaState
from elasticdl.views import formatting as text
from elasticdl.views.group import group_lines
from elasticdl.views.terminal.events import evaluation_line
from elasticdl.views.terminal.live import (
    brief_line,
    figures,
    progress_line,
    roles,
)

_STYLES = {
    "running": "green",
    "succeeded": "green",
    "pending": "yellow",
    "draining": "yellow",
    "stopped": "yellow",
    "interrupted": "yellow",
    "failed": "red",
    "hung": "red",
}
_MOST_ROWS = 20  # The newest ones; all are in `explain`.
_WARNINGS = 5  # The first ones; all are in `explain`, too.


def state_text(state: str) -> Text:
    return Text(state, style=_STYLES.get(state, ""))


def make_table(*columns: str) -> Table:
    """Return an empty table in the common style."""
    table = Table(
        box=None, pad_edge=False, header_style="bold dim", padding=(0, 2, 0, 0)
    )
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def jobs_table(views: Sequence[JobView], *, now: float) -> RenderableType:
    """Return one row for each job."""
    places = any(view.place for view in views)
    head = ("NAMESPACE",) if places else ()
    table = make_table(*head, "JOB", "STATE", "STARTED", "PROGRESS")
    for view in views:
        status, report = view.status, view.report
        started = (
            status.started if status else report.started if report else view.submitted
        )
        age = f"{text.duration(now - started)} ago" if started else ""
        if status:
            progress = brief_line(status)
        elif report:
            progress = last_words(report).removeprefix(report.status).lstrip(" :")
        else:
            progress = view.note
        # One line for each job, cut off at its end: `status` tells the rest.
        cut = Text(progress, no_wrap=True, overflow="ellipsis")
        where = [view.place.removeprefix("namespace ")] if places else []
        table.add_row(*where, view.name, state_text(view.condition), age, cut)
    for column in table.columns[:-1]:
        column.no_wrap = True
    return table


def status_view(view: JobView, *, now: float) -> RenderableType:
    """Return all information about one job."""
    if view.report is not None:
        return report_view(view.report)
    if view.status is None:
        note = f": {view.note}" if view.place and view.note else f" {view.note}"
        line = Text.assemble((view.name, "bold"), " ", state_text(view.condition), note)
        return line if view.note else Group(line, Text(_what_next(view)))
    status = view.status
    parts: list[RenderableType] = [
        Text.assemble(
            (status.name, "bold"),
            f" {status.type} job, strategy {status.strategy}, ",
            state_text(status.state),
            f", begun {text.duration(now - status.started)} ago",
        ),
        *(Text(line) for line in _known(status) if line),
    ]
    if status.message:
        parts.append(Text(text.without_trace(status.message), style="yellow"))
    if view.note:
        parts.append(Text(view.note, style="yellow"))
    parts += [Text(""), replicas_table(status, now=now)]
    if status.relaunches:
        parts += [Text(""), relaunches_table(status.relaunches)]
    if ports := _metrics_ports(status):
        where = ", ".join(f"{name} :{port}" for name, port in ports)
        parts += [Text(""), Text(f"/metrics of {where}", style="dim")]
    return Group(*parts)


def _known(status: JobStatus) -> Iterator[str]:
    yield progress_line(status, short=True)
    yield ", ".join(figures(status))
    yield ", ".join(roles(status))
    if status.grant:
        yield text.grant_words(status.grant, status.workers_min, status.workers_max)
    if status.group:
        yield from group_lines(status.group, status.replicas)
    if status.last_evaluation:
        yield evaluation_line(status.last_evaluation)
    if status.checkpoint_version is not None:
        age = status.checkpoint_age_seconds
        ago = f", {text.duration(age)} ago" if age is not None else ""
        yield f"checkpoint at version {status.checkpoint_version}{ago}"


def _metrics_ports(status: JobStatus) -> list[tuple[str, int]]:
    ports = [("master", status.master_metrics_port)]
    ports += [
        (r.name, r.metrics_port)
        for r in status.replicas
        if r.state == ReplicaState.RUNNING
    ]
    return [(name, port) for name, port in ports if port]


def _what_next(view: JobView) -> str:
    return (
        f"its launcher is gone without a report; `elasticdl train` goes on, "
        f"`elasticdl logs {view.name} master` tells what it did last"
    )


def replicas_table(status: JobStatus, *, now: float) -> Table:
    """Return one row for each replica, ended ones last."""
    table = make_table(
        "ROLE", "STATE", "SINCE", "DOING", "STEP", "STEPS/S", "LOSS", "MEMORY"
    )
    rows = sorted(
        status.replicas, key=lambda r: (r.state == ReplicaState.ENDED, r.role, r.index)
    )
    for row in rows:
        table.add_row(
            row.name,
            state_text(row.state),
            text.duration(now - row.since) if row.since else "",
            row.reason or (text.doing(row.phase) if row.phase else ""),
            _reached(row),
            f"{row.steps_per_second:.1f}" if row.steps_per_second else "",
            text.metric(row.loss) if row.loss is not None else "",
            text.size(row.memory_bytes) if row.memory_bytes else "",
        )
    return table


def _reached(row: ReplicaStatus) -> str:
    """Return a worker's step or a PS's version; "" if it has not begun."""
    if row.role == Role.PS:
        return f"v{row.version}" if row.state == ReplicaState.RUNNING else ""
    return str(row.step) if row.step else ""


def relaunches_table(relaunches: Sequence[Relaunch]) -> Table:
    """Return the newest relaunches: what ended, why, and the replacement."""
    table = make_table("ENDED", "WHY", "REPLACED BY", "BACK AFTER")
    for one in relaunches[-_MOST_ROWS:]:
        detail = text.first_line(one.detail)
        table.add_row(
            one.replica,
            f"{one.reason}: {detail}" if detail else one.reason,
            one.replacement or "nobody",
            "" if one.seconds is None else text.duration(one.seconds),
        )
    return table


@dataclass(frozen=True)
class Rows:
    """Labels with values beside them; long values wrap between words.

    To be printed with `crop=False`: a path is not cut either.
    """

    rows: Sequence[tuple[str, str]]

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[Text]:
        """Draw; rich calls it."""
        indent = max((len(label) for label, _ in self.rows), default=0) + 2
        for label, value in self.rows:
            lines = [
                part
                for line in value.splitlines()
                for part in textwrap.wrap(
                    line,
                    max(20, options.max_width - indent),
                    break_long_words=False,
                    break_on_hyphens=False,
                )
            ]
            for number, line in enumerate(lines):
                head = "" if number else label
                yield Text.assemble(
                    (f"{head:{indent}}", "dim"),
                    (line, _STYLES.get(line, "")),
                    no_wrap=True,
                    overflow="ignore",
                )


def report_view(report: JobReport) -> RenderableType:
    """Return the final report."""
    parts: list[RenderableType] = [
        Rows([row for row in _report_rows(report) if row[1]])
    ]
    # Whoever was given up is the reason that is told at the end.
    failed = report.status == JobState.FAILED
    told = [one for one in report.relaunches if one.replacement or not failed]
    if told:
        parts += [Text(""), relaunches_table(told)]
    return Group(*parts)


def _of_version(measured: EvaluationResult | None) -> str:
    if measured is None:
        return ""
    return f"version {measured.version}: {text.metrics(measured.metrics)}"


def _report_rows(report: JobReport) -> list[tuple[str, str]]:
    trains = report.type == JobType.TRAIN and bool(report.records)
    records = (
        f"{text.count(report.records)}, {text.rate(report.records_per_second)} a second"
    )
    if report.replayed_records:
        records += f", {text.count(report.replayed_records)} replayed"
    lost = [
        text.plural(number, what)
        for number, what in (
            (report.master_restarts, "master restart"),
            (report.rewinds, "rewind"),
            (report.lost_updates, "lost update"),
            (report.repairs, "repaired round"),
            (report.skipped_batches, "skipped batch"),
            (len(report.bad_records), "skipped bad record"),
        )
        if number
    ]
    if report.rounds > 1:
        spent = text.duration(report.changes_seconds)
        lost.append(f"{report.rounds} rounds of workers, whose changes cost {spent}")
    return [
        ("job", f"{report.name} ({report.type}, {report.strategy})"),
        ("status", report.status),
        # A failed job's is the last line.
        ("message", "" if report.status == JobState.FAILED else report.message),
        ("took", text.duration(report.seconds)),
        ("records", records if report.records else "none"),
        ("steps", text.count(report.steps) if trains else ""),
        (
            "version",
            f"{text.count(report.version)} of the model" * bool(report.version),
        ),
        ("goodput", f"{100 * report.goodput:.0f} % of the workers' time" * trains),
        ("time", _spent(report.goodput_seconds)),
        (
            "last loss",
            "" if report.last_loss is None else text.metric(report.last_loss),
        ),
        ("metrics", text.metrics(report.metrics)),
        ("events", ", ".join(lost)),
        ("warnings", _warned(report)),
        ("checkpoint", text.path(report.checkpoint)),
        ("best", _of_version(report.best)),
        ("restored", _of_version(report.restored)),
        ("exports", "\n".join(text.path(one) for one in report.exports)),
        ("predictions", text.path(report.predictions)),
    ]


def _warned(report: JobReport) -> str:
    """Return the first warnings; the others are in the history."""
    told = [text.first_line(one) for one in report.warnings[:_WARNINGS]]
    left = len(report.warnings) - _WARNINGS
    if left > 0:
        told.append(f"{left} more: elasticdl explain {report.name}")
    return "\n".join(told)


def _spent(goodput_seconds: Mapping[str, float]) -> str:
    """Return what the workers' time was spent on, the largest part first."""
    seconds = sum(goodput_seconds.values())
    causes = sorted(goodput_seconds.items(), key=lambda item: -item[1])
    return ", ".join(
        # Without its space: a line must not end between number and unit.
        f"{text.doing(cause)} {text.percent(spent, seconds).replace(' ', '')}"
        for cause, spent in causes
        if spent >= 0.01 * seconds
    )


def last_words(report: JobReport) -> str:
    """Return the one line that says how a job ended."""
    head = f"{report.status}"
    if report.status == JobState.FAILED:
        return f"{head}: {text.first_line(report.message)}"
    # Those of the model that was exported.
    metrics = report.restored.metrics if report.restored else report.metrics
    figures = text.metrics(metrics) or f"{text.count(report.records)} records"
    return f"{head} in {text.duration(report.seconds)}: {figures}"


def way_on(report: JobReport) -> str:
    """Return from where a job that was stopped goes on."""
    where = "where it was"
    if report.type == JobType.TRAIN:
        if not report.checkpoint:
            return "it has no checkpoint to go on from"
        where = "from its newest checkpoint"
    return f"it goes on {where} when it is started again"
