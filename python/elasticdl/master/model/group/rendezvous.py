"""Who is in a group's next round, and why: a decision alone.

Owns the rules. Called with what members have said, by whoever plays the master's part.
Pure; must not know heartbeats, connections or the model.

- A member that ended, or counts as silent, is out at once.
- "The round is broken" is collected for two seconds at most: a dead connection is not
  noticed by both ends at once, and a word takes a heartbeat.
- Two that say that they lost each other do not reach each other, though both reach the
  master: the one that more members have lost is out, else the younger.
- Else the same members try again, also those that said nothing: they may have noticed
  nothing. If that round breaks as well, soon, the member that most have lost is out.
- Who is out for a lost connection is let in again after a time that doubles.
- A newcomer copies a member's state beside the steps, and is let in when it is nearly
  level: the others wait for the few steps that it lacks. It is let in as it is where
  fewer than the least number of members are left, or nobody who has a state.
- A member with other values than the leader's gets these, in a round of its own.
- A round of fewer than the least number of members stands, and makes no step: so it is
  where that number is raised, or where one is out for a lost connection.
- Newcomers are let in together, in one round in two seconds at most.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from elasticdl.collective.messages import Round
from elasticdl.job.words import RoundCause

WORDS_SECONDS = 2.0  # of keepalive packets there is one a second; and a heartbeat
JOIN_SECONDS = 2.0  # each round costs the members a step
_SOON_SECONDS = 30.0  # a lost connection is noticed in 5 s, and again in 5 s
_FIRST_OUT_SECONDS = 10.0  # for a lost connection; twice as long each further time
_MOST_OUT_SECONDS = 120.0


@dataclass(frozen=True)
class Standing:
    """A worker that could be in: it has built its model and listens."""

    worker: int  # its number, which no other process of the job has had
    ready_at: float  # Unix seconds; the oldest leads
    broken: int = 0  # the round that it says is broken
    broken_at: float = 0.0  # when it said so
    lost: int = -1  # the member that it lost then; -1: it does not know
    name: str = ""  # for people
    copied: bool = True  # of a newcomer: it is nearly level, or gave that up
    differs: bool = False  # the leader says that its state is not as its own


@dataclass(frozen=True)
class Formed:
    """A round, when it was formed and why."""

    round: Round
    at: float  # Unix seconds
    why: str  # a sentence for people
    cause: RoundCause | None = None  # None: an earlier version noted none
    names: Mapping[int, str] = field(default_factory=dict)  # of the members
    retry: bool = False  # the one before broke, for a reason that is not known
    # Who is out for a lost connection: how often it was, and until when.
    kept_out: Mapping[int, tuple[int, float]] = field(default_factory=dict)


def decide(
    before: Formed | None,
    standings: Sequence[Standing],
    *,
    begins: bool,
    now: float,
    least: int = 1,
    anew: str = "",
) -> Formed | None:
    """Return the next round; None while the present one stands or has to be waited for.

    Args:
        before: The newest round; None before the first.
        standings: All workers that live and are ready.
        begins: No record of the job is acknowledged yet (`Round.begins`).
        now: Unix seconds.
        least: Members without whom no step is made.
        anew: Why no state of any member counts any more, "" if they do.
    """
    here = sorted(standings, key=lambda one: (one.ready_at, one.worker))
    if not here:
        return None
    number = before.round.number + 1 if before else 1
    names = {**(before.names if before else {}), **_named(here)}
    verdict = _verdict(before, here, names, least=least, anew=anew, now=now)
    if verdict is None:
        return None
    kept_out = _kept_out(before, here, verdict.dismissed, now=now)
    members = verdict.members
    since = {}
    if before is not None and not anew:
        since = dict(zip(before.round.members, before.round.since, strict=True))
    for worker in _differing(before, here):
        since.pop(worker, None)
    return Formed(
        Round(
            number,
            tuple(members),
            tuple(since.get(member, number) for member in members),
            begins,
        ),
        at=now,
        why=verdict.why,
        cause=verdict.cause,
        names={member: names[member] for member in members},
        retry=verdict.retry,
        kept_out=kept_out,
    )


def waits(formed: Formed, *, least: int) -> bool:
    """Whether a round has to wait for more members before it makes a step."""
    return len(formed.round.members) < least


@dataclass(frozen=True)
class _Verdict:
    """Who is in, and why."""

    members: Sequence[int]
    why: str
    cause: RoundCause = RoundCause.JOINED
    dismissed: int = -1  # for a lost connection
    retry: bool = False


def _verdict(
    before: Formed | None,
    here: Sequence[Standing],
    names: Mapping[int, str],
    *,
    least: int,
    anew: str,
    now: float,
) -> _Verdict | None:
    """Return who is in next; None: nothing changes yet."""
    live = {one.worker: one for one in here}
    old = before.round.members if before else ()
    stay = [worker for worker in old if worker in live]
    new = [w for w in live if w not in old and not _is_kept_out(before, w, now=now)]
    copied = [worker for worker in new if live[worker].copied]
    if stay and not anew and len(stay) + len(copied) >= least:
        new = copied
    cause, reasons = _changed(before, here, names, anew=anew)
    judged = _Verdict(stay, "", cause)
    if before is not None and not reasons:
        after = _after_words(before, [live[w] for w in stay], names, now=now)
        if after is not None:
            judged = after
            reasons.append(after.why)
        elif _spoke(before, live.values()) or not _may_join(before, new, now=now):
            return None
    if new:
        reasons.append(_joined(new, names))
    members = [*judged.members, *new]
    if not members:
        return None
    return replace(judged, members=members, why="; ".join(reasons))


def _changed(
    before: Formed | None,
    here: Sequence[Standing],
    names: Mapping[int, str],
    *,
    anew: str,
) -> tuple[RoundCause, list[str]]:
    """Return what ends a round at once, and as sentences; none if nothing does."""
    live = {one.worker for one in here}
    old = before.round.members if before else ()
    out = [worker for worker in old if worker not in live]
    differing = _differing(before, here)
    reasons: list[tuple[RoundCause, str]] = []
    if anew:
        reasons.append((RoundCause.WENT_BACK, anew))
    if out:
        reasons.append((RoundCause.ENDED, f"{_listed(out, names)} ended"))
    if differing:
        who = _listed(differing, names)
        why = f"{who} had other values than the leader, and gets these"
        reasons.append((RoundCause.DIFFERED, why))
    first = reasons[0][0] if reasons else RoundCause.JOINED
    return first, [why for _, why in reasons]


def _differing(before: Formed | None, here: Sequence[Standing]) -> list[int]:
    """Return the members, but for the leader, whose state is not as the leader's."""
    others = before.round.members[1:] if before is not None else ()
    return [one.worker for one in here if one.differs and one.worker in others]


