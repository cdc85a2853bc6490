"""Who is in a group's next round, and why: a decision alone.

Owns the rules. Called with what members have said, by whoever plays the master's part.
Pure; must not know heartbeats, connections or the model.

- A member that ended, or counts as silent, is out at once.
- "The round is broken" is collected: the next round begins when every other member has
  said so or is out, at the latest a second after the first word. A member that said
  nothing by then is out, and comes back as a newcomer.
- Where all said so and nobody is out, the same members try again. If the same two lose
  each other twice in a row, the younger of them is out.
- Newcomers are let in together, in one round in two seconds at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from elasticdl.collective.messages import Round

WORDS_SECONDS = 1.0  # a word on its way takes one heartbeat, which is sent at once
JOIN_SECONDS = 2.0  # each round costs the members a step
_TWO = 2  # members lose each other


@dataclass(frozen=True)
class Standing:
    """A worker that could be in: it has built its model and listens."""

    worker: int
    ready_at: float  # Unix seconds; the oldest leads
    broken: int = 0  # the round that it says is broken
    broken_at: float = 0.0  # when it said so
    lost: int = -1  # the member that it lost then; -1: it does not know


@dataclass(frozen=True)
class Formed:
    """A round, when it was formed and why."""

    round: Round
    at: float  # Unix seconds
    why: str  # a sentence for people
    pair: frozenset[int] = frozenset()  # who lost each other before it, if two did


def decide(
    before: Formed | None,
    standings: Sequence[Standing],
    *,
    begins: bool,
    now: float,
) -> Formed | None:
    """Return the next round; None while the present one stands or has to be waited for.

    Args:
        before: The newest round; None before the first.
        standings: All workers that live and are ready.
        begins: No record of the job is acknowledged yet (`Round.begins`).
        now: Unix seconds.
    """
    here = sorted(standings, key=lambda one: (one.ready_at, one.worker))
    if not here:
        return None
    if before is None:
        members = [one.worker for one in here]
        return _formed(None, members, begins=begins, now=now, why=_joined(members))
    live = {one.worker: one for one in here}
    out = [worker for worker in before.round.members if worker not in live]
    stay = [worker for worker in before.round.members if worker in live]
    reasons = [f"{_names(out)} ended"] if out else []
    pair: frozenset[int] = frozenset()
    said = [live[w] for w in stay if live[w].broken == before.round.number]
    if said and not out:
        verdict = _after_words(before, said, stay, now=now)
        if verdict is None:
            return None
        dismissed, why, pair = verdict
        stay = [worker for worker in stay if worker not in dismissed]
        reasons.append(why)
    new = [worker for worker in live if worker not in before.round.members]
    if not reasons and not (new and now - before.at >= JOIN_SECONDS):
        return None
    if new:
        reasons.append(_joined(new))
    members = [*stay, *new]
    if not members:
        return None
    return _formed(
        before, members, begins=begins, now=now, why="; ".join(reasons), pair=pair
    )


def _after_words(
    before: Formed, said: Sequence[Standing], stay: Sequence[int], *, now: float
) -> tuple[Sequence[int], str, frozenset[int]] | None:
    """Return who is out of a broken round, why, and who lost each other.

    None while words may still be on their way.
    """
    spoke = {one.worker for one in said}
    quiet = [worker for worker in stay if worker not in spoke]
    if quiet:
        if now - min(one.broken_at for one in said) < WORDS_SECONDS:
            return None
        return quiet, f"{_names(quiet)} did not answer the others", frozenset()
    pair = _pair(said)
    if len(pair) == _TWO and pair == before.pair:
        younger = max(pair, key=before.round.members.index)
        names = _names(sorted(pair))
        return [younger], f"{names} lost each other twice: the younger is out", pair
    return [], "a connection broke", pair


def _formed(
    before: Formed | None,
    members: Sequence[int],
    *,
    begins: bool,
    now: float,
    why: str,
    pair: frozenset[int] = frozenset(),
) -> Formed:
    number = before.round.number + 1 if before else 1
    since = (
        dict(zip(before.round.members, before.round.since, strict=True))
        if before
        else {}
    )
    return Formed(
        Round(
            number,
            tuple(members),
            tuple(since.get(member, number) for member in members),
            begins,
        ),
        at=now,
        why=why,
        pair=pair,
    )


def _pair(said: Sequence[Standing]) -> frozenset[int]:
    pairs = {frozenset((one.worker, one.lost)) for one in said if one.lost >= 0}
    return pairs.pop() if len(pairs) == 1 else frozenset()


def _joined(workers: Sequence[int]) -> str:
    return f"{_names(workers)} joined"


def _names(workers: Sequence[int]) -> str:
    return ", ".join(f"worker-{worker}" for worker in workers)
