"""All jobs on one screen: a row for each, and totals.

Owns the table's look. Called by `cli.top_sources`. Must not ask jobs anything.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from elasticdl.client import Condition, JobView
from elasticdl.client.usage import Usage
from elasticdl.job.names import Role
from elasticdl.job.status import JobStatus
from elasticdl.job.words import NOT_YET_RUNNING, JobState, ReplicaState
from elasticdl.views import formatting as text
from elasticdl.views.terminal.bars import bar
from elasticdl.views.terminal.columns import Column, columns_table
from elasticdl.views.terminal.fitting import FittingSection, fit, line
from elasticdl.views.terminal.live import eta, where_words
from elasticdl.views.terminal.tables import last_words, state_text
from elasticdl.views.terminal.usage import usage_label, usage_line
from elasticdl.views.top.model import goodput
from elasticdl.views.top.view import Screen

_BAR = 6  # Cells of a bar in a row of the table.
_COLUMNS = (
    Column("NAMESPACE", 4),
    Column("JOB", 0),
    Column("STATE", 1),
    Column("WORKERS", 3),
    Column("LEFT", 5),
    Column("RECORDS/S", 6),
    Column("GOODPUT", 7),
    Column("LOSS", 9),
    Column("CHECKPOINT", 8),
    Column("PROGRESS", 2, least=18),
)
_GOING = (Condition.RUNNING, Condition.PENDING)


def jobs_view(
    views: Sequence[JobView],
    usage: Usage,
    screen: Screen,
    *,
    now: float,
    notes: Sequence[Text] = (),
) -> RenderableType:
    """Return totals and a row for each job, running ones first."""
    order = sorted(views, key=lambda v: (v.condition not in _GOING, v.place, v.name))
    label = f"{usage_label(usage):11}"
    sections = [
        line(0, _totals(views)),
        *(line(1, note) for note in notes),
        line(
            2,
            Text.assemble((label, "dim"), usage_line(usage, screen.width - 11)),
        ),
    ]
    if order:
        sections.append(
            FittingSection(
                1,
                lambda rows: _table(order, rows, screen.width, now=now),
                rows=len(order),
                least=1,
                apart=True,
            )
        )
    return fit(sections, screen.height)


def _totals(views: Sequence[JobView]) -> Text:
    statuses = [view.status for view in views if view.status is not None]
    running = sum(view.condition is Condition.RUNNING for view in views)
    pending = sum(view.condition is Condition.PENDING for view in views)
    workers = [_workers(status) for status in statuses]
    waiting = sum(w[1] for w in workers)
    parts = [
        f"{running} of {text.plural(len(views), 'job')} running"
        + (f", {pending} pending" if pending else ""),
        f"workers {sum(w[0] for w in workers)} of "
        f"{sum(status.workers_wanted for status in statuses)}"
        + (f", {waiting} pending" if waiting else ""),
        f"{text.rate(sum(s.progress.records_per_second for s in statuses))} records/s",
    ]
    memory = sum(r.memory_bytes for s in statuses for r in s.replicas)
    if memory:
        parts.append(f"memory {text.size(memory)}")
    return Text(" · ".join(parts), "bold")


def _workers(status: JobStatus) -> tuple[int, int]:
    """Return how many workers run and how many wait."""
    states = [r.state for r in status.replicas if r.role == Role.WORKER]
    return states.count(ReplicaState.RUNNING), sum(
        state in NOT_YET_RUNNING for state in states
    )


def _table(
    views: Sequence[JobView], rows: int, width: int, *, now: float
) -> RenderableType:
    count = len(views) if rows >= len(views) else max(0, rows - 1)
    lines = [_cells(view, now=now) for view in views[:count]]
    return columns_table(_COLUMNS, lines, width, left_out=len(views) - count)


def _cells(view: JobView, *, now: float) -> list[str | Text]:
    head = [view.place.removeprefix("namespace "), view.name]
    state = state_text(view.condition)
    status = view.status
    if status is None:
        said = view.note
        if view.report is not None:
            report = view.report
            said = last_words(report).removeprefix(report.status).lstrip(" :")
        elif view.submitted:
            said = f"{said}, for {text.duration(now - view.submitted)}"
        return [*head, state, *[""] * 6, said]
    age = status.checkpoint_age_seconds
    speed = status.progress.records_per_second
    return [
        *head,
        state if status.state == JobState.RUNNING else state_text(status.state),
        _counts(status),
        Text(eta(status).partition(" (")[0], "cyan"),
        text.rate(speed) if speed else "",
        _goodput(status),
        "" if status.last_loss is None else text.metric(status.last_loss),
        "" if age is None else f"{text.duration(age)} ago",
        _drawn(status),
    ]


def _goodput(status: JobStatus) -> str:
    """Return the share of all workers' seconds that was training."""
    trained = [one.share for one in goodput(status.goodput_seconds) if one.good]
    return f"{100 * trained[0]:.0f}%" if trained else ""


def _drawn(status: JobStatus) -> Text:
    progress = status.progress
    total = progress.records_per_epoch * progress.epochs
    if not total:
        return Text(where_words(status.type, progress))
    done = progress.records_done
    return Text.assemble(
        (bar(done / total, _BAR), "green"),
        f" {text.percent(done, total):>5} {where_words(status.type, progress)}",
    )


def _counts(status: JobStatus) -> Text:
    running, pending = _workers(status)
    content = Text(f"{running}/{status.workers_wanted}")
    if pending:
        content.append(f", {pending} waits", "yellow")
    return content
