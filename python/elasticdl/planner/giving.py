"""What goes before growth: bounds, pods that wait, floors, and the ceiling.

Owns who gives way to whom. Called by `planner.plan`. None of this waits for a job that
was moved lately, and nobody is ever taken below its floor.
"""

from __future__ import annotations

import math

from elasticdl.planner.crew import BLOCKED, Crew, Worker
from elasticdl.planner.room import NOWHERE
from elasticdl.planner.scene import Ask, Scene
from elasticdl.planner.victims import RoomMaker


def keep_bounds(scene: Scene) -> None:
    """Let workers go for which there is nothing to do, or that the user excludes."""
    for crew in scene.crews.values():
        if not crew.part or crew.job.resting or crew.job.refused:
            continue
        while crew.size > crew.cap:
            leaver = min((*crew.unplaced, *crew.placed), key=_of_least_use)
            scene.send_away(leaver, _bound(crew))


def _bound(crew: Crew) -> str:
    job = crew.job
    if job.paused:
        return "it is paused"
    if job.cap < job.max:
        return f"there are {job.tasks_left} tasks left"
    return f"its maximum is {job.max}"


def _of_least_use(worker: Worker) -> tuple[bool, bool, bool, bool, int, int]:
    made, here = worker.index >= 0, worker.node != NOWHERE
    return (made, worker.bound, here, worker.running, worker.priority, -worker.index)


def seat_again(scene: Scene) -> None:
    """Give what has no node yet the room that the last plan saw for it.

    Else two plans could make room twice for one pod: somebody who comes before it in
    the order would find the first room.
    """
    lowest = _lowest(scene)
    for ask in sorted(scene.asks, key=_before):
        node = scene.same_node(ask.shape, ask.pods)
        if node == NOWHERE:
            node = ask.nominated
        if _goes_last(ask, lowest) or node == NOWHERE:
            continue
        if scene.room.fits(ask.shape, node, now=False):
            scene.keep(ask, node)
    for crew in scene.by_arrival():
        for worker in list(crew.unplaced):
            hopes = _hopes(worker)
            node = scene.same_node(worker.shape, crew.key) if hopes else NOWHERE
            if node != NOWHERE:
                seat(scene, worker, node)


def seat_asks(scene: Scene, *, before_all: bool) -> None:
    """Give room to pods that wait and go before workers, and make it if need be.

    Those before all workers come before floors, those before some of them after.
    """
    maker = RoomMaker(scene, f"pods {before_all}")
    highest = max((crew.rank for crew in scene.crews.values()), default=0)
    lowest = _lowest(scene)
    for ask in sorted(scene.asks, key=_before):
        if _goes_last(ask, lowest):
            continue
        if before_all and ask.priority <= highest and not ask.crew:
            continue
        node = scene.node_for(ask.shape)
        if node == NOWHERE:
            node = maker.make(
                *(ask.shape, None if ask.crew else ask.priority),
                *(f"made room for {ask.who}", ask.pods),
            )
            if node != NOWHERE and scene.remembered.get(ask.pods):
                scene.lost.add(ask.pods)
        if node != NOWHERE:
            scene.keep(ask, node)
        elif ask.crew:
            ask.crew.blocked = BLOCKED
    maker.end()


def seat_rest(scene: Scene) -> None:
    """Leave pods that no worker gives way to what they will find free now."""
    lowest = _lowest(scene)
    for ask in sorted(scene.asks, key=_before):
        if not _goes_last(ask, lowest):
            continue
        node = scene.room.best(ask.shape, now=True)
        if node != NOWHERE:
            scene.room.leave_alone(ask.shape, node)
            scene.rooms.append((ask, node))


def _lowest(scene: Scene) -> float:
    """Return the lowest priority of workers that might give way."""
    ranks = [crew.rank for crew in scene.crews.values() if crew.part]
    return min(ranks, default=math.inf)


def _goes_last(ask: Ask, lowest: float) -> bool:
    return not ask.crew and ask.priority <= lowest


def _before(ask: Ask) -> tuple[int, float, float, str]:
    arrived = ask.crew.job.arrived if ask.crew else ask.since
    return (-ask.priority, arrived, ask.since, ask.who)


def keep_floors(scene: Scene) -> None:
    """Give room to the workers that each job is sure of, and make it if need be.

    They are asked for even without room: a pod that waits is what tells people, and
    those who add nodes, that more is needed.
    """
    maker = RoomMaker(scene, "floors")
    for crew in scene.by_arrival():
        while len(crew.placed) < crew.floor and not crew.blocked:
            worker = next((one for one in crew.unplaced if _hopes(one)), None)
            if worker is None:
                break
            shape = worker.shape
            node = scene.node_for(shape)
            if node == NOWHERE:
                cause = f"made room for the first workers of {crew.key}"
                node = maker.make(shape, None, cause, crew.key)
                crew.given = crew.given or node != NOWHERE
            if node == NOWHERE:
                break
            seat(scene, worker, node)
    maker.end()


def _hopes(worker: Worker) -> bool:
    """Return whether a node could be found; else it waits in vain, or behind a gate."""
    crew = worker.crew
    paused = crew.pause and (worker.since or not crew.part or crew.given_up)
    return not worker.gated and not paused


def seat(scene: Scene, worker: Worker, node: int) -> None:
    """Give room to a worker that had none."""
    worker.crew.unplaced.remove(worker)
    scene.put(worker, node)


def keep_ceiling(scene: Scene) -> None:
    """Let workers go until no more is used than the ceiling allows."""
    while over := scene.room.over():
        crews = [crew for crew in scene.crews.values() if _could_help(crew, over)]
        if not crews:
            return
        crew = min(crews, key=lambda one: (one.rank, -one.share, one.order))
        freed = scene.room
        leaver = min(
            (one for one in crew.placed if one.node != NOWHERE),
            key=lambda one: (
                *(one.index >= 0, one.bound, one.running, one.priority),
                # Where much is free already: room for something large comes together.
                -freed.slots(crew.shape, one.node, now=False),
                -one.index,
            ),
        )
        names = ", ".join(scene.room.resources[i] for i in over)
        scene.send_away(leaver, f"gave way: more {names} was used than may be")


def _could_help(crew: Crew, over: list[int]) -> bool:
    return (
        crew.spare > 0
        and any(i in over for i, _ in crew.shape.needs)
        and any(one.node != NOWHERE for one in crew.placed)
    )
