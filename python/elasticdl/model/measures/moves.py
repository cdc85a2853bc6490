"""How what portions of a step make of a state variable is put together.

Owns the choice between a mean and a sum, from passes over a batch and two portions of
it. Called by `measures.state_trial`, which makes them; `worker.group.moved` puts
portions together so. Must not know layers.

A step makes `keeps * before + u` of a sum or a count, where the `u` of a batch is the
sum of those of its portions: a count of records keeps all, a decayed sum a part, the
sum of the last step nothing; records that come twice add twice as much. Of anything
else, as a moving average, the value of the batch is the mean of those of its portions
by their records; or nearly so, as of a smallest value. What is found has to hold from
the values on that a step has made, too, and from others between.

Each element is looked at alone: a vector may have a count beside an average.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from elasticdl.model.measures.passes import (
    LAST_DIGITS,
    Array,
    Flags,
    Pass,
    Tried,
    kept_of,
    last_digit,
)

# So many of the elements may be odd in one pass, as where rounding gives a record to
# another of them.
_MOST_ODD = 0.01
# A sum is so much nearer to the batch than the mean, or the other way round.
_MUCH_NEARER = 0.5
# Random numbers leave something: by so many standard errors may a batch be apart from
# its portions, and so near to the middle between a sum and a mean is neither certain.
_ERRORS, _MIDDLE = 6.0, 0.125
# So many elements may seem to move otherwise by chance.
_OTHERS = 0.1
# By how much two shares of the old value differ where the state is no such sum; in 16
# bits, which have two digits of a share.
_UNLIKE = {"bfloat16": 5e-3, "float16": 3e-3}
_UNLIKE_INTEGERS = 0.01
# By how much less than all is kept of a sum that decays.
_DECAYS = 1e-4
# A share that has so few digits has no more, by what is measured.
_MOST_DIGITS, _SHORT = 6, 2e-7
# What the last digits leave of a share; what is added may leave so much, or the share
# is not known.
_SHARE_DIGITS, _MOST_OFF = 8, 2e-5


@dataclass(frozen=True, eq=False)
class Movement:
    """How portions move a state variable together.

    Attributes:
        adds: By the sum of what they add; else by the mean of what they make of it.
            One for each element where these differ.
        keeps: How much of the old value is in the new one, where they add: a number, or
            one for each element.
        grows: No record that was tried adds anything below zero; one for each element
            where these differ.
        surely: So many did add something that this is no chance: where it gets smaller,
            it may have begun anew.
    """

    adds: bool | Flags = False
    keeps: float | Array = 1.0
    grows: bool | Flags = False
    surely: bool | Flags = False


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
    # Of what is declared as a sum:
    AVERAGE = "was moved before the first step as an average over records is"
    UNKEPT = (
        "showed no steady share of its old value that a step keeps before the first "
        "step, so that all of it is taken to be kept"
    )


def lift(before: Array) -> float:
    """Return what a state is made higher by to see whether it only decays.

    As much as it is, or digits are lost; a number of rounds begins with little.
    """
    most = float(np.abs(before[np.isfinite(before)]).max(initial=0.0))
    return float(2.0 ** np.ceil(np.log2(8.0 + min(most, 2.0**60))))


def shifts(dtype: str, farthest: float = 1.0) -> tuple[float, float]:
    """Return by how much values are made higher to see what a step keeps of them.

    By so much that what a step adds to them is little beside; of integers, which keep
    all or nothing, by less: they may be a number of rounds, or a size.

    Args:
        dtype: The type of the values.
        farthest: How far one is from zero, or moves in a step, at most.
    """
    if dtype in ("int8", "uint8"):
        return 8.0, 64.0
    if "float" not in dtype:
        return 8.0, 4099.0
    # Powers of two, beside which no digit is lost; float16 ends at 2**16.
    size = np.ceil(np.log2(np.clip(farthest, 1.0, 2.0**100)))
    low = 2.0 ** (min(size + 3, 10) if dtype == "float16" else size + 20)
    return float(low), float(16 * low)


def may_add(tried: Tried, *, dtype: str) -> bool:
    """Whether anything is left to find: it is no mean, or depends on random numbers."""
    return bool(tried.drawn) or not all(s.is_mean(dtype).all() for s in tried.steps)


def movement(tried: Tried, *, dtype: str) -> tuple[Movement, Doubt]:
    """Return how portions move a variable, and whether that is all there is to it."""
    if not any(one.moves for one in tried.steps):
        return MEAN, Doubt.UNMOVED
    shares = share_kept(tried, dtype=dtype)
    if tried.drawn:
        return _of_random(tried, shares, dtype)
    if not may_add(tried, dtype=dtype):
        return MEAN, _of_mean(tried, dtype)
    keeps, steady = shares
    not_mean = np.sum([~one.is_mean(dtype) for one in tried.steps], axis=0)
    not_sum = np.sum([~one.is_sum(keeps, dtype) for one in tried.steps], axis=0)
    mean, total = not_mean == 0, steady & (not_sum == 0)
    told = ~(mean & total)
    odd = told & ~mean & ~total
    often = odd & (not_mean > 1) & (~steady | (not_sum > 1))
    if often.any() or odd.sum() > _MOST_ODD * told.sum():
        return MEAN, _why_odd(tried, odd, keeps, dtype)
    adds = total & ~mean
    if not adds.any():
        return MEAN, Doubt.NONE
    if not tried.others:
        return MEAN, Doubt.UNTRIED
    kept = _shortest(np.where(steady, keeps, np.median(keeps[adds])))
    if (adds | odd | ~told).all():
        # Of an element that nothing was added to it is known what it keeps.
        others = ~told & ~np.isin(keeps, keeps[adds])
        return Movement(adds=True, keeps=kept), (
            Doubt.UNSTEADY if others.any() else Doubt.NONE
        )
    # Of an element that nothing was added to it is not known which it is.
    doubt = Doubt.NONE if told.all() else Doubt.UNMOVED
    return Movement(adds=adds, keeps=kept), doubt


def declared_sum(
    tried: Tried, found: Movement, doubt: Doubt, *, dtype: str
) -> tuple[Movement, Doubt]:
    """Return how portions move a variable that is declared as a sum.

    The declaration decides also where what was tried contradicts it, which is told.
    What a step keeps of the old value is known from the trial alone.
    """
    if np.all(found.adds):
        return found, Doubt.NONE if doubt is Doubt.RANDOM else doubt
    keeps, steady = share_kept(tried, dtype=dtype)
    if not steady.all():
        return Movement(adds=True), Doubt.UNKEPT
    is_sum = all(one.is_sum(keeps, dtype).all() for one in tried.steps)
    if is_sum or doubt is Doubt.RANDOM:
        doubt = Doubt.NONE
    elif doubt is Doubt.NONE:
        doubt = Doubt.AVERAGE
    return Movement(adds=True, keeps=_shortest(keeps)), doubt


def growing(
    found: Movement, before: Array, made: Sequence[Array], dtype: str
) -> Movement:
    """Return a movement with where it grows alone, as single records make this of it.

    A signed sum may have grown by chance, the more so an element that few records have
    met: beside one that got smaller, those count which each record made larger.
    """
    if "int8" in dtype or not np.any(found.keeps) or not made:
        return found  # it soon wraps around; or it is that of each step alone
    kept = kept_of(before, found.keeps)
    most = LAST_DIGITS * last_digit(dtype) * np.abs(kept)
    adds = np.broadcast_to(found.adds, kept.shape)
    with np.errstate(invalid="ignore"):
        added = np.array([one - kept for one in made])
        less, more = adds & (added < -most).any(axis=0), adds & (added > most)
    grows = adds & ~less
    if less.any():
        grows = surely = grows & more.all(axis=0)
    else:
        surely = grows & (more.sum() >= len(made))
    return replace(found, grows=_short(grows), surely=_short(surely))


def _short(flags: Flags) -> bool | Flags:
    return bool(flags.any()) if flags.all() or not flags.any() else flags


def _of_mean(tried: Tried, dtype: str) -> Doubt:
    """Return why a state may be no mean that was one in all passes."""
    first = tried.first
    if tried.lifted is not None and first.alike and np.isfinite(first.before).all():
        # What decays alone is a sum to which no record has added anything.
        by, lifted = tried.lifted
        share = (lifted - first.whole) / by
        off = np.abs(first.whole - kept_of(first.before, share))
        digits = 2 * LAST_DIGITS * last_digit(dtype) * np.abs(first.before)
        if (share < 1 - _DECAYS).all() and (off <= digits).all():
            return Doubt.UNMOVED
    known = np.any([one.known for one in tried.steps], axis=0)
    return Doubt.NONE if (known | ~np.isfinite(first.before)).all() else Doubt.UNMOVED


def _why_odd(tried: Tried, odd: Flags, keeps: Array, dtype: str) -> Doubt:
    """Return why elements are neither a mean nor a sum."""
    begin = (tried.first, *tried.others)
    seems = [
        _seems_sum(one, keeps, dtype) | _seems_sum(one, 1.0, dtype) for one in begin
    ]
    unsteady = np.all(seems, axis=0)[odd].mean() > _MUCH_NEARER
    return Doubt.UNSTEADY if unsteady else Doubt.NEITHER


def _seems_sum(one: Pass, keeps: float | Array, dtype: str) -> Flags:
    apart = one.off_mean()
    near = one.off_sum(keeps) <= np.maximum(_MUCH_NEARER * apart, one.tolerance(dtype))
    return np.asarray(near)


def _of_random(
    tried: Tried, shares: tuple[Array, Flags], dtype: str
) -> tuple[Movement, Doubt]:
    """Return how random numbers move a variable, and whether that is certain.

    Records that come `n` times add `n` times as much to a sum, or `n ** 0.5` times
    where it is noise; a mean stays, or is smaller. Between these lies `n ** 0.25`.
    """
    if tried.grown is None:
        return MEAN, Doubt.RANDOM
    keeps, steady = shares
    share = _shortest(keeps) if steady.all() else 1.0
    times, grown = tried.grown.times, tried.grown.by(share)
    adds = grown > times**0.25
    if adds and not (steady.all() and all(_nearer_sum(p, share) for p in tried.later)):
        return MEAN, Doubt.UNSTEADY
    least, most = times ** (0.25 - _MIDDLE), times ** (0.25 + _MIDDLE)
    found = Movement(adds=True, keeps=share) if adds else MEAN
    each = tried.grown.by_element(share, dtype)
    others = np.mean(each < least if adds else each > most) if each.size else 0.0
    if least < grown < most or others > _OTHERS or not each.size:
        return found, Doubt.RANDOM
    apart = _is_apart(tried.drawn, found, dtype)
    return found, Doubt.NEITHER if apart else Doubt.NONE


def _nearer_sum(one: Pass, keeps: float | Array) -> bool:
    return bool(one.off_sum(keeps).sum() < one.off_mean().sum())


def _is_apart(drawn: Sequence[Pass], found: Movement, dtype: str) -> bool:
    """Whether a batch makes something else than its portions, beyond random numbers."""
    errors = []
    for one in drawn:
        first, rest = one.parts
        together = one.first * first + (1 - one.first) * rest
        if found.adds:
            together = first + rest - kept_of(one.before, found.keeps)
        errors.append(np.where(one.known, one.whole - together, 0))
    spread = np.linalg.norm(np.std(errors, axis=0, ddof=1)) / len(errors) ** 0.5
    rounding = np.linalg.norm(drawn[0].tolerance(dtype))
    apart = np.linalg.norm(np.mean(errors, axis=0))
    return bool(apart > _ERRORS * spread + rounding)


def share_kept(tried: Tried, *, dtype: str) -> tuple[Array, Flags]:
    """Return by element how much of the old value a step keeps, and if that is steady.

    It is measured between two values that are both much higher than usual. What a step
    adds may be another amount there, as nothing beyond a bound, but is the same for
    both. Where other state is as it begins the share has to be what it is later.
    Integers keep all or nothing: parts of them are rounded.
    """
    size = tried.first.before.shape
    if not tried.shifted:
        return np.ones(size), np.zeros(size, np.bool_)
    share, steady, most = _share(*tried.shifted[:2], dtype=dtype)
    if tried.shifted[2:]:
        begun, also, more = _share(*tried.shifted[2:], dtype=dtype)
        steady = steady & also & (np.abs(share - begun) <= most + more)
    return share, steady


def _share(low: Pass, high: Pass, *, dtype: str) -> tuple[Array, Flags, Array]:
    """Return a share, whether it is steady, and how far it may be off."""
    with np.errstate(invalid="ignore"):
        by = high.before - low.before
    by = np.where(np.isfinite(by) & (by != 0), by, shifts(dtype)[1] - shifts(dtype)[0])
    pairs = zip(high.made, low.made, strict=True)
    with np.errstate(invalid="ignore", over="ignore"):
        shares = np.stack([(higher - lower) / by for higher, lower in pairs])
    steady = np.isfinite(shares).all(axis=0)
    shares = np.where(steady, shares, 0.0)
    share = np.clip(shares[0], 0.0, 1.0)
    if "float" not in dtype or "16" in dtype:
        unlike = _UNLIKE.get(dtype, _UNLIKE_INTEGERS)
        share = np.round(share, 2 if dtype in _UNLIKE else 0)
        most = np.full(share.shape, unlike)
        return share, steady & (np.abs(shares - share).max(axis=0) <= unlike), most
    # What is added may be another amount for each of the two, and has last digits.
    with np.errstate(invalid="ignore", over="ignore"):
        added = np.abs(low.whole - kept_of(low.before, share)) / by
    most = np.minimum(2 * added + _SHARE_DIGITS * last_digit(dtype), _MOST_OFF)
    apart = np.abs(shares - share).max(axis=0)
    near = np.maximum(np.minimum(2 * apart, most), _SHORT)
    for digits in range(_MOST_DIGITS, 0, -1):
        short = np.round(share, digits)
        share = np.where(np.abs(share - short) <= near, short, share)
    return share, steady & (apart <= most), most


def _shortest(keeps: Array) -> float | Array:
    """Return one number where all elements keep as much."""
    if keeps.size and np.ptp(keeps) == 0:
        return float(keeps.flat[0])
    return keeps
