"""Warnings of a user's model and data, on their way from a worker's log to people.

Owns which warnings these are, and those that the master has not heard of yet. Made by
`worker.life`, which has heartbeats carry them. Must not know who says them.
"""

from __future__ import annotations

import logging
import textwrap
import threading

from elasticdl.job.plain import plain

# What these say is about the model and the data, not about a connection or a disk.
_OF = (
    "elasticdl.data.",
    "elasticdl.model.",
    "elasticdl.worker.group.moved",
    "elasticdl.worker.local.checkpoint",
    "elasticdl.worker.ps.link",
    "elasticdl.worker.shows",
    "elasticdl.worker.untrained",
    "elasticdl.worker.uses.",
)
# Of one process. A sentence that differs in each batch is no news after so many.
_MOST = 50
_MORE = "There are more warnings in the log of a worker"
_MOST_CHARACTERS = 2_000


class ModelWarnings(logging.Handler):
    """Keeps warnings until they are delivered. Thread-safe."""

    def __init__(self) -> None:
        """Begin without any."""
        super().__init__(logging.WARNING)
        self._guard = threading.Lock()
        self._said: set[str] = set()
        self._waiting: list[str] = []
        self._sent = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a warning, each sentence once."""
        if not record.name.startswith(_OF):
            return
        # One line, whatever a user's names have in them.
        text = " ".join(plain(record.getMessage()).split())
        text = textwrap.shorten(text, _MOST_CHARACTERS, placeholder=" ...")
        with self._guard:
            if len(self._said) >= _MOST:
                text = _MORE
            if text not in self._said:
                self._said.add(text)
                self._waiting.append(text)

    @property
    def waiting(self) -> bool:
        """Whether there are some that the master does not know."""
        return bool(self._waiting)

    def send(self) -> tuple[str, ...]:
        """Return those that the master does not know."""
        with self._guard:
            self._sent = len(self._waiting)
            return tuple(self._waiting)

    def delivered(self) -> None:
        """Note that those which were sent last have arrived."""
        with self._guard:
            del self._waiting[: self._sent]
            self._sent = 0
