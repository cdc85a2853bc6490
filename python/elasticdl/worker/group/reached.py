"""What the portions of a step made of a variable, and whether it begins anew in it.

Owns the judgement over sums that are set to another value, which no trial has seen.
Made by `worker.group.moved`. Must not know how values travel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elasticdl.model.measures.moves import Movement

_FLOAT32_BYTES = 4
# What sums in another order leave of a value that stays as it is; and what each portion
# leaves in 16 bits, of digits and of a share.
_ROUNDING, _ROUNDING_16 = 1e-3, 1e-2


@dataclass(frozen=True, eq=False)
class Reached:
    """A variable after a step, as a vector.

    Attributes:
        before: As the step began.
        reached: As a sum or a mean of what portions did to it.
        values: Of a sum what portions made of it, added up; each began with `before`.
        movement: Which of these elements are sums.
    """

    before: NDArray[Any]
    reached: NDArray[Any]
    values: NDArray[Any]
    movement: Movement

    def _made(self, portions: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Return what is kept of it, what is made of it, and `values`, as floats."""
        kept = kept_of(self.before, self.movement).astype(np.float64)
        if self.before.dtype.kind in "iu":
            # What was added, as it is below zero.
            added = self.reached - kept_of(self.before, self.movement)
            made = kept + added.astype(f"i{self.before.dtype.itemsize}")
            return kept, made, made + kept * (portions - 1)
        return kept, self.reached.astype(np.float64), self.values.astype(np.float64)

    def _flags(self, of: Any) -> NDArray[np.bool_]:
        return np.broadcast_to(np.asarray(of).reshape(-1), self.before.shape)

    def begins_anew(self, portions: int) -> tuple[NDArray[np.bool_], bool]:
        """Return which elements of a sum begin anew, and if it may do so again.

        It was tried to grow alone. Where it surely does and gets smaller, and little of
        what it was is in what portions made of it, it is their sum. A sum that is below
        zero, or gets smaller otherwise, is another one than was tried. What may be
        below zero begins anew with all others of its variable.
        """
        before, movement = self.before, self.movement
        grows = self._flags(movement.grows)
        if not grows.any():
            return grows, True
        surely = self._flags(movement.surely)
        short = before.dtype.kind not in "iu" and before.dtype.itemsize < _FLOAT32_BYTES
        rounding = portions * _ROUNDING_16 if short else _ROUNDING
        kept, made, all_made = self._made(portions)
        with np.errstate(invalid="ignore", over="ignore"):
            smaller = grows & (made < kept - rounding * np.abs(kept))
            may_be = smaller & surely & (kept > 0) & (all_made >= 0)
            anew = may_be & (may_be & (2 * all_made < kept * portions)).any()
        others = adds_of(movement) & ~surely
        if anew.any() and others.any():
            anew = (anew | others) & self.is_whole(anew)
        return anew, not (smaller & ~anew).any()

    def is_whole(self, anew: NDArray[np.bool_]) -> bool:
        """Whether all begins anew of which it can be seen."""
        surely = self._flags(self.movement.surely)
        there = kept_of(self.before, self.movement) > 0
        return not (surely & there & ~anew).any()

    def may_begin_anew(self, portions: int) -> bool:
        """Whether little of a signed sum is in what portions made of it."""
        kept, _, all_made = self._made(portions)
        with np.errstate(invalid="ignore", over="ignore"):
            return bool(2 * np.abs(all_made).sum() < np.abs(kept).sum() * portions)


def kept_of(before: NDArray[Any], movement: Movement) -> NDArray[Any]:
    """Return what a step keeps of old values; nothing also of what is no number."""
    keeps = np.asarray(movement.keeps).reshape(-1)
    wide = before if before.dtype.kind in "iu" else wide_of(before)
    with np.errstate(invalid="ignore", over="ignore"):
        return np.where(keeps == 0, 0, wide * keeps.astype(wide.dtype))


def adds_of(movement: Movement) -> NDArray[np.bool_]:
    """Return which elements are sums: one flag, or one for each."""
    return np.asarray(movement.adds).reshape(-1)


def wide_of(array: NDArray[Any]) -> NDArray[Any]:
    """Return floats in which sums and differences lose nothing of theirs."""
    short = array.dtype.itemsize <= _FLOAT32_BYTES
    return array.astype(np.float32 if short else np.float64)
