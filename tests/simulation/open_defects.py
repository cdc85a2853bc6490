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


OPEN_DEFECTS = (
    OpenDefect(
        r"the last checkpoint lacks",
        "the final checkpoint is compared with the version of the last heartbeat, so "
        "that a periodic one of a second ago passes for it",
    ),
    OpenDefect(
        r"updates count as lost",
        "updates lost with an async PS are compared with a version that it was told "
        "not to go below",
    ),
    OpenDefect(
        r"was given initial values",
        "a worker hands its initial values to a PS of a job that has begun: nobody "
        "remembers that it has, or they are all that the worker has pulled",
    ),
    OpenDefect(
        r"stands still: .* finishing .* init=False",
        "a PS lost after the last record waits for values that no idle worker brings",
    ),
    OpenDefect(
        r"cannot restore from",
        "a running job does not go back beyond a damaged newest checkpoint",
    ),
    OpenDefect(
        r"jsonl: line \d+ is damaged",
        "a journal that a cut-off master or a failing machine tore cannot be read",
    ),
    OpenDefect(
        r"versions of \d+ gradients",
        "a restarted master tells PS 0 a quorum before it has counted",
    ),
)


def cause_of(problem: str) -> str | None:
    """Return the open defect that a problem shows; None if it is none of them."""
    for defect in OPEN_DEFECTS:
        if re.search(defect.sign, problem, re.DOTALL):
            return defect.cause
    return None
