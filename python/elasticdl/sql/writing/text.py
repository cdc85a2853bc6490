"""Python text in the form that a formatter gives it, without a formatter.

Owns where lines break, so that generated modules are as `ruff format` leaves them. Must
not know what the text means.
"""

from __future__ import annotations

import math
import textwrap
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

WIDTH = 88


def literal(value: Any) -> str:
    """Return a value as Python writes it, with double quotes."""
    if isinstance(value, float):
        return number(value)
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, list | tuple):
        inner = ", ".join(literal(item) for item in value)
        if isinstance(value, list):
            return f"[{inner}]"
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    return repr(value)


def quoted(value: str) -> str:
    """Return a text in double quotes; in single ones where that saves backslashes."""
    quote = '"' if value.count('"') <= value.count("'") else "'"
    body = (
        f"\\{char}" if char == quote else char if char in "\"'" else repr(char)[1:-1]
        for char in value
    )
    return f"{quote}{''.join(body)}{quote}"


def number(value: float) -> str:
    """Return a float with the digits that float32 has."""
    if not math.isfinite(value):
        return f'float("{value}")'
    text = f"{value:.9g}"
    if "e" in text:
        digits, _, power = text.partition("e")
        return f"{digits}e{int(power)}"
    return text if "." in text else f"{text}.0"


def call(head: str, arguments: Sequence[str], tail: str = "", *, indent: int) -> str:
    """Return `head(arguments)tail`, broken as a formatter breaks a call."""
    blank = " " * indent
    one = f"{blank}{head}({', '.join(arguments)}){tail}"
    if fits(one):
        return one
    inner = f"{blank}    {', '.join(arguments)}"
    if fits(inner):
        return f"{blank}{head}(\n{inner}\n{blank}){tail}"
    each = "\n".join(f"{blank}    {argument}," for argument in arguments)
    return f"{blank}{head}(\n{each}\n{blank}){tail}"


def listing(head: str, items: Sequence[str], *, indent: int, signs: str = "[]") -> str:
    """Return `head[items]` on one line, or an item a line."""
    blank = " " * indent
    one = f"{blank}{head}{signs[0]}{', '.join(items)}{signs[1]}"
    if "\n" not in one and fits(one):
        return one
    each = "\n".join(f"{blank}    {item}," for item in items)
    return f"{blank}{head}{signs[0]}\n{each}\n{blank}{signs[1]}"


def fits(lines: str) -> bool:
    """Whether every line is narrow enough."""
    return all(_width(line) <= WIDTH for line in lines.split("\n"))


def _width(line: str) -> int:
    """Return the columns of a line: some characters take two, some none."""
    if line.isascii():
        return len(line)
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in line)
    return len(line) + wide - sum(map(bool, map(unicodedata.combining, line)))


def comment(text: str, *, indent: int = 0) -> str:
    """Return a text as comment lines."""
    blank = " " * indent
    lines = textwrap.wrap(" ".join(text.split()), WIDTH - indent - 2) or [""]
    return "\n".join(f"{blank}# {line}".rstrip() for line in lines)


def statement_comment(statement: str) -> str:
    """Return a statement as comment lines, its own lines kept."""
    lines: list[str] = []
    for line in statement.strip().splitlines():
        # A tab or a line separator must not end the comment.
        plain = "".join(c if c.isprintable() else " " for c in line).rstrip()
        lines += textwrap.wrap(
            plain, WIDTH - 6, break_long_words=True, drop_whitespace=True
        ) or [""]
    return "\n".join(f"#     {line}".rstrip() for line in lines)


def joined(blocks: Iterable[str]) -> str:
    """Return top-level blocks with two empty lines between them."""
    return "\n\n\n".join(block.strip("\n") for block in blocks if block) + "\n"
