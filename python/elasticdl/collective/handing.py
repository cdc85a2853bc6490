"""What members of a new round have, so that all get level: decisions alone.

Owns who is the newest, and whose copy of the state counts. Called by
`collective.protocol`. Must not know how anything is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from elasticdl.collective.messages import HandOver, Hello, Round, Snapshot


@dataclass(frozen=True)
class Made:
    """The step that a member has made last."""

    step: int
    plan: Any
    parts: tuple[Any, ...]
    members: tuple[int, ...]

    @classmethod
    def by(cls, message: HandOver) -> Made:
        """Return the step that a hand-over is of."""
        return cls(message.step, message.plan, message.parts, message.members)


def newest(hellos: Mapping[int, Hello]) -> int | None:
    """Return the version that all members get to; None if nobody has a state."""
    versions = [one.version for one in hellos.values() if one.version is not None]
    return max(versions, default=None)


def sponsor_of(
    member: int, hellos: Mapping[int, Hello], entered: Round | None
) -> int | None:
    """Return who has all that a newcomer's copy is of; None: it needs a new one."""
    copy = hellos[member].copy
    if copy is None or entered is None or copy.sponsor not in entered.members:
        return None
    since = entered.since[entered.members.index(copy.sponsor)]
    version = hellos[copy.sponsor].version
    if since > copy.round or version is None or version < copy.version:
        return None
    return copy.sponsor


def lacking(
    version: int | None, target: int, made: Made | None, state: Callable[[], Any]
) -> HandOver | Snapshot:
    """Return what a member at a version gets from one at `target`.

    That is the step which that one `made` last; else its whole `state`.
    """
    if version is not None and version != target - 1:
        raise RuntimeError(
            f"a member is at version {version} and this one at {target}; expected "
            "at most one step between them"
        )
    if version is None or made is None or not made.parts:
        return Snapshot(target, state())
    return HandOver(made.step, made.plan, made.parts, made.members)
