"""Whether all members of a group have the same values: asked now and then, and told.

Owns when the leader asks, each member's answer, and who differs. The leader's plan asks
for the digest of the state before its step; a member's header of the next step has it.
Written by `worker.group.loop` in the main thread; `asks` and `answer` are called by the
group. Must not know what a state is, nor who has to act.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from elasticdl.worker.group.word import HeaderWord

_NEVER = -1


class Digests:
    """The digests of one member, and of the others while it leads. Thread-safe."""

    def __init__(self, digest: Callable[[], int]) -> None:
        """Take what returns the digest of the own state, between two steps."""
        self._digest = digest
        self._lock = threading.Lock()
        self._round = 0  # in which was asked last
        self._due = False
        self._answer = (_NEVER, 0)  # a step, and the digest before it
        self._open = False  # the others' answers were not compared yet

    def due(self) -> None:
        """Ask at the next step: something was made of the state."""
        with self._lock:
            self._due = True

    def asks(self, number: int, members: int) -> bool:
        """Whether the next plan asks for digests; called by the leader for each plan.

        So it does where others are in a round, and has not asked in it or it is due.
        """
        with self._lock:
            if members < 2 or (number == self._round and not self._due):
                return False
            self._round, self._due = number, False
            return True

    def take(self, step: int) -> None:
        """Answer a plan that asks."""
        digest = self._digest()
        with self._lock:
            self._answer, self._open = (step, digest), True

    @property
    def answer(self) -> tuple[int, int]:
        """The step that was asked for last, and the digest of the state before it."""
        with self._lock:
            return self._answer

    def differing(self, words: Mapping[int, bytes]) -> tuple[int, ...]:
        """Return once, when all others have answered, who has other values."""
        with self._lock:
            said = {member: HeaderWord.decoded(word) for member, word in words.items()}
            step, mine = self._answer
            if not self._open or any(one.step != step for one in said.values()):
                return ()
            self._open = False
            return tuple(sorted(m for m, one in said.items() if one.digest != mine))
