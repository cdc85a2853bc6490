"""Vectors that members on the same machine read where they are.

Owns vectors in memory that can be lent, what a frame says instead of values that lie in
one, and reading them at the other end. Called by `collective.buffers`,
`collective.links` and `worker.group.step`. Must not know steps or members.

Between two processes of one machine a socket costs two copies and the work of the
kernel; values that are read where they are cost one copy. Before its values a vector
has a number, which its owner raises before it writes other ones: whoever read them
meanwhile, as a member that was frozen, finds it raised.
"""

from __future__ import annotations

import errno
import logging
import socket
import struct
import threading
import weakref
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from elasticdl.errors import RpcError
from elasticdl.tensor.lent_memory import (
    TOKEN_BYTES,
    Borrowed,
    Bytes,
    Lent,
    Segment,
    can_lend,
)

log = logging.getLogger(__name__)

Floats = NDArray[np.float32]
CACHE_LINE = 64  # bytes; TensorFlow takes an array that begins at one uncopied
_ALIGNED = CACHE_LINE // 4  # floats
# Process, file, size and token of the memory; the vector's number; where values begin.
_PLACE = struct.Struct(f"!QIQ{TOKEN_BYTES}sQQ")
_NOTHING_LEFT = (errno.ENOMEM, errno.EMFILE, errno.ENFILE)
_NUMBER_BYTES = CACHE_LINE  # before the values, which begin at a cache line too


@dataclass(frozen=True)
class _LentVector:
    """A vector in lent memory, while somebody has it."""

    segment: Segment
    memory: weakref.ref[Bytes]
    begin: int  # address of the values
    end: int

    @property
    def number(self) -> NDArray[np.uint64] | None:
        memory = self.memory()
        return None if memory is None else _number(memory)


@dataclass(frozen=True)
class LentValues:
    """Values in the memory of another process, to be checked after they were read."""

    values: Floats
    memory: Bytes = field(repr=False)
    number: int  # of the vector as it was lent

    def check(self) -> None:
        """Raise RpcError if other values were written since these were lent."""
        if _number(self.memory)[0] != self.number:
            raise RpcError("the values that were lent are other ones by now")


class Vectors:
    """Makes vectors, and says where the values of one are. Thread-safe."""

    def __init__(self, *, lends: bool = False) -> None:
        """`lends`: they are in memory that others can read, where the system can."""
        self._lock = threading.Lock()
        self._lent: list[_LentVector] = []
        self._probe: Segment | None = None
        self._lends = lends and can_lend()
        self._reads = self._lends

    @property
    def lends(self) -> bool:
        """Whether others may read the vectors that are made."""
        return self._lends

    def new(self, size: int) -> Floats:
        """Return so many zeros, which begin at a cache line."""
        with self._lock:
            self._lent = [one for one in self._lent if one.memory() is not None]
            segment = self._segment(size * 4) if self._lends else None
            if segment is None:
                return aligned_zeros(size)
            memory = segment.data()
            values = memory[_NUMBER_BYTES : _NUMBER_BYTES + 4 * size].view(np.float32)
            begin = values.ctypes.data
            lent = _LentVector(
                segment, weakref.ref(memory), begin, begin + values.nbytes
            )
            self._lent.append(lent)
            return values

    def rewrite(self, vector: Floats) -> None:
        """Note that other values are written from now on."""
        lent = self._of(vector)
        number = lent.number if lent is not None else None
        if number is not None:
            number += 1

    def place(self, values: Floats) -> bytes:
        """Return where values are, for `Reader.read`; nothing if nobody can see."""
        lent = self._of(values)
        number = lent.number if lent is not None else None
        if lent is None or number is None:
            return b""
        return _packed(lent.segment, int(number[0]), values.ctypes.data - lent.begin)

    def offer(self, connection: socket.socket) -> bytes:
        """Return what the other end of a connection has to read to be lent vectors.

        Nothing for one on another machine, where a process number means another one.
        """
        if not self._lends or not _is_loopback(connection.getpeername()[0]):
            return b""
        with self._lock:
            if self._probe is None:
                self._probe = self._segment(0)
        return b"" if self._probe is None else _packed(self._probe, 0, 0)

    def can_read(self, offer: bytes) -> bool:
        """Return whether this process can read the memory of another one."""
        if not offer or not self._reads:
            return False
        try:
            Reader(self).read(offer, np.empty(0, np.float32))
        except RpcError:
            return False
        return True

    def cannot_read(self, error: OSError) -> None:
        """Note that no more can be opened of what others lend: values are sent then."""
        log.warning("Gradients of other workers come by messages: %s", error)
        self._reads = False

    def _segment(self, size: int) -> Segment | None:
        try:
            return Segment(_NUMBER_BYTES + size)
        except OSError as error:
            log.info("Gradients go by messages: %s", error)
            self._lends = False
            return None

    def _of(self, values: Floats) -> _LentVector | None:
        if not self._lent or not values.size:
            return None
        address = values.ctypes.data
        for lent in self._lent:
            if lent.begin <= address < lent.end:
                return lent
        return None


class Reader:
    """Reads what others lend; what it opened is closed with it."""

    def __init__(self, vectors: Vectors) -> None:
        """Begin with nothing opened; `vectors` are told when that is not possible."""
        self._borrowed = Borrowed()
        self._vectors = vectors

    def read(self, place: bytes, out: Floats) -> None:
        """Copy the values of another process. Raises RpcError if they are not there."""
        lent = self.look(place, len(out))
        np.copyto(out, lent.values)
        lent.check()

    def look(self, place: bytes, size: int) -> LentValues:
        """Return so many values where they are. Raises RpcError if they are not."""
        try:
            pid, fd, total, token, number, begin = _PLACE.unpack(place)
            memory = self._borrowed.data(Lent(pid, fd, total, token))
        except OSError as error:
            # The round breaks. Where not only the owner is gone, this process asks for
            # messages in the next one.
            if error.errno in _NOTHING_LEFT:
                self._vectors.cannot_read(error)
            raise RpcError(f"lent memory cannot be read: {error}") from error
        except (struct.error, OverflowError) as error:
            raise RpcError(f"lent memory cannot be read: {error}") from error
        values = memory[_NUMBER_BYTES + begin :][: 4 * size]
        if values.size != 4 * size or begin % 4:
            raise RpcError(
                f"got {values.size} bytes of lent memory at {begin}; expected "
                f"{4 * size}"
            )
        return LentValues(values.view(np.float32), memory, number)


def aligned_zeros(size: int) -> Floats:
    """Return a vector in ordinary memory that begins at a cache line."""
    raw = np.zeros(size + _ALIGNED, np.float32)
    begin = -raw.ctypes.data // raw.itemsize % _ALIGNED
    return raw[begin : begin + size]


def _packed(segment: Segment, number: int, begin: int) -> bytes:
    lent = segment.lent
    return _PLACE.pack(lent.pid, lent.fd, lent.bytes, lent.token, number, begin)


def _number(memory: Bytes) -> NDArray[np.uint64]:
    return memory[:8].view(np.uint64)


def _is_loopback(host: str) -> bool:
    return host.removeprefix("::ffff:").startswith("127.") or host == "::1"
