"""Workers that were granted and have no node: is there room?

Owns the feedback from what the planner does not model: a worker that waits in vain is
taken back, and its job does not grow for a while. One of the floor waits on, but for
that while no room is kept for it; nor is it for other pods that wait in vain. Called
by `planner.plan`.
"""

from __future__ import annotations

from dataclasses import replace

from elasticdl.planner.crew import Crew, Worker
from elasticdl.planner.giving import seat
from elasticdl.planner.memory import Expected, Memory, Pause, Vain
from elasticdl.planner.pausing import (
    UNSEEN,
    lately,
    next_pause,
    paused,
    rest_seconds,
)
from elasticdl.planner.room import NOWHERE
from elasticdl.planner.scene import Scene

_UNMADE = "its master does not make it"
_STRAYS = "its pod may only be on nodes that are full"
_LOOKS_AGAIN_SECONDS = 10.0  # a scheduler at a pod for which it found no node


def seat_granted(scene: Scene) -> None:
    """Find room for workers above the floor; those without room are taken back."""
    for crew in scene.by_arrival():
        if not crew.part or crew.job.resting:
            continue
        for worker in list(crew.unplaced):
            if worker.gated or crew.size <= crew.floor:
                continue
            if worker not in crew.unplaced:
                continue  # it went with one that is there
            node = scene.node_for(worker.shape)
            if node != NOWHERE:
                seat(scene, worker, node)
            else:
                crew.strays = crew.strays or _strays(scene, worker)
                _let_go(scene, worker, "there is no room for one more worker")


def _strays(scene: Scene, worker: Worker) -> bool:
    """Whether a new worker would find room, and this one, as it was made, does not."""
    apart = worker.index >= 0 and worker.shape.nodes != worker.crew.shape.nodes
    return apart and scene.node_for(worker.crew.shape) != NOWHERE


def _let_go(scene: Scene, worker: Worker, cause: str) -> None:
    """Take a worker back, and before it those that are not made yet."""
    crew = worker.crew
    for one in (*crew.unmade, worker) if worker.index >= 0 else (worker,):
        if crew.size > crew.floor and (one in crew.unplaced or one in crew.placed):
            scene.send_away(one, cause)


def take_back(scene: Scene, memory: Memory) -> list[Pause]:
    """Take back what waits in vain; return the pauses, new and old."""
    known = scene.pauses
    expected = {one.key: one for one in memory.expected}
    found = {
        crew.key: _waits_in_vain(scene, crew, expected.get(crew.key))
        for crew in scene.crews.values()
    }
    unmade = sum(
        crew.given_up or found[crew.key][1] > 0 for crew in scene.crews.values()
    )
    pauses = []
    for crew in scene.crews.values():
        last, (why, lacks) = known.get(crew.key), found[crew.key]
        if why:
            crew.pause = next_pause(
                *(crew, last, why, scene.settings, scene.now),
                unmade=lacks,
                among=unmade if lacks else 1,
            )
            crew.cause = f"a worker waited in vain: {why}"
            pauses.append(crew.pause)
        elif last and lately(last, scene.settings, scene.now):
            pauses.append(last)  # so that the next one is longer
        crew.waits = any(one.index >= 0 and not one.bound for one in crew.placed)
    return pauses + scene.left


def _waits_in_vain(scene: Scene, crew: Crew, told: Expected | None) -> tuple[str, int]:
    """Return why a job waits in vain, "" if it does not; and what nobody makes."""
    why = ""
    if not crew.job.resting:
        why = (_in_vain if crew.part else _fixed_in_vain)(scene, crew, told)
    # Master and PS of a paused job are expected, too.
    if not why and _is_given_up(scene, crew, told):
        why = UNSEEN
        for worker in crew.unmade if crew.part else ():
            if crew.size > crew.floor:
                _let_go(scene, worker, "")
    return why, crew.lacks if why in (_UNMADE, UNSEEN) else 0


def _in_vain(scene: Scene, crew: Crew, told: Expected | None) -> str:
    """Send away what waits in vain; return why it does, "" if nothing does."""
    why = _STRAYS if crew.strays else ""
    for worker in [*crew.unplaced, *crew.placed]:
        if worker.bound or not (said := _why(scene, worker, told)):
            continue
        spare = crew.size > crew.floor
        if not spare and worker.node == NOWHERE:
            continue
        if worker not in crew.unplaced and worker not in crew.placed:
            continue  # it went with one that is there
        why = said
        if spare:
            _let_go(scene, worker, "")
        else:
            scene.remove(worker)
            crew.unplaced.append(worker)
    return why


