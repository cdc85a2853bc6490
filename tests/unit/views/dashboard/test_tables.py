"""Tables of several queries' answers."""

from __future__ import annotations

from elasticdl.views.dashboard.boards import FieldConfig
from elasticdl.views.dashboard.prometheus import Series
from elasticdl.views.dashboard.tables import joined, table


def one(value: float, **labels: str) -> Series:
    return Series(labels, [(0.0, value)])


def test_answers_with_the_same_labels_are_one_row() -> None:
    answers = {"A": [one(1, job="a"), one(2, job="b")], "B": [one(3, job="b")]}
    assert joined(answers) == [
        {"job": "a", "Value #A": 1},
        {"job": "b", "Value #A": 2, "Value #B": 3},
    ]


def test_an_answer_with_one_label_more_joins_the_row_of_the_others() -> None:
    answers = {"A": [one(1, job="a")], "G": [one(1, job="a", state="running")]}
    assert joined(answers) == [
        {"job": "a", "state": "running", "Value #A": 1, "Value #G": 1}
    ]


def test_columns_are_named_hidden_and_have_units() -> None:
    config = FieldConfig.model_validate(
        {
            "defaults": {"unit": "short"},
            "overrides": [
                {
                    "matcher": {"id": "byName", "options": "Value #A"},
                    "properties": [
                        {"id": "displayName", "value": "memory"},
                        {"id": "unit", "value": "bytes"},
                    ],
                },
                {
                    "matcher": {"id": "byName", "options": "Value #B"},
                    "properties": [{"id": "custom.hidden", "value": True}],
                },
            ],
        }
    )
    answers = {"A": [one(2048.0, job="a")], "B": [one(1, job="a")]}
    assert table(answers, config) == {
        "columns": [
            {"name": "job", "number": False},
            {"name": "memory", "number": True},
        ],
        "rows": [["a", "2 KiB"]],
    }
