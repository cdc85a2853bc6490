"""How what portions of a step make of a state variable is put together.

Owns the choice between a mean and a sum, from passes over a batch and two portions of
it. Called by `measures.portions`, which makes them; `worker.group.moved` puts portions
together so. Must not know layers.

A step makes `keeps * before + u` of a sum or a count, where the `u` of a batch is the
sum of those of its portions: a count of records keeps all, a decayed sum a part, the
sum of the last step nothing. Of anything else, as a moving average, the value of the
batch is the mean of those of its portions by their records; or nearly so, as of a
smallest value. What is found has to hold from the state on that a step has made, too.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# What single precision, and 16 bits, leave of equal values; in units of the last digit.
_LAST_DIGITS = 8
_LAST_DIGIT = {"bfloat16": 2.0**-7, "float16": 2.0**-10, "float32": 2.0**-23}
# Of how far a step moves a state, what sums in another order leave.
_ROUNDING, _ROUNDING_16 = 1e-3, 3e-2
# A sum is so much nearer to the batch than the mean, or the other way round: random
# numbers leave something.
_MUCH_NEARER = 0.5
# By how much two shares of the old value differ where the state is no such sum.
_UNLIKE = 0.01
# A share that has so few digits has no more: members that measure it on unlike
# processors find the same one.
_DIGITS, _MOST_DIGITS = 4, 6


@dataclass(frozen=True, eq=False)
class Movement:
    """How portions move a state variable together.

    Attributes:
        adds: By the sum of what they add; else by the mean of what they make of it.
        keeps: How much of the old value is in the new one, where they add: a number, or
            one for each element.
    """

    adds: bool = False
    keeps: float | Array = 1.0


MEAN = Movement()


class Doubt(enum.StrEnum):
    """Why portions do not make of a state what their batch makes of it."""

    NONE = ""
    NEITHER = (
        "is neither an average nor a sum over records: a batch makes something else of "
        "it than its portions together"
    )
    UNSTEADY = (
        "adds up over records, but not always in the same way, as a count that begins "
        "anew or a sum that is begun otherwise"
    )
    RANDOM = (
        "depends so much on random numbers that it is not known whether it adds up "
        "over records"
    )
    UNTRIED = (
        "was not tried before the first step, since the model takes no portions of a "
        "batch, so that it is not known whether it adds up over records"
    )
    UNMOVED = (
        "did not move in the batch that is tried before the first step, so that it is "
        "not known whether it adds up over records"
    )


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
    def _all(self) -> tuple[Array, ...]:
        return self.before, *self.made

    @property
    def known(self) -> NDArray[np.bool_]:
        """By element whether all values are numbers."""
        return np.asarray(np.isfinite(np.stack(self._all)).all(axis=0))

    @property
    def moves(self) -> bool:
        """Whether any of them moves it."""
        return any(not np.array_equal(self.before, one) for one in self.made)

    def from_mean(self) -> float:
        """Return how far the batch is from the mean of its portions."""
        first, rest = self.parts
        return self._far(self.first * first + (1 - self.first) * rest)

    def from_sum(self, keeps: float | Array) -> float:
        """Return how far the batch is from the sum of what its portions add."""
        before = np.where(self.known, self.before, 0)
        kept = np.where(np.equal(keeps, 0), 0, keeps * before)
        first, rest = self.parts
        return self._far(first + rest - kept)

    def rounding(self, dtype: str) -> float:
        """Return how far equal values may be apart."""
        known = self.known
        moved = sum(np.abs(one - self.before)[known].sum() for one in self.made)
        size = sum(np.abs(one)[known].sum() for one in self._all)
        share = _ROUNDING_16 if "16" in dtype and "float" in dtype else _ROUNDING
        return float(share * moved + _LAST_DIGITS * _last_digit(dtype) * size)

    def _far(self, expected: Array) -> float:
        known = self.known
        return float(np.abs(self.whole - expected)[known].sum())


@dataclass(frozen=True)
class Tried:
    """The passes that tell how a variable moves.

    Attributes:
        first: From the values that the model begins with.
        later: From the values that a step has made.
        shifted: From values that are higher by so much, for two shifts; empty where
            that cannot be computed.
        drawn: What other random numbers make of it; the mean of several, if they make
            something else.
    """

    first: Pass
    later: Pass
    shifted: tuple[tuple[float, Pass], ...] = ()
    drawn: Pass | None = None


def shifts(dtype: str) -> tuple[float, float]:
    """Return a shift that tells many digits of a share, and one much smaller."""
    if dtype in ("int8", "uint8"):
        return 64.0, 8.0
    if "16" in dtype:
        return 256.0, 8.0
    return 2.0**20, 16.0


def movement(tried: Tried, *, dtype: str) -> tuple[Movement, Doubt]:
    """Return how portions move a variable, and whether that is all there is to it."""
    first, later = tried.first, tried.later
    if not (first.moves or later.moves):
        return MEAN, Doubt.UNMOVED
    keeps = share_kept(tried, dtype=dtype)
    if tried.drawn is not None:
        return _of_random(tried.drawn, later, keeps)
    if keeps is not None and _adds(first, keeps):
        if later.from_sum(keeps) <= later.rounding(dtype):
            return Movement(adds=True, keeps=keeps), Doubt.NONE
        return MEAN, Doubt.UNSTEADY
    if any(_adds(one, 1.0) for one in (first, later)):
        return MEAN, Doubt.UNSTEADY
    if any(one.from_mean() > one.rounding(dtype) for one in (first, later)):
        return MEAN, Doubt.NEITHER
    unknown = ~(first.known | later.known) & np.isfinite(first.before)
    return MEAN, Doubt.UNMOVED if unknown.any() else Doubt.NONE


def _of_random(
    drawn: Pass, later: Pass, keeps: float | Array | None
) -> tuple[Movement, Doubt]:
    """Return what is nearer, and whether that is far from certain."""
    share = 1.0 if keeps is None else keeps
    ways = [(one.from_sum(share), one.from_mean()) for one in (drawn, later)]
    adds = ways[0][0] < ways[0][1]
    if adds and (keeps is None or ways[1][0] >= ways[1][1]):
        return MEAN, Doubt.UNSTEADY
    near, far = sorted(ways[0])
    doubt = Doubt.RANDOM if near > _MUCH_NEARER * far else Doubt.NONE
    return Movement(adds=True, keeps=share) if adds else MEAN, doubt


def _adds(one: Pass, keeps: float | Array) -> bool:
    apart = one.from_mean()
    return apart > 0 and one.from_sum(keeps) <= _MUCH_NEARER * apart


def share_kept(tried: Tried, *, dtype: str) -> float | Array | None:
    """Return how much of the old value a step keeps; None: that is no steady share.

    Integers keep all or nothing: parts of them are rounded.
    """
    found = []
    for by, shifted in tried.shifted:
        pairs = zip(shifted.made, tried.first.made, strict=True)
        with np.errstate(invalid="ignore"):
            found += [(higher - usual) / by for higher, usual in pairs]
    if not found:
        return None
    shares = np.stack(found)
    if not np.isfinite(shares).all() or np.ptp(shares, axis=0).max(initial=0) > _UNLIKE:
        return None
    share = np.clip(shares[0], 0.0, 1.0)  # of the larger shift, and the whole batch
    if np.abs(shares[0] - share).max(initial=0) > _UNLIKE:
        return None
    if "float" not in dtype and not np.isin(share := np.round(share, 2), (0, 1)).all():
        return None
    short = np.round(share, _DIGITS)
    share = np.where(np.abs(share - short) < 2e-6, short, np.round(share, _MOST_DIGITS))
    return float(share.flat[0]) if share.size and np.ptp(share) == 0 else share


def _last_digit(dtype: str) -> float:
    return _LAST_DIGIT.get(dtype, 2.0**-52)
