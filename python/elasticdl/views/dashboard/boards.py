"""Finds dashboards and panels by the names that a page's address has for them.

Used by `views.dashboard.server`. What dashboards show is in `elasticdl.dashboards`.
"""

from __future__ import annotations

from elasticdl.dashboards.board import Board, Panel, places
from elasticdl.dashboards.boards import BOARDS
from elasticdl.errors import NotFoundError


def board_of(uid: str) -> Board:
    """Return a dashboard. Raises NotFoundError naming the existing ones."""
    boards = {board.uid: board for board in BOARDS.values()}
    if uid not in boards:
        raise NotFoundError(f"no dashboard {uid!r}; there are: {', '.join(boards)}")
    return boards[uid]


def panel_of(board: Board, number: int) -> Panel:
    """Return a panel by its number on the dashboard. Raises NotFoundError."""
    for place in places(board):
        if place.number == number and isinstance(place.item, Panel):
            return place.item
    raise NotFoundError(f"dashboard {board.uid} has no panel {number}")
