"""What a member keeps for newcomers that listen: a copy of its state, the steps since.

Owns who listens, how far each is, and which steps are kept for them. Called by
`collective.group` under its lock, and by the schedules of the unit tests. Pure; must
not know sockets, threads or what a state is.

A newcomer's copy counts only while this member is there: if it is lost, a step that it
alone has made is made anew, perhaps with another sum.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from elasticdl.collective.messages import HandOver, Snapshot

# A newcomer has closed its connection when its first round begins; until then the steps
# that it lacks are kept. The master's word needs a second at most.
_KEPT_SECONDS = 10.0
# The line of a member that gives a state away is shared by its steps. These wait for
# newcomers that lack more than so many, each in so many steps at most.
_BEHIND_STEPS = 0
_MOST_PACED = 32


@dataclass
class _Listener:
    """A newcomer's connection."""

    member: int
    has: int | None = None  # steps in its copy; None: it has no copy yet
    ended_at: float | None = None  # when it stopped listening
    paced: int = 0  # steps since it has a copy


class Feed:
    """Newcomers that listen, each by a key of its connection, and what is kept."""

    def __init__(self, most_steps: int) -> None:
        """Keep at most so many steps: who is further behind needs a new copy."""
        self._most_steps = most_steps
        self._listeners: dict[int, _Listener] = {}
        self._copy: Snapshot | None = None
        self._steps: deque[HandOver] = deque()
        self._version = 0  # after the last step that is kept
        self._members: tuple[int, ...] = ()  # of the round that was entered last

    @property
    def active(self) -> bool:
        """Whether anybody needs steps to be kept."""
        return bool(self._listeners)

    @property
    def is_heard(self) -> bool:
        """Whether a newcomer listens now."""
        return any(one.ended_at is None for one in self._listeners.values())

    @property
    def needs_copy(self) -> bool:
        """Whether a newcomer that begins to listen now needs a copy to be made."""
        return self._copy is None

    def open(self, listener: int, member: int, copy: Snapshot | None) -> None:
        """Let a newcomer listen.

        Args:
            listener: Key of its connection; an earlier one of the same newcomer ends.
            member: Its number.
            copy: The state as it is now, which nobody changes any more; None where
                there is a copy already.
        """
        if copy is not None:
            if not self._listeners:
                self._steps.clear()
                self._version = copy.version
            self._copy = copy
        self._listeners = {
            key: one for key, one in self._listeners.items() if one.member != member
        }
        self._listeners[listener] = _Listener(member)

    def made(self, step: HandOver, *, now: float) -> list[int]:
        """Keep a step; return the newcomers that are too far behind: they are out."""
        self._forget(now)
        if not self._listeners:
            return []
        self._steps.append(step)
        self._version = step.step + 1
        for one in self._listeners.values():
            one.paced += one.has is not None
        if len(self._steps) <= self._most_steps:
            return []
        out = [one.member for one in self._listeners.values()]
        self.clear()
        return out

    def next(self, listener: int) -> Snapshot | HandOver | None:
        """Return what a newcomer gets next; None if it has to wait for it."""
        known = self._listeners.get(listener)
        if known is None:
            return None
        if known.has is None:
            return self._copy
        return next((one for one in self._steps if one.step == known.has), None)

    @property
    def paces(self) -> bool:
        """Whether a newcomer follows that the next step should wait for."""
        return any(
            one.has is not None
            and one.ended_at is None
            and self._version - one.has > _BEHIND_STEPS
            and one.paced <= _MOST_PACED
            for one in self._listeners.values()
        )

    def listens(self, listener: int) -> bool:
        """Whether steps are kept for this newcomer."""
        return listener in self._listeners

    def lag(self, version: int) -> int:
        """Return how many steps were made since a version."""
        return self._version - version

    def has(self, listener: int, version: int) -> None:
        """Note how far a newcomer is."""
        if listener in self._listeners:
            self._listeners[listener].has = version
            self._trim()

    def ended(self, listener: int, *, now: float) -> None:
        """Note that a newcomer stopped listening: perhaps its first round begins."""
        known = self._listeners.get(listener)
        if known is not None and known.has is None:
            self._drop([listener])
        elif known is not None:
            known.ended_at = now

    def entered(self, members: Sequence[int]) -> None:
        """Note a round: no step is made before those who listen are in it, too."""
        self._members = tuple(members)

    def over(self, listener: int) -> bool:
        """Whether a newcomer has all that was made before the round that it is in."""
        known = self._listeners.get(listener)
        return (
            known is not None
            and known.member in self._members
            and self.next(listener) is None
        )

    def joined(self, members: Sequence[int]) -> bool:
        """Forget those that are members now; return whether there are any."""
        known = [k for k, one in self._listeners.items() if one.member in members]
        if known:
            self._drop(known)
        return bool(known)

    def since(self, version: int) -> Sequence[HandOver] | None:
        """Return the steps made since a version; None if these are not all kept."""
        found = [one for one in self._steps if one.step >= version]
        whole = bool(self._listeners) and len(found) == self._version - version
        return found if whole else None

    def clear(self) -> None:
        """Forget everything: the own state is another one, or nobody listens."""
        self._listeners.clear()
        self._steps.clear()
        self._copy = None

    def _forget(self, now: float) -> None:
        """Forget who stopped listening and is no member after all."""
        self._drop(
            [
                key
                for key, one in self._listeners.items()
                if one.ended_at is not None and now - one.ended_at > _KEPT_SECONDS
            ]
        )

    def _drop(self, listeners: Sequence[int]) -> None:
        for listener in listeners:
            del self._listeners[listener]
        self._trim()

    def _trim(self) -> None:
        """Let go what no newcomer needs any more."""
        if not self._listeners:
            self.clear()
            return
        every = [one.has for one in self._listeners.values()]
        if None not in every:
            self._copy = None
        least = min(self._version if has is None else has for has in every)
        if self._copy is not None:
            least = min(least, self._copy.version)
        while self._steps and self._steps[0].step < least:
            self._steps.popleft()
