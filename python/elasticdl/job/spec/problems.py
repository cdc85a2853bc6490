"""One mistake in a values file or on a command line, and how it reads.

Owns the sentence form that every mistake has: where, got, expected, next step. Raised
by `job.spec.job`'s own rules, filled with positions by `job.values.file`, used for
flags by `job.classic_flags.convert`. Must not know YAML, pydantic or argparse.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from elasticdl.errors import SpecError

_LONGEST = 60  # Characters of a value in a message of one line.


@dataclass(frozen=True)
class Problem:
    """One mistake: `path` is dotted camelCase or a flag, `place` is `file:line:col`.

    `inside` is the path in its parts, where keys may have dots or parts be indices.
    """

    path: str
    got: str
    expected: str
    next_step: str = ""
    place: str = ""
    inside: tuple[str | int, ...] = ()

    def __str__(self) -> str:
        """Return `place: path: got X, expected Y; next step`."""
        where = ": ".join(part for part in (self.place, self.path) if part)
        text = f"{where}: got {self.got}, expected {self.expected}"
        return f"{text}; {self.next_step}" if self.next_step else text


class ProblemsError(ValueError):
    """Raised inside the specification's models; pydantic passes it through."""

    def __init__(self, *problems: Problem) -> None:
        """Take the problems; their paths are relative to the model that raises."""
        super().__init__("; ".join(str(problem) for problem in problems))
        self.problems = problems


def got(value: Any) -> str:
    """Return a value as written in a file, shortened."""
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def spec_error(problems: Iterable[Problem]) -> SpecError:
    """Return one error that lists all problems, one a line."""
    lines = [str(problem) for problem in problems]
    if len(lines) == 1:
        return SpecError(lines[0])
    return SpecError("\n".join([f"{len(lines)} mistakes:", *lines]))


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that `word` most likely stands for, or None."""
    by_form = {_plain(name): name for name in known}
    exact = by_form.get(_plain(word))
    if exact is not None:
        return exact
    close = difflib.get_close_matches(_plain(word), by_form, n=1, cutoff=0.6)
    return by_form[close[0]] if close else None


def same_word(one: str, other: str) -> bool:
    """Whether two words differ only in case, dashes and underscores."""
    return _plain(one) == _plain(other)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `did you mean ...?`, or the list of known words when none is near."""
    names = list(known)
    near = nearest(word, names)
    if near is not None:
        return f"did you mean `{near}`?"
    return "known are: " + ", ".join(names) if names else "remove it"


def _plain(word: str) -> str:
    return word.replace("_", "").replace("-", "").lower()
