"""Which pieces of a round's gradients are there, and what is added up: decisions alone.

Owns how a gradient is cut, who adds up which part, and what is sent for it. Called by
`collective.protocol`. Must not know plans, states or what a piece is made of.

A bucket of a gradient has a part for each member, which adds that part up and sends the
sum to all: a value travels twice. Two members exchange small gradients whole instead,
and each adds up all of it: as many bytes, and one message after another less, which is
most of what a small gradient costs (as in recursive doubling; Thakur, Rabenseifner and
Gropp 2005, section 4.5). The price: this member may have all that it needs for a step
while its gradient is still on its way (`collective.outbox` copies what is), or is still
read where it was lent: then the next one needs other memory.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from elasticdl.collective.messages import (
    Action,
    Add,
    Message,
    Piece,
    Reduced,
    Round,
    Send,
)


class Summing:
    """The pieces and sums of one round, from its beginning on."""

    def __init__(
        self, me: int, entered: Round | None, *, buckets: int, direct: bool
    ) -> None:
        """Take the own number, the round, and into how many buckets gradients are cut.

        `direct`: two members exchange whole buckets.
        """
        self._me = me
        self._members = entered.members if entered else ()
        self._rank = self._members.index(me) if entered else 0
        self._cut = entered.parts_of_bucket(direct=direct) if entered else 0
        self._is_direct = self._cut < len(self._members)
        self._num_parts = buckets * self._cut
        # By step and part, then by sender.
        self._pieces: dict[tuple[int, int], dict[int, Any]] = defaultdict(dict)
        self._sums: dict[int, dict[int, Any]] = defaultdict(dict)

    def computed(self, step: int, bucket: int, parts: tuple[Any, ...]) -> list[Action]:
        """Take a bucket of the own gradient, cut into its parts."""
        first = bucket * self._cut
        if self._is_direct:
            said = self._to_others(Piece(step, first, parts[0]))
            mine, data = first, parts[0]
        else:
            said = [
                Send(member, Piece(step, first + rank, parts[rank]))
                for rank, member in enumerate(self._members)
                if rank != self._rank
            ]
            mine, data = first + self._rank, parts[self._rank]
        return [*said, *self.piece(self._me, Piece(step, mine, data))]

    def piece(self, sender: int, piece: Piece) -> list[Action]:
        """Take a member's piece of a part; one that another member adds is ignored."""
        step, part = piece.step, piece.part
        if not self._is_direct and part % self._cut != self._rank:
            return []
        pieces = self._pieces[step, part]
        pieces[sender] = piece.data
        if len(pieces) < len(self._members):
            return []
        del self._pieces[step, part]
        # In the members' order, not as they came: a sum of floats depends on it.
        return [Add(step, part, tuple(pieces[member] for member in self._members))]

    def added(self, step: int, part: int, data: Any) -> list[Action]:
        """Take the sum of one of the own parts; return what others are told."""
        self.reduced(step, part, data)
        return [] if self._is_direct else self._to_others(Reduced(step, part, data))

    def reduced(self, step: int, part: int, data: Any) -> None:
        """Take the sum of a part."""
        self._sums[step][part] = data

    def whole(self, step: int) -> tuple[Any, ...] | None:
        """Return the sums of all parts of a step; None before they are there."""
        sums = self._sums.get(step, {})
        if len(sums) < self._num_parts:
            return None
        return tuple(sums[part] for part in range(self._num_parts))

    def forget(self, step: int) -> None:
        """Let go the sums of a step that is made."""
        self._sums.pop(step, None)

    def _to_others(self, message: Message) -> list[Action]:
        return [Send(member, message) for member in self._members if member != self._me]
