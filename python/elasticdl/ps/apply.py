"""Applies one gradient to all that a PS holds.

Owns which stretch of a PS's buffer is updated how: dense spans, row-wise tables, frozen
rest. Called by the PS's updaters under their lock. Knows the layout of parameters,
nothing of formulas, versions or RPC.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elasticdl.checkpoint.layout import AVERAGE
from elasticdl.ps.optimizers import kernels
from elasticdl.ps.optimizers.kernels import Floats, Ids
from elasticdl.ps.optimizers.optimizer import Optimizer, check_rows
from elasticdl.tensor.placement import GradientKind, Layout, Piece, Variable

# Below this a thread costs more than it saves.
_LEAST_PART = 1 << 16
# Floats that are added up at a time: 256 KiB.
_SUM_BLOCK = 1 << 16
Rows = tuple[Ids, Floats]  # row numbers within the piece, and rows [n, row size]


@dataclass(frozen=True)
class ParameterShard:
    """What one PS holds: buffer and slots, laid out as `layout.pieces[ps]`."""

    layout: Layout
    ps: int
    values: NDArray[np.float32]
    slots: Mapping[str, NDArray[np.float32]]

    @property
    def rowwise(self) -> list[tuple[int, Piece, Variable]]:
        """Row-wise pieces with their indices and variables."""
        return [
            (index, piece, self.layout.variables[piece.variable])
            for index, piece in enumerate(self.layout.pieces[self.ps])
            if self.layout.variables[piece.variable].kind is GradientKind.ROWWISE
        ]

    def embedding_rows(self) -> dict[str, int]:
        """Return the number of rows of each row-wise variable here, by name."""
        rows: Counter[str] = Counter()
        for _, piece, variable in self.rowwise:
            rows[variable.name] += piece.end - piece.start
        return dict(rows)


@dataclass(frozen=True)
class Gradient:
    """A gradient for everything that one PS holds.

    `dense` is that of the dense prefix; empty if no dense variable got one. `rows` is
    per index of a piece in the PS's layout, repeated rows summed.
    """

    dense: Floats
    rows: Mapping[int, Rows]


@dataclass(frozen=True)
class Span:
    """Floats [start, stop) of a PS's dense prefix with the same update."""

    start: int
    stop: int
    decay: bool  # weight decay applies
    clip: bool = False  # a whole variable, to be clipped by its own norm; not cut then


def check_gradient(shard: ParameterShard, gradient: Gradient) -> None:
    """Raise ValueError unless sizes and row numbers fit the PS's shard."""
    expected = shard.layout.dense_size(shard.ps)
    dense = gradient.dense
    if dense.shape not in ((expected,), (0,)) or dense.dtype != np.float32:
        raise ValueError(
            f"got a dense gradient of shape {dense.shape} and {dense.dtype}, expected "
            f"({expected},) and float32"
        )
    stray = set(gradient.rows)
    for index, piece, variable in shard.rowwise:
        if index in gradient.rows:
            shape = (piece.end - piece.start, variable.row_size)
            check_rows(*gradient.rows[index], shape)
            stray.discard(index)
    if stray:
        raise ValueError(f"got rows for pieces {sorted(stray)}, which are not row-wise")


def apply_gradient(
    optimizer: Optimizer,
    shard: ParameterShard,
    gradient: Gradient,
    *,
    step: int,
    learning_rate: float,
    threads: Executor | None = None,
    parts: int = 1,
) -> None:
    """Apply one gradient of a whole PS in place.

    A row-wise piece without rows in the gradient still moves where Keras moves all
    rows. With `threads`, dense spans are cut into up to `parts` that run at one time.

    Raises ValueError as `check_gradient` does; then nothing was changed.
    """
    check_gradient(shard, gradient)

    def dense_part(span: Span) -> Callable[[], None]:
        cut = slice(span.start, span.stop)
        return lambda: optimizer.apply_dense(
            shard.values[cut],
            gradient.dense[cut],
            {name: slot[cut] for name, slot in shard.slots.items()},
            step=step,
            learning_rate=learning_rate,
            decay=span.decay,
            clip=span.clip,
        )

    def average_part(span: Span) -> Callable[[], None]:
        cut = slice(span.start, span.stop)
        averages = shard.slots[AVERAGE][cut]
        return lambda: optimizer.average(shard.values[cut], averages, step=step)

    if gradient.dense.size:
        spans = dense_spans(optimizer, shard.layout, shard.ps)
        _run(
            [dense_part(part) for span in spans for part in split(span, parts)], threads
        )
    for index, piece, variable in shard.rowwise:
        shape = (piece.end - piece.start, variable.row_size)
        ids, rows = gradient.rows.get(index) or _no_rows(variable.row_size)
        optimizer.apply_rows(
            _table(shard.values, piece, shape),
            ids,
            rows,
            {name: _table(slot, piece, shape) for name, slot in shard.slots.items()},
            step=step,
            learning_rate=learning_rate,
            decay=optimizer.decays(variable.name),
            clip=variable.name not in shard.layout.cut,
        )
    if AVERAGE in shard.slots:
        whole = Span(0, shard.values.size, decay=False)
        _run([average_part(part) for part in split(whole, parts)], threads)


