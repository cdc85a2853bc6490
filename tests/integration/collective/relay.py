"""A TCP relay in front of a member: it delays what others send, or cuts at a byte.

The kernel of the machine may have no way to delay packets; and none cuts a connection
in the middle of a frame.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time

from elasticdl.collective import wire

_CHUNK = 1 << 16
_PURPOSE = 5  # where a greeting says what its connection is for


class Relay:
    """Forwards connections to a port of this machine; both ends see one connection."""

    def __init__(self, port: int, *, delay: float = 0.0) -> None:
        """Listen on a free port. `delay`: seconds that each byte takes longer."""
        self._target = port
        self._delay = delay
        self._cut_at: int | None = None
        self._cut_answers = False
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        self.cuts = 0  # that were made
        threading.Thread(target=self._accept, daemon=True).start()

    def cut_next(self, after: int, *, answers: bool = False) -> None:
        """Cut the next connection of a round once that many bytes went to the member.

        `answers`: the next one of a newcomer that listens, once that many came from
        the member.
        """
        with self._lock:
            self._cut_at, self._cut_answers = after, answers

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            left = list(self._open)
        for connection in left:
            self._end(connection)

    def _accept(self) -> None:
        while True:
            try:
                caller, _ = self._listener.accept()
                member = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                return
            with self._lock:
                self._open |= {caller, member}
            threading.Thread(
                target=self._forward, args=(caller, member), daemon=True
            ).start()

    def _forward(self, caller: socket.socket, member: socket.socket) -> None:
        cut_at = None
        with contextlib.suppress(OSError):
            greeting = caller.recv(_PURPOSE + 1, socket.MSG_PEEK | socket.MSG_WAITALL)
            listens = greeting[_PURPOSE:] == bytes([wire.Purpose.LISTEN])
            with self._lock:
                if listens == self._cut_answers:
                    cut_at, self._cut_at = self._cut_at, None
        self._pump(caller, member, None if self._cut_answers else cut_at)
        self._pump(member, caller, cut_at if self._cut_answers else None)

    def _pump(
        self, source: socket.socket, target: socket.socket, cut_at: int | None
    ) -> None:
        waiting: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()

        def read() -> None:
            with contextlib.suppress(OSError):
                while chunk := source.recv(_CHUNK):
                    waiting.put((time.monotonic() + self._delay, chunk))
            waiting.put((0.0, b""))

        def send() -> None:
            left = cut_at
            with contextlib.suppress(OSError):
                while chunk := (one := waiting.get())[1]:
                    time.sleep(max(0.0, one[0] - time.monotonic()))
                    target.sendall(chunk if left is None else chunk[:left])
                    if left is not None:
                        left -= len(chunk)
                        if left <= 0:
                            self.cuts += 1
                            break
            self._end(source)
            self._end(target)

        for run in (read, send):
            threading.Thread(target=run, daemon=True).start()

    def _end(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.discard(connection)
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        connection.close()
