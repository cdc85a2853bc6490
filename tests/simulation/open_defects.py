"""Defects that the simulation has found and that are not mended yet.

Owns the list. A seed whose problems are all on it is counted and shown with its defect
and does not fail `make test`; with `--strict` it does. Whoever mends one takes it off.
Must not grow to make a test pass: each entry names its cause.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class OpenDefect:
    """A defect; `sign` is found in the sentence that an invariant says of it."""

    sign: str
    cause: str


OPEN_DEFECTS: tuple[OpenDefect, ...] = ()


def cause_of(problem: str) -> str | None:
    """Return the open defect that a problem shows; None if it is none of them."""
    for defect in OPEN_DEFECTS:
        if re.search(defect.sign, problem, re.DOTALL):
            return defect.cause
    return None
