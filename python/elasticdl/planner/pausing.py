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

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping
from dataclasses import replace

from elasticdl.planner.crew import Crew
from elasticdl.planner.memory import Memory, Pause, Vain
from elasticdl.planner.room import NOWHERE, Room
from elasticdl.planner.view import JobKey, Settings

UNSEEN = "nobody makes all of its pods"
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


def known_pauses(
    crews: Mapping[JobKey, Crew], memory: Memory, settings: Settings, now: float
) -> tuple[dict[JobKey, Pause], list[Pause]]:
    """Return the pauses of jobs, and those that jobs left that are gone.

    One that goes while its pods are waited for was tried in vain, however soon it went.
    """
    known: dict[JobKey, Pause] = {}
    left: dict[JobKey, Pause] = {}
    for one in memory.pauses:
        crew = crews.get(one.key)
        if crew is None or crew.job.arrived != one.arrived:
            if one.unmade and lately(one, settings, now):
                left[one.key] = one
        elif not one.handed_on or crew.lacks >= one.unmade:
            known[one.key] = one
    for waited in memory.expected:
        last = left.get(waited.key)
        if waited.key in crews or not waited.unseen or (last and now < last.until):
            continue
        seconds = rest_seconds(last.seconds if last else 0.0, settings, among=1)
        left[waited.key] = Pause(
            *(waited.key, 0.0, now, now + seconds, seconds, UNSEEN),
            early=settings.pause_seconds,
            asks=(),
            stuck=False,
            chances=(),
            unmade=waited.unseen,
        )
    return known, list(left.values())


def inherited(
    left: list[Pause], new: Iterable[Crew], memory: Memory, now: float
) -> dict[JobKey, Pause]:
    """Give new jobs, of which no pod is made yet, what others of their namespace left.

    Whoever submits again what a quota refuses (a workflow, a CronJob) may do so under
    another name each time. A job whose pods are made has lost a second by that.
    """
    known = {one.key for one in memory.expected}
    found: dict[JobKey, Pause] = {}
    for crew in sorted(new, key=lambda one: one.order):
        key = crew.key
        of_namespace = [one for one in left if one.key.namespace == key.namespace]
        if key in known or not crew.unseen or not of_namespace:
            continue
        longest = max(of_namespace, key=lambda one: (one.seconds, one.key))
        left.remove(longest)
        found[key] = replace(
            longest,
            key=key,
            arrived=crew.job.arrived,
            since=now,
            asks=_asks(crew),
            unmade=crew.lacks,
            handed_on=True,
        )
    return found


def handed_on(
    last: Iterable[Vain],
    waiting: Mapping[str, str],
    placed: Container[str],
    settings: Settings,
    now: float,
) -> dict[str, Vain]:
    """Return what is known of pods that wait in vain, where some came for others.

    Whoever makes a pod anew that waits (a CronJob, a workflow) gives it another name;
    each would be waited for as if it were the first. `waiting`: kinds, by pods.
    `placed`: those that found a node.
    """
    known: dict[str, Vain] = {}
    left: dict[str, list[Vain]] = defaultdict(list)
    for one in last:
        if one.pods in waiting:
            known[one.pods] = replace(one, gone_since=0.0)
        elif one.pods not in placed:
            gone = replace(paused(one, now), gone_since=one.gone_since or now)
            end = max(gone.gone_since, gone.until) + settings.unseen_seconds
            if now < end + gone.seconds:
                left[one.kind].append(gone)
    for pods, kind in waiting.items():
        if pods not in known and left[kind]:
            longest = max(left[kind], key=lambda one: (one.seconds, one.pods))
            left[kind].remove(longest)
            known[pods] = replace(longest, pods=pods, gone_since=0.0)
    known.update((one.pods, one) for those in left.values() for one in those)
    return known


def paused(one: Vain, now: float) -> Vain:
    """Return it without room, for now: what it has waited counts on.

    Where others come and go all the time no room is free for long, and a pod that is
    made anew each half minute never waits for long.
    """
    waited = now - one.free_since if one.free_since else 0.0
    return replace(one, free_since=0.0, waited=one.waited + waited)
