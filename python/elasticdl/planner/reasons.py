"""Why a job has the size that it has: one sentence.

Called by `planner.plan` when all is decided. Pure.
"""

from __future__ import annotations

from elasticdl.planner.crew import Crew, Worker
from elasticdl.planner.scene import Scene


def reason(scene: Scene, crew: Crew) -> str:
    """Return the sentence, without a full stop."""
    if crew.job.resting:
        return "it is stopped" if crew.job.stopped else "it is paused"
    if not crew.part:
        return _of_fixed(crew)
    if crew.cause:
        return crew.cause
    if crew.deaf:
        return _of_deaf(crew)
    if crew.blocked or crew.unplaced:
        return _waits(crew)
    if any(one.index >= 0 and _waits_for_others(scene, one) for one in crew.placed):
        return "waits until others have left"
    if crew.size > crew.before:
        return "grew into free room"
    return _what_holds(scene, crew)


def _of_deaf(crew: Crew) -> str:
    if crew.job.refused:
        return "its grants are refused: the controller's log says why"
    return "was asked to let workers go, and its master does not"


def _waits_for_others(scene: Scene, worker: Worker) -> bool:
    return not worker.bound and not scene.room.is_free(worker.shape, worker.node)


def _waits(crew: Crew) -> str:
    if crew.blocked:
        return f"waits: {crew.blocked}"
    if crew.pause:
        return f"waits for its floor: {crew.pause.why}"
    if any(one.gated for one in crew.unplaced):
        return "waits: a scheduling gate holds its pods"
    return "waits for its floor: no node has room for its first workers"


def _of_fixed(crew: Crew) -> str:
    lacking = crew.job.replicas - sum(one.bound for one in crew.placed)
    if lacking > 0:
        return f"its size is fixed; {lacking} of its workers have no node yet"
    return "its size is fixed"


def _what_holds(scene: Scene, crew: Crew) -> str:
    if crew.job.paused:
        return "it is paused, and its workers hold the model"
    if crew.size >= crew.job.max:
        return "it has its maximum"
    if crew.size >= crew.job.cap:
        return f"there are only {crew.job.tasks_left} tasks left"
    if crew.pause:
        return (
            f"waits {crew.pause.seconds:.0f} s before it grows again: {crew.pause.why}"
        )
    if not scene.room.under_ceiling(crew.shape, now=True):
        return "has its fair share of what may be used below the ceiling"
    return "has its fair share: no node has room for one more worker"
