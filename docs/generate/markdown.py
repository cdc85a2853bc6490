"""Tables of the generated pages. Called by the modules beside it."""

from __future__ import annotations

from collections.abc import Sequence


def row(cells: Sequence[str]) -> str:
    """Return one line of a table."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def table(heads: Sequence[str], rows: Sequence[str]) -> str:
    """Return a table of rows made by `row`; empty without any."""
    if not rows:
        return ""
    lines = [row(heads), "|" + " --- |" * len(heads), *rows]
    return "\n".join(lines) + "\n"