def _may_join(before: Formed, new: Sequence[int], *, now: float) -> bool:
    return bool(new) and now - before.at >= JOIN_SECONDS


def _is_kept_out(before: Formed | None, worker: int, *, now: float) -> bool:
    return before is not None and before.kept_out.get(worker, (0, 0.0))[1] > now


def _kept_out(
    before: Formed | None, here: Sequence[Standing], dismissed: int, *, now: float
) -> Mapping[int, tuple[int, float]]:
    known = before.kept_out if before else {}
    live = {one.worker for one in here}
    found = {worker: kept for worker, kept in known.items() if worker in live}
    if dismissed >= 0:
        times = known.get(dismissed, (0, 0.0))[0] + 1
        seconds = min(_FIRST_OUT_SECONDS * 2 ** (times - 1), _MOST_OUT_SECONDS)
        found[dismissed] = times, now + seconds
    return found


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
    """Return who stays after a broken round, and why.

    None while nobody said so, or words may still be on their way.
    """
    said = _spoke(before, members)
    if not said:
        return None
    stay = [one.worker for one in members]
    waited = now - min(one.broken_at for one in said) >= WORDS_SECONDS
    if len(said) < len(stay) and not waited:
        return None
    rank = before.round.members.index
    lost = [one.lost for one in said if one.lost in stay]

    def worst(some: Iterable[int]) -> int:
        # Of several the youngest: who has been in for long has the most to give.
        return max(some, key=lambda worker: (lost.count(worker), rank(worker)))

    pair = _pair(said, before.round.members)
    if pair:
        out = worst(pair)
        two = _listed(pair, names)
        why = f"{two} lost each other: {_listed([out], names)} is out"
        return _without(stay, out, why)
    if not before.retry or now - before.at > _SOON_SECONDS:
        return _Verdict(stay, "a connection broke", RoundCause.BROKEN, retry=True)
    spoke = {one.worker for one in said}
    quiet = [worker for worker in stay if worker not in spoke]
    out = worst(lost or quiet or stay)
    return _without(stay, out, f"{_listed([out], names)} is not reached by others")


def _without(stay: Sequence[int], worker: int, why: str) -> _Verdict:
    rest = [one for one in stay if one != worker]
    return _Verdict(rest, why, RoundCause.LEFT_OUT, worker, retry=True)


def _pair(said: Sequence[Standing], members: Sequence[int]) -> list[int]:
    """Return two members that say that they lost each other, the older one first."""
    lost = {one.worker: one.lost for one in said}
    for worker, other in lost.items():
        if lost.get(other) == worker and worker != other:
            return sorted((worker, other), key=members.index)
    return []


def _joined(workers: Sequence[int], names: Mapping[int, str]) -> str:
    return f"{_listed(workers, names)} joined"


def _named(standings: Sequence[Standing]) -> dict[int, str]:
    return {one.worker: one.name or f"worker-{one.worker}" for one in standings}


def _listed(workers: Sequence[int], names: Mapping[int, str]) -> str:
    return ", ".join(names.get(worker, f"worker-{worker}") for worker in workers)


# -- members that leave ------------------------------------------------------------


@dataclass(frozen=True)
class Present:
    """What is known of a worker that has the group's state, or is ready to copy it."""

    number: int
    has_state: bool
    leaves: bool = False  # it was told to, or says so
    let_go: bool = False  # it leaves, and was told that it may


def is_last(number: int, present: Iterable[Present]) -> bool:
    """Whether a member that leaves has what nobody else has who will be there."""
    mine, others = _apart(number, present)
    stays = [one for one in others if one.has_state and not one.leaves]
    return mine is not None and mine.has_state and not mine.let_go and not stays


def may_go(number: int, present: Iterable[Present], *, saved: bool) -> bool:
    """Return whether a member that leaves may go now.

    The model of a group is in its members alone. So of those that leave the last one
    stays until others have its state, or until a checkpoint has. Decisions are made
    one after the other: of members that leave at the same moment all but one go.

    Args:
        number: The member's.
        present: All that are there.
        saved: A checkpoint has the member's state.
    """
    mine, others = _apart(number, present)
    if mine is None or not mine.has_state:
        return True
    if any(one.has_state and not one.let_go for one in others):
        return True
    return saved and not any(not one.leaves for one in others)


def _apart(
    number: int, present: Iterable[Present]
) -> tuple[Present | None, list[Present]]:
    here = {one.number: one for one in present}
    return here.pop(number, None), list(here.values())
