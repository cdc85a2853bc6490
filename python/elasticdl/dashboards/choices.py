"""What all dashboards share: what their reader chooses, the time shown, what is marked.

Owns these values. Called by `views.dashboard` and docs/generate. Must not know any
metric, but the two that say which jobs there are and when their members changed.
"""

from __future__ import annotations

from dataclasses import dataclass

from elasticdl.dashboards.board import Board
from elasticdl.dashboards.selectors import CLUSTER, JOB, NAMESPACE, of_job, of_jobs

BEGIN, END = "now-1h", "now"
REFRESH = "30s"
_JOBS = "elasticdl_job_info"
_CHANGES = "elasticdl_membership_last_change_timestamp_seconds"


@dataclass(frozen=True)
class BoardVariable:
    """A variable of the board: the user chooses among the values of a label."""

    name: str
    title: str
    series: str
    label: str
    with_all: bool = False  # `All` may be chosen
    several: bool = False  # more than one may be chosen


@dataclass(frozen=True)
class Mark:
    """An annotation: moments marked in every chart, from series of milliseconds."""

    name: str
    expr: str
    title: str  # with {{label}}
    text: str


def variables(board: Board) -> tuple[BoardVariable, ...]:
    """Return the variables in order: the choices of each depend on those before it."""
    clusters = f'{CLUSTER}=~"$cluster"'
    chosen = f'{clusters},{NAMESPACE}{"=~" if board.many_jobs else "="}"$namespace"'
    many = board.many_jobs
    return (
        BoardVariable("cluster", "Cluster", _JOBS, CLUSTER, with_all=True),
        BoardVariable(
            "namespace", "Namespace", f"{_JOBS}{{{clusters}}}", NAMESPACE, many, many
        ),
        BoardVariable("job", "Job", f"{_JOBS}{{{chosen}}}", JOB, many, many),
    )


def membership_changes(board: Board) -> Mark:
    """Return the annotation that marks when workers came and left."""
    series = of_jobs if board.many_jobs else of_job
    return Mark(
        "Membership changes",
        f"max by ({JOB}, cause) ({series(_CHANGES)}) * 1000",
        title="{{cause}}",
        text="{{training_job}}",
    )
