"""How what portions of a step make of a state variable is put together.

Owns the choice between a mean and a sum, from a try of a batch, whole and in two
portions. Called by `measures.portions`, which computes them; `worker.group.moved` puts
portions together so. Must not know layers.

A step makes `keeps * before + u` of a sum or a count, where the `u` of a batch is the
sum of those of its portions: a count of records keeps all, a decayed sum a part, the
sum of the last step nothing. Of anything else, as a moving average, the value of the
batch is the mean of those of its portions by their records; or nearly so, as of a
smallest value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# What is left of equal values, in units of their last digit.
_LAST_DIGITS = 4
_LAST_DIGIT = {"bfloat16": 2.0**-7, "float16": 2.0**-10, "float32": 2.0**-23}
# By how much two shares of the old value differ where the state is no such sum.
_UNLIKE = 0.01
# A share that has so few digits has no more: members that measure it on unlike
# processors find the same one.
_DIGITS, _MOST_DIGITS = 4, 6


@dataclass(frozen=True)
class Movement:
    """How portions move a state variable together.

    Attributes:
        adds: By the sum of what they add; else by the mean of what they make of it.
        keeps: How much of the old value is in the new one, where they add.
    """

    adds: bool = False
    keeps: float = 1.0


MEAN = Movement()


@dataclass(frozen=True)
class Tried:
    """What a step makes of a variable: with a batch, and with two portions of it."""

    before: Array
    whole: Array
    parts: tuple[Array, Array]
    first: float  # the first portion's share of the records

    def is_mean(self, last_digit: float) -> bool:
        """Whether the batch makes the mean of its portions of it, to the last digits.

        So does what stays as it is, or is set to the same by all. `last_digit`: of 1.
        """
        with np.errstate(invalid="ignore"):
            apart = np.abs(self.whole - self._mean(*self.parts))
        size = np.abs(self.before) + np.abs(self.whole)
        # That of the double precision in which all are compared, at least.
        digit = max(last_digit, 2.0**-52)
        return bool(np.all(apart <= _LAST_DIGITS * digit * size))

    def is_sum(self, keeps: float) -> bool:
        """Whether portions add up rather than being averaged."""
        whole, *parts = self._added(keeps)
        # What begins with infinity has moved by no number, and is no sum.
        with np.errstate(invalid="ignore"):
            from_sum = np.abs(whole - (parts[0] + parts[1])).sum()
            return bool(from_sum < np.abs(whole - self._mean(*parts)).sum())

    def is_by_place(self, rounding: float) -> bool:
        """Whether portions move other places than the batch, not as parts of it."""
        offsets = whole, *parts = self._added(1.0)
        if not np.isfinite(offsets).all():
            return False
        places = [one != 0 for one in offsets]
        if all(np.array_equal(places[0], one) for one in places[1:]):
            return False
        bound = rounding * np.abs(whole).max()
        return not any(
            np.allclose(whole, one, rtol=rounding, atol=bound)
            for one in (self._mean(*parts), parts[0] + parts[1])
        )

    def _added(self, keeps: float) -> list[Array]:
        with np.errstate(invalid="ignore"):
            return [one - keeps * self.before for one in (self.whole, *self.parts)]

    def _mean(self, first: Array, rest: Array) -> Array:
        return self.first * first + (1 - self.first) * rest


def movement(
    tried: Tried, shifted: Callable[[float], Array], *, dtype: str
) -> Movement | None:
    """Return how portions move a variable; None: they add to it, but not always so.

    As a count does that begins anew beyond some number. `shifted`: what a step makes of
    the variable where it begins so much higher.
    """
    if dtype == "bool":
        return MEAN
    adds = tried.is_sum(1.0)
    if not adds and tried.is_mean(_LAST_DIGIT.get(dtype, 0.0)):
        return MEAN
    much, little = _shifts(dtype)
    usual = shifted(0.0)
    share = _share(shifted(much), usual, by=much)
    again = _share(shifted(little), usual, by=little)
    if share is not None and again is not None and abs(share - again) <= _UNLIKE:
        if not tried.is_sum(share):
            return MEAN
        if "float" in dtype or share in (0.0, 1.0):
            return Movement(adds=True, keeps=share)
    return None if adds else MEAN


def _shifts(dtype: str) -> tuple[float, float]:
    """Return a shift that tells many digits of the share, and one much smaller."""
    if dtype in ("int8", "uint8"):
        return 64.0, 8.0
    if "16" in dtype:
        return 256.0, 8.0
    return 2.0**20, 16.0


def _share(shifted: Array, usual: Array, *, by: float) -> float | None:
    """Return how much of a shift is left; None: not the same of all elements."""
    with np.errstate(invalid="ignore"):
        shares = (shifted - usual) / by
    if not np.isfinite(shares).all() or np.ptp(shares) > _UNLIKE:
        return None
    share = float(np.clip(np.median(shares), 0.0, 1.0))
    if abs(np.median(shares) - share) > _UNLIKE:
        return None
    short = round(share, _DIGITS)
    return short if abs(share - short) < 2e-6 else round(share, _MOST_DIGITS)
