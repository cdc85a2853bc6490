"""Gradients in 16 bits: how exact, how many bytes, and never infinite on the way."""

from __future__ import annotations

import numpy as np
import pytest
from elasticdl.collective.encoding import Encoding
from elasticdl.job.spec.kinds import Compression

ROUNDED = 1000  # of the floats below
SIZE = 1100
HALVES = [Compression.BFLOAT16, Compression.FLOAT16]
# Half of the distance between two values of so many bits.
PRECISION = {Compression.BFLOAT16: 2.0**-8, Compression.FLOAT16: 2.0**-11}


def values(scale: float = 1.0):
    drawn = np.random.default_rng(5).standard_normal(SIZE) * scale
    return drawn.astype(np.float32)


def through(encoding: Encoding, part, begin: int):
    """Return what the other end has of a part."""
    raw = memoryview(b"".join(encoding.encoded(part, begin)))
    assert len(raw) == encoding.num_bytes(begin, len(part))
    out = np.full(len(part), np.nan, np.float32)
    encoding.decode(raw, begin, out)
    return out


RANGES = [(0, 500), (500, 1050), (900, 1100), (1000, 1100), (1040, 1100), (7, 7)]


@pytest.mark.parametrize(("begin", "end"), RANGES)
def test_without_compression_every_bit_arrives(begin: int, end: int) -> None:
    part = values()[begin:end]
    assert through(Encoding(), part, begin).tobytes() == part.tobytes()


@pytest.mark.parametrize("form", HALVES)
@pytest.mark.parametrize(("begin", "end"), RANGES)
def test_gradients_are_rounded_once_and_what_is_counted_never(
    form, begin: int, end: int
) -> None:
    encoding = Encoding(form, ROUNDED)
    part = values()[begin:end]
    got = through(encoding, part, begin)
    half = max(0, min(ROUNDED - begin, end - begin))
    # Beside the largest one, float16 has no more than 2**-24 of it.
    error = np.abs(got[:half] - part[:half])
    bound = PRECISION[form] * np.abs(part[:half]) + 2.0**-39 * 4
    assert (error <= bound).all()
    assert got[half:].tobytes() == part[half:].tobytes()
    # Values that are rounded already arrive as they are: all members have the same.
    assert through(encoding, got, begin).tobytes() == got.tobytes()
    rounded = part.copy()
    encoding.round(rounded, begin)
    assert rounded.tobytes() == got.tobytes()


@pytest.mark.parametrize("form", HALVES)
def test_half_the_bytes_travel(form) -> None:
    sent = Encoding(form, 100_000).num_bytes(0, 100_000)
    assert sent / Encoding().num_bytes(0, 100_000) <= 0.51


@pytest.mark.parametrize("scale", [1e-37, 1e-20, 1e5, 1e12, 1e37])
@pytest.mark.parametrize("form", HALVES)
def test_gradients_of_any_size_stay_finite_and_are_not_lost(form, scale) -> None:
    part = values(scale)[:ROUNDED]
    got = through(Encoding(form, ROUNDED), part, 0)
    assert np.isfinite(got).all()
    largest = np.abs(part).max()
    assert np.abs(got - part).max() <= PRECISION[form] * largest


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("form", HALVES)
@pytest.mark.parametrize("scale", [1.0, 1e6])
def test_what_is_not_finite_alone_is_not_finite_for_the_others(
    form, bad, scale
) -> None:
    """A loss scale's overflow is seen by all members."""
    part = values()[:ROUNDED] * np.float32(scale)
    part[3] = bad
    got = through(Encoding(form, ROUNDED), part, 0)
    assert np.isnan(got[3]) if np.isnan(bad) else got[3] == bad
    assert np.isfinite(np.delete(got, 3)).all()


@pytest.mark.parametrize("form", HALVES)
def test_zeros_are_zeros(form) -> None:
    part = np.zeros(ROUNDED, np.float32)
    assert not through(Encoding(form, ROUNDED), part, 0).any()
