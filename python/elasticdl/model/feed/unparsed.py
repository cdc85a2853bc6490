"""A record that the user's feed cannot parse, and the error that ends a job for it.

Owns its sentence. Made by `model.feeding`, which knows records by their places alone;
`worker.tasks.records` knows which ones they are. Must not import TensorFlow.
"""

from __future__ import annotations

from dataclasses import dataclass

from elasticdl.errors import DataError


@dataclass(frozen=True)
class BadInput:
    """A record that the feed could not parse, by its index in the given list."""

    index: int
    reason: str


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
