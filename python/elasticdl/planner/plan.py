"""One plan: how many workers each elastic job is to have, who leaves, and why.

Owns the order of its steps. Called by the controller, the simulator and `elasticdl
plan`. Pure: time comes as an argument, what must be remembered goes out and comes back.
Must not know where a view comes from, or who acts on a plan.
"""

from __future__ import annotations

from elasticdl.planner import waiting
from elasticdl.planner.carry import scene_of
from elasticdl.planner.crew import Crew
from elasticdl.planner.fairness import OPEN_SECONDS, follow, settle
from elasticdl.planner.giving import (
    keep_bounds,
    keep_ceiling,
    keep_floors,
    seat_again,
    seat_asks,
    seat_rest,
)
from elasticdl.planner.growth import grow
from elasticdl.planner.memory import Asked, Memory, Pause
from elasticdl.planner.outcome import Plan
from elasticdl.planner.reasons import reason
from elasticdl.planner.scene import Scene
from elasticdl.planner.summing import summary
from elasticdl.planner.view import ClusterView, Settings

_NEXT_SECONDS = 1.0  # until there is time for what this plan had none for


def plan(view: ClusterView, memory: Memory, settings: Settings, now: float) -> Plan:
    """Return what is to be asked of the jobs of a cluster."""
    memory = memory.as_of(now, freeze_seconds=settings.freeze_seconds)
    scene = scene_of(view, memory, settings, now)
    keep_bounds(scene)
    seat_again(scene)
    seat_asks(scene, before_all=True)
    keep_floors(scene)
    waiting.seat_granted(scene)
    seat_asks(scene, before_all=False)
    seat_rest(scene)
    pauses = waiting.take_back(scene, memory)
    keep_ceiling(scene)
    fairness = follow(scene, memory.fairness)
    scene.grown += grow(scene, now=True)
    fairness = settle(scene, fairness)

    parts = [crew for crew in scene.crews.values() if crew.part]
    sizes = {crew.key: _size(crew) for crew in parts}
    leave = {crew.key: _leave(crew) for crew in parts}
    reasons = {crew.key: reason(scene, crew) for crew in scene.crews.values()}
    known = {one.key: one for one in memory.asked}
    asked = tuple(
        _asked(crew, sizes[crew.key], leave[crew.key], known.get(crew.key), now)
        for crew in parts
        if not _says_so(crew, sizes[crew.key], leave[crew.key], now)
    )
    remembered = Memory(
        asked,
        tuple(
            (who, tuple(scene.room.nodes[node].name for node in nodes))
            for who, nodes in scene.kept.items()
        ),
        waiting.expected_of(scene, memory),
        tuple(pauses),
        waiting.vain_of(scene),
        tuple(crew.newest for crew in scene.crews.values() if crew.newest),
        fairness,
        tuple(sorted(scene.passed.items())),
        tuple(sorted(scene.going.items())),
    )
    return Plan(
        sizes,
        leave,
        reasons,
        remembered,
        summary(scene, view, reasons),
        _again_at(scene, view, remembered, pauses),
    )


def _size(crew: Crew) -> int:
    return max(crew.job.floor, 0 if crew.job.resting else crew.size)


def _leave(crew: Crew) -> tuple[int, ...]:
    """Return who leaves: named by this plan, or by the last one and still there."""
    if not crew.leave and _size(crew) == crew.before:
        return crew.granted_leave
    return tuple(dict.fromkeys((*crew.still_there, *crew.leave)))


def _says_so(crew: Crew, size: int, leave: tuple[int, ...], now: float) -> bool:
    job = crew.job
    return (job.granted, job.leave) == (size, leave) and job.until > now


def _asked(
    crew: Crew, size: int, leave: tuple[int, ...], last: Asked | None, now: float
) -> Asked:
    before = (crew.job.granted, crew.job.leave)
    same = last and (last.size, last.leave, last.before) == (size, leave, before)
    return Asked(crew.key, size, leave, last.at if last and same else now, before)


def _again_at(
    scene: Scene, view: ClusterView, memory: Memory, pauses: list[Pause]
) -> float | None:
    """Return when the next plan could differ although nothing happened."""
    settings, now = scene.settings, scene.now
    times = [until for _, until in memory.fairness.frozen]
    times += [at for one in pauses for at in (one.since + one.early, one.until)]
    times += [
        one.until
        for one in memory.fairness.tried
        if one.frame == scene.frame and one.situation != scene.situation
    ]
    for _, at in memory.going:
        times += [at + settings.leave_seconds, at + settings.max_pause_seconds]
    kept = {ask.pods for ask, _ in scene.rooms}
    for vain in memory.vain:
        times += [vain.in_vain_at(settings.unseen_seconds), vain.until]
        if vain.until > now and vain.pods in kept:
            times.append(now + _NEXT_SECONDS)  # the next plan gives its room to others
    if memory.passed:
        times.append(now + _NEXT_SECONDS)
    if memory.fairness.open:
        times.append(memory.fairness.since + OPEN_SECONDS)
    for one in memory.expected:
        times.append(one.since + settings.unseen_seconds)
        if one.unseen:
            times.append(one.unseen_since + settings.unseen_seconds)
        times.append(one.free_since + settings.wait_seconds)
    times += [
        node.ready_since + settings.ready_seconds
        for node in view.nodes
        if node.ready and node.ready_since
    ]
    times += [
        pod.waiting_since + settings.wait_seconds
        for pod in view.pods
        if pod.waiting_since and not pod.node
    ]
    return min((at for at in times if at > now), default=None)
