"""The cluster in figures: who holds what, and each job's size and share.

Called by `planner.plan`. Pure.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from elasticdl.job.names import Role
from elasticdl.planner.outcome import Holding, JobFigures, Summary
from elasticdl.planner.room import NOWHERE
from elasticdl.planner.scene import Scene
from elasticdl.planner.view import PODS, ClusterView, Holder, JobKey


def summary(scene: Scene, view: ClusterView, reasons: dict[JobKey, str]) -> Summary:
    """Return the figures of a plan."""
    running: Counter[JobKey] = Counter()
    waiting: Counter[JobKey] = Counter()
    for pod in view.pods:
        if pod.of and pod.role == Role.WORKER and not pod.leaving:
            running[pod.of] += pod.running
            waiting[pod.of] += not pod.node
    jobs = tuple(
        JobFigures(
            crew.key,
            crew.job.floor,
            crew.job.max if crew.part else 0,
            crew.size if crew.part and not crew.job.resting else crew.before,
            running[crew.key],
            waiting[crew.key],
            crew.share,
            reasons[crew.key],
        )
        for crew in sorted(scene.crews.values(), key=lambda one: one.order)
    )
    return Summary(
        len(view.nodes), sum(scene.room.counts), _holdings(scene, view), jobs
    )


def _holdings(scene: Scene, view: ClusterView) -> tuple[Holding, ...]:
    room = scene.room
    held: dict[Holder, Counter[str]] = defaultdict(Counter)
    for pod in view.pods:
        node = room.place_of.get(pod.node, NOWHERE)
        if node != NOWHERE and room.counts[node]:
            for name, amount in pod.request.items:
                held[pod.holder][name] += amount
            held[pod.holder][PODS] += 1
    asked: Counter[str] = Counter()
    for ask in scene.asked:
        for i, need in ask.shape.needs:
            asked[room.resources[i]] += need
    return tuple(
        Holding(
            name,
            supply,
            min(room.limit[i], supply),
            held[Holder.SERVING][name],
            held[Holder.TRAINING][name],
            held[Holder.OTHER][name],
            asked[name],
        )
        for i, (name, supply) in enumerate(
            zip(room.resources, room.supply, strict=True)
        )
    )
