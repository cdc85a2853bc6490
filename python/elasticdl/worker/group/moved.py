"""The model's state that training moves besides its gradients, in the steps of a group.

Owns how what portions do to it is put together: moving averages by their records,
counts added up, flags changed that any of them changes. Called by `worker.group.step`.
Must not know gradients or members.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elasticdl.model.variables import NamedVariable

Floats = NDArray[np.float32]
_FLOAT32_BYTES = 4
# Shorter distances of integers are exact in float32. Numbers of 8 and 16 bits move no
# farther, also where they wrap around, so that some portions' values are near zero.
_FAR = 1 << 20


class MovedState:
    """Float state and counters; each portion of a step begins with the same values."""

    def __init__(self, variables: Sequence[NamedVariable]) -> None:
        """Take the variables that all members move alike."""
        self._items = variables
        self._sums = [False] * len(variables)
        self.before: list[NDArray[Any]] = []
        # Distances, and the values themselves.
        each = (int(np.prod(item.shape, dtype=np.int64)) for item in variables)
        self.size = 2 * sum(each)

    @property
    def variables(self) -> list[Any]:
        """The variables of Keras."""
        return [item.variable for item in self._items]

    def adds(self, sums: Sequence[bool]) -> None:
        """Take by variable whether it moves by the sum over portions."""
        self._sums = list(sums)

    def begin(self) -> None:
        """Note the values: each attempt at the next step begins with them."""
        self.before = [item.numpy() for item in self._items]

    def rewind(self) -> None:
        """Put the noted values back."""
        for item, value in zip(self._items, self.before, strict=True):
            item.variable.assign(value)

    def add(self, total: Floats, rows: int) -> None:
        """Add what a portion of so many rows made of the noted values."""
        at = 0
        for item, before, sums in self._each():
            value = item.numpy()
            times = np.float32(1 if sums or _is_flag(before) else rows)
            with np.errstate(over="ignore"):
                for part in (_offset(value, before), np.ravel(value)):
                    total[at : at + value.size] += times * part.astype(np.float32)
                    at += value.size

    def apply(self, total: Floats, rows: float) -> None:
        """Set the values from what all members added up.

        Of a value that moved farther than from where it is to zero, as a smallest one
        that began with a very large number, the mean of values is exact, and that of
        distances is not.
        """
        at = 0
        for item, before, sums in self._each():
            found = total[at : at + 2 * before.size].reshape(2, *before.shape)
            at += 2 * before.size
            moved, values = found / np.float32(1 if sums else rows)
            far = np.abs(values) < np.abs(moved)
            if _is_flag(before):
                item.variable.assign(np.logical_xor(before, moved > 0))
            elif _is_count(before):
                far &= (np.abs(moved) > _FAR) & (not sums)
                steps = _whole(np.where(far, 0, moved)).astype(before.dtype)
                there = _whole(np.where(far, values, 0)).astype(before.dtype)
                with np.errstate(over="ignore"):  # a single number warns
                    item.variable.assign(np.where(far, there, before + steps))
            else:
                far &= not sums
                far |= ~np.isfinite(before)
                reached = np.where(far, values, _wide(before) + moved)
                item.variable.assign(reached.astype(before.dtype))

    def _each(self) -> zip[tuple[NamedVariable, NDArray[Any], bool]]:
        return zip(self._items, self.before, self._sums, strict=True)


def _is_flag(array: NDArray[Any]) -> bool:
    return array.dtype.kind == "b"


def _is_count(array: NDArray[Any]) -> bool:
    return array.dtype.kind in "iu"


def _offset(value: NDArray[Any], before: NDArray[Any]) -> NDArray[Any]:
    """Return what is exchanged: how far a value moved, of flags whether they changed.

    So what stays as it is does so to the last bit, however large it is. A value that is
    no number yet, as of a smallest one that begins with infinity, has no distance.
    """
    if _is_flag(before):
        found = value != before
    elif _is_count(before):
        # As integers: floats of 64 bits lose those from 2^53 on. Unsigned numbers go
        # below zero here as well, and what overflows begins again, as in Keras.
        found = np.ravel(value) - np.ravel(before)
        found = found.view(f"i{before.dtype.itemsize}")
    else:
        with np.errstate(invalid="ignore", over="ignore"):
            found = _wide(value) - _wide(before)
        found = np.where(np.isfinite(before), found, 0.0)
    return np.ravel(found)


def _whole(array: Floats) -> NDArray[np.int64]:
    rounded: Floats = np.rint(array)
    with np.errstate(invalid="ignore"):  # beyond 64 bits
        return rounded.astype(np.int64)


def _wide(array: NDArray[Any]) -> NDArray[Any]:
    """Return floats in which sums and differences lose nothing of theirs."""
    short = array.dtype.itemsize <= _FLOAT32_BYTES
    return array.astype(np.float32 if short else np.float64)
