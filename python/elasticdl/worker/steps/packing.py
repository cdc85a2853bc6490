"""Between whole variables here and the flat buffers of the PS.

Owns copies in both directions and the sum of gradients of the same row. Called by the
transfer, beside the step. Pure NumPy: must not import TensorFlow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elasticdl.tensor.codec import ALIGNMENT
from elasticdl.tensor.placement import GradientKind, Layout

Floats = NDArray[np.float32]
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class RowGradient:
    """Gradient of some rows: `rows[i]` gets `values[i]`; rows may repeat."""

    rows: Rows
    values: Floats  # [len(rows), row size]


# Of one variable; None where no gradient reaches it.
Gradient = Floats | RowGradient | None


class Arena:
    """One set of parameter values: every variable whole, 64-byte aligned.

    Aligned so that TensorFlow takes the memory as it is instead of copying it.
    """

    def __init__(self, shapes: Sequence[tuple[int, ...]]) -> None:
        """Allocate; the values are not set."""
        self.version = 0  # of PS 0
        self.versions: list[int] = []  # by PS
        # Of PS 0 at that version.
        self.state: Floats = np.empty(0, np.float32)
        item = np.dtype(np.float32).itemsize
        step = ALIGNMENT // item
        sizes = [int(np.prod(shape, dtype=np.int64)) for shape in shapes]
        spans = [-(-size // step) * step for size in sizes]
        raw = np.empty(sum(spans) * item + ALIGNMENT, np.uint8)
        skip = -raw.ctypes.data % ALIGNMENT
        flat = raw[skip : skip + sum(spans) * item].view(np.float32)
        self.arrays: list[Floats] = []
        start = 0
        for shape, size, span in zip(shapes, sizes, spans, strict=True):
            self.arrays.append(flat[start : start + size].reshape(shape))
            start += span

    @staticmethod
    def of(layout: Layout) -> Arena:
        """Return an arena for the variables of a layout."""
        return Arena([variable.shape for variable in layout.variables])


def scatter(layout: Layout, buffers: Sequence[Floats], arena: Arena) -> None:
    """Copy the PS's flat buffers into whole variables."""
    for pieces, buffer in zip(layout.pieces, buffers, strict=True):
        for piece in pieces:
            size = layout.variables[piece.variable].row_size
            target = arena.arrays[piece.variable].reshape(-1)
            target[piece.start * size : piece.end * size] = buffer[
                piece.offset : piece.offset + piece.size
            ]


def sum_repeated(gradient: RowGradient) -> RowGradient:
    """Return the gradient with each row once, ascending, values summed."""
    rows, values = gradient.rows, gradient.values
    if not len(rows):
        return gradient
    order = np.argsort(rows, kind="stable")
    ordered = rows[order]
    first = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    return RowGradient(ordered[first], np.add.reduceat(values[order], first, axis=0))


def pack_dense(layout: Layout, gradients: Sequence[Gradient]) -> list[Floats]:
    """Return the dense gradients as the prefix of each PS's buffer.

    A variable that the layout has as dense but that got no gradient, or only of some
    rows, in this step counts with zeros.
    """
    buffers = []
    for ps, pieces in enumerate(layout.pieces):
        buffer = np.empty(layout.dense_size(ps), np.float32)
        for piece in pieces:
            variable = layout.variables[piece.variable]
            if variable.kind is not GradientKind.DENSE:
                continue
            target = buffer[piece.offset : piece.offset + piece.size]
            span = slice(piece.start * variable.row_size, piece.end * variable.row_size)
            target[:] = _dense(gradients[piece.variable], variable.shape)[span]
        buffers.append(buffer)
    return buffers


def _dense(gradient: Gradient, shape: tuple[int, ...]) -> Floats:
    if isinstance(gradient, np.ndarray):
        return gradient.reshape(-1)
    whole = np.zeros(shape, np.float32)
    if gradient is not None:
        rows = whole.reshape(shape[0], -1)
        np.add.at(rows, gradient.rows, gradient.values)
    return whole.reshape(-1)


def pack_rows(
    layout: Layout, gradients: Sequence[Gradient]
) -> list[dict[int, tuple[Rows, Floats]]]:
    """Return, per PS, piece index -> (rows counted from the piece's start, values)."""
    summed: dict[int, RowGradient] = {}
    packed: list[dict[int, tuple[Rows, Floats]]] = []
    for pieces in layout.pieces:
        mine: dict[int, tuple[Rows, Floats]] = {}
        for index, piece in enumerate(pieces):
            variable = layout.variables[piece.variable]
            if variable.kind is not GradientKind.ROWWISE:
                continue
            if piece.variable not in summed:
                summed[piece.variable] = _rows(
                    gradients[piece.variable], variable.row_size
                )
            gradient = summed[piece.variable]
            low, high = np.searchsorted(gradient.rows, (piece.start, piece.end))
            if high > low:
                mine[index] = (
                    gradient.rows[low:high] - piece.start,
                    gradient.values[low:high],
                )
        packed.append(mine)
    return packed


def _rows(gradient: Gradient, row_size: int) -> RowGradient:
    if isinstance(gradient, RowGradient):
        return sum_repeated(gradient)
    if gradient is None:
        return RowGradient(np.empty(0, np.int64), np.empty((0, row_size), np.float32))
    values = gradient.reshape(-1, row_size)
    return RowGradient(np.arange(len(values), dtype=np.int64), values)
