"""What an explanation looks like: a line on the present, then what happened when.

Owns its look. Called by `cli.explain`. Which decisions are shown is decided there.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from elasticdl.client import JobView
from elasticdl.job.decision import Decision
from elasticdl.job.words import NOT_YET_RUNNING, HappeningKind
from elasticdl.views import formatting as text
from elasticdl.views.group import group_lines
from elasticdl.views.terminal.tables import make_table

# What a kind is called, and its colour.
_KINDS: dict[str, tuple[str, str]] = {
    HappeningKind.PENDING: ("waits", "yellow"),
    HappeningKind.JOINED: ("runs", ""),
    HappeningKind.LEFT: ("left", ""),
    HappeningKind.ENDED: ("lost", "red"),
    HappeningKind.RELAUNCHED: ("replaced", "green"),
    HappeningKind.NOT_REPLACED: ("not replaced", "red"),
    HappeningKind.GROWN: ("grown", "cyan"),
    HappeningKind.SHRUNK: ("shrunk", "cyan"),
    HappeningKind.EDITED: ("edited", "cyan"),
    HappeningKind.REFUSED: ("refused", "yellow"),
    HappeningKind.GRANT_REFUSED: ("grant refused", "yellow"),
    HappeningKind.REWOUND: ("rewound", "yellow"),
    HappeningKind.ROUND: ("round", "cyan"),
    HappeningKind.CHECKPOINT: ("checkpoint", ""),
    HappeningKind.CHECKPOINT_FAILED: ("no checkpoint", "red"),
    HappeningKind.MASTER: ("master", "yellow"),
    HappeningKind.STATE: ("state", "bold"),
    HappeningKind.ATTENTION: ("attention", "yellow"),
}
_TOGETHER_SECONDS = 5.0  # the same fate within so long is one row
_MOST_NAMES = 6
_MOST_DETAIL_LINES = 3


def explain_view(
    view: JobView, decisions: Sequence[Decision], *, replica: str = ""
) -> RenderableType:
    """Return the present state, and a row for each event."""
    parts: list[RenderableType] = [Text(line) for line in _present(view, replica)]
    if not decisions:
        parts.append(Text(_nothing(view, replica), style="dim"))
        return Group(*parts)
    table = make_table("TIME", "WHO", "WHAT", "WHY", "AFTER")
    for column in (table.columns[0], table.columns[2], table.columns[4]):
        column.no_wrap = True
    days = len({time.strftime("%j", time.localtime(one.time)) for one in decisions}) > 1
    for same in together(decisions):
        name, style = _KINDS.get(same[0].kind, (same[0].kind, ""))
        costs = [one.cost_seconds for one in same if one.cost_seconds is not None]
        table.add_row(
            _clock(same[0].time, days=days),
            _names([one.replica for one in same if one.replica]),
            Text(name, style=style),
            _why(same),
            text.duration(max(costs)) if costs else "",
        )
    return Group(*parts, Text(""), table)


def together(decisions: Sequence[Decision]) -> Iterator[list[Decision]]:
    """Yield runs of decisions of the same kind and cause about several replicas."""
    run: list[Decision] = []
    for one in sorted(decisions, key=lambda one: one.time):
        if run and not _alike(run[-1], one):
            yield run
            run = []
        run.append(one)
    if run:
        yield run


def _alike(first: Decision, second: Decision) -> bool:
    return (
        bool(first.replica)
        and (first.kind, first.cause) == (second.kind, second.cause)
        and bool(first.replacement) == bool(second.replacement)
        and second.time - first.time <= _TOGETHER_SECONDS
    )


def _why(same: Sequence[Decision]) -> str:
    """Return the details that the other columns do not show."""
    last = same[-1]
    new = _names([one.replacement for one in same if one.replacement])
    if last.kind == HappeningKind.ENDED:
        words = f"{last.cause}; replaced by {new}" if new else last.cause
        detail = text.without_trace(last.detail).splitlines()[:_MOST_DETAIL_LINES]
        return "\n".join([words, *detail])
    if last.kind == HappeningKind.RELAUNCHED:
        return f"{new} works in its place ({last.cause})"
    if last.kind in (HappeningKind.PENDING, HappeningKind.NOT_REPLACED):
        return last.detail or last.cause
    if last.kind == HappeningKind.LEFT:
        return last.cause
    if last.kind == HappeningKind.JOINED:
        return ""
    return text.without_trace(last.text)


def _present(view: JobView, replica: str) -> Iterator[str]:
    status, report = view.status, view.report
    place = f" in {view.place}" if view.place else ""
    state = status.state if status else report.status if report else view.condition
    message = (status.message if status else report.message if report else "") or (
        view.note
    )
    head = f"job {view.name}{place}: {state}"
    yield f"{head}: {text.first_line(message)}" if message else head
    if status is None:
        return
    if status.grant and not replica:
        yield text.grant_words(status.grant, status.workers_min, status.workers_max)
    if status.group and not replica:
        yield from group_lines(status.group, status.replicas)
    for one in status.replicas:
        waits = one.state in NOT_YET_RUNNING
        if one.name == replica or (waits and not replica):
            doing = one.reason or (text.doing(one.phase) if one.phase else "")
            since = text.duration(max(0.0, status.time - one.since))
            words = f"{one.name}: {one.state} for {since}" if one.since else one.name
            yield f"{words}, {doing}" if doing else words


def _nothing(view: JobView, replica: str) -> str:
    if view.status is None and view.report is None:
        return "nothing happened yet: its master has not begun"
    if replica:
        return f"nothing is noted about {replica}"
    return "nothing is noted: the job was run by a version that kept no history"


def _clock(seconds: float, *, days: bool) -> str:
    return time.strftime(
        "%d %b %H:%M:%S" if days else "%H:%M:%S", time.localtime(seconds)
    )


def _names(replicas: Sequence[str]) -> str:
    shown = ", ".join(replicas[:_MOST_NAMES])
    more = len(replicas) - _MOST_NAMES
    return f"{shown} and {more} more" if more > 0 else shown
