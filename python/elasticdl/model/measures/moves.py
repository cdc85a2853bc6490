"""How what portions of a step make of a state variable is put together.

Owns the choice between a mean and a sum, from passes over a batch and two portions of
it. Called by `measures.portions`, which makes them; `worker.group.moved` puts portions
together so. Must not know layers.

A step makes `keeps * before + u` of a sum or a count, where the `u` of a batch is the
sum of those of its portions: a count of records keeps all, a decayed sum a part, the
sum of the last step nothing; records that come twice add twice as much. Of anything
else, as a moving average, the value of the batch is the mean of those of its portions
by their records; or nearly so, as of a smallest value. What is found has to hold from
the state on that a step has made, too.
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
# What the last digits leave of a share that is measured.
_SHARE_DIGITS = 8
# A share that has so few digits has no more: members that measure it on unlike
# processors find the same one.
_DIGITS, _MOST_DIGITS = 4, 6
_SHORT = 2e-6


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
        "was not moved by the records that are tried before the first step, so that it "
        "is not known whether it adds up over records"
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
        kept = _kept(np.where(self.known, self.before, 0), keeps)
        first, rest = self.parts
        return self._far(first + rest - kept)

    def added(self, keeps: float | Array) -> float:
        """Return how far the values are from what is kept of the one before."""
        kept = _kept(self.before, keeps)
        return max(float(np.abs(one - kept)[self.known].sum()) for one in self.made)

    def rounding(self, dtype: str) -> float:
        """Return how far equal values may be apart."""
        known = self.known
        moved = sum(np.abs(one - self.before)[known].sum() for one in self.made)
        share = _ROUNDING_16 if "16" in dtype and "float" in dtype else _ROUNDING
        return float(share * moved) + self.digits(dtype)

    def digits(self, dtype: str) -> float:
        """Return what the last digits of the values come to."""
        size = sum(np.abs(one)[self.known].sum() for one in self._all)
        return float(_LAST_DIGITS * _last_digit(dtype) * size)

    def _far(self, expected: Array) -> float:
        known = self.known
        return float(np.abs(self.whole - expected)[known].sum())


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
        sizes = []
        for made in (self.few, self.many):
            with np.errstate(invalid="ignore"):
                added = np.stack(made) - _kept(self.before, keeps)
            added = added[np.isfinite(added)]
            sizes.append(float(np.sqrt(np.mean(np.square(added)))) if added.size else 0)
        return sizes[1] / sizes[0] if sizes[0] else 1.0


@dataclass(frozen=True)
class Tried:
    """The passes that tell how a variable moves.

    Attributes:
        first: From the values that the model begins with.
        later: From the values that a step has made.
        others: From the former, with each record twice, once in each portion; and with
            one record alone in a portion. Empty where that cannot be computed.
        shifted: From values that are higher, twice: not by as much; empty where that
            cannot be computed.
        drawn: What other random numbers make of it, the mean of several; None if they
            make nothing else.
        grown: What they make of records that come more often.
    """

    first: Pass
    later: Pass
    others: tuple[Pass, ...] = ()
    shifted: tuple[Pass, ...] = ()
    drawn: Pass | None = None
    grown: Grown | None = None


def shifts(dtype: str) -> tuple[float, float]:
    """Return by how much values are made higher to see what a step keeps of them.

    By so much that what a step adds to them is little beside; of integers, which keep
    all or nothing, by less: they may be a number of rounds, or a size.
    """
    if dtype in ("int8", "uint8"):
        return 8.0, 64.0
    if "float" not in dtype:
        return 8.0, 4099.0
    if "16" in dtype:
        return 8.0, 256.0
    return 2.0**20, 2.0**24


def movement(tried: Tried, *, dtype: str) -> tuple[Movement, Doubt]:
    """Return how portions move a variable, and whether that is all there is to it."""
    first, later = tried.first, tried.later
    if not (first.moves or later.moves):
        return MEAN, Doubt.UNMOVED
    keeps = share_kept(tried, dtype=dtype)
    if tried.drawn is not None:
        return _of_random(tried.drawn, tried, keeps)
    if keeps is not None:
        if not any(_has_added(one, keeps, dtype) for one in (first, later)):
            return MEAN, Doubt.UNMOVED
        if _adds(first, keeps, dtype):
            return _of_sum(tried, keeps, dtype)
    return MEAN, _of_mean(tried, dtype)


def _of_sum(tried: Tried, keeps: float | Array, dtype: str) -> tuple[Movement, Doubt]:
    """Return how portions move what adds up in the first pass."""
    if not tried.others:
        return MEAN, Doubt.UNTRIED
    # Twice the records add twice as much: a largest value, or whether there is any such
    # record, is no sum, though one portion alone may move it.
    if not all(_is_sum(one, keeps, dtype) for one in tried.others):
        return MEAN, Doubt.NEITHER
    if not _is_sum(tried.later, keeps, dtype):
        return MEAN, Doubt.UNSTEADY
    return Movement(adds=True, keeps=keeps), Doubt.NONE


def _of_mean(tried: Tried, dtype: str) -> Doubt:
    """Return why anything else is not the mean of what portions make of it."""
    first, later = steps = tried.first, tried.later
    if any(_adds(one, 1.0, dtype) for one in steps):
        return Doubt.UNSTEADY
    if any(one.from_mean() > one.rounding(dtype) for one in (*steps, *tried.others)):
        return Doubt.NEITHER
    unknown = ~(first.known | later.known) & np.isfinite(first.before)
    return Doubt.UNMOVED if unknown.any() else Doubt.NONE


def _of_random(
    drawn: Pass, tried: Tried, keeps: float | Array | None
) -> tuple[Movement, Doubt]:
    """Return how random numbers move a variable, and whether that is certain.

    Records that come `n` times add `n` times as much to a sum, or `n ** 0.5` times
    where it is noise; a mean stays, or is smaller. Between these lies `n ** 0.25`.
    """
    if tried.grown is None:
        return MEAN, Doubt.RANDOM
    share = 1.0 if keeps is None else keeps
    adds = tried.grown.by(share) > tried.grown.times**0.25
    if adds and keeps is None:
        return MEAN, Doubt.UNSTEADY
    ways = [(one.from_sum(share), one.from_mean()) for one in (drawn, tried.later)]
    if adds and ways[1][0] >= ways[1][1]:
        return MEAN, Doubt.UNSTEADY
    near, far = ways[0] if adds else ways[0][::-1]
    doubt = Doubt.RANDOM if near > _MUCH_NEARER * far else Doubt.NONE
    return Movement(adds=True, keeps=share) if adds else MEAN, doubt


def _has_added(one: Pass, keeps: float | Array, dtype: str) -> bool:
    """Whether a batch adds anything to what is kept."""
    return one.added(keeps) > one.digits(dtype)


def _adds(one: Pass, keeps: float | Array, dtype: str) -> bool:
    apart = one.from_mean()
    return apart > one.digits(dtype) and one.from_sum(keeps) <= _MUCH_NEARER * apart


def _is_sum(one: Pass, keeps: float | Array, dtype: str) -> bool:
    return one.from_sum(keeps) <= one.rounding(dtype)


def share_kept(tried: Tried, *, dtype: str) -> float | Array | None:
    """Return how much of the old value a step keeps; None: that is no steady share.

    It is measured between two values that are both much higher than usual. What a step
    adds may be another amount there, as nothing beyond a bound, but is the same for
    both. Integers keep all or nothing: parts of them are rounded.
    """
    if len(tried.shifted) != 2:
        return None
    low, high = tried.shifted
    by = shifts(dtype)[1] - shifts(dtype)[0]
    pairs = zip(high.made, low.made, strict=True)
    with np.errstate(invalid="ignore"):
        shares = np.stack([(higher - lower) / by for higher, lower in pairs])
    if not np.isfinite(shares).all():
        return None
    share = np.clip(shares[0], 0.0, 1.0)
    most = np.abs(shares - share).max(axis=0)
    if most.max(initial=0) > _UNLIKE:
        return None
    if "float" not in dtype:
        share = np.round(share, 2)
        if not np.isin(share, (0, 1)).all():
            return None
    # What is added may be another amount for each of the two, and has last digits.
    added = np.abs(low.whole - _kept(low.before, share)) / by
    apart = 2 * added + _SHARE_DIGITS * _last_digit(dtype)
    if (most > apart).any():
        return None
    short = np.round(share, _DIGITS)
    near = np.abs(share - short) < np.maximum(_SHORT, apart)
    share = np.where(near, short, np.round(share, _MOST_DIGITS))
    return float(share.flat[0]) if share.size and np.ptp(share) == 0 else share


def _kept(before: Array, keeps: float | Array) -> Array:
    """Return what is kept of a value; of none nothing, also where it is no number."""
    with np.errstate(invalid="ignore"):
        return np.where(np.equal(keeps, 0), 0, keeps * before)


def _last_digit(dtype: str) -> float:
    return _LAST_DIGIT.get(dtype, 2.0**-52)
