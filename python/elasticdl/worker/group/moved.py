"""The model's state that training moves besides its gradients, in the steps of a group.

Owns how what portions do to it travels and is put together: moving averages by their
records, counts added up, flags changed that any of them changes. Called by
`worker.group.step`. Must not know gradients or members.

All that members do is to add up vectors of float32:

    flags       whether a portion changed it
    integers    their bytes, each a number of its own: sums of bytes are exact, and so
                are sums and means of integers, also where these wrap around
    floats      the distance from where the step began, or what is added to the share
                that a sum keeps; and the value itself

and at the end how many portions there were, and by what means of integers are divided.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elasticdl.model.measures.moves import MEAN, Movement
from elasticdl.model.variables import NamedVariable
from elasticdl.worker.group.reached import Reached, adds_of, kept_of, wide_of

log = logging.getLogger(__name__)

Floats = NDArray[np.float32]
_BYTE = 256
# Bytes of so many records at most add up to numbers that float32 has exactly. Records
# of larger steps are counted in lots.
_MOST_RECORDS = 1 << 15
# At the vector's end: portions, and lots of records.
_COUNTS = 2


class MovedState:
    """Float state and counters; each portion of a step begins with the same values."""

    def __init__(self, variables: Sequence[NamedVariable]) -> None:
        """Take the variables that all members move alike."""
        self._items = variables
        self._movements = [MEAN] * len(variables)
        self.before: list[NDArray[Any]] = []
        self._told: set[str] = set()
        self.size = _COUNTS + sum(
            _width(np.dtype(item.variable.dtype)) * int(np.prod(item.shape))
            for item in variables
        )

    @property
    def variables(self) -> list[Any]:
        """The variables of Keras."""
        return [item.variable for item in self._items]

    def moves_by(self, movements: Sequence[Movement]) -> None:
        """Take by variable how portions move it together."""
        self._movements = list(movements)

    def described(self) -> bytes:
        """Return how portions move the variables, for another member."""
        found = [
            [np.asarray(one).tolist() for one in (m.adds, m.keeps, m.grows, m.surely)]
            for m in self._movements
        ]
        return json.dumps(found).encode()

    def take(self, described: bytes) -> None:
        """Take how portions move the variables from the member whose state this is.

        Its own trial may have had another batch, or other random numbers.
        """
        self._movements = [
            Movement(
                adds if isinstance(adds, bool) else np.asarray(adds, np.bool_),
                keeps if isinstance(keeps, float) else np.asarray(keeps),
                grows if isinstance(grows, bool) else np.asarray(grows, np.bool_),
                surely if isinstance(surely, bool) else np.asarray(surely, np.bool_),
            )
            for adds, keeps, grows, surely in json.loads(described)
        ]

    def begin(self) -> None:
        """Note the values: each attempt at the next step begins with them."""
        self.before = [item.numpy() for item in self._items]

    def rewind(self) -> None:
        """Put the noted values back."""
        for item, value in zip(self._items, self.before, strict=True):
            item.variable.assign(value)

    def add(self, total: Floats, rows: int, *, of: int) -> None:
        """Add what a portion of so many rows made of the noted values.

        `of`: records of the whole step.
        """
        lots = np.float32(max(1, round(rows * _MOST_RECORDS / max(of, _MOST_RECORDS))))
        total[-1] += lots
        total[-2] += 1
        for part, item, before, movement in self._parts(total):
            value = item.numpy().reshape(-1)
            begin = before.reshape(-1)
            if before.dtype.kind == "b":
                part[0] += value != begin
            elif before.dtype.kind in "iu":
                part[:] += _bytes_made(value, begin, movement, lots)
            else:
                times = _each(movement, 1.0, rows / _scale(of))
                with np.errstate(over="ignore"):
                    part[0] += times * _added(value, begin, movement)
                    part[1] += times * value.astype(np.float32)

    def apply(self, total: Floats, rows: float, *, of: int) -> None:
        """Set the values from what all members added up; `of`: as for `add`."""
        portions = round(float(total[-2]))
        found = [
            self._together(part, before, movement, total, rows / _scale(of))
            for part, _, before, movement in self._parts(total)
        ]
        fresh = [one.begins_anew(portions) for one in found]
        layers = {
            _layer_of(item)
            for item, (anew, _), one in zip(self._items, fresh, found, strict=True)
            if anew.any() and one.is_whole(anew)
        }
        for number, (item, one) in enumerate(zip(self._items, found, strict=True)):
            anew, goes_on = fresh[number]
            if np.any(one.movement.grows):
                self._tell_of_smaller(number, item, anew=bool(anew.any()), on=goes_on)
            elif _layer_of(item) in layers and np.all(one.movement.adds):
                begins = one.may_begin_anew(portions)
                anew = np.full_like(anew, begins)
                self._tell_of_layer(item, anew=begins)
            reached = one.reached
            if anew.any():
                reached = np.where(anew, one.values, one.reached)
            before = self.before[number]
            item.variable.assign(reached.astype(before.dtype).reshape(before.shape))

    def _tell_of_smaller(
        self, number: int, item: NamedVariable, *, anew: bool, on: bool
    ) -> None:
        """Tell once of a sum that got smaller, and only grew when it was tried."""
        if not on:
            # All members see that in the same step.
            self._movements[number] = replace(self._movements[number], grows=False)
        if (on and not anew) or item.name in self._told:
            return
        self._told.add(item.name)
        log.warning(
            "State %s got smaller in this step, where it %s; when it was tried each "
            "record made it larger. Workers of strategy allReduce add up what portions "
            "of a step add to it: expected a sum of which each step keeps the same "
            "share, else set strategy: local",
            item.name,
            "begins anew" if anew else "does not begin anew",
        )

    def _tell_of_layer(self, item: NamedVariable, *, anew: bool) -> None:
        """Tell once of a signed sum in whose layer others begin anew."""
        if item.name in self._told:
            return
        self._told.add(item.name)
        log.warning(
            "What the layer of state %s counts begins anew in this step; by what "
            "portions made of it, so does %s. In other steps this may look otherwise: "
            "set strategy: local if it has to be exact",
            item.name,
            "this state" if anew else "not this state",
        )

    @staticmethod
    def _together(
        part: Floats,
        before: NDArray[Any],
        movement: Movement,
        total: Floats,
        rows: float,
    ) -> Reached:
        """Return what portions made of a variable; `rows` in the scale of `add`."""
        begin = before.reshape(-1)
        if before.dtype.kind == "b":
            flags = np.logical_xor(begin, part[0] > 0)
            return Reached(begin, flags, flags, movement)
        if before.dtype.kind in "iu":
            lots, portions = round(float(total[-1])), round(float(total[-2]))
            reached = _reached_integers(begin, part, movement, lots)
            values = reached + begin * begin.dtype.type(portions - 1)
            return Reached(begin, reached, values, movement)
        moved, values = part / _each(movement, 1.0, rows)
        return Reached(
            begin, _reached(begin, moved, values, movement), values, movement
        )

    def _parts(
        self, total: Floats
    ) -> list[tuple[Floats, NamedVariable, NDArray[Any], Movement]]:
        """Return by variable its part of the vector, a row for each of its floats."""
        found, at = [], 0
        each = zip(self._items, self.before, self._movements, strict=True)
        for item, before, movement in each:
            end = at + _width(before.dtype) * before.size
            part = total[at:end].reshape(_width(before.dtype), before.size)
            found.append((part, item, before, movement))
            at = end
        return found


def _layer_of(item: NamedVariable) -> str:
    return item.name.rpartition("/")[0]


def _each(movement: Movement, added: float, averaged: float) -> Floats:
    """Return one number for what adds up, and another for what is averaged."""
    return np.where(adds_of(movement), added, averaged).astype(np.float32)


def _width(dtype: np.dtype[Any]) -> int:
    """Return how many floats travel for each element."""
    if dtype.kind == "b":
        return 1
    return dtype.itemsize if dtype.kind in "iu" else 2


# -- integers --------------------------------------------------------------------------


def _from_the_least(array: NDArray[Any]) -> NDArray[Any]:
    """Count signed numbers from the smallest one, so that their order is of bytes'.

    Twice is the number itself again.
    """
    if array.dtype.kind == "u":
        return array
    return array ^ np.iinfo(array.dtype).min


def _bytes_of(array: NDArray[Any]) -> Floats:
    """Return the bytes of integers, a row for each, the lowest first."""
    whole = array.astype(f"<u{array.dtype.itemsize}")
    rows = whole.reshape(-1, 1).view(np.uint8).T
    return rows.astype(np.float32)


def _integers(sums: Floats, divisor: int) -> NDArray[np.uint64]:
    """Return the integers whose bytes add up to so many times these, rounded.

    What is beyond 64 bits wraps around.
    """
    by = np.uint64(divisor)
    found = np.zeros(sums.shape[1], np.uint64)
    rest = np.zeros(sums.shape[1], np.uint64)
    for row in np.rint(sums[::-1]).astype(np.uint64):
        rest = rest * np.uint64(_BYTE) + row
        found = found * np.uint64(_BYTE) + rest // by
        rest %= by
    return found + (2 * rest >= by)


def _bytes_made(
    value: NDArray[Any], before: NDArray[Any], movement: Movement, lots: np.float32
) -> Floats:
    """Return the bytes of what a portion adds, or of what it made, counted in lots."""
    adds = adds_of(movement)
    if not adds.any():
        return lots * _bytes_of(_from_the_least(value))
    added = _bytes_of(value - kept_of(before, movement))
    if adds.all():
        return added
    return np.where(adds, added, lots * _bytes_of(_from_the_least(value)))


def _reached_integers(
    before: NDArray[Any], sums: Floats, movement: Movement, lots: int
) -> NDArray[Any]:
    """Return what portions made of integers, in so many lots of records."""
    kind, adds = before.dtype, adds_of(movement)
    added: NDArray[Any] = kept_of(before, movement) + _integers(sums, 1).astype(kind)
    if adds.all():
        return added
    averaged = _from_the_least(_integers(sums, lots).astype(kind))
    return np.where(adds, added, averaged)


# -- floats ----------------------------------------------------------------------------


def _scale(records: int) -> float:
    """Return a power of two so large that shares of a step's records are below 1.

    A value times its rows could be beyond single precision.
    """
    return float(2 ** max(0, records - 1).bit_length())


def _added(
    value: NDArray[Any], before: NDArray[Any], movement: Movement
) -> NDArray[Any]:
    """Return what a portion added to the share of the old value that is kept.

    Of what keeps all that is how far it moved: what stays as it is does so to the last
    bit. A value that is no number yet, as of a smallest one that begins with infinity,
    has no distance.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        kept = kept_of(before, movement)
        found = np.where(np.isfinite(kept), wide_of(value) - kept, 0.0)
        return found.astype(np.float32)


def _reached(
    before: NDArray[Any], moved: Floats, values: Floats, movement: Movement
) -> NDArray[Any]:
    """Return what portions made of a value.

    Of a mean that moved farther than from where it is to zero, as a smallest value that
    began with a very large number, the mean of values is exact, and that of distances
    is not.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        kept = kept_of(before, movement)
        far = (np.abs(values) < np.abs(moved)) & ~adds_of(movement)
        return np.where(far | ~np.isfinite(kept), values, kept + moved)
