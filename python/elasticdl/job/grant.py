"""A grant: how many workers a job is given for a while, by whom, and why.

Owns the text of the annotation `elasticdl.org/workers` on the job's ConfigMap, and
what holds of it. Written by the controller of a cluster, read by the job's master, by
commands and by the simulator. Pure: `now` is an argument. Must not know how a size is
decided.

    {"workers": 12, "leave": [31, 27], "until": 1795400000, "for": 1800, "by": "...",
     "why": "..."}
"""

from __future__ import annotations

import json
import math
from collections.abc import Container
from dataclasses import dataclass, replace
from typing import Any

from elasticdl.job.spec.replicas import WorkerSpec

# As long a job obeys a controller that is dead.
GRANT_SECONDS = 1800.0
# Nobody is to be granted anything for good, by a slip or a wrong clock.
LONGEST_GRANT_SECONDS = 6 * 3600.0
_LATEST = 1e15  # Unix seconds; a whole number may be too large for a float


@dataclass(frozen=True)
class Grant:
    """So many workers, until then."""

    workers: int
    leave: tuple[int, ...] = ()  # indexes of those who leave first, if any has to
    until: float = math.inf  # Unix seconds
    by: str = ""  # who decided: the holder of a Lease
    why: str = ""  # one sentence for people
    lasts: float = 0.0  # seconds, from its writing to its end; 0 is not said

    def expired(self, *, now: float) -> bool:
        """Whether its time is over."""
        return now >= self.until

    def in_force(self, *, now: float) -> bool:
        """Whether it may hold now; one that is dated too far ahead never held."""
        return now < self.until <= now + LONGEST_GRANT_SECONDS

    def same_as(self, other: Grant | None) -> bool:
        """Whether both ask for the same, whoever wrote them and until when."""
        return other is not None and (self.workers, self.leave, self.why) == (
            other.workers,
            other.leave,
            other.why,
        )


@dataclass(frozen=True)
class Read:
    """What an annotation, or a grant, comes to."""

    grant: Grant | None  # None: nothing is granted
    refused: str = ""  # what of it does not hold, in a sentence; "" if all does


def format_grant(grant: Grant) -> str:
    """Return the annotation's text."""
    until = {"until": round(grant.until)}
    if grant.lasts:
        until["for"] = round(grant.lasts)
    return json.dumps(
        {
            "workers": grant.workers,
            "leave": list(grant.leave),
            **until,
            "by": grant.by,
            "why": grant.why,
        },
        separators=(",", ":"),
        ensure_ascii=False,
    )


def parse_grant(text: str) -> Read:
    """Return the grant of an annotation's text; "" is none."""
    if not text:
        return Read(None)
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError):
        return _nothing(f"got {_short(text)}, expected JSON")
    if not isinstance(tree, dict):
        return _nothing(f"got {_short(text)}, expected an object with `workers`")
    workers: Any = tree.get("workers")
    until: Any = tree.get("until")
    leave: Any = tree.get("leave") or []
    if not _is_whole(workers):
        return _nothing(f"workers: got {_short(workers)}, expected a whole number")
    if not _is_whole(until) and not isinstance(until, float):
        return _nothing(f"until: got {_short(until)}, expected Unix seconds")
    if not abs(until) < _LATEST:  # nor is NaN
        return _nothing(f"until: got {_short(until)}, expected Unix seconds")
    if not isinstance(leave, list) or not all(_is_whole(one) for one in leave):
        return _nothing(f"leave: got {_short(leave)}, expected workers' numbers")
    return Read(
        Grant(
            workers=workers,
            leave=tuple(dict.fromkeys(leave)),
            until=float(until),
            by=_text(tree.get("by")),
            why=_text(tree.get("why")),
            lasts=_seconds(tree.get("for")),
        )
    )


def what_holds(
    read: Read, worker: WorkerSpec, *, known: Container[int], now: float
) -> Read:
    """Return the grant as far as it holds for a job, with a sentence about the rest.

    `known`: numbers that workers of the job have, or had; somebody who left meanwhile
    is no reason to complain.
    """
    grant = read.grant
    if grant is None:
        return read
    if not worker.takes_part:
        return _nothing(
            f"this job's size is its own ({_why_not(worker)}); expected none"
        )
    if grant.expired(now=now):
        # The same words each time that it is looked at: they are told once.
        return _nothing(
            f"until: got {grant.until:.0f}, which is over by the master's clock"
        )
    if not grant.in_force(now=now):
        return _nothing(
            f"until: got {grant.until:.0f}, expected a time within "
            f"{LONGEST_GRANT_SECONDS / 3600:.0f} h"
        )
    least, most = worker.bounds
    workers = min(max(grant.workers, least), most)
    complaints = []
    if workers != grant.workers:
        complaints.append(
            f"workers: got {grant.workers}, expected {least} to {most} (worker.min and "
            f"worker.max); {workers} it is"
        )
    strangers = [index for index in grant.leave if index not in known]
    if strangers:
        names = ", ".join(str(index) for index in strangers[:8])
        complaints.append(f"leave: {names} never were workers of this job")
    leave = tuple(index for index in grant.leave if index not in strangers)
    said = f"the grant{_by(grant)} does not hold as it is: {'; '.join(complaints)}"
    return Read(
        replace(grant, workers=workers, leave=leave), said if complaints else ""
    )


def _why_not(worker: WorkerSpec) -> str:
    if not worker.elastic:
        return "worker.elastic is false"
    if not worker.max:
        return "it has no worker.max"
    return "worker.max is not above worker.min"


def _nothing(why: str) -> Read:
    return Read(None, f"the annotation elasticdl.org/workers grants nothing: {why}")


def _by(grant: Grant) -> str:
    return f" by {grant.by}" if grant.by else ""


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _seconds(value: Any) -> float:
    """Return how long a grant says it is; 0 where it does not say so."""
    if not _is_whole(value) or not 0 < value < _LATEST:
        return 0.0
    return float(value)


def _text(value: Any) -> str:
    """Return one line that can be written: half a character of JSON cannot."""
    return " ".join(str(value or "").encode(errors="replace").decode().split())


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return repr(text if len(text) <= 60 else f"{text[:57]}...")
