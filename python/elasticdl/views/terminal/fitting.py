"""A screen of a given size: what does not fit is left out, the least important first.

Owns which lines are shown. Called by the full-screen views, which make sections. Must
not know what the lines say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.text import Text


@dataclass(frozen=True)
class FittingSection:
    """Lines that belong together: a fixed text, or as many rows as fit.

    `draw(rows)` returns something `head + rows` lines high.
    """

    rank: int  # 0 is the most important
    draw: Callable[[int], RenderableType]
    head: int = 1  # lines it has besides its rows
    rows: int = 0
    least: int = 0  # rows without which it is left out
    apart: bool = False  # with an empty line above it, if there is room
    spare: bool = False  # only in room that no other section has a use for


def line(rank: int, text: Text) -> FittingSection:
    """Return a section of one line."""
    text.no_wrap, text.overflow = True, "ellipsis"
    return FittingSection(rank, lambda _: text)


def fit(sections: Sequence[FittingSection], height: int | None) -> RenderableType:
    """Return the sections in their order, in at most `height` lines; None: any."""
    left = 10**6 if height is None else height
    by_rank = sorted(range(len(sections)), key=lambda n: sections[n].rank)
    rows, spaced, left = _needed(sections, by_rank, left)
    for number in (n for n in by_rank if sections[n].spare):
        section = sections[number]
        room = left - section.head - section.apart
        if room >= 0:
            rows[number] = min(section.rows, room)
            left = room - rows[number]
            spaced |= {number} if section.apart else set()
    shown: list[RenderableType] = []
    for number in sorted(rows):
        shown += [Text("")] if number in spaced else []
        shown.append(sections[number].draw(rows[number]))
    return Group(*shown)


def _needed(
    sections: Sequence[FittingSection], by_rank: Sequence[int], left: int
) -> tuple[dict[int, int], set[int], int]:
    """Return the needed rows, which sections stand apart, and the lines left."""
    order = [n for n in by_rank if not sections[n].spare]
    rows: dict[int, int] = {}
    for number in order:
        section = sections[number]
        need = section.head + min(section.least, section.rows)
        if need <= left:
            left -= need
            rows[number] = min(section.least, section.rows)
    spaced = set()
    for number in order:
        if number in rows and sections[number].apart and left > 0:
            left -= 1
            spaced.add(number)
    growing = [n for n in order if n in rows]
    while left > 0 and growing:
        growing = [n for n in growing if rows[n] < sections[n].rows]
        for number in growing[:left]:
            rows[number] += 1
            left -= 1
    return rows, spaced, left
