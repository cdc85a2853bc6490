"""Exchange for fairness: workers of a larger share go, so that a smaller one grows.

Owns which moves are made. Called by `planner.fairness` when nothing can grow. A move is
tried on the scene with the growth that would follow, and counts if the sorted shares of
all jobs are better afterwards: the smallest is larger, or it is the same and the next
one is (`Scene.shares`). What is asked for is only that workers leave; the receiver
grows once they are gone, and until then the room is kept for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from elasticdl.planner.crew import Crew, Worker
from elasticdl.planner.growth import grow
from elasticdl.planner.memory import Move
from elasticdl.planner.room import NOWHERE, Shape
from elasticdl.planner.scene import Scene
from elasticdl.planner.victims import Found, candidates
from elasticdl.planner.view import JobKey

_EPSILON = 1e-9
_STEP = "exchange"
_MOST_LOOKS = 150_000  # the jobs that were moved wait before the next ones
_TRIES = 3  # nodes that are tried for a move
# Kinds of workers for which no move is found, of those with the smallest shares: each
# looks at all nodes and jobs, and the time is everybody's.
_MOST_HOPELESS = 100


@dataclass
class _Batch:
    """What is decided at once."""

    real: set[Worker]
    tried: frozenset[tuple[JobKey, ...]]
    moves: list[Move] = field(default_factory=list)
    leavers: list[tuple[Worker, JobKey]] = field(default_factory=list)
    hopeless: set[Shape] = field(default_factory=set)
    in_vain: set[JobKey | str] = field(default_factory=set)  # who looked for a move


def exchange(scene: Scene, tried: frozenset[tuple[JobKey, ...]]) -> list[Move]:
    """Ask workers to leave for the sake of fairness; return what it is for."""
    real = {worker for crew in scene.crews.values() for worker in crew.placed}
    batch = _Batch(real, tried)
    scene.looks_left = _MOST_LOOKS
    scene.begin()
    grow(scene, now=False)
    while _one_move(scene, batch):
        pass
    in_time = scene.looks_left >= 0 and len(batch.hopeless) < _MOST_HOPELESS
    scene.pass_over(_STEP, batch.in_vain, in_time=in_time or bool(batch.moves))
    scene.end()
    for worker, key in batch.leavers:
        scene.send_away(worker, f"its share was larger than that of {key}")
    return batch.moves


def _one_move(scene: Scene, batch: _Batch) -> bool:
    """Make the best move that there is; return whether there was one."""
    receivers = [one for one in scene.crews.values() if one.grows and not one.frozen]
    receivers.sort(key=lambda one: (one.share, one.order))
    givers = [
        one
        for one in scene.crews.values()
        if one.spare and not one.frozen and not one.unmade
    ]
    passed = scene.passed.get(_STEP, frozenset())
    for receiver in receivers:
        if receiver.shape in batch.hopeless:
            batch.in_vain.add(receiver.key)
        if receiver.shape in batch.hopeless or receiver.key in passed:
            continue
        if len(batch.hopeless) >= _MOST_HOPELESS:
            break
        for node, leavers in _ways(scene, receiver, givers):
            if _try(scene, batch, receiver, node, leavers):
                return True
        batch.hopeless.add(receiver.shape)
        if scene.looks_left >= 0:
            batch.in_vain.add(receiver.key)
    return False


def _spare(crew: Crew, receiver: Crew) -> int:
    """Return how many workers a job can lose and still have the larger share."""
    if crew is receiver or crew.frozen or crew.unmade:
        return 0
    real = sum(not one.tried for one in crew.placed)
    count, most, bound = 0, min(crew.spare, real - crew.floor), receiver.share
    bound += _EPSILON
    while count < most and crew.share_of(len(crew.placed) - count - 1) > bound:
        count += 1
    return count


def _ways(scene: Scene, receiver: Crew, givers: list[Crew]) -> Iterator[Found]:
    """Yield a few ways to make room for a job, the fairest first."""
    node = scene.room.best(receiver.shape, now=False)
    if node != NOWHERE:  # it is the ceiling that keeps it from growing
        yield node, []
    spare = {crew: _spare(crew, receiver) for crew in givers}
    found = candidates(scene, receiver.shape, lambda crew: spare.get(crew, 0))
    fairest = (-round(max((c.share for c, n in spare.items() if n), default=0.0), 3), 1)
    yield from sorted(_until_fair(found, fairest), key=lambda one: _fairness(one[1]))[
        :_TRIES
    ]


def _until_fair(found: Iterator[Found], fairest: tuple[float, int]) -> Iterator[Found]:
    """Yield ways until as many are found as are tried, and none can be fairer."""
    count = 0
    for way in found:
        yield way
        count += _fairness(way[1]) == fairest
        if count == _TRIES:
            return


def _fairness(leavers: list[Worker]) -> tuple[float, int]:
    least = min((one.crew.share for one in leavers), default=0.0)
    return (-round(least, 3), len(leavers))


def _try(
    scene: Scene, batch: _Batch, receiver: Crew, node: int, leavers: list[Worker]
) -> bool:
    mark, before = scene.mark(), scene.shares()
    leavers = list(leavers)
    for worker in leavers:
        scene.remove(worker)
    while receiver.part and not scene.room.under_ceiling(receiver.shape, now=False):
        extra = _one_more(scene, receiver)
        if extra is None:
            scene.rewind(mark)
            return False
        scene.remove(extra)
        leavers.append(extra)
    move = Move(
        receiver.key,
        scene.room.nodes[node].name,
        tuple(sorted({one.crew.key for one in leavers})),
    )
    real = [one for one in leavers if one in batch.real]
    if not real or move.kind in batch.tried:
        scene.rewind(mark)
        return False
    scene.put(Worker(receiver), node)
    grow(scene, now=False)
    if scene.shares() <= before:
        scene.rewind(mark)
        return False
    batch.moves.append(move)
    batch.leavers += [(one, receiver.key) for one in real]
    return True


def _one_more(scene: Scene, receiver: Crew) -> Worker | None:
    """Return a worker of the largest share, to get below the ceiling."""
    lacking = [i for i, need in receiver.shape.needs
               if scene.room.used[i] + need > scene.room.limit[i]]  # fmt: skip
    givers = [
        crew
        for crew in scene.crews.values()
        if _spare(crew, receiver) and any(i in lacking for i, _ in crew.shape.needs)
    ]
    for crew in sorted(givers, key=lambda one: (-one.share, one.order)):
        there = [
            one
            for one in crew.placed
            if one.node != NOWHERE and not (one.running and not crew.spare_running)
        ]
        if there:
            return min(
                there,
                key=lambda one: (one.bound, one.running, one.priority, -one.index),
            )
    return None
