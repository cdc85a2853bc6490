"""Expressions inside clauses: names, constants, lists, calls, attributes of WITH.

Owns the descent over our tokens and how a mistake at one is told. Called by
`sql.clauses`. Must not know which functions or attributes there are.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from elasticdl.sql.language import lexing
from elasticdl.sql.language.lexing import Sort, Token
from elasticdl.sql.problems import Problem, position
from elasticdl.sql.statements import (
    Attribute,
    Call,
    Constant,
    Expression,
    Keyword,
    Listing,
    Name,
    Position,
    Star,
)

CLAUSES = ("WITH", "COLUMN", "LABEL", "USING", "INTO")
_MOST_DIGITS, _DEEPEST = 100, 50
_PART = re.compile(r"\.\d+")  # of an attribute's name
_T = TypeVar("_T")
_LITERALS = {"TRUE": True, "FALSE": False, "NULL": None}


class Failed(Exception):  # noqa: N818 - it never leaves parsing
    """One mistake; parsing goes on with the next clause."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


class Reader:
    """A place in the tokens of one statement's clauses, and what may come there."""

    def __init__(self, text: str, begin: int, end: int, *, backslashes: bool) -> None:
        self._text = text
        self._end = end
        self._tokens = lexing.lex(text, begin, end, backslashes=backslashes)
        self._i = 0
        self._depth = 0  # of brackets

    @property
    def now(self) -> Token:
        """The token that comes."""
        return self._tokens[self._i]

    @property
    def at_end(self) -> bool:
        """Whether nothing comes any more."""
        return self.now.sort is Sort.END

    def ahead(self, skip: int, count: int) -> list[Token]:
        """Return some tokens that come later, END where there are fewer."""
        found = self._tokens[self._i + skip : self._i + skip + count]
        return found + self._tokens[-1:] * (count - len(found))

    def next(self, count: int = 1) -> Token:
        """Step over tokens; return the first of them."""
        token = self.now
        self._i = min(self._i + count, len(self._tokens) - 1)
        return token

    def at(self, begin: int, length: int) -> Position:
        """Return a place in the user's text."""
        return position(self._text, begin, length)

    def place(self, token: Token) -> Position:
        """Return the place of a token; of the end, its last character."""
        if token.sort is Sort.END:
            return self.at(self._last_end() - 1, 1)
        return self.at(token.begin, token.end - token.begin)

    def failed(self, message: str, token: Token | None = None) -> Failed:
        """Return the mistake at a token, by default the one that comes."""
        token = self.now if token is None else token
        if token.sort is Sort.END:
            message = message.removesuffix(", got ``")
            message += ", but the statement ends here"
        return Failed(Problem(self.place(token), message))

    def _last_end(self) -> int:
        return self._tokens[-2].end if len(self._tokens) > 1 else max(self._end, 1)

    def at_clause(self) -> bool:
        """Whether a clause begins here, and no column of that name.

        `COLUMN label, age LABEL label INTO m`: a name is followed by a sign, another
        clause or the end.
        """
        word = self.now.word
        if word == "FOR":
            return True
        return word in CLAUSES and not self._separates(self.ahead(1, 1)[0])

    @property
    def num_read(self) -> int:
        """How many tokens were read."""
        return self._i

    def skip_clause(self, began: int) -> None:
        """Step behind a mistake in the clause that began there, to the next one."""
        if self._i == began:
            self.next()
        while not self.at_end:
            if self.at_clause() and self.now.word != "FOR":
                return
            self.next()

    def _separates(self, token: Token) -> bool:
        if token.sort is Sort.END or token.word in (*CLAUSES, "FOR", "AS"):
            return True
        return token.sort is Sort.SIGN and token.text in ",;)]="

    def long_name(self, what: str) -> Name:
        """Read the name of a model or table; it may have dots, slashes, a version."""
        token = self.now
        if token.sort in (Sort.QUOTED, Sort.TEXT):
            self.next()
            return Name(token.text, self.place(token), quoted=True)
        if token.sort is not Sort.WORD or self._is_missing(token):
            raise self.failed(f"expected {what}, got `{token.text}`")
        whole = lexing.long_name(self._text, token, self._end)
        while not self.at_end and self.now.begin < whole.end:
            self.next()
        return Name(whole.text, self.place(whole))

    def table_name(self, what: str, folded: Callable[[str], str]) -> Name:
        """Read a table's name, perhaps with its schema and a column: `a."b c".d`.

        `folded` is how the engine reads a name without quotes.
        """
        token = self.now
        first = self.long_name(what)
        parts = [first.text if first.quoted else folded(first.text)]
        while self.now.text == "." and self.now.sort is Sort.SIGN:
            self.next()
            if self.now.sort not in (Sort.WORD, Sort.QUOTED):
                raise self.failed(f"expected a name, got `{self.now.text}`")
            part = self.next()
            parts.append(folded(part.text) if part.sort is Sort.WORD else part.text)
        if len(parts) == 1:
            return Name(parts[0], first.at, first.quoted)
        dotted = [one for one in (parts if first.quoted else parts[1:]) if "." in one]
        if dotted:
            message = f"`{dotted[0]}` has a dot, which no table's name here may have"
            raise self.failed(message, token)
        last = self._tokens[self._i - 1]
        at = self.at(token.begin, last.end - token.begin)
        return Name(".".join(parts), at)

    def column_name(self, what: str) -> Name:
        """Read one column's name, perhaps with its table's before it."""
        token = self.now
        if token.sort not in (Sort.WORD, Sort.QUOTED, Sort.TEXT) or self._is_missing(
            token
        ):
            raise self.failed(f"expected {what}, got `{token.text}`")
        self.next()
        parts = [token]
        while self.now.text == "." and self.now.sort is Sort.SIGN:
            self.next()
            if self.now.sort not in (Sort.WORD, Sort.QUOTED):
                raise self.failed(f"expected a name, got `{self.now.text}`")
            parts.append(self.next())
        text = ".".join(part.text for part in parts)
        at = self.at(token.begin, parts[-1].end - token.begin)
        return Name(text, at, quoted=token.sort is not Sort.WORD)

    def _is_missing(self, token: Token) -> bool:
        """Whether a word that should be a name begins the next clause instead."""
        return token.word in (*CLAUSES, "FOR") and self.at_clause()

    def attributes(self) -> list[Attribute]:
        """Read `key = value, ...`."""
        found = [self._attribute()]
        while self._takes(","):
            found.append(self._attribute())
        return found

    def _attribute(self) -> Attribute:
        if self.at_end or self.at_clause():
            raise self.failed(
                f"expected an attribute as train.epoch = 5, got `{self.now.text}`"
            )
        name = self._key()
        if not self._takes("="):
            raise self.failed(f"expected = behind `{name.text}`, got `{self.now.text}`")
        if self.at_end or self.at_clause() or self.now.text == ",":
            raise self.failed(f"expected a value of `{name.text}`")
        return Attribute(name.text, self.expression(), name.at)

    def _key(self) -> Name:
        """Read an attribute's name; parts may be numbers, as in `classWeight.1`."""
        name = self.column_name("an attribute as train.epoch = 5")
        number = self.now
        # Without a blank between them: `.1` alone is a number.
        numbered = number.sort is Sort.NUMBER and _PART.fullmatch(number.text)
        if not numbered or number.begin != self._tokens[self._i - 1].end:
            return name
        self.next()
        at = self.at(name.at.offset, number.end - name.at.offset)
        return replace(name, text=name.text + number.text, at=at)

    def entries(self) -> list[Expression]:
        """Read the entries of COLUMN."""
        found = [self._entry()]
        while self._takes(","):
            found.append(self._entry())
        return found

    def _entry(self) -> Expression:
        if self.at_end or self.at_clause():
            raise self.failed(f"expected a column, got `{self.now.text}`")
        return self.expression()

    def expression(self) -> Expression:
        """Read one expression."""
        self._depth += 1
        try:
            if self._depth > _DEEPEST:
                raise self.failed(f"brackets in {_DEEPEST} others; expected fewer")
            return self._expression()
        finally:
            self._depth -= 1

    def _expression(self) -> Expression:
        token = self.now
        if token.sort is Sort.NUMBER or self._takes_sign_of_number():
            return self._number(token)
        if token.sort is Sort.TEXT:
            self.next()
            return Constant(token.text, self.place(token))
        if token.sort is Sort.SIGN:
            return self._by_sign(token)
        if token.sort is Sort.WORD and token.word in _LITERALS:
            self.next()
            return Constant(_LITERALS[token.word], self.place(token))
        if token.sort is Sort.WORD and self.ahead(1, 1)[0].text == "(":
            return self._call()
        return self.column_name("a value")

    def _by_sign(self, token: Token) -> Expression:
        if token.text == "*":
            self.next()
            return Star(self.place(token))
        if token.text == "[":
            self.next()
            items = self._until("]", self.expression, token)
            return Listing(tuple(items), self._since(token))
        raise self.failed(f"expected a name, a number or a text, got `{token.text}`")

    def _takes_sign_of_number(self) -> bool:
        signed = self.now.sort is Sort.SIGN and self.now.text in "+-"
        return signed and self.ahead(1, 1)[0].sort is Sort.NUMBER

    def _number(self, token: Token) -> Constant:
        sign = self.next().text if token.sort is Sort.SIGN else ""
        text = sign + self.next().text.replace("_", "")
        at = self._since(token)
        whole = text.lstrip("+-").isdigit()
        # Python itself reads no more than 4,300 digits as a whole number.
        if len(text) > _MOST_DIGITS or not math.isfinite(float(text)):
            raise Failed(Problem(at, "this number is larger than any that is of use"))
        return Constant(int(text) if whole else float(text), at)

    def _call(self) -> Call:
        name = self.next()
        opening = self.next()
        arguments: list[Expression] = []
        keywords: list[Keyword] = []

        def argument() -> None:
            following = self.ahead(1, 1)[0]
            if self.now.sort is Sort.WORD and following.text == "=":
                key = self.next()
                self.next()
                keywords.append(Keyword(key.text, self.expression(), self.place(key)))
            elif keywords:
                raise self.failed("a plain argument comes before those with a name")
            else:
                arguments.append(self.expression())

        self._until(")", argument, opening)
        at = self.at(name.begin, name.end - name.begin)
        alias = None
        if self.now.word == "AS":
            self.next()
            alias = self.column_name("a name behind AS")
        return Call(name.text, tuple(arguments), tuple(keywords), at, alias)

    def _until(self, closing: str, read: Callable[[], _T], opening: Token) -> list[_T]:
        """Read a list with commas up to its bracket."""
        found: list[_T] = []
        if self._takes(closing):
            return found
        while True:
            if self.now.sort is Sort.END:
                break
            if self.now.sort is Sort.SIGN and self.now.text in (",", closing):
                raise self.failed(f"expected a value before `{self.now.text}`")
            found.append(read())
            if self._takes(closing):
                return found
            if not self._takes(","):
                break
        if self.at_end or self.at_clause():
            raise self.failed(
                f"`{opening.text}` has no end; expected `{closing}`", opening
            )
        raise self.failed(f"expected `,` or `{closing}`, got `{self.now.text}`")

    def _takes(self, sign: str) -> bool:
        if self.now.sort is Sort.SIGN and self.now.text == sign:
            self.next()
            return True
        return False

    def _since(self, token: Token) -> Position:
        last = self._tokens[self._i - 1]
        return self.at(token.begin, last.end - token.begin)
