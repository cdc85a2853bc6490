"""Mistakes in statements: each with line, column, the line itself and a caret.

Owns how a mistake reads and the one error that carries all of them. Made by parsing and
planning, printed by `cli`. Must not know what a statement means.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from elasticdl.errors import SpecError
from elasticdl.sql.statements import Position

_TRACE_BEGINS = "(most recent call last):"
_WIDEST = 100  # Characters of a line that are shown around the caret.


@dataclass(frozen=True, order=True)
class Problem:
    """One mistake and where it is."""

    at: Position
    message: str


class StatementError(SpecError):
    """Statements are wrong; the message shows every mistake in its line."""

    def __init__(self, text: str, problems: Iterable[Problem]) -> None:
        """Take the user's whole text and what is wrong in it."""
        self.problems = tuple(sorted(set(problems)))
        super().__init__(render(text, self.problems))


def in_one_line(message: str) -> str:
    """Return a job's message in one line: what is indented in it is code, or a trace.

    Of a trace that is all of it the last line is left, which says what was raised.
    """
    lines = [one for one in message.splitlines() if one[:1].strip()]
    plain = [one.strip() for one in lines if not one.endswith(_TRACE_BEGINS)]
    return " ".join(plain)


def position(text: str, offset: int, length: int = 1) -> Position:
    """Return where an offset of the text is; line and column begin at 1."""
    offset = min(offset, len(text))
    line = text.count("\n", 0, offset) + 1
    return Position(
        offset, line, offset - (text.rfind("\n", 0, offset) + 1) + 1, max(1, length)
    )


def render(text: str, problems: Iterable[Problem]) -> str:
    """Return all mistakes, each with its line and a caret under its place."""
    lines = text.split("\n")
    found = list(problems)
    blocks = [_one(lines, problem) for problem in found]
    if len(blocks) > 1:
        blocks.insert(0, f"{len(blocks)} mistakes:")
    return "\n".join(blocks)


def _one(lines: list[str], problem: Problem) -> str:
    at = problem.at
    line = lines[at.line - 1].rstrip("\r") if at.line <= len(lines) else ""
    begin = max(0, at.column - 1 - _WIDEST // 2) if len(line) > _WIDEST else 0
    shown = line[begin : begin + _WIDEST]
    before = shown[: at.column - 1 - begin]
    # A tab stays a tab, so that the caret is under its place in every terminal.
    blank = "".join("\t" if char == "\t" else " " for char in before)
    width = max(1, min(at.length, len(shown) - len(before)))
    return (
        f"line {at.line}, column {at.column}: {problem.message}\n"
        f"    {shown}\n    {blank}{'^' * width}"
    )
