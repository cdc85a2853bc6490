"""Who would have to leave a node, so that a pod fits there.

Owns the choice of a node and of workers on it: the room that is made lies together, and
few leave. Called by `planner.giving` and `planner.exchange`, which say how many workers
each job may lose. Only `RoomMaker` lets anybody leave.

The ways of equal pods are in a heap that is lazy, as those of `planner.room`: an entry
is compared with the node as it is when it comes to the top. Who gave has a smaller
share afterwards, and less to give, so that other entries become worse, if anything; the
nodes that somebody left are put in again.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator

from elasticdl.planner.crew import Crew, Worker
from elasticdl.planner.room import NOWHERE, Shape
from elasticdl.planner.scene import MOST_LOOKS, Scene
from elasticdl.planner.view import JobKey

Budget = Callable[[Crew], int]  # how many workers a job may lose
Found = tuple[int, list[Worker]]  # a node, and who leaves it
# How many a job may lose: in all, of those that are there, of those that run.
_Limits = tuple[int, int, int]
_Score = tuple[float, ...]
_FIRST: _Score = ()  # comes to the top next, and is looked at there


def candidates(scene: Scene, shape: Shape, budget: Budget) -> Iterator[Found]:
    """Yield the nodes on which room can be made, and by whom."""
    if not shape.nodes:
        return
    allowed = _allowed(scene.crews.values(), budget)
    order = {crew: (crew.rank, -crew.share) for crew in allowed}
    if not order:
        return
    for node in shape.nodes:
        if (chosen := _on_node(scene, shape, node, allowed, order)) is not None:
            yield node, chosen


def _way_on(
    scene: Scene, shape: Shape, budget: Budget, node: int
) -> list[Worker] | None:
    """Return who would leave one node; None where no room can be made there."""
    allowed = _allowed({one.crew for one in scene.on_node[node]}, budget)
    order = {crew: (crew.rank, -crew.share) for crew in allowed}
    return _on_node(scene, shape, node, allowed, order)


def _allowed(crews: Iterable[Crew], budget: Budget) -> dict[Crew, _Limits]:
    given = ((crew, budget(crew)) for crew in crews)
    return {crew: _limits(crew, most) for crew, most in given if most > 0}


def _on_node(
    scene: Scene,
    shape: Shape,
    node: int,
    allowed: dict[Crew, _Limits],
    order: dict[Crew, tuple[int, float]],
) -> list[Worker] | None:
    there = [one for one in scene.on_node[node] if one.crew in order]
    if not there or not scene.may_look():
        return None
    lacks = _lacks(scene, shape, node)
    if lacks and not _enough(there, lacks):
        return None
    there.sort(
        key=lambda one: (
            *(order[one.crew], one.index >= 0, one.bound, one.running),
            *(one.priority, -one.index),
        )
    )
    return _choose(there, lacks, allowed)


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


class RoomMaker:
    """Makes room in one scene, in which workers only leave meanwhile."""

    def __init__(self, scene: Scene, step: str) -> None:
        """Begin a step of a plan with all nodes as they are."""
        scene.looks_left = MOST_LOOKS
        self._scene, self._step = scene, step
        self._passed = scene.passed.get(step, frozenset())
        self._hopeless: set[Shape] = set()
        self._in_vain: set[JobKey | str] = set()
        self._left: list[int] = []  # nodes that somebody left, in this order
        self._ways: dict[tuple[Shape, int | None], _Ways] = {}

    def make(
        self, shape: Shape, below: int | None, cause: str, whose: JobKey | str
    ) -> int:
        """Let the fewest workers leave one node, so that a pod fits; return the node.

        `below`: the priority below which workers give way; None is all of them. Those
        who need less room than others come later. Returns NOWHERE where nobody can make
        room, or there is no time to look.
        """
        if shape in self._hopeless:
            self._in_vain.add(whose)
        looks = whose not in self._passed and self._scene.looks_left >= 0
        if shape in self._hopeless or not looks:
            return NOWHERE
        key = (shape, below)
        if (ways := self._ways.get(key)) is None:
            ways = _Ways(self._scene, shape, _budget(below), len(self._left))
            self._ways[key] = ways
        node, leavers = ways.best(self._left)
        for worker in leavers:
            self._scene.send_away(worker, cause)
        if node != NOWHERE:
            self._left.append(node)
        elif self._scene.looks_left >= 0:
            self._hopeless.add(shape)
            self._in_vain.add(whose)
        return node

    def end(self) -> None:
        """End the step."""
        in_time = self._scene.looks_left >= 0
        self._scene.pass_over(self._step, self._in_vain, in_time=in_time)


def _budget(below: int | None) -> Budget:
    def spare(crew: Crew) -> int:
        return crew.spare if below is None or crew.rank < below else 0

    return spare


class _Ways:
    """The nodes on which equal pods find room if somebody leaves, best first."""

    def __init__(self, scene: Scene, shape: Shape, budget: Budget, seen: int) -> None:
        self._scene, self._shape, self._budget = scene, shape, budget
        self._seen = seen  # of the nodes that somebody left
        self._heap = [
            (self._score(node, leavers), node)
            for node, leavers in candidates(scene, shape, budget)
        ]
        heapq.heapify(self._heap)

    def best(self, left: list[int]) -> tuple[int, list[Worker]]:
        for node in left[self._seen :]:
            if node in self._shape.nodes:
                heapq.heappush(self._heap, (_FIRST, node))
        self._seen = len(left)
        while self._heap:
            said, node = self._heap[0]
            leavers = _way_on(self._scene, self._shape, self._budget, node)
            if leavers is None:
                heapq.heappop(self._heap)
                continue
            score = self._score(node, leavers)
            if score <= said:
                return node, leavers
            heapq.heapreplace(self._heap, (score, node))
        return NOWHERE, []

    def _score(self, node: int, leavers: list[Worker]) -> _Score:
        free = self._scene.room.free[node]
        return (
            len(leavers),
            max((one.crew.rank for one in leavers), default=0),
            # Where more is left over, the next pod may fit without anybody leaving.
            -min(free[i] / need for i, need in self._shape.needs if need),
            -max((one.crew.share for one in leavers), default=0.0),
            node,
        )
