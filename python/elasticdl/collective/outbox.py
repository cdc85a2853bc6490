"""What one member sends to another one in a round, in order.

Owns the frames that wait. Called by `collective.links`: `send` by the threads of the
group, `send_all` by the thread of this connection. Must not know what a frame means.

A small frame goes out at once as far as the connection takes it: a thread that has to
be woken for it waits for Python's lock meanwhile, and the whole group for the frame.
What is left of it is copied: whoever sent it may change its memory at once.
"""

from __future__ import annotations

import queue
import socket
import ssl
import threading
from collections.abc import Sequence

from elasticdl.collective import wire
from elasticdl.collective.encoding import DIRECT_BYTES

# A connection takes them in a third of a millisecond. All pieces that are exchanged
# directly are among them, with their heads.
_SMALL_BYTES = DIRECT_BYTES + 1024


class Outbox:
    """The frames to one member."""

    def __init__(self, connection: socket.socket) -> None:
        """Take a connection that only this sends on."""
        self._connection = connection
        # TLS has to be called by one thread alone.
        self._at_once = not isinstance(connection, ssl.SSLSocket)
        self._lock = threading.Lock()
        self._waiting = 0  # frames that are not sent, also the one under way
        self._frames: queue.SimpleQueue[Sequence[wire.Buffer] | None] = (
            queue.SimpleQueue()
        )

    def send(self, buffers: Sequence[wire.Buffer]) -> None:
        """Send a frame after those before; returns at once."""
        size = wire.num_bytes(buffers)
        is_small = size <= _SMALL_BYTES
        with self._lock:
            if is_small and not self._waiting and self._at_once:
                buffers = self._left(buffers, size)
            if buffers:
                if is_small:
                    buffers = [b"".join(buffers)]
                self._waiting += 1
                self._frames.put(buffers)

    def end(self) -> None:
        """Have `send_all` return after the frames that wait."""
        self._frames.put(None)

    def send_all(self) -> None:
        """Send what waits, until `end`. Raises RpcError when the connection broke."""
        while (buffers := self._frames.get()) is not None:
            wire.send(self._connection, buffers)
            with self._lock:
                self._waiting -= 1

    def _left(self, buffers: Sequence[wire.Buffer], size: int) -> Sequence[wire.Buffer]:
        """Send of a frame what the connection takes now; return what is left."""
        try:
            sent = self._connection.sendmsg(buffers, (), socket.MSG_DONTWAIT)
        except OSError:
            # It takes nothing now, or is broken, which `send_all` finds and tells.
            return buffers
        return _after(buffers, sent) if sent < size else ()


def _after(buffers: Sequence[wire.Buffer], sent: int) -> Sequence[wire.Buffer]:
    """Return what is left of buffers after so many bytes of them."""
    left = []
    for buffer in buffers:
        raw = memoryview(buffer).cast("B")
        if sent < len(raw):
            left.append(raw[sent:])
        sent = max(0, sent - len(raw))
    return left
