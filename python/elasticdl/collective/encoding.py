"""How the values of a gradient travel: as they are, or in 16 bits.

Owns the bytes of a range of the vector that members exchange, its rounding, and what
all members have to agree on about it. Called by `collective.buffers`, and by whoever
makes a group. Must not know steps or members.

The first floats of the vector, gradients, may be rounded; those after them (counts, and
the model's float state) travel as they are. Sums are float32: values are rounded once
when a member sends its part, and once more when the sum is sent. bfloat16 has the range
of float32 and 8 bits of precision; float16 has 11 bits, and a power of two before each
range, by which its largest value fits, so that none becomes infinite on the way; also
beside one that is infinite.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from elasticdl.job.spec.kinds import Compression

Floats = NDArray[np.float32]
_HALF = 2  # bytes of a value
# Two members exchange gradients of up to so many bytes directly. That each adds up all
# of a larger one costs more than a message's way.
DIRECT_BYTES = 5 << 18
_SCALE = struct.Struct("!i")  # the exponent before a range in float16
_FLOAT16_EXPONENT = 15  # values below 2**15 are finite in float16
_LARGEST_EXPONENT = 126  # of a power of two in float32, whose inverse it has too


class Encoding:
    """Floats to bytes and back; `rounded` floats at the vector's beginning in 16 bits.

    Every method takes the range [begin, begin + its length) of the vector.
    """

    def __init__(
        self, compression: Compression = Compression.NONE, rounded: int = 0
    ) -> None:
        """Take the form, and how many floats may have it."""
        self._form = compression
        self._rounded = 0 if compression is Compression.NONE else rounded

    @property
    def is_plain(self) -> bool:
        """Whether values travel as they are."""
        return not self._rounded

    def num_bytes(self, begin: int, length: int) -> int:
        """Return the bytes of a range."""
        half = self._num_half(begin, length)
        scale = _SCALE.size if half and self._form is Compression.FLOAT16 else 0
        return scale + half * _HALF + (length - half) * 4

    def encoded(self, values: Floats, begin: int) -> list[memoryview]:
        """Return the bytes of a range, as buffers one after the other."""
        half = self._num_half(begin, len(values))
        whole = _bytes(values[half:])
        if not half:
            return [whole]
        return [*_WAYS[self._form][0](values[:half]), whole]

    def decode(self, raw: memoryview, begin: int, out: Floats) -> None:
        """Write the values of a range's bytes into `out`."""
        half = self._num_half(begin, len(out))
        if half:
            raw = _WAYS[self._form][1](raw, out[:half])
        if half < len(out):
            _bytes(out[half:])[:] = raw

    def round(self, values: Floats, begin: int) -> None:
        """Round in place, as others will have these values."""
        half = self._num_half(begin, len(values))
        if half:
            write, read = _WAYS[self._form]
            read(memoryview(b"".join(write(values[:half]))), values[:half])

    def _num_half(self, begin: int, length: int) -> int:
        return min(max(self._rounded - begin, 0), length)


@dataclass(frozen=True)
class GradientForm:
    """What all members of a group have alike.

    Attributes:
        ends: Where the buckets of a gradient end, in floats; the last is its size.
        encoding: How gradients travel.
    """

    ends: Sequence[int]
    encoding: Encoding = field(default_factory=Encoding)

    @property
    def size(self) -> int:
        """Floats of a gradient."""
        return self.ends[-1]

    @property
    def is_direct(self) -> bool:
        """Whether two members exchange whole buckets, and add up all of it each."""
        # Of values that are rounded on their way each would have another sum.
        return self.encoding.is_plain and 4 * self.size <= DIRECT_BYTES


def _to_bfloat16(values: Floats) -> list[memoryview]:
    return [_bytes(values.astype(ml_dtypes.bfloat16).view(np.uint16))]


def _from_bfloat16(raw: memoryview, out: Floats) -> memoryview:
    size = out.size * _HALF
    np.copyto(out, np.frombuffer(raw[:size], ml_dtypes.bfloat16))
    return raw[size:]


def _to_float16(values: Floats) -> list[memoryview]:
    largest = max(float(values.max()), -float(values.min()))
    if not np.isfinite(largest):  # as of a loss scale that is too large
        finite = np.abs(values[np.isfinite(values)])
        largest = float(finite.max(initial=0.0))
    _, exponent = np.frexp(largest)
    up = 0
    if largest > 0:
        up = min(_FLOAT16_EXPONENT - int(exponent), _LARGEST_EXPONENT)
    half = np.multiply(values, np.float32(2.0**up)).astype(np.float16)
    return [memoryview(_SCALE.pack(up)), _bytes(half.view(np.uint16))]


def _from_float16(raw: memoryview, out: Floats) -> memoryview:
    (up,) = _SCALE.unpack(raw[: _SCALE.size])
    size = _SCALE.size + out.size * _HALF
    np.copyto(out, np.frombuffer(raw[_SCALE.size : size], np.float16))
    out *= np.float32(2.0**-up)
    return raw[size:]


_Way = tuple[
    Callable[[Floats], list[memoryview]], Callable[[memoryview, Floats], memoryview]
]
_WAYS: dict[Compression, _Way] = {
    Compression.BFLOAT16: (_to_bfloat16, _from_bfloat16),
    Compression.FLOAT16: (_to_float16, _from_float16),
}


def _bytes(array: NDArray[np.float32] | NDArray[np.uint16]) -> memoryview:
    return array.data.cast("B") if array.size else memoryview(b"")
