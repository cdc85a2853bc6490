"""The table of a report: what happened to the job, why, and what it cost.

Owns the table and what is told in it. Called by `views.report.page`. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, tzinfo

from elasticdl.client import JobView
from elasticdl.job.decision import Decision
from elasticdl.job.history import History
from elasticdl.job.words import HappeningKind
from elasticdl.views import formatting as text
from elasticdl.views import pages

_MOST_ROWS = 500  # A page of thousands of rows is slow; the history has all.
_KINDS: dict[str, str] = {
    HappeningKind.PENDING: "pending",
    HappeningKind.JOINED: "joined",
    HappeningKind.LEFT: "left",
    HappeningKind.ENDED: "ended",
    HappeningKind.RELAUNCHED: "replaced",
    HappeningKind.NOT_REPLACED: "not replaced",
    HappeningKind.GROWN: "grown",
    HappeningKind.SHRUNK: "shrunk",
    HappeningKind.REFUSED: "refused",
    HappeningKind.GRANT_REFUSED: "grant refused",
    HappeningKind.EDITED: "edited",
    HappeningKind.REWOUND: "rewound",
    HappeningKind.ROUND: "round",
    HappeningKind.CHECKPOINT_FAILED: "checkpoint failed",
    HappeningKind.MASTER: "new master",
    HappeningKind.STATE: "state",
    HappeningKind.ATTENTION: "attention",
}


def changes(view: JobView, history: History) -> list[Decision]:
    """Return the decisions about changes, in order of time.

    A job without a history has at least its relaunches, which its status and report
    tell. Checkpoints are left out: there are many, and a chart shows them.
    """
    decisions = [one for one in history.decisions if one.kind in _KINDS]
    document = view.report or view.status
    if decisions or document is None:
        return decisions
    return [
        Decision(
            time=one.time,
            kind=HappeningKind.RELAUNCHED
            if one.replacement
            else HappeningKind.NOT_REPLACED,
            replica=one.replica,
            cause=one.reason,
            text=text.first_line(one.detail),
            replacement=one.replacement,
            cost_seconds=one.seconds,
        )
        for one in document.relaunches
    ]


def changes_table(decisions: Sequence[Decision], zone: tzinfo) -> str:
    """Return the section of the page."""
    title = "<h2>What changed, why, and what it cost</h2>"
    if not decisions:
        return (
            f'<section>{title}<div class="card"><p class="empty">Nothing: no replica '
            "was lost, added or taken away.</p></div></section>"
        )
    newest = decisions[-_MOST_ROWS:]
    left_out = len(decisions) - len(newest)
    note = f"The newest {len(newest)} of {len(decisions)}. " if left_out else ""
    rows = "\n".join(_row(one, zone) for one in newest)
    return (
        f'<section>{title}<div class="card"><p class="soft small">{note}Cost: seconds '
        "until the replica, or the one in its place, worked.</p>"
        '<div class="scroll"><table class="changes"><thead><tr><th>time</th>'
        '<th>what</th><th>replica</th><th>cause</th><th class="number">cost</th>'
        f"<th>in words</th></tr></thead><tbody>{rows}</tbody></table></div></div>"
        "</section>"
    )


def _row(decision: Decision, zone: tzinfo) -> str:
    when = datetime.fromtimestamp(decision.time, zone).strftime("%m-%d %H:%M:%S")
    cost = decision.cost_seconds
    replica = decision.replica
    if decision.replacement:
        replica = f"{replica} → {decision.replacement}"
    cells = (
        ("when", when),
        ("", _KINDS[decision.kind]),
        ("", replica),
        ("", decision.cause),
        ("number", "" if cost is None else text.duration(cost)),
        ("words", decision.text),
    )
    inside = "".join(
        f'<td class="{name}">{pages.escaped(value)}</td>' if name
        else f"<td>{pages.escaped(value)}</td>"
        for name, value in cells
    )  # fmt: skip
    return f"<tr>{inside}</tr>"