def _why(scene: Scene, worker: Worker, told: Expected | None) -> str:
    settings, now = scene.settings, scene.now
    if worker.index < 0:
        # A master that has just come makes its workers next.
        waits = told and worker.crew.unseen >= told.unseen
        unmade = told and waits and told.unmade and told.since
        if unmade and now - unmade >= settings.unseen_seconds:
            return _UNMADE
        return ""
    # Of another clock, which may be an hour ahead.
    if not worker.since or abs(now - worker.since) < settings.wait_seconds:
        return ""
    if worker.gated:
        return worker.why or "a scheduling gate holds its pod"
    if worker.node == NOWHERE or not scene.room.is_free(worker.shape, worker.node):
        return ""  # it waits for those that leave, or for others to leave
    if not told or not told.free_since:
        return ""  # room has only just become free
    if now - told.free_since < settings.wait_seconds:
        return ""
    return worker.why or "the scheduler finds no node for its pod"


def _is_given_up(scene: Scene, crew: Crew, told: Expected | None) -> bool:
    """Return whether nobody makes the pods that go before workers, or are fixed."""
    if crew.pause or not crew.unseen or not told or not 0 < told.unseen <= crew.unseen:
        return False
    return scene.now - told.unseen_since >= scene.settings.unseen_seconds


def _fixed_in_vain(scene: Scene, crew: Crew, told: Expected | None) -> str:
    """Return why a pod of a job of fixed size waits though there is room."""
    wait, now = scene.settings.wait_seconds, scene.now
    if crew.pause or not crew.waiting_since or abs(now - crew.waiting_since) < wait:
        return ""
    if not told or not told.free_since or now - told.free_since < wait:
        return ""
    for worker in [one for one in crew.placed if not one.bound]:
        scene.remove(worker)
        crew.unplaced.append(worker)
    return crew.waiting_why or "the scheduler finds no node for its pod"


def expected_of(scene: Scene, memory: Memory) -> tuple[Expected, ...]:
    """Return what the next plan has to know of workers without a node."""
    known = {one.key: one for one in memory.expected}
    found = []
    for crew in scene.crews.values():
        pending = [one for one in crew.placed if not one.bound]
        unmade = sum(one.index < 0 for one in (*pending, *crew.unplaced))
        if not (pending or unmade or crew.unseen):
            continue
        last = known.get(crew.key, Expected(crew.key, (), -1, scene.now))
        # Fewer: its master makes them. More without a larger grant: some have ended.
        slow = 0 < last.unmade <= unmade and crew.size <= crew.before
        slow = (slow or last.unmade == unmade) and crew.unseen >= last.unseen
        since = last.since if slow else scene.now
        unseen_since = scene.now
        if 0 < last.unseen <= crew.unseen:
            unseen_since = last.unseen_since
        if crew.pause:  # the next try has its own time
            since = unseen_since = crew.pause.until
        free_since = 0.0
        if any(_has_room(scene, one) for one in pending):
            free_since = last.free_since or scene.now
        nodes = tuple(scene.room.nodes[one.node].name for one in pending)
        found.append(
            Expected(
                *(crew.key, nodes, unmade, since, free_since),
                *(crew.unseen, unseen_since),
            )
        )
    return tuple(found)


def _has_room(scene: Scene, worker: Worker) -> bool:
    """Return whether a worker's pod is there, and so is room for it."""
    there = worker.index >= 0 or worker.crew.waiting_since > 0
    return there and scene.room.is_free(worker.shape, worker.node)


def vain_of(scene: Scene) -> tuple[Vain, ...]:
    """Return which other pods wait in vain: for a volume, or because of affinity."""
    kept = {ask.pods for ask, _ in scene.rooms}
    free = {
        ask.pods
        for ask, node in scene.rooms
        if ask.made and scene.room.is_free(ask.shape, node)
    }
    lasts = {
        pods: scene.vains.get(pods, Vain(pods, scene.waiting[pods]))
        for pods in sorted(scene.waiting)
    }
    among = sum(pods in free or last.seconds > 0 for pods, last in lasts.items())
    found = (
        _vain(scene, last, pods in kept, is_free=pods in free, among=max(1, among))
        for pods, last in lasts.items()
    )
    gone = (one for pods, one in sorted(scene.vains.items()) if pods not in lasts)
    return (
        *(x for x in found if x != Vain(x.pods, x.kind)),
        *gone,
    )


def _vain(
    scene: Scene, last: Vain, is_kept: bool, *, is_free: bool, among: int
) -> Vain:
    settings, now = scene.settings, scene.now
    if now < last.until:
        return last
    lost = last.pods in scene.lost
    lost_since = last.lost_since or now if lost else last.lost_since
    trying = replace(last, free_since=last.free_since or now)
    # A scheduler takes whoever goes before workers first, once it looks at him again.
    in_vain = lost and now - lost_since >= _LOOKS_AGAIN_SECONDS
    in_vain = in_vain or (is_free and now >= trying.in_vain_at(settings.unseen_seconds))
    if not in_vain:
        last = trying if is_free else paused(last, now)
        return replace(last, lost_since=lost_since if is_kept else 0.0)
    seconds = rest_seconds(last.seconds, settings, among=among)
    return Vain(last.pods, last.kind, until=now + seconds, seconds=seconds)
