"""What a dashboard is made of: queries, panels, rows, and where panels stand.

Owns these values and their layout. Called by the modules of the dashboards, which fill
them, by `views.dashboard`, which draws them, and by docs/generate, which writes them
for Grafana. Must not know Grafana's JSON.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass

GRID_WIDTH = 24  # Grafana's grid.


class PanelKind(enum.StrEnum):
    """How a panel is drawn: Grafana's word for it."""

    TIMESERIES = "timeseries"
    STAT = "stat"
    BARGAUGE = "bargauge"
    TABLE = "table"


@dataclass(frozen=True)
class Query:
    """One expression, and what its result is called."""

    expr: str
    name: str = ""  # of a series, with {{label}}; of a table's column, none hides it
    unit: str = ""  # Grafana's word; empty is the panel's
    right: bool = False  # on an axis of its own


@dataclass(frozen=True)
class Panel:
    """One panel: what it shows, and how wide it is (of 24) and high."""

    title: str
    kind: PanelKind
    description: str
    unit: str = "none"
    queries: tuple[Query, ...] = ()
    width: int = 12
    height: int = 8
    stacked: bool = False
    steps: bool = False  # values hold until the next one
    shows_name: bool = False  # a stat whose word is the answer
    columns: tuple[tuple[str, str], ...] = ()  # of a table: label, title


@dataclass(frozen=True)
class Row:
    """A headline with panels below it."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Board:
    """A whole dashboard."""

    uid: str
    title: str
    description: str
    rows: tuple[Row, ...]
    many_jobs: bool = False  # namespace and job may be `All`

    @property
    def panels(self) -> tuple[Panel, ...]:
        """All panels in the order of their ids."""
        return tuple(panel for row in self.rows for panel in row.panels)


@dataclass(frozen=True)
class GridPlace:
    """A panel or a row's headline, with its number and its place on the grid."""

    number: int
    item: Panel | Row
    x: int
    y: int
    width: int
    height: int


def places(board: Board) -> Iterator[GridPlace]:
    """Yield headlines and panels in order, from left to right and then down."""
    number, y = 0, 0
    for row in board.rows:
        number += 1
        yield GridPlace(number, row, 0, y, GRID_WIDTH, 1)
        y += 1
        x, height = 0, 0
        for panel in row.panels:
            if x + panel.width > GRID_WIDTH:
                x, y, height = 0, y + height, 0
            number += 1
            yield GridPlace(number, panel, x, y, panel.width, panel.height)
            x, height = x + panel.width, max(height, panel.height)
        y += height
