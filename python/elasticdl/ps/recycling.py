"""Copies of large arrays whose memory is used again.

Owns the memory between two uses. Called by ps/parameters.py for what a pull or a
snapshot holds. Knows nothing of what is copied.

Memory that comes fresh from the system is cleared by it page by page, which takes
several times as long as the copy itself; a PS makes a copy of all values each step.
"""

from __future__ import annotations

import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
_Memory = NDArray[Any]

# Smaller ones the allocator hands out again by itself.
_LEAST_BYTES = 1 << 20
# So that checkpoints that come often find it; the next copy after that returns it.
_KEPT_SECONDS = 60.0


class Recycler:
    """Makes copies with reused memory. One thread calls it; copies may end on any."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` is monotonic seconds."""
        self._clock = clock
        # Oldest first. A deque: an array may end in the middle of any line.
        self._spare: deque[tuple[float, _Memory]] = deque()

    @property
    def spare_bytes(self) -> int:
        """Bytes kept for the next copy."""
        return sum(memory.nbytes for _, memory in list(self._spare))

    def copy(self, array: Floats) -> Floats:
        """Return a copy; its memory is reused when its last view is gone."""
        if array.nbytes < _LEAST_BYTES:
            return array.copy()
        memory = self._take(array.nbytes)
        # By way of a memoryview (`data`): other views then hold `flat`, not its memory.
        flat: Floats = np.frombuffer(memory.data, array.dtype)
        weakref.finalize(flat, self._put, memory).atexit = False
        made = flat.reshape(array.shape)
        np.copyto(made, array)
        return made

    def _take(self, size: int) -> _Memory:
        found = None
        kept: list[tuple[float, _Memory]] = []
        oldest = self._clock() - _KEPT_SECONDS
        while self._spare:
            since, memory = self._spare.pop()
            if found is None and memory.nbytes == size:
                found = memory
            elif since >= oldest:
                kept.append((since, memory))
        self._spare.extendleft(kept)
        return np.empty(size, np.uint8) if found is None else found

    def _put(self, memory: _Memory) -> None:
        self._spare.append((self._clock(), memory))
