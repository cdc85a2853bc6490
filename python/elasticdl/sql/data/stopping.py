"""Signals that come while the embedded engine works: Ctrl-C, and SIGTERM as one.

Owns that the engine hears of them at once: its own look for signals is between parts of
its work, which may take a minute on a busy machine. Called by `embedded`. Must not know
what is asked of the engine.
"""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_STOPPING = {signal.SIGINT, signal.SIGTERM}
_AGAIN_SECONDS = 0.1


class Terminated(KeyboardInterrupt):
    """SIGTERM: what is done is stopped as by Ctrl-C, and a prompt does not go on."""


@contextmanager
def interrupts(connection: Any) -> Iterator[None]:
    """Stop a connection's work when a signal comes, as KeyboardInterrupt.

    Only signals that Python handles: one that is ignored stops nothing.
    """
    try:
        with _told_of_signals(connection):
            yield
    except RuntimeError as error:
        if "Query interrupted" not in str(error):
            raise
        raise KeyboardInterrupt from error


@contextmanager
def _told_of_signals(connection: Any) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reading, writing = socket.socketpair()
    writing.setblocking(False)

    ended = threading.Event()

    def listen() -> None:
        while numbers := reading.recv(64):
            if _STOPPING & set(numbers):
                # Again and again: a query that is about to begin forgets it.
                while not ended.wait(_AGAIN_SECONDS):
                    connection.interrupt()

    listening = threading.Thread(target=listen, name="sql-signals", daemon=True)
    listening.start()
    before = signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
    try:
        yield
    finally:
        ended.set()
        signal.set_wakeup_fd(before)
        writing.close()
        listening.join()
        reading.close()
