"""One job on one screen: the answers of `views.top.model`, drawn.

Owns their look and which of them go first when the screen is small. Called by
`cli.top`. Must not ask anything, nor compute what is shown.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import RenderableType
from rich.text import Text

from elasticdl.client.usage import Usage
from elasticdl.job.decision import Decision
from elasticdl.job.spec.kinds import JobType
from elasticdl.job.words import JobState
from elasticdl.views import formatting as text
from elasticdl.views.group import cost_words, out_words, round_words
from elasticdl.views.terminal.bars import bar, spark
from elasticdl.views.terminal.fitting import FittingSection, fit, line
from elasticdl.views.terminal.live import eta_words, where_words
from elasticdl.views.terminal.shading import shaded
from elasticdl.views.terminal.tables import state_text
from elasticdl.views.terminal.usage import usage_label, usage_line
from elasticdl.views.top.model import Cause, Top
from elasticdl.views.top.tables import ps_table, workers_table

_LABEL = 10  # Cells of the longest label.
_LEAST_BAR, _MOST_BAR = 8, 60
_MOST_TREND = 24  # Cells of a course over time: the line has other figures too.
_LEAST_SHARE = 0.005  # of the worker seconds, to be named
_MOST_EVENTS = 12  # More events are in `elasticdl explain`.
_LEAST_ROWS = 3  # of a table, before what is less important gets its place


@dataclass(frozen=True)
class Screen:
    """The terminal: width, and height (None: unlimited)."""

    width: int
    height: int | None


def top_view(
    shown: Top, usage: Usage | None, screen: Screen, *, notes: Sequence[Text] = ()
) -> RenderableType:
    """Return the screen; `notes` (present problems) follow the head."""
    message = [Text(f"! {shown.message}", style="yellow")] if shown.message else []
    sections: list[FittingSection | None] = [
        line(0, _head(shown)),
        *(line(1, note) for note in [*message, *notes]),
        _row(2, "progress", _progress(shown, screen)),
        _row(9, "speed", _speed(shown, screen)),
        _row(10, "evaluation", _evaluation(shown, screen)),
        _row(7, "tasks", _tasks(shown)),
        _row(3, "workers", _workers(shown)),
        _row(3, "pending", _pending(shown)),
        *_group(shown),
        _row(4, "goodput", _goodput(shown.goodput, screen)),
        _row(5, "change", _change(shown)),
        _row(12, "preempted", _preemptions(shown)),
        _row(6, "checkpoint", _checkpoint(shown)),
    ]
    if usage is not None:
        sections.append(
            _row(
                11,
                usage_label(usage),
                usage_line(usage, _room(screen)),
            )
        )
    workers, ps = shown.worker_rows, shown.ps_rows
    if workers:
        sections.append(
            FittingSection(
                8,
                lambda rows: workers_table(workers, rows, screen.width),
                rows=len(workers),
                least=_LEAST_ROWS,
                apart=True,
            )
        )
    if ps:
        sections.append(
            FittingSection(
                8,
                lambda rows: ps_table(ps, rows, screen.width),
                rows=len(ps),
                least=_LEAST_ROWS,
                apart=True,
            )
        )
    if shown.events:
        sections.append(
            FittingSection(
                13,
                lambda rows: _events(shown.events[: rows + 1], screen.width),
                rows=min(len(shown.events), _MOST_EVENTS) - 1,
                apart=True,
                spare=True,
            )
        )
    return fit([one for one in sections if one is not None], screen.height)


def _events(events: Sequence[Decision], width: int) -> Text:
    shown = []
    for event in events:
        clock = time.strftime("%H:%M:%S", time.localtime(event.time))
        one = Text.assemble((f"{clock}  ", "dim"), text.first_line(event.text))
        one.truncate(width, overflow="ellipsis")
        shown.append(one)
    return Text("\n").join(shown)


def _row(rank: int, label: str, content: Text) -> FittingSection | None:
    """Return a labelled line; None if the content is unknown or does not apply."""
    if not content:
        return None
    return line(rank, Text.assemble((f"{label:{_LABEL + 1}}", "dim"), content))


def _room(screen: Screen) -> int:
    """Return the cells beside a label."""
    return screen.width - _LABEL - 1


def _head(shown: Top) -> Text:
    place = f", {shown.place}" if shown.place else ""
    return Text.assemble(
        (shown.name, "bold"),
        f"  {shown.type}, {shown.strategy}{place}  ",
        state_text(shown.state),
        f" for {text.duration(shown.seconds)}"
        if shown.state == JobState.RUNNING
        else f", begun {text.duration(shown.seconds)} ago",
    )


def _progress(shown: Top, screen: Screen) -> Text:
    progress = shown.progress
    total = progress.records_per_epoch * progress.epochs
    done = progress.records_done
    if not progress.records_per_epoch:
        return Text()
    where = where_words(shown.type, progress)
    left = eta_words(progress) if shown.state == JobState.RUNNING else ""
    if not total:
        return Text.assemble(where, (f"  {left}", "cyan"))
    percent = text.percent(done, total)
    used = Text(f"{where}   {percent}  {left}").cell_len
    width = max(_LEAST_BAR, min(_MOST_BAR, _room(screen) - used))
    drawn = bar(done / total, width)
    return Text.assemble(where, "  ", (drawn, "green"), f" {percent}  ", (left, "cyan"))


def _speed(shown: Top, screen: Screen) -> Text:
    progress = shown.progress
    parts = []
    if progress.records_per_second and shown.state == JobState.RUNNING:
        parts.append(f"{text.rate(progress.records_per_second)} records/s")
    if progress.steps:
        parts.append(f"step {text.count(progress.steps)}")
    if shown.loss is not None:
        parts.append(f"loss {text.metric(shown.loss)}")
    content = Text(", ".join(parts))
    return _with_spark(content, shown.losses, screen, _MOST_BAR)


def _evaluation(shown: Top, screen: Screen) -> Text:
    last = shown.evaluation
    if last is None:
        return Text()
    content = Text(
        f"{text.metrics(last.metrics)} at version {text.count(last.version)}"
    )
    return _with_spark(content, shown.trend, screen, _MOST_TREND)


def _with_spark(
    content: Text, values: Sequence[float], screen: Screen, most: int
) -> Text:
    width = min(most, _room(screen) - content.cell_len - 1)
    drawn = spark(values, width)
    return content.append(f" {drawn}", "cyan") if drawn else content


def _tasks(shown: Top) -> Text:
    progress = shown.progress
    if not (progress.tasks_total or progress.tasks_done or progress.tasks_leased):
        return Text()  # an evaluation counts records alone
    of = f" of {text.count(progress.tasks_total)}" if progress.tasks_total else ""
    content = Text(
        f"{text.count(progress.tasks_done)}{of} done, "
        f"{text.count(progress.tasks_leased)} leased, "
        f"{text.count(progress.tasks_waiting)} waiting; "
    )
    replayed = progress.replayed_records
    content.append(
        f"{text.count(replayed)} records replayed", "yellow" if replayed else ""
    )
    return content


def _workers(shown: Top) -> Text:
    workers = shown.workers
    bounds = ", ".join(
        f"{word} {number}"
        for word, number in (("min", workers.least), ("max", workers.most))
        if number
    )
    short = workers.running < max(workers.least, min(1, workers.wanted))
    content = Text.assemble(
        (f"{workers.running} running", "red" if short else ""),
        f" of {workers.wanted} {'granted' if workers.granted else 'wanted'}",
        f" ({bounds})" if bounds else "",
    )
    if workers.pending:
        content.append(f", {workers.pending} pending", "yellow")
    if workers.straggling:
        content.append(f", {text.plural(workers.straggling, 'straggler')}", "yellow")
    if workers.granted:
        content.append(f"  {workers.granted}", "dim")
    return content


def _pending(shown: Top) -> Text:
    workers = shown.workers
    return Text(workers.why_pending, "yellow") if workers.pending else Text()


def _group(shown: Top) -> Iterator[FittingSection | None]:
    if shown.group is None:
        return
    yield _row(4, "round", Text(round_words(shown.group)))
    yield _row(5, "", Text(cost_words(shown.group)))
    yield _row(4, "out", Text(out_words(shown.group), "yellow"))


def _goodput(causes: Sequence[Cause], screen: Screen) -> Text:
    """Return a shaded bar with its legend, as far as there is room."""
    if not causes:
        return Text()
    named = [one for one in causes if one.share >= _LEAST_SHARE]
    parts = [(f"{one.name} {100 * one.share:.0f}%", one.share) for one in named]
    room = _room(screen)
    return shaded(parts, max(10, min(50, room - 58)), room, "other")


def _change(shown: Top) -> Text:
    change = shown.change
    if change is None:
        return Text("nobody came or went since the job began", "dim")
    content = Text(f"{text.duration(change.ago_seconds)} ago")
    if change.cost:
        content.append(f", {change.cost}", "yellow" if change.open else "")
    content.append(f": {change.text}")
    if shown.lost:
        content.append(f"; {', '.join(shown.lost)}", "yellow")
    return content


def _preemptions(shown: Top) -> Text:
    preemptions = shown.preemptions
    if not preemptions.count:
        return Text("never", "dim")
    times = "once" if preemptions.count == 1 else f"{preemptions.count} times"
    content = Text(times)
    if preemptions.ago_seconds is not None:
        content.append(f", last {text.duration(preemptions.ago_seconds)} ago")
    content.append(
        f"; {text.duration(preemptions.lost_seconds)} of worker time lost to it"
    )
    return content


def _checkpoint(shown: Top) -> Text:
    newest = shown.checkpoint
    if newest is None:
        return Text("none yet", "dim") if shown.type == JobType.TRAIN else Text()
    content = Text(f"version {text.count(newest.version)}")
    if newest.age_seconds is not None:
        content.append(f", {text.duration(newest.age_seconds)} ago")
    if newest.took_seconds is not None:
        content.append(f", took {text.short_duration(newest.took_seconds)}")
    if shown.checkpoint_problem:
        content.append(f"; {shown.checkpoint_problem}", "red")
    return content
