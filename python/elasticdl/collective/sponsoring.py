"""A member's part as a sponsor: it gives newcomers a copy of its state, and the steps.

Owns the copy and the steps that are kept (`collective.feed`), and who waits for them.
Made by `collective.group`, which calls it under its lock with each step that is made,
and from the threads of newcomers' connections. Must not know rounds.
"""

from __future__ import annotations

import itertools
import logging
import socket
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from elasticdl.collective import wire
from elasticdl.collective.feed import Feed
from elasticdl.collective.listening import Answer, serve
from elasticdl.collective.messages import HandOver, Snapshot
from elasticdl.errors import RpcError

log = logging.getLogger(__name__)

_STATE_SECONDS = 5.0  # until a sponsor has a state that can be copied
# What is kept while a newcomer copies the state: steps, and bytes of these.
_MOST_STEPS = 64
# On the same line a step beside a newcomer takes longer than usual, by what that one is
# sent; with a wait, which brings it nearer, at most about twice as long.
_PACE_SECONDS = 0.6
_PACE_OF_STEP = 0.15  # of a long one, which leaves the line free
_OVER_SECONDS = 0.15
_USUAL_STEPS = 9  # whose median is usual
_LEAST_STEPS = 8
_MOST_BYTES = 1 << 30


@dataclass(frozen=True)
class Standpoint:
    """How far the member itself is."""

    version: int | None  # steps in its state; None while it has none that counts
    round: int


def pace_seconds(usual: float, step: float) -> float:
    """Return how long the next step may wait for newcomers.

    Args:
        usual: Seconds of a step without newcomers.
        step: Of the last one beside them, without its wait.
    """
    most = min(usual, max(_PACE_SECONDS, _PACE_OF_STEP * usual))
    return max(0.0, min(most, 2 * usual + _OVER_SECONDS - step))


@dataclass
class _Newcomer:
    """A newcomer's connection.

    Attributes:
        key: Under which steps are kept for it.
        member: Its number.
        round: In which it began to listen; None: there was no state to copy yet.
        gone: The connection ended, perhaps before there was one.
    """

    key: int
    member: int
    round: int | None = None
    gone: bool = False


class Sponsoring:
    """Newcomers, and what they are given. All but `serve` is called under the lock."""

    def __init__(
        self,
        changed: threading.Condition,
        *,
        tell: Callable[[Callable[[], None]], None],
        state: Callable[[], Sequence[wire.Buffer]],
        stands: Callable[[], Standpoint],
        step_bytes: int,
    ) -> None:
        """Begin without newcomers.

        Args:
            changed: Of the group's lock.
            tell: Makes a call under the lock while no step is being applied.
            state: Returns the own state.
            stands: Returns how far the own state is.
            step_bytes: Of one step that is kept.
        """
        self._changed = changed
        self._tell = tell
        self._state = state
        self._stands = stands
        fit = _MOST_BYTES // max(1, step_bytes)
        self._feed = Feed(max(_LEAST_STEPS, min(fit, _MOST_STEPS)))
        self._keys = itertools.count()
        # Seconds of steps without newcomers.
        self._usual: deque[float] = deque(maxlen=_USUAL_STEPS)
        self._paced_at: float | None = None  # when the present step began
        self._closed = False

    @property
    def active(self) -> bool:
        """Whether newcomers need each step's gradient."""
        return self._feed.active

    @property
    def is_heard(self) -> bool:
        """Whether a newcomer listens now."""
        return self._feed.is_heard

    def since(self, version: int) -> Sequence[HandOver] | None:
        """Return the steps since a version; None if they are not all kept."""
        return self._feed.since(version)

    def made(self, step: HandOver) -> None:
        """Keep a step; its one part is the whole sum, which may change afterwards."""
        if not self._feed.active:
            return
        kept = replace(step, parts=(step.parts[0].copy(),))
        for out in self._feed.made(kept, now=time.monotonic()):
            log.info("member %d is too many steps behind to listen", out)
        self._changed.notify_all()

    def pace(self) -> None:
        """Wait for newcomers that are behind, a moment and at most a step's time."""
        now = time.monotonic()
        with self._changed:
            step = now - (self._paced_at or now)
            if self._paced_at is not None and not self._feed.active:
                self._usual.append(step)
            if self._feed.paces:
                usual = statistics.median(self._usual) if self._usual else step
                self._changed.wait_for(
                    lambda: self._closed or not self._feed.paces,
                    timeout=pace_seconds(usual, step),
                )
            self._paced_at = time.monotonic()

    def entered(self, members: Sequence[int]) -> None:
        """Note a round that this member has entered: perhaps newcomers are in it."""
        self._feed.entered(members)
        self._changed.notify_all()

    def joined(self, members: Sequence[int]) -> None:
        """Note who makes steps now."""
        if self._feed.joined(members):
            self._changed.notify_all()

    def other_state(self) -> None:
        """Let all newcomers go: the own state is another one now."""
        self._feed.clear()
        self._changed.notify_all()

    def close(self) -> None:
        """Let all newcomers go."""
        self._closed = True
        self.other_state()

    def serve(self, connection: socket.socket, newcomer: int) -> None:
        """Give a newcomer what it needs, until its connection ends."""
        one = _Newcomer(next(self._keys), newcomer)
        self._tell(lambda: self._open(one))
        try:
            serve(connection, partial(self._next_for, one))
        except RpcError as error:
            log.info("member %d listens no more: %s", newcomer, error)
        with self._changed:
            one.gone = True
            self._feed.ended(one.key, now=time.monotonic())

    def _open(self, one: _Newcomer) -> None:
        mine = self._stands()
        if mine.version is None or one.gone:
            return  # `_next_for` refuses it, or has
        copy = None
        if self._feed.needs_copy:
            copy = Snapshot(mine.version, list(self._state()))
        self._feed.open(one.key, one.member, copy)
        one.round = mine.round
        self._changed.notify_all()

    def _next_for(self, one: _Newcomer, has: int | None, waits: bool) -> Answer:
        """Return what a newcomer gets next. Raises RpcError if it gets nothing."""
        key = one.key
        with self._changed:
            self._changed.wait_for(
                lambda: one.round is not None or self._closed, timeout=_STATE_SECONDS
            )
            if one.round is None:
                raise RpcError("there is no state to copy yet")
            if has is not None:
                self._feed.has(key, has)
                self._changed.notify_all()
            while not self._closed and self._feed.listens(key):
                message = self._feed.next(key)
                if message is not None:
                    return Answer(one.round, message, self._lag(message))
                if has is not None and self._feed.over(key):
                    return Answer(one.round, over=True)
                if has is not None and not waits:
                    return Answer(one.round)
                self._changed.wait()
        raise RpcError("nothing is kept for it any more")

    def _lag(self, message: Snapshot | HandOver) -> int:
        if isinstance(message, Snapshot):
            return self._feed.lag(message.version)
        return self._feed.lag(message.step + 1)
