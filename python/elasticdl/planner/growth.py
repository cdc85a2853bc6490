"""Growth: the next worker goes to the job with the smallest share, while one fits.

Called by `planner.plan` for what is free now, and by `planner.exchange` for what would
come of a move. Progressive filling (see the package): a heap over shares, and a job
that found no room is out, because room only becomes less.
"""

from __future__ import annotations

import heapq
from collections import defaultdict

from elasticdl.planner.crew import Crew, Worker
from elasticdl.planner.room import NOWHERE, Shape
from elasticdl.planner.scene import Scene
from elasticdl.planner.view import JobKey

_Order = tuple[float, tuple[int, int, int], float, JobKey]


def grow(scene: Scene, *, now: bool) -> int:
    """Add workers where they fit; return how many."""
    waiting = [(_order(crew), crew.key) for crew in scene.crews.values() if crew.grows]
    heapq.heapify(waiting)
    full = _takers(scene) if now else set()
    added = 0
    while waiting:
        crew = scene.crews[waiting[0][1]]
        if crew.shape in full or not add(scene, crew, now=now):
            full.add(crew.shape)
            heapq.heappop(waiting)
            continue
        added += 1
        if crew.grows:
            heapq.heapreplace(waiting, (_order(crew), crew.key))
        else:
            heapq.heappop(waiting)
    return added


def _takers(scene: Scene) -> set[Shape]:
    """Return the shapes that could get in the way of a larger one.

    When two workers leave for one that is as large, they leave one after the other, and
    a scheduler gives the room of the first to any pod that fits there.
    """
    crews = scene.crews.values()
    rooms = scene.made_rooms + [
        (worker.node, worker.shape)
        for crew in crews
        for worker in crew.placed
        if not worker.bound and _is_kept(scene, worker)
    ]
    kept: dict[int, list[Shape]] = defaultdict(list)
    for node, shape in rooms:
        kept[node].append(shape)
    return {
        crew.shape
        for crew in crews
        if any(
            node in crew.shape.nodes and scene.room.could_take(crew.shape, shapes, node)
            for node, shapes in kept.items()
        )
    }


def _is_kept(scene: Scene, worker: Worker) -> bool:
    """Return whether a worker's room is one that others leave for it, or left."""
    crew = worker.crew
    return crew.given or not scene.room.is_free(worker.shape, worker.node)


def add(scene: Scene, crew: Crew, *, now: bool) -> bool:
    """Give a job one more worker, if there is room; return whether there was."""
    # Workers of a job of fixed size take what is free, whatever anybody thinks of it.
    if crew.part and not scene.room.under_ceiling(crew.shape, now=now):
        return False
    node = scene.room.best(crew.shape, now=now)
    if node == NOWHERE:
        return False
    scene.put(Worker(crew, priority=crew.rank), node)
    return True


def _order(crew: Crew) -> _Order:
    # Jobs of fixed size first: their pods wait already, and no grant holds them back.
    share = crew.share if crew.part else -1.0
    return (share, crew.tie, crew.job.arrived, crew.key)
