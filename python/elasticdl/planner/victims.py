"""Who would have to leave a node, so that a pod fits there.

Owns the choice of a node and of workers on it: the room that is made lies together, and
few leave. Called by `planner.giving` and `planner.exchange`, which say how many workers
each job may lose. Changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from elasticdl.planner.crew import Crew, Worker
from elasticdl.planner.room import Shape
from elasticdl.planner.scene import Scene

Budget = Callable[[Crew], int]  # how many workers a job may lose
Found = tuple[int, list[Worker]]  # a node, and who leaves it
# How many a job may lose: in all, of those that are there, of those that run.
_Limits = tuple[int, int, int]


def candidates(scene: Scene, shape: Shape, budget: Budget) -> Iterator[Found]:
    """Yield the nodes on which room can be made, and by whom."""
    if not shape.nodes:
        return
    given = ((crew, budget(crew)) for crew in scene.crews.values())
    allowed = {crew: _limits(crew, most) for crew, most in given if most > 0}
    order = {crew: (crew.rank, -crew.share) for crew in allowed}
    if not order:
        return
    for node in shape.nodes:
        there = [one for one in scene.on_node[node] if one.crew in order]
        if not there:
            continue
        lacks = _lacks(scene, shape, node)
        if lacks and not _enough(there, lacks):
            continue
        there.sort(
            key=lambda one: (
                *(order[one.crew], one.index >= 0, one.bound, one.running),
                *(one.priority, -one.index),
            )
        )
        if (chosen := _choose(there, lacks, allowed)) is not None:
            yield node, chosen


def _lacks(scene: Scene, shape: Shape, node: int) -> dict[int, int]:
    free = scene.room.free[node]
    return {i: need - free[i] for i, need in shape.needs if need > free[i]}


def _enough(there: list[Worker], lacks: dict[int, int]) -> bool:
    """Return whether all of them together would do; a quick look."""
    return all(
        sum(need for one in there for i, need in one.shape.needs if i == lack) >= amount
        for lack, amount in lacks.items()
    )


def _limits(crew: Crew, count: int) -> _Limits:
    return (count, crew.spare_made, crew.spare_running)


def _may_leave(one: Worker, allowed: dict[Crew, _Limits], chosen: list[Worker]) -> bool:
    most, made, running = allowed[one.crew]
    taken = [other for other in chosen if other.crew is one.crew]
    if one.index >= 0 and sum(other.index >= 0 for other in taken) >= made:
        return False
    if one.running and sum(other.running for other in taken) >= running:
        return False
    return len(taken) < most


def _choose(
    there: list[Worker], lacks: dict[int, int], allowed: dict[Crew, _Limits]
) -> list[Worker] | None:
    chosen: list[Worker] = []
    lacks = dict(lacks)
    for one in there:
        if all(amount <= 0 for amount in lacks.values()):
            break
        helps = any(lacks.get(i, 0) > 0 for i, _ in one.shape.needs)
        if helps and _may_leave(one, allowed, chosen):
            chosen.append(one)
            _lessen(lacks, one, 1)
    if any(amount > 0 for amount in lacks.values()):
        return None
    # A large one that came last may have made small ones unnecessary.
    for one in list(chosen):
        _lessen(lacks, one, -1)
        if any(amount > 0 for amount in lacks.values()):
            _lessen(lacks, one, 1)
        else:
            chosen.remove(one)
    return chosen


def _lessen(lacks: dict[int, int], one: Worker, sign: int) -> None:
    for i, need in one.shape.needs:
        if i in lacks:
            lacks[i] -= sign * need
