"""A bar of several parts with its legend, to be read with and without colours.

Owns its look. Called by the full-screen views.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from elasticdl.views.terminal.bars import EMPTY, SHADES, widths

_COLOURS = ("green", "yellow", "magenta", "cyan")


def shaded(
    parts: Sequence[tuple[str, float]],
    bar_width: int,
    room: int,
    rest: str,
) -> Text:
    """Return parts (name and share, 0 to 1) as a bar, then as many names as fit.

    What has no shade of its own is the bar's rest, which `rest` names.
    """
    parts = parts[: len(SHADES)]
    cells = widths([share for _, share in parts], bar_width)
    content = Text()
    for number, count in enumerate(cells):
        content.append(SHADES[number] * count, _COLOURS[number])
    content.append(EMPTY * (bar_width - sum(cells)), "dim")
    legend = [
        Text.assemble((f" {SHADES[number]} ", _COLOURS[number]), name)
        for number, (name, _) in enumerate(parts)
    ]
    if sum(cells) < bar_width:
        legend.append(Text.assemble((f" {EMPTY} ", "dim"), rest))
    for one in legend:
        if content.cell_len + one.cell_len > room:
            break
        content.append_text(one)
    return content
