"""Small clusters for the planner's tests: nodes, jobs and pods in few words."""

from __future__ import annotations

from dataclasses import replace

from elasticdl.job.names import Role
from elasticdl.planner.memory import Memory
from elasticdl.planner.outcome import Plan
from elasticdl.planner.plan import plan
from elasticdl.planner.view import (
    ClusterView,
    Holder,
    Job,
    JobKey,
    Node,
    Pod,
    Resources,
    Settings,
    Template,
)

NOW = 1000.0
FULL = Settings(ceilings=())  # everything may be used
LOW, HIGH = 1000, 1_000_000


def cpus(count: float, **more: int) -> Resources:
    return Resources.of({"cpu": int(1000 * count), **more})


def node(name: str, count: float, **fields: object) -> Node:
    return Node(name, cpus(count), **fields)  # type: ignore[arg-type]


def job(name: str, least: int, most: int, now: int | None, **fields: object) -> Job:
    """Return a job of workers of one CPU that was granted `now` of them."""
    worker = fields.pop("worker", Template(cpus(1), priority=LOW))
    given = Job("ml", name, worker, min=least, max=most, granted=now, until=1e9)
    return replace(given, **fields)  # type: ignore[arg-type]


def worker(of: Job, index: int, on: str = "", **fields: object) -> Pod:
    pod = Pod(
        *(of.namespace, f"{of.name}-worker-{index}", of.worker.request),
        node=on,
        priority=of.worker.priority,
        holder=Holder.TRAINING,
        job=of.name,
        role=Role.WORKER,
        index=index,
        running=bool(on),
        placement=of.worker.placement,
    )
    return replace(pod, **fields)  # type: ignore[arg-type]


def workers(of: Job, **on: int) -> list[Pod]:
    """Return workers on nodes: `workers(one, a=2, b=1)`."""
    nodes = [name for name, count in on.items() for _ in range(count)]
    return [worker(of, index, name) for index, name in enumerate(nodes)]


def serving(name: str, count: float, on: str = "", **fields: object) -> Pod:
    pod = Pod(*("web", name, cpus(count), on), priority=HIGH, holder=Holder.SERVING)
    return replace(pod, **fields)  # type: ignore[arg-type]


def cluster(*parts: Node | Pod | Job | list[Pod]) -> ClusterView:
    flat = [x for one in parts for x in (one if isinstance(one, list) else [one])]
    return ClusterView(
        tuple(one for one in flat if isinstance(one, Node)),
        tuple(one for one in flat if isinstance(one, Pod)),
        tuple(one for one in flat if isinstance(one, Job)),
    )


def made(
    view: ClusterView,
    memory: Memory | None = None,
    *,
    settings: Settings = FULL,
    now: float = NOW,
) -> Plan:
    return plan(view, memory or Memory(), settings, now)


def sizes(found: Plan) -> dict[str, int]:
    return {key.name: size for key, size in found.sizes.items()}


def leave(found: Plan, name: str) -> tuple[int, ...]:
    return found.leave[JobKey("ml", name)]


def why(found: Plan, name: str) -> str:
    return found.reasons[JobKey("ml", name)]
