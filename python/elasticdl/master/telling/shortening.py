"""A history that has grown long: what of it is kept in its file and shown in a cluster.

Owns both bounds. Called by `master.telling.history`, in a thread. Samples are kept from
the whole of the job's life, fewer of them; of all else the newest. A file is read line
by line: that of a long job has no place in a pod's memory.
"""

from __future__ import annotations

import gzip
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from elasticdl.beneath import opened, reader
from elasticdl.files import write_whole
from elasticdl.job import history

# Fits a ConfigMap (1 MiB) after compression, with room for the decisions.
MOST_SAMPLES = 1000
MOST_DECISIONS = 1000
# A ConfigMap holds 1 MiB.
MOST_PACKED_BYTES = 768 << 10
# A relaunch adds a kilobyte: this holds all of a job with tens of thousands of them.
MOST_FILE_BYTES = 32 << 20
_SAMPLE = b'{"sample"'  # how the line of one begins
_FEWEST = 4


def packed(path: Path) -> bytes:
    """Return the newest part of a history, thinned and gzipped to fit a ConfigMap.

    Samples of many replicas need more room, and so do long words of a platform: then
    there are fewer. Raises OSError.
    """
    samples, others = _newest(path, MOST_SAMPLES)
    while True:
        document = gzip.compress(b"".join([*samples, *others]), mtime=0)
        if len(document) <= MOST_PACKED_BYTES or not (samples or others):
            return document
        if sum(map(len, samples)) > sum(map(len, others)):
            few = len(samples) < _FEWEST
            samples = [] if few else history.thinned(samples, len(samples) // 2)
        else:
            others = others[-(len(others) // 2) :] if len(others) > 1 else []


def shorten(path: Path, *, most_bytes: int = MOST_FILE_BYTES) -> bool:
    """Write a file that is longer than this anew, with half of that; return whether.

    Raises OSError.
    """
    with opened(path.parent, root=path.parent) as folder:
        size = folder.stat(path.name).st_size
    if size <= most_bytes:
        return False
    room = most_bytes // 4  # for the samples, and for all else
    count, total = _count(path)
    kept = max(_FEWEST, count * room // max(total, room))
    samples, others = _newest(path, kept, room)
    write_whole(path, b"".join([*samples, *others]), durable=False)
    return True


def _count(path: Path) -> tuple[int, int]:
    """Return the number of samples, and of their bytes."""
    count = total = 0
    with reader(path, root=path.parent) as file:
        for line in file:
            if line.startswith(_SAMPLE):
                count += 1
                total += len(line)
    return count, total


def _newest(
    path: Path, most_samples: int, most_bytes: int = 0
) -> tuple[list[bytes], Sequence[bytes]]:
    """Return samples from the whole history, and the newest of its other lines.

    These are bounded by their bytes, or by what a ConfigMap takes.
    """
    chosen = set(history.thinned(range(_count(path)[0]), most_samples))
    samples: list[bytes] = []
    others: deque[bytes] = deque(maxlen=None if most_bytes else MOST_DECISIONS)
    number = held = 0
    with reader(path, root=path.parent) as file:
        for line in file:
            whole = line.rstrip(b"\n") + b"\n"  # the last one may be torn
            if not line.startswith(_SAMPLE):
                others.append(whole)
                held += len(whole)
                while most_bytes and held > most_bytes:
                    held -= len(others.popleft())
                continue
            if number in chosen:
                samples.append(whole)
            number += 1
    return samples, list(others)
