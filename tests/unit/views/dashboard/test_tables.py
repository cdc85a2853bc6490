"""Tables of several queries' answers."""

from __future__ import annotations

from elasticdl.dashboards.board import Panel, PanelKind, Query
from elasticdl.views.dashboard.prometheus import TimeSeries
from elasticdl.views.dashboard.tables import joined, table


def one(value: float, **labels: str) -> TimeSeries:
    return TimeSeries(labels, [(0.0, value)])


def test_answers_with_the_same_labels_are_one_row() -> None:
    answers = [[one(1, job="a"), one(2, job="b")], [one(3, job="b")]]
    assert joined(answers) == [{"job": "a", 0: 1}, {"job": "b", 0: 2, 1: 3}]


def test_an_answer_with_one_label_more_joins_the_row_of_the_others() -> None:
    answers = [[one(1, job="a")], [one(1, job="a", state="running")]]
    assert joined(answers) == [{"job": "a", "state": "running", 0: 1, 1: 1}]


def test_columns_are_named_hidden_and_have_units() -> None:
    panel = Panel(
        "Jobs",
        PanelKind.TABLE,
        "One line for each job.",
        unit="short",
        columns=(("job", "Job"),),
        queries=(Query("held", "memory", unit="bytes"), Query("info")),
    )
    answers = [[one(2048.0, job="a", state="s")], [one(1, job="a", state="s")]]
    assert table(panel, answers) == {
        "columns": [
            {"name": "Job", "number": False},
            {"name": "state", "number": False},
            {"name": "memory", "number": True},
        ],
        "rows": [["a", "s", "2 KiB"]],
    }
