"""Tables of a dashboard: the answers of several queries, joined row by row.

Owns the joining, as Grafana's `merge` does it, and what each column shows. Called by
`viewer.drawing`. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from elasticdl.views.dashboard.boards import FieldConfig
from elasticdl.views.dashboard.prometheus import Series
from elasticdl.views.figures import units

Row = dict[str, Any]


def joined(answers: Mapping[str, Sequence[Series]]) -> list[Row]:
    """Return one row for each set of labels; `answers` are by the query's letter.

    A row has its labels and, under `Value #A`, a query's value. An answer joins the
    first row that has the same values of the labels that both have.
    """
    rows: list[Row] = []
    for letter, series in answers.items():
        column = f"Value #{letter}"
        for one in series:
            labels = {k: v for k, v in one.labels.items() if k != "__name__"}
            row = next((r for r in rows if column not in r and _fits(r, labels)), None)
            if row is None:
                row = {}
                rows.append(row)
            row |= labels
            row[column] = one.last
    return rows


def _fits(row: Row, labels: Mapping[str, str]) -> bool:
    common = [label for label in labels if label in row]
    return bool(common or not labels) and all(row[k] == labels[k] for k in common)


def table(answers: Mapping[str, Sequence[Series]], config: FieldConfig) -> Row:
    """Return head and cells: `columns` of name and whether it is a number, `rows`."""
    rows = joined(answers)
    labels = dict.fromkeys(
        key for row in rows for key in row if not key.startswith("Value #")
    )
    keys = [*labels, *(f"Value #{letter}" for letter in answers)]
    columns = []
    for key in keys:
        settings = _settings(key, config, alone=len(answers) == 1)
        if not settings.get("custom.hidden"):
            columns.append((key, settings))
    return {
        "columns": [
            {"name": s.get("displayName", key), "number": key not in labels}
            for key, s in columns
        ],
        "rows": [
            [_cell(row.get(key), str(s["unit"])) for key, s in columns] for row in rows
        ],
    }


def _settings(key: str, config: FieldConfig, *, alone: bool) -> dict[str, Any]:
    settings = config.of(name=key)
    # Grafana calls the value of an only query just that.
    if alone and key.startswith("Value #"):
        settings |= {
            name: value
            for name, value in config.of(name="Value").items()
            if name != "unit" or "unit" not in settings
        }
    return settings


def _cell(value: Any, unit: str) -> str:
    if isinstance(value, float):
        return units.shown(value, unit)
    return "" if value is None else str(value)
