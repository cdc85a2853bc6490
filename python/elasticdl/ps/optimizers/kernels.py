"""Compiled loops over float32 buffers that every optimizer needs: sums of rows, scales.

Owns how loops are compiled. Called by `ps/optimizers/update_kernels.py`,
`ps/optimizers/optimizer.py` and the PS's updaters; must not know variables, layouts or
steps.

All are `nogil`, so several threads may run them at once on slices that do not overlap.
They are without `fastmath` (no fused multiply-add), so sums and products round as they
are written. The error model is NumPy's: the default one
checks each division for zero, which stops vectorisation and halves the speed.

Nothing here checks bounds: row numbers have to be checked by the caller. Compiled code
is cached beside this file, or in NUMBA_CACHE_DIR where that cannot be written.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]

compiled = njit(nogil=True, cache=True, error_model="numpy")
# Spreads row numbers over the hash table; odd, from the golden ratio.
_MIX = np.uint64(0x9E3779B97F4A7C15)


@compiled
def add_scaled(total: Floats, grads: Floats, scale: np.float32) -> None:
    """`total += grads * scale`: the sum of staged gradients in sync mode."""
    for i in range(total.size):
        total[i] += grads[i] * scale


@compiled
def square_sum(grads: Floats) -> float:
    """Return the sum of squares, added up in float64."""
    total = 0.0
    for i in range(grads.size):
        total += np.float64(grads[i]) * np.float64(grads[i])
    return total


@compiled
def scatter_add(table: Floats, ids: Ids, rows: Floats, scale: np.float32) -> None:
    """`table[ids] += rows * scale`; an id may come more than once."""
    for k in range(ids.size):
        row = ids[k]
        for j in range(table.shape[1]):
            table[row, j] += rows[k, j] * scale


@compiled
def fill_rows(table: Floats, ids: Ids, value: np.float32) -> None:
    """`table[ids] = value`."""
    for k in range(ids.size):
        row = ids[k]
        for j in range(table.shape[1]):
            table[row, j] = value


@compiled
def sum_rows(ids: Ids, rows: Floats) -> tuple[Ids, Floats]:
    """Return each id once, in order of first appearance, with the sum of its rows.

    Any int64 is a legal id, -1 too: empty places of the hash table are marked in the
    table of positions, not in the ids.
    """
    capacity = 16
    while capacity < 2 * ids.size:
        capacity *= 2
    mask = np.uint64(capacity - 1)
    places = np.full(capacity, -1, np.int64)
    unique = np.empty(ids.size, np.int64)
    sums = np.empty((ids.size, rows.shape[1]), np.float32)
    count = 0
    for k in range(ids.size):
        key = ids[k]
        mixed = np.uint64(key) * _MIX
        slot = (mixed ^ (mixed >> np.uint64(32))) & mask
        while places[slot] >= 0 and unique[places[slot]] != key:
            slot = (slot + np.uint64(1)) & mask
        place = places[slot]
        if place < 0:
            places[slot] = count
            unique[count] = key
            for j in range(rows.shape[1]):
                sums[count, j] = rows[k, j]
            count += 1
        else:
            for j in range(rows.shape[1]):
                sums[place, j] += rows[k, j]
    return unique[:count].copy(), sums[:count].copy()


def read_only(array: Floats) -> Floats:
    """Return a read-only view, as frames have: a type of its own to numba."""
    view = array.view()
    view.flags.writeable = False
    return view


def warm_up() -> None:
    """Compile the kernels that every optimizer needs, or load them from the cache."""
    table = np.zeros((2, 2), np.float32)
    ids = np.zeros(1, np.int64)
    one = np.float32(1)
    fill_rows(table, ids, one)
    for grads in (table.copy(), read_only(table.copy())):
        add_scaled(table[0], grads[0], one)
        square_sum(grads[0])
        for some in (ids, _read_only_ids(ids)):
            scatter_add(table, some, grads[:1], one)
            sum_rows(some, grads[:1])


def _read_only_ids(ids: Ids) -> Ids:
    view = ids.view()
    view.flags.writeable = False
    return view
