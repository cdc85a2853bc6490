"""How often the master looks for garbage in cycles.

Owns the thresholds of Python's collector. Called by `master.main`. Must not know what
the master holds.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

# Allocations less deallocations until the youngest are looked at; how many looks at
# them until those that came through one; and of these until all.
_THRESHOLDS = (10_000, 20, 50)


@contextmanager
def rare_collections() -> Iterator[None]:
    """Run the garbage collector rarely, and never on objects that exist already.

    For a process that makes few cycles: what is not in one goes with its last
    reference. By default a master of a thousand workers looks at all of its objects
    every few seconds, since those of calls that it holds pass for long-lived ones; for
    as long it answers nobody.
    """
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
