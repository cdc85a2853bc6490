"""How long a job does not grow after a worker waited in vain.

Owns when a pause holds, what ends a long one early, and how long the next one is.
Called by `planner.carry` and `planner.waiting`. Pure.

A pause is twice as long as the one before. What ends it early has to be news for this
job: its own edit, that its floor waits no more, or a node with room for more workers of
it than at any time at which one waited in vain. Anything else that comes and goes
changes nothing, and one that was ended early for nothing is the longer not ended early
again: however restless a cluster is, a job is tried a few times an hour. Where nobody
made its pods (a quota, a queue), the first one that is made ends the pause at once, and
room elsewhere is no news; the more such jobs there are, the longer each one's pause is,
so that all of them together cost the others no more than one does.
"""

from __future__ import annotations

from elasticdl.planner.crew import Crew
from elasticdl.planner.memory import Pause
from elasticdl.planner.room import NOWHERE, Room
from elasticdl.planner.view import Settings

# However many wait in vain, each is tried again at some time.
LONGEST_SECONDS = 86_400.0


def chances(room: Room, crew: Crew) -> dict[str, int]:
    """Return how many of its workers each node could hold now, with those it has.

    Not what those that leave will give: that they leave is for somebody.
    """
    found = {node: room.slots(crew.shape, node, now=True) for node in crew.shape.nodes}
    for worker in crew.placed:
        if worker.node != NOWHERE:
            found[worker.node] = found.get(worker.node, 0) + 1
    return {room.nodes[node].name: count for node, count in found.items() if count}


def holds(pause: Pause, crew: Crew, now: float) -> bool:
    """Return whether a pause is in force."""
    if now >= pause.until or crew.lacks < pause.unmade:
        return False
    return now < pause.since + pause.early or not _is_news(pause, crew)


def _is_news(pause: Pause, crew: Crew) -> bool:
    known = dict(pause.chances)
    if pause.asks != _asks(crew) or (pause.stuck and not _waits(crew)):
        return True
    # It is no room that a job lacks whose pods nobody makes.
    return not pause.unmade and (
        any(count > known.get(name, 0) for name, count in crew.chances.items())
    )


def _asks(crew: Crew) -> tuple[object, ...]:
    job = crew.job
    # Where the planner decides, nobody goes by `replicas`: an autoscaler may move it.
    return (job.worker, job.min, job.max, 0 if crew.part else job.replicas)


def _waits(crew: Crew) -> bool:
    there = any(one.since for one in (*crew.unplaced, *crew.placed) if not one.bound)
    return there or crew.waiting_since > 0


def lately(last: Pause, settings: Settings, now: float) -> bool:
    """Return whether a pause was so lately that the next one is longer."""
    # What nobody makes is known to be in vain only after so long.
    return now < last.until + last.seconds + settings.unseen_seconds


def rest_seconds(last: float, settings: Settings, *, among: int) -> float:
    """Return for how long nothing is tried again: twice as long as the last time.

    `among`: so many are tried in vain, each for itself. A user may have hundreds.
    """
    seconds = min(2 * last, settings.max_pause_seconds * among)
    return min(max(seconds, settings.pause_seconds * among), LONGEST_SECONDS)


def next_pause(
    crew: Crew,
    last: Pause | None,
    why: str,
    settings: Settings,
    now: float,
    *,
    unmade: int = 0,
    among: int = 1,
) -> Pause:
    """Return the pause of a job one of whose workers has just waited in vain.

    `among`: of so many jobs nobody makes the pods, where it is one of those.
    """
    seconds, early = rest_seconds(0.0, settings, among=among), settings.pause_seconds
    most, known = settings.max_pause_seconds, crew.chances
    if last and lately(last, settings, now) and last.asks == _asks(crew):
        seconds = rest_seconds(last.seconds, settings, among=among)
        ended_early = now < last.until and not crew.pause
        early = min(2 * last.early, most) if ended_early else last.early
        before = dict(last.chances)
        known = {n: max(known.get(n, 0), before.get(n, 0)) for n in {*known, *before}}
    return Pause(
        crew.key,
        crew.job.arrived,
        now,
        now + seconds,
        seconds,
        why,
        early=early,
        asks=_asks(crew),
        stuck=_waits(crew),
        chances=tuple(sorted(known.items())),
        unmade=unmade,
    )
