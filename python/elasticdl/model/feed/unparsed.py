"""A record that the user's feed cannot parse, and the error that ends a job for it.

Owns its sentence. Made by `model.feeding`, which knows records by their places alone;
`worker.tasks.records` knows which ones they are. Must not import TensorFlow.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from elasticdl.errors import DataError


@dataclass(frozen=True)
class BadInput:
    """A record that the feed could not parse, by its index in the given list."""

    index: int
    reason: str


# How TensorFlow's parsers of CSV and of Examples say what they did not find.
_OF_COLUMN = re.compile(
    r"Field (\d+)(?P<what>.*?)(?: in record \d+)(?P<rest>.*?)(?: \[Op:|$)"
)
_NOT_THERE = re.compile(r"Feature: (.+?) \(data type: \w+\) is required but could not")
_OF_LENGTH = re.compile(
    r"(?:Name: .*?, )?Key: (.+?), Index: \d+\.\s+Number of \w+ values != expected\.\s+"
    r"Values size: (\d+) but output shape: \[(\d+)\]"
)


def by_name(reason: str, columns: Sequence[str]) -> str:
    """Return why records without a `feed` do not parse, in the names of their data.

    `columns`: those of a CSV; a field is one of them.
    """
    field = _OF_COLUMN.search(reason)
    if field and int(field[1]) < len(columns):
        said = f"{field['what']}{field['rest']}".strip().rstrip("!")
        return f"column `{columns[int(field[1])]}` {said}"
    if absent := _NOT_THERE.search(reason):
        return f"it has no feature `{absent[1]}`"
    length = _OF_LENGTH.search(reason)
    if length:
        name, came, expected = length.groups()
        return (
            f"feature `{name}` has {came} values, expected {expected}; a `feed` in the "
            "model module takes lists of any length (padded, or as a RaggedTensor)"
        )
    return reason


class FeedError(DataError):
    """The feed cannot parse a record."""

    def __init__(self, bad: BadInput, which: str = "") -> None:
        """Take the record; whoever knows its file and number says `which` it is."""
        which = which or f"record {bad.index} of the task"
        super().__init__(
            f"feed cannot parse {which}: {bad.reason}; mend the record, or set "
            "data.onBadRecord: skip"
        )
        self.bad = bad
