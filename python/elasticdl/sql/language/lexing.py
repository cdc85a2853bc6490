"""Tokens of our own clauses: names, numbers, texts, signs, each with its place.

Owns what a name may be: `registry/image:v1/Class` and `model@3` are one word where no
blank is in them. The engine's tokenizer is not used here, as SQLite's takes `[0, 10]`
for a quoted name. Called by `sql.clauses`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum


class Sort(StrEnum):
    """What a token is."""

    WORD = "word"
    QUOTED = "quoted"  # "a" or `a`: a name, or a text where only a text makes sense
    TEXT = "text"  # 'a'
    NUMBER = "number"
    SIGN = "sign"
    END = "end"


@dataclass(frozen=True)
class Token:
    """One token; `text` is without quotes."""

    sort: Sort
    text: str
    begin: int
    end: int

    @property
    def word(self) -> str:
        """The bare word in upper case, else ""."""
        return self.text.upper() if self.sort is Sort.WORD else ""


_PATTERN = re.compile(
    r"""
      (?P<blank>\s+|--[^\n]*|/\*.*?\*/)
    | (?P<number>(?:\d+(?:_\d+)*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?![\w]))
    | (?P<word>[^\W\d]\w*)
    | (?P<quote>['"`])
    | (?P<sign>.)
    """,
    re.VERBOSE | re.DOTALL,
)
# Of a model: a path, an image with its tag, a version.
_LONG_NAME = re.compile(r"[^\W\d][\w./:@-]*")


def lex(text: str, begin: int, end: int, *, backslashes: bool) -> list[Token]:
    """Return the tokens of a part of the text; the last one is END.

    With `backslashes` a quote behind one does not end a text, as in MySQL.
    """
    tokens: list[Token] = []
    at = begin
    while at < end:
        match = _PATTERN.match(text, at, end)
        if match is None:  # pragma: no cover - `.` takes every character
            break
        kind = match.lastgroup
        stop = match.end()
        if kind == "quote":
            value, stop = _quoted(text, at, end, backslashes)
            sort = Sort.TEXT if match[0] == "'" else Sort.QUOTED
            tokens.append(Token(sort, value, at, stop))
        elif kind == "sign" and text.startswith("#", at) and backslashes:
            stop = min(_line_end(text, at), end)  # MySQL's other comment
        elif kind != "blank":
            tokens.append(Token(Sort(str(kind)), match[0], at, stop))
        at = stop
    tokens.append(Token(Sort.END, "", end, end))
    return tokens


def long_name(text: str, token: Token, end: int) -> Token:
    """Return the whole name that begins with this word."""
    match = _LONG_NAME.match(text, token.begin, end)
    if match is None:
        return token
    name = match[0]
    if "--" in name:
        name = name[: name.index("--")]
    name = name.rstrip("./:@-") or token.text
    return Token(Sort.WORD, name, token.begin, token.begin + len(name))


def _line_end(text: str, at: int) -> int:
    found = text.find("\n", at)
    return len(text) if found < 0 else found


def _quoted(text: str, at: int, end: int, backslashes: bool) -> tuple[str, int]:
    """Return the value of a quoted token and where it ends; quotes are doubled."""
    quote = text[at]
    value: list[str] = []
    i = at + 1
    while i < end:
        char = text[i]
        if char == "\\" and backslashes and quote != "`" and i + 1 < end:
            value.append(_ESCAPES.get(text[i + 1], text[i + 1]))
            i += 2
            continue
        if char == quote:
            if text[i + 1 : i + 2] != quote or i + 1 >= end:
                return "".join(value), i + 1
            i += 1
        value.append(char)
        i += 1
    return "".join(value), end


_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0"}