def mean_gradient(
    gradients: Sequence[Gradient],
    records: Sequence[int] | None = None,
    *,
    threads: Executor | None = None,
    parts: int = 1,
) -> Gradient:
    """Return the mean of gradients of one PS (sync mode), in new arrays.

    `records` are the batch sizes that they are means of: weighted by them, N gradients
    are the one of the N-fold batch also when a batch is short. A gradient counts as
    zero where it has no rows. The order decides the rounding, `parts` does not.
    """
    records = records or [1] * len(gradients)
    equal = len(set(records)) == 1
    weights = [np.float32(1 if equal else n / sum(records)) for n in records]
    scale = np.float32(1 / len(gradients) if equal else 1)
    dense = np.empty(max(one.dense.size for one in gradients), np.float32)
    weighted = [
        (one.dense, weight)
        for one, weight in zip(gradients, weights, strict=True)
        if one.dense.size
    ]
    whole = Span(0, dense.size, decay=False)
    _run(
        [
            functools.partial(_add_up, dense, part, weighted, scale)
            for part in split(whole, parts)
        ],
        threads,
    )
    rows: dict[int, Rows] = {}
    for index in sorted({index for one in gradients for index in one.rows}):
        tables = [
            (one.rows[index][0], one.rows[index][1] * weight)
            for one, weight in zip(gradients, weights, strict=True)
            if index in one.rows
        ]
        ids, sums = kernels.sum_rows(
            np.concatenate([table[0] for table in tables]),
            np.concatenate([table[1] for table in tables]),
        )
        rows[index] = (ids, sums * scale)
    return Gradient(dense, rows)


def _add_up(
    total: Floats,
    span: Span,
    weighted: Sequence[tuple[Floats, np.float32]],
    scale: np.float32,
) -> None:
    # Block by block: the sum stays in the processor's cache, so that each gradient is
    # read once and nothing else of the memory is touched but the result.
    for start in range(span.start, span.stop, _SUM_BLOCK):
        cut = slice(start, min(start + _SUM_BLOCK, span.stop))
        block = total[cut]
        block.fill(0)
        for gradient, weight in weighted:
            kernels.add_scaled(block, gradient[cut], weight)
        block *= scale


def dense_spans(optimizer: Optimizer, layout: Layout, ps: int) -> tuple[Span, ...]:
    """Return the dense prefix of a PS as spans with the same update.

    Variables that are cut over PS come clipped from the workers.
    """
    norms = optimizer.config.clipnorm is not None
    spans: list[Span] = []
    for piece in layout.pieces[ps]:
        variable = layout.variables[piece.variable]
        if variable.kind is not GradientKind.DENSE:
            continue
        decay, stop = optimizer.decays(variable.name), piece.offset + piece.size
        clip = norms and variable.name not in layout.cut
        if spans and not clip and (spans[-1].decay, spans[-1].clip) == (decay, False):
            spans[-1] = Span(spans[-1].start, stop, decay)
        else:
            spans.append(Span(piece.offset, stop, decay, clip))
    return tuple(spans)


def split(span: Span, parts: int) -> Iterable[Span]:
    """Split a span into up to `parts` equal ones, each large enough for a thread."""
    size = span.stop - span.start
    parts = max(1, min(parts, size // _LEAST_PART)) if not span.clip else 1
    cuts = [span.start + size * part // parts for part in range(parts + 1)]
    return [
        Span(start, stop, span.decay, span.clip)
        for start, stop in itertools.pairwise(cuts)
    ]


def _run(work: Sequence[Callable[[], None]], threads: Executor | None) -> None:
    if threads is None or len(work) == 1:
        for one in work:
            one()
        return
    for future in [threads.submit(one) for one in work]:
        future.result()


def _table(buffer: Floats, piece: Piece, shape: tuple[int, int]) -> Floats:
    return buffer[piece.offset : piece.offset + piece.size].reshape(shape)


def _no_rows(row_size: int) -> Rows:
    return np.empty(0, np.int64), np.empty((0, row_size), np.float32)
