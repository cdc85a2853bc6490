"""Decoded chunks that are kept for the next range.

Owns their memory. Called by the RecordIO readers of one FilesReader. Knows no format.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path

DEFAULT_CACHE_BYTES = 64 * 1024 * 1024


class ChunkCache:
    """Keeps decoded chunks, as ranges share the chunk at their border. Thread-safe."""

    def __init__(self, most_bytes: int = DEFAULT_CACHE_BYTES) -> None:
        """Keep the chunks used last, up to `most_bytes` (one in any case)."""
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._chunks: OrderedDict[tuple[Path, int], list[bytes]] = OrderedDict()
        self._bytes = 0

    def get(self, path: Path, offset: int) -> list[bytes] | None:
        """Return the records of a file's chunk, if they are kept."""
        with self._lock:
            records = self._chunks.get((path, offset))
            if records is not None:
                self._chunks.move_to_end((path, offset))
            return records

    def put(self, path: Path, offset: int, records: list[bytes]) -> None:
        """Keep a chunk's records."""
        with self._lock:
            if (path, offset) in self._chunks:
                return
            self._chunks[path, offset] = records
            self._bytes += _size(records)
            while self._bytes > self._most_bytes and len(self._chunks) > 1:
                _, oldest = self._chunks.popitem(last=False)
                self._bytes -= _size(oldest)


def _size(records: list[bytes]) -> int:
    return sum(map(len, records)) + 40 * len(records)
