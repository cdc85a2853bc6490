"""What passes over a batch and its portions make of a state variable.

Owns what a pass tells by itself: how far a batch is from the mean of its portions, how
far from their sum, and what rounding leaves of equal values. Called by
`measures.moves`, which decides by several passes, and `measures.state_trial`, which
makes them. Must not know layers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

# What single precision, and 16 bits, leave of equal values; in units of the last digit.
LAST_DIGITS = 4
_LAST_DIGIT = {"bfloat16": 2.0**-7, "float16": 2.0**-10, "float32": 2.0**-23}
# Of how far a step moves a state, what sums in another order leave.
_ROUNDING, _ROUNDING_16 = 3e-3, 3e-2


@dataclass(frozen=True)
class Pass:
    """What a step makes of a variable: with a batch, and with two portions of it."""

    before: Array
    whole: Array
    parts: tuple[Array, Array]
    first: float  # the first portion's share of the records

    @property
    def made(self) -> tuple[Array, ...]:
        """What a batch and its portions make of it."""
        return self.whole, *self.parts

    @property
    def known(self) -> Flags:
        """By element whether all values that are made are numbers."""
        return np.asarray(np.isfinite(np.stack(self.made)).all(axis=0))

    @property
    def begin(self) -> Array:
        """The value before; zero where it was no number, of which nothing is kept."""
        return np.where(np.isfinite(self.before), self.before, 0)

    @property
    def moves(self) -> bool:
        """Whether any of them moves it."""
        return any(not np.array_equal(self.before, one) for one in self.made)

    @property
    def alike(self) -> bool:
        """Whether the batch and its portions make the same of it."""
        return all(np.array_equal(self.whole, part) for part in self.parts)

    def off_mean(self) -> Array:
        """Return how far the batch is from the mean of its portions."""
        first, rest = self.parts
        with np.errstate(invalid="ignore", over="ignore"):
            return self._off(self.first * first + (1 - self.first) * rest)

    def off_sum(self, keeps: float | Array) -> Array:
        """Return how far the batch is from the sum of what its portions add."""
        first, rest = self.parts
        with np.errstate(invalid="ignore", over="ignore"):
            return self._off(first + rest - kept_of(self.begin, keeps))

    def tolerance(self, dtype: str) -> Array:
        """Return by element how far equal values may be apart."""
        known = self.known
        stacked = np.where(known, np.stack((self.begin, *self.made)), 0)
        short = "16" in dtype and "float" in dtype
        digits = LAST_DIGITS * last_digit(dtype) * np.abs(stacked).max(axis=0)
        share = _ROUNDING_16 if short else _ROUNDING
        return np.asarray(share * self._moved + digits)

    def is_mean(self, dtype: str) -> Flags:
        """By element whether the batch is the mean of its portions."""
        return np.asarray(self.off_mean() <= self.tolerance(dtype))

    def is_sum(self, keeps: float | Array, dtype: str) -> Flags:
        """By element whether the batch is the sum of what its portions add."""
        return np.asarray(self.off_sum(keeps) <= self.tolerance(dtype))

    @property
    def farthest(self) -> float:
        """How far an element is from zero, or moves, at most."""
        return float(
            max(np.abs(self.begin).max(initial=0.0), self._moved.max(initial=0.0))
        )

    @property
    def _moved(self) -> Array:
        known = self.known
        with np.errstate(over="ignore", invalid="ignore"):
            distances = np.abs(np.stack(self.made) - self.begin)
        return np.asarray(np.where(known, distances, 0).sum(axis=0))

    def _off(self, expected: Array) -> Array:
        return np.where(self.known, np.abs(self.whole - expected), 0)


@dataclass(frozen=True)
class Grown:
    """What other random numbers make of some records, and of these several times.

    Attributes:
        before: The value that it begins with.
        times: How often each record comes.
        few: What each draw makes of the records once.
        many: What each draw makes of them so often.
    """

    before: Array
    times: int
    few: tuple[Array, ...]
    many: tuple[Array, ...]

    def by(self, keeps: float | Array) -> float:
        """Return how many times as much is added, as the root of mean squares."""
        few, many = (float(np.sqrt(s.sum())) for s in self._squares(keeps))
        return many / few if few else 1.0

    def by_element(self, keeps: float | Array, dtype: str) -> Array:
        """Return the same for each element that anything is added to."""
        few, many = (np.sqrt(squares) for squares in self._squares(keeps))
        digits = LAST_DIGITS * last_digit(dtype) * np.abs(self.before)
        some = few > np.where(np.isfinite(digits), digits, 0)
        return many[some] / few[some]

    def _squares(self, keeps: float | Array) -> list[Array]:
        found = []
        for made in (self.few, self.many):
            with np.errstate(invalid="ignore", over="ignore"):
                added = np.stack(made) - kept_of(self.before, keeps)
            added = np.where(np.isfinite(added), added, 0)
            found.append(np.mean(np.square(added), axis=0))
        return found


@dataclass(frozen=True)
class Tried:
    """The passes that tell how a variable moves.

    Attributes:
        first: From the values that the model begins with.
        others: From the same, with each record twice, once in each portion; and with
            one record alone in a portion. Empty where that cannot be computed.
        later: From values that a step has made, with the batch and with each portion;
            from those halfway there, and from half of what it made.
        shifted: From values that are higher, twice: not by as much; and so where other
            state is as it begins. Empty where that cannot be computed, or is not asked.
        lifted: How much higher values were made, and what a batch makes of these; None
            as above.
        drawn: What several draws of random numbers make of it; empty if they make
            nothing else.
        grown: What they make of records that come more often.
    """

    first: Pass
    others: tuple[Pass, ...] = ()
    later: tuple[Pass, ...] = ()
    shifted: tuple[Pass, ...] = ()
    lifted: tuple[float, Array] | None = None
    drawn: tuple[Pass, ...] = ()
    grown: Grown | None = None

    @property
    def steps(self) -> tuple[Pass, ...]:
        """All passes but those from shifted values and random numbers."""
        return self.first, *self.others, *self.later


def kept_of(before: Array, keeps: float | Array) -> Array:
    """Return what is kept of a value; of none nothing, also where it is no number."""
    with np.errstate(invalid="ignore"):
        return np.where(np.equal(keeps, 0), 0, keeps * before)


def last_digit(dtype: str) -> float:
    """Return the last digit of numbers of a type, of a value of one."""
    return _LAST_DIGIT.get(dtype, 2.0**-52)
