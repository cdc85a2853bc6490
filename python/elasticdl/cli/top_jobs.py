"""All jobs on one screen: a row for each, and totals.

Owns the table's look. Called by `cli.top_sources`. Must not ask jobs anything.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from elasticdl.cli import format as text
from elasticdl.cli.bars import bar
from elasticdl.cli.fitting import Section, fit, line
from elasticdl.cli.live import eta, where_words
from elasticdl.cli.top_view import Screen
from elasticdl.cli.usage_view import usage_label, usage_line
from elasticdl.cli.views import last_words, state_text
from elasticdl.client import Condition, JobView
from elasticdl.client.usage import Usage
from elasticdl.job.status import JobStatus

_BAR = 10
_WIDE = 110  # cells; more columns from here on
_GOING = (Condition.RUNNING, Condition.PENDING)
_WAITING = ("scheduled", "launched", "pending")


def jobs_view(
    views: Sequence[JobView],
    usage: Usage,
    screen: Screen,
    *,
    now: float,
    notes: Sequence[Text] = (),
) -> RenderableType:
    """Return totals and a row for each job, those that run first."""
    order = sorted(views, key=lambda v: (v.condition not in _GOING, v.place, v.name))
    label = f"{usage_label(usage):11}"
    sections = [
        line(0, _totals(views)),
        *(line(1, note) for note in notes),
        line(
            2,
            Text.assemble(
                (label, "dim"), usage_line(usage, screen.width - 11, screen.glyphs)
            ),
        ),
    ]
    if order:
        sections.append(
            Section(
                1,
                lambda rows: _table(order, rows, screen, now=now),
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
    parts = [
        f"{running} of {text.plural(len(views), 'job')} running"
        + (f", {pending} pending" if pending else ""),
        f"workers {sum(w[0] for w in workers)} running of "
        f"{sum(status.workers_wanted for status in statuses)} wanted, "
        f"{sum(w[1] for w in workers)} pending",
        f"{text.rate(sum(s.progress.records_per_second for s in statuses))} records/s",
    ]
    memory = sum(r.memory_bytes for s in statuses for r in s.replicas)
    if memory:
        parts.append(f"memory {text.size(memory)}")
    return Text(" · ".join(parts), "bold")


def _workers(status: JobStatus) -> tuple[int, int]:
    """Return how many run and how many wait."""
    states = [r.state for r in status.replicas if r.role == "worker"]
    return states.count("running"), sum(state in _WAITING for state in states)


def _table(
    views: Sequence[JobView], rows: int, screen: Screen, *, now: float
) -> RenderableType:
    places = any(view.place for view in views)
    wide = screen.width >= _WIDE
    columns = [
        *(("NAMESPACE",) if places else ()),
        *("JOB", "STATE", "WORKERS", "PROGRESS"),
        *(("RECORDS/S", "LOSS", "CHECKPOINT") if wide else ()),
        "LEFT",
    ]
    table = Table(
        box=None, pad_edge=False, header_style="bold dim", padding=(0, 2, 0, 0)
    )
    for column in columns:
        table.add_column(column, no_wrap=True, overflow="ellipsis")
    count = len(views) if rows >= len(views) else max(0, rows - 1)
    for view in views[:count]:
        place = [view.place.removeprefix("namespace ")] if places else []
        cells = _cells(view, screen, wide=wide, now=now)
        table.add_row(*place, view.name, state_text(view.condition), *cells)
    if count < len(views):
        table.add_row(Text(f"... {len(views) - count} more", "dim"))
    return table


def _cells(
    view: JobView, screen: Screen, *, wide: bool, now: float
) -> list[str | Text]:
    status = view.status
    if status is None:
        said = view.note
        if view.report is not None:
            report = view.report
            said = last_words(report).removeprefix(report.status).lstrip(" :")
        elif view.submitted:
            said = f"{said} ({text.duration(now - view.submitted)})"
        return ["", said]
    progress = status.progress
    total = progress.records_per_epoch * progress.epochs
    drawn = Text(where_words(status.type, progress))
    if total:
        share = progress.records_done / total
        drawn.append(f" {bar(share, _BAR, screen.glyphs)} ", "green")
        drawn.append(text.percent(progress.records_done, total))
    if status.state != "running":
        drawn = Text(f"{status.state}: ").append_text(drawn)
    more = [
        text.rate(progress.records_per_second),
        "" if status.last_loss is None else text.metric(status.last_loss),
        ""
        if status.checkpoint_age_seconds is None
        else f"{text.duration(status.checkpoint_age_seconds)} ago",
    ]
    return [_counts(status), drawn, *(more if wide else ()), Text(eta(status), "cyan")]


def _counts(status: JobStatus) -> Text:
    running, pending = _workers(status)
    content = Text(f"{running} of {status.workers_wanted}")
    if pending:
        content.append(f", {pending} waits", "yellow")
    return content
