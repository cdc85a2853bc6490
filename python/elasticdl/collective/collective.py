"""What a worker asks of its group, whatever carries the gradients.

Owns these names and what each of them promises. Called by worker.group, which looks
into no gradient on its way: it hands in what its step made and gets what its step
applies. `collective.group` does it over TCP with arrays in memory; what lets GPUs
exchange theirs stands here too: with each round it makes a communicator of its own and
aborts the one before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeVar

from elasticdl.collective.messages import (
    Acknowledge,
    Apply,
    Begin,
    Broken,
    Compute,
    Follow,
    Round,
    Stateless,
    Take,
)

# What a worker's main thread is told to do.
Order = Compute | Apply | Follow | Take | Begin | Acknowledge | Broken | Stateless

Gradient_contra = TypeVar("Gradient_contra", contravariant=True)


class Collective(Protocol[Gradient_contra]):
    """A member of a group. `enter`, `listen`, `close`: from any thread.

    The header of a step travels within: its plan is asked of the worker that leads, and
    comes with `Compute`.
    """

    @property
    def version(self) -> int | None:
        """Steps in the own state; None while there is none that counts."""

    @property
    def level(self) -> bool:
        """Whether this member has the group's state in the present round."""

    @property
    def copied(self) -> bool:
        """Whether a newcomer is nearly level, so that it may become a member."""

    @property
    def words(self) -> Mapping[int, bytes]:
        """What each other member of the round has said last."""

    @property
    def round(self) -> int:
        """Number of the round that this member is in; 0 before the first."""

    @property
    def is_last(self) -> bool:
        """Whether this member has the state and knows nobody else who has it."""

    @property
    def sponsors(self) -> bool:
        """Whether a newcomer copies this member's state now."""

    def enter(self, wanted: Round, addresses: Mapping[int, str]) -> None:
        """Form a newer round with its members; what an older one has begun is aborted.

        But for a step that all members of the older one can still make.
        """

    def listen(self, told: Round, addresses: Mapping[int, str]) -> None:
        """Get a copy of the state beside a round that this worker is not in."""

    def next(self, seconds: float) -> Order | None:
        """Wait for what to do next; None if there is nothing in that time."""

    def computed(self, step: int, number: int, gradient: Gradient_contra) -> None:
        """Start a gradient's exchange; it must not change until `Apply`."""

    def has_bucket(
        self, step: int, number: int, bucket: int, gradient: Gradient_contra
    ) -> None:
        """Start the exchange of a part of the gradient; called from any thread."""

    def alone(self, step: int, number: int) -> bool:
        """Begin a step in one go, if nobody else is in round `number`."""

    def made_alone(self, step: int, plan: bytes) -> None:
        """Go on after a step that was made in one go."""

    def applied(self) -> None:
        """Go on after an `Apply`, a `Follow` or a `Take`."""

    def began(self) -> None:
        """Go on after a `Begin`: the own state is the one with which all begin."""

    def not_begun(self) -> None:
        """Go on after a `Begin` that was not possible."""

    def leave(self) -> None:
        """Make no step any more: a round that waits for the one under way begins."""

    def close(self) -> None:
        """Abort what is under way and leave: all connections end."""
