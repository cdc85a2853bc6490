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

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from elasticdl.collective.messages import Round

WORDS_SECONDS = 1.0  # a word on its way takes one heartbeat, which is sent at once
JOIN_SECONDS = 2.0  # each round costs the members a step
_TWO = 2  # members lose each other


@dataclass(frozen=True)
class Standing:
    """A worker that could be in: it has built its model and listens."""

    worker: int  # its number, which no other process of the job has had
    ready_at: float  # Unix seconds; the oldest leads
    broken: int = 0  # the round that it says is broken
    broken_at: float = 0.0  # when it said so
    lost: int = -1  # the member that it lost then; -1: it does not know
    name: str = ""  # for people


@dataclass(frozen=True)
class Formed:
    """A round, when it was formed and why."""

    round: Round
    at: float  # Unix seconds
    why: str  # a sentence for people
    names: Mapping[int, str] = field(default_factory=dict)  # of the members
    pair: frozenset[int] = frozenset()  # who lost each other before it, if two did


def decide(
    before: Formed | None,
    standings: Sequence[Standing],
    *,
    begins: bool,
    now: float,
    anew: str = "",
) -> Formed | None:
    """Return the next round; None while the present one stands or has to be waited for.

    Args:
        before: The newest round; None before the first.
        standings: All workers that live and are ready.
        begins: No record of the job is acknowledged yet (`Round.begins`).
        now: Unix seconds.
        anew: Why no state of any member counts any more, "" if they do.
    """
    here = sorted(standings, key=lambda one: (one.ready_at, one.worker))
    if not here:
        return None
    number = before.round.number + 1 if before else 1
    names = {**(before.names if before else {}), **_named(here)}
    verdict = _verdict(before, here, names, anew=anew, now=now)
    if verdict is None:
        return None
    members, why, pair = verdict
    since = {}
    if before is not None and not anew:
        since = dict(zip(before.round.members, before.round.since, strict=True))
    return Formed(
        Round(
            number,
            tuple(members),
            tuple(since.get(member, number) for member in members),
            begins,
        ),
        at=now,
        why=why,
        names={member: names[member] for member in members},
        pair=pair,
    )


_Verdict = tuple[Sequence[int], str, frozenset[int]]


def _verdict(
    before: Formed | None,
    here: Sequence[Standing],
    names: Mapping[int, str],
    *,
    anew: str,
    now: float,
) -> _Verdict | None:
    """Return the next members, why, and who lost each other; None: not yet."""
    live = {one.worker: one for one in here}
    old = before.round.members if before else ()
    stay: Sequence[int] = [worker for worker in old if worker in live]
    new = [worker for worker in live if worker not in old]
    out = [worker for worker in old if worker not in live]
    reasons = [anew] if anew else []
    if out:
        reasons.append(f"{_listed(out, names)} ended")
    pair: frozenset[int] = frozenset()
    if before is not None and not reasons:
        judged = _after_words(before, [live[w] for w in stay], names, now=now)
        if judged is not None:
            stay, why, pair = judged
            reasons.append(why)
        elif _spoke(before, live.values()) or not _may_join(before, new, now=now):
            return None
    if new:
        reasons.append(_joined(new, names))
    members = [*stay, *new]
    return (members, "; ".join(reasons), pair) if members else None


def _may_join(before: Formed, new: Sequence[int], *, now: float) -> bool:
    return bool(new) and now - before.at >= JOIN_SECONDS


def _spoke(before: Formed, members: Iterable[Standing]) -> list[Standing]:
    """Return who says that the round is broken."""
    return [one for one in members if one.broken == before.round.number]


def _after_words(
    before: Formed,
    members: Sequence[Standing],
    names: Mapping[int, str],
    *,
    now: float,
) -> _Verdict | None:
    """Return who stays after a broken round, why, and who lost each other.

    None while nobody said so, or words may still be on their way.
    """
    said = _spoke(before, members)
    if not said:
        return None
    spoke = {one.worker for one in said}
    stay = [one.worker for one in members]
    quiet = [worker for worker in stay if worker not in spoke]
    if quiet:
        if now - min(one.broken_at for one in said) < WORDS_SECONDS:
            return None
        why = f"{_listed(quiet, names)} did not answer the others"
        return [worker for worker in stay if worker in spoke], why, frozenset()
    pair = _pair(said)
    if len(pair) == _TWO and pair == before.pair:
        younger = max(pair, key=before.round.members.index)
        two = _listed(sorted(pair), names)
        why = f"{two} lost each other twice: the younger is out"
        return [worker for worker in stay if worker != younger], why, pair
    return stay, "a connection broke", pair


def _pair(said: Sequence[Standing]) -> frozenset[int]:
    pairs = {frozenset((one.worker, one.lost)) for one in said if one.lost >= 0}
    return pairs.pop() if len(pairs) == 1 else frozenset()


def _joined(workers: Sequence[int], names: Mapping[int, str]) -> str:
    return f"{_listed(workers, names)} joined"


def _named(standings: Sequence[Standing]) -> dict[int, str]:
    return {one.worker: one.name or f"worker-{one.worker}" for one in standings}


def _listed(workers: Sequence[int], names: Mapping[int, str]) -> str:
    return ", ".join(names.get(worker, f"worker-{worker}") for worker in workers)
