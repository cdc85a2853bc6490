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


class MovedState:
    """Float state and counters; each portion of a step begins with the same values."""

    def __init__(self, variables: Sequence[NamedVariable]) -> None:
        """Take the variables that all members move alike."""
        self._items = variables
        self._sums = [False] * len(variables)
        self.before: list[NDArray[Any]] = []
        self.size = sum(int(np.prod(item.shape, dtype=np.int64)) for item in variables)

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
            part = _offset(value, before, sums=sums)
            times = 1 if sums or _is_flag(before) else rows
            total[at : at + value.size] += np.float32(times) * part
            at += value.size

    def apply(self, total: Floats, rows: float) -> None:
        """Set the values from what all members added up."""
        at = 0
        for item, before, sums in self._each():
            part = total[at : at + before.size] / np.float32(1 if sums else rows)
            at += before.size
            if _is_flag(before):
                part = np.logical_xor(before, part.reshape(before.shape) > 0)
                item.variable.assign(part)
                continue
            if _is_count(before):
                part = np.rint(part)
            if sums or _is_count(before):
                part = before + part.reshape(before.shape).astype(before.dtype)
            item.variable.assign(part.reshape(before.shape))

    def _each(self) -> zip[tuple[NamedVariable, NDArray[Any], bool]]:
        return zip(self._items, self.before, self._sums, strict=True)


def _is_flag(array: NDArray[Any]) -> bool:
    return array.dtype.kind == "b"


def _is_count(array: NDArray[Any]) -> bool:
    return array.dtype.kind in "iu"


def _offset(value: NDArray[Any], before: NDArray[Any], *, sums: bool) -> Floats:
    """Return what is exchanged: the value, or of sums and counts how far it moved.

    Of flags whether they changed.

    A value that is no number yet, as of a smallest one that begins with infinity, has
    no distance.
    """
    if _is_flag(before):
        value = value != before
    elif sums or _is_count(before):
        # Unsigned numbers go below zero here as well.
        value = value.astype(np.float64) - before.astype(np.float64)
    return np.ravel(value).astype(np.float32)
