"""Decoded chunks that are kept for the next range.

Owns their memory. Called by the readers of one FilesReader. Knows no format.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any

# A few chunks: ranges share one with their neighbours.
DEFAULT_CACHE_BYTES = 64 * 1024 * 1024


class ChunkCache:
    """Caches decoded chunks, since neighbouring ranges share a chunk. Thread-safe."""

    def __init__(self, most_bytes: int = DEFAULT_CACHE_BYTES) -> None:
        """Keep the most recently used chunks, up to `most_bytes` but at least one."""
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._chunks: OrderedDict[tuple[Path, int], tuple[Any, int]] = OrderedDict()
        self._bytes = 0

    def get(self, path: Path, chunk: int) -> Any:
        """Return the cached chunk of a file (by offset or number), else None."""
        with self._lock:
            found = self._chunks.get((path, chunk))
            if found is None:
                return None
            self._chunks.move_to_end((path, chunk))
            return found[0]

    def put(self, path: Path, chunk: int, content: Any, num_bytes: int) -> None:
        """Cache a chunk that takes `num_bytes` of memory."""
        with self._lock:
            if (path, chunk) in self._chunks:
                return
            self._chunks[path, chunk] = content, num_bytes
            self._bytes += num_bytes
            while self._bytes > self._most_bytes and len(self._chunks) > 1:
                _, (_, oldest_bytes) = self._chunks.popitem(last=False)
                self._bytes -= oldest_bytes
