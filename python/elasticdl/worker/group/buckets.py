"""How a gradient is cut into buckets: some travel while others are computed.

Owns the sizes. Called by `worker.group.step`. Must not know variables, members or
TensorFlow: every worker of a job has to cut alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# Less than this is not worth the frames: a round trip between two processes takes as
# long as 1 MiB of a link of 10 Gbit/s.
LEAST_FLOATS = 1 << 18
_MOST_BUCKETS = 8


@dataclass(frozen=True)
class Bucket:
    """Some variables, one after the other; floats `begin` to `end` of the vector."""

    first: int
    last: int  # the first one that is not in it any more
    begin: int
    end: int


def buckets(sizes: Sequence[int], least: int = LEAST_FLOATS) -> list[Bucket]:
    """Return the buckets of gradients of so many floats, in the order they come.

    `least`: the floats of a bucket, but for the last one.
    """
    least = max(least, -(-sum(sizes) // _MOST_BUCKETS))
    made: list[Bucket] = []
    first = begin = end = 0
    for last, size in enumerate(sizes, 1):
        end += size
        if end - begin >= least or last == len(sizes):
            made.append(Bucket(first, last, begin, end))
            first, begin = last, end
    return made
