"""Tables of a dashboard: the answers of several queries, joined row by row.

Owns the joining, as Grafana's `merge` does it, and what each column shows. Called by
`views.dashboard.drawing`. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from elasticdl.dashboards.board import Panel
from elasticdl.views.dashboard.prometheus import TimeSeries
from elasticdl.views.figures import units

Row = dict[str | int, Any]  # by label, and by the number of a query


def joined(answers: Sequence[Sequence[TimeSeries]]) -> list[Row]:
    """Return one row for each set of labels; `answers` are in the queries' order.

    A row has its labels and, under a query's number, its value. An answer joins the
    first row that has the same values of the labels that both have.
    """
    rows: list[Row] = []
    for number, series in enumerate(answers):
        for one in series:
            labels = {k: v for k, v in one.labels.items() if k != "__name__"}
            row = next((r for r in rows if number not in r and _fits(r, labels)), None)
            if row is None:
                row = {}
                rows.append(row)
            row.update(labels)
            row[number] = one.last
    return rows


def _fits(row: Row, labels: Mapping[str, str]) -> bool:
    common = [label for label in labels if label in row]
    return bool(common or not labels) and all(row[k] == labels[k] for k in common)


def table(panel: Panel, answers: Sequence[Sequence[TimeSeries]]) -> dict[str, Any]:
    """Return head and cells: `columns` of name and whether it is a number, `rows`."""
    rows = joined(answers)
    titles = dict(panel.columns)
    labels = dict.fromkeys(key for row in rows for key in row if isinstance(key, str))
    queries = [(number, one) for number, one in enumerate(panel.queries) if one.name]
    return {
        "columns": [
            *({"name": titles.get(key, key), "number": False} for key in labels),
            *({"name": query.name, "number": True} for _, query in queries),
        ],
        "rows": [
            [
                *(row.get(key, "") for key in labels),
                *(_cell(row.get(n), query.unit or panel.unit) for n, query in queries),
            ]
            for row in rows
        ],
    }


def _cell(value: float | None, unit: str) -> str:
    return "" if value is None else units.shown(value, unit)
