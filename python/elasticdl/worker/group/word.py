"""What a member's header says to the leader: its speed, and a digest of its state.

Owns these bytes. Made and read by `worker.group`. Must not know what follows from them.
"""

from __future__ import annotations

import struct
from dataclasses import astuple, dataclass

_WORD = struct.Struct("!dqI")


@dataclass(frozen=True)
class HeaderWord:
    """A member's word.

    Attributes:
        speed: Records a second; 0: not known, or nobody asks.
        step: The last one before which a digest was asked for; -1: none was.
        digest: CRC-32 of the state before it.
    """

    speed: float = 0.0
    step: int = -1
    digest: int = 0

    def encoded(self) -> bytes:
        """Return the word as bytes."""
        return _WORD.pack(*astuple(self))

    @staticmethod
    def decoded(raw: bytes) -> HeaderWord:
        """Return the word that `encoded` wrote; one that says nothing for others."""
        if len(raw) != _WORD.size:
            return HeaderWord()
        speed, step, digest = _WORD.unpack(raw)
        return HeaderWord(speed if 0 < speed < float("inf") else 0.0, step, digest)
