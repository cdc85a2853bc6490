"""Memory that one process lends to another on the same machine.

Owns segments (anonymous memory files of Linux), who may reuse one, and opening those of
others. Used by `rpc.ps.lent_calls` and `collective.lent_vectors`. Knows nothing of
frames, PS or members.

A segment has no name in any file system: it is reached through its owner's entry in
/proc and is gone with the last process that has it open, however that ended. A random
token at its start proves that the entry is the one that was meant: a number of a
process means another one in the next pod, whose processes are counted apart.
"""

from __future__ import annotations

import mmap
import os
import secrets
import sys
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
_Token = bytes  # since a place has a number called so

# Before the data; a multiple of 64 keeps tensors aligned.
HEAD_BYTES = 64
TOKEN_BYTES = 16
_LEAST_BYTES = 64 << 10
_NAME = "elasticdl"
# What one connection lends at most: a request, the values in use, the next ones, and
# those kept for a PS that loses its own.
_MOST_LENT = 6
# What is kept open of others, and how often it is looked at whether they still live.
_MOST_BORROWED = 64
_LOOK_EVERY = 256


def can_lend() -> bool:
    """Return whether this system supports lent memory."""
    return sys.platform == "linux" and Path("/proc/self/fd").is_dir()


class Place(Protocol):
    """Where a segment is: what `Lent` has, also as a message."""

    @property
    def pid(self) -> int:
        """The process that lends it."""

    @property
    def fd(self) -> int:
        """Its file there."""

    @property
    def bytes(self) -> int:
        """Its size, with what is before the data."""

    @property
    def token(self) -> _Token:
        """What it begins with."""


@dataclass(frozen=True)
class Lent:
    """See `Place`."""

    pid: int
    fd: int
    bytes: int
    token: _Token


class Segment:
    """A memory segment of this process that others may open."""

    def __init__(self, size: int) -> None:
        """Allocate `size` bytes. Raises OSError without memory.

        The size is rounded up, so that requests of varying sizes find one that fits;
        memory that is never written is never taken from the system.
        """
        size = max(_LEAST_BYTES, 1 << (size - 1).bit_length()) if size else _LEAST_BYTES
        fd = os.memfd_create(_NAME)
        weakref.finalize(self, os.close, fd)
        total = HEAD_BYTES + size
        os.ftruncate(fd, total)
        self._memory = mmap.mmap(fd, total)
        token = secrets.token_bytes(TOKEN_BYTES)
        self._memory[:TOKEN_BYTES] = token
        self.size = size
        self.lent = Lent(pid=os.getpid(), fd=fd, bytes=total, token=token)

    def data(self) -> Bytes:
        """Return the bytes, as a new array each time."""
        return np.frombuffer(self._memory, np.uint8, offset=HEAD_BYTES)


class Pool:
    """Reusable segments. Thread-safe."""

    def __init__(self) -> None:
        """Begin with none."""
        self._lock = threading.Lock()
        self._free: list[Segment] = []
        self._made = 0
        self._dropped: list[bytes] = []

    def take(self, size: int) -> Segment | None:
        """Return an unused segment; None if the maximum is in use."""
        with self._lock:
            for segment in self._free:
                if segment.size >= size:
                    self._free.remove(segment)
                    return segment
            if self._free:
                # Too small: a larger one takes its place.
                self._dropped.append(self._free.pop().lent.token)
            elif self._made >= _MOST_LENT:
                return None
            else:
                self._made += 1
        return Segment(size)

    def give_back(self, segment: Segment) -> None:
        """Return a segment to the pool."""
        with self._lock:
            self._free.append(segment)

    def give_back_after(self, segment: Segment, data: Bytes) -> None:
        """Return a segment to the pool when the last view of `data` is gone."""
        weakref.finalize(data, self.give_back, segment)

    def abandon(self, segment: Segment) -> None:
        """Forget a segment that the other side may still use."""
        with self._lock:
            self._made -= 1
            self._dropped.append(segment.lent.token)

    def dropped(self) -> list[bytes]:
        """Return the tokens of segments released since the last call."""
        with self._lock:
            tokens, self._dropped = self._dropped, []
            return tokens


class Borrowed:
    """Open memory of other processes. Thread-safe."""

    def __init__(self, *, alive: Callable[[int], bool] | None = None) -> None:
        """`alive` tells whether a process lives; its memory is closed with it."""
        self._lock = threading.Lock()
        self._open: OrderedDict[bytes, tuple[int, Bytes]] = OrderedDict()
        self._alive = alive or (lambda pid: Path(f"/proc/{pid}").is_dir())
        self._calls = 0

    def data(self, lent: Place) -> Bytes:
        """Return the bytes of a segment. Raises OSError if it cannot be opened."""
        with self._lock:
            self._calls += 1
            if self._calls % _LOOK_EVERY == 0:
                self._forget_the_dead()
            known = self._open.pop(lent.token, None)
            if known is None:
                known = (lent.pid, _open(lent))
                self._forget_the_dead()
            self._open[lent.token] = known
            while len(self._open) > _MOST_BORROWED:
                self._open.popitem(last=False)
            return known[1]

    def forget(self, tokens: Iterable[bytes]) -> None:
        """Close segments that their owner has released; present readers keep them."""
        with self._lock:
            for token in tokens:
                self._open.pop(token, None)

    def _forget_the_dead(self) -> None:
        for token, (pid, _) in list(self._open.items()):
            if not self._alive(pid):
                del self._open[token]


def _open(lent: Place) -> Bytes:
    path = Path(f"/proc/{lent.pid}/fd/{lent.fd}")
    # Not opened to find out: that may block, or do something to a device.
    if not str(path.readlink()).startswith(f"/memfd:{_NAME}"):
        raise OSError("another file than the one that was lent")
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        if os.fstat(fd).st_size != lent.bytes or lent.bytes < HEAD_BYTES:
            raise OSError("another file than the one that was lent")
        memory = mmap.mmap(fd, lent.bytes)
    except ValueError as error:
        raise OSError(str(error)) from error
    finally:
        os.close(fd)
    if memory[:TOKEN_BYTES] != lent.token:
        raise OSError("another memory than the one that was lent")
    return np.frombuffer(memory, np.uint8, offset=HEAD_BYTES)
