"""Grants that the API server refused: when to try again, and whether to tell.

Owns both. Called by `controller.deciding`. Pure: `now`, of a steady clock, is an
argument. A refusal may be for good (a right that is missing, an admission webhook), so
the next try comes twice as late each time, up to a few minutes.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass

from elasticdl.controller.writing import Write
from elasticdl.planner.view import JobKey

LONGEST_SECONDS = 300.0
# Three in a row, each after twice as long.
_NOT_BY_CHANCE = 4


@dataclass(frozen=True)
class _Refusal:
    uid: str  # of the ConfigMap: one that was made anew may be taken
    text: str
    until: float
    seconds: float  # before that


class Refusals:
    """What was refused lately, by job."""

    def __init__(self, first_seconds: float) -> None:
        """Begin with nothing refused."""
        self._first = first_seconds
        self._known: dict[JobKey, _Refusal] = {}

    def __bool__(self) -> bool:
        """Return whether anything was refused."""
        return bool(self._known)

    def in_order(self, due: Iterable[Write], now: float) -> list[Write]:
        """Return what may be written now; what was refused before goes last.

        It may take as long as a call may: the others do not wait for that.
        """
        tried = [one for one in due if self.may_try(one.key, one.uid, now)]
        return sorted(tried, key=lambda one: one.key in self._known)

    def may_try(self, key: JobKey, uid: str, now: float) -> bool:
        """Return whether a grant may be written now."""
        last = self._known.get(key)
        return last is None or last.uid != uid or now >= last.until

    def stands(self, key: JobKey, uid: str, now: float) -> bool:
        """Return whether its grants are refused, not only one of them by chance."""
        return (
            not self.may_try(key, uid, now)
            and self._known[key].seconds >= _NOT_BY_CHANCE * self._first
        )

    def refused(self, key: JobKey, uid: str, text: str, now: float) -> bool:
        """Note a refusal; return whether that is news."""
        last = self._known.get(key)
        again = last is not None and last.uid == uid
        seconds = self._first
        if last is not None and again:
            seconds = min(2 * last.seconds, LONGEST_SECONDS)
        self._known[key] = _Refusal(uid, text, now + seconds, seconds)
        return last is None or not again or last.text != text

    def taken(self, key: JobKey) -> None:
        """Note that a grant was taken."""
        self._known.pop(key, None)

    def keep(self, jobs: Container[JobKey]) -> None:
        """Forget jobs that are gone."""
        for key in [one for one in self._known if one not in jobs]:
            del self._known[key]
