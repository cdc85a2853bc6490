"""A small cluster that moves: nodes, a scheduler, pods, and masters that obey grants.

Owns time and pods for the planner's tests, in steps of a second. It knows nothing of
how the planner decides: what it is told is a `Plan`, what it shows is a `ClusterView`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

from elasticdl.job.names import Role
from elasticdl.planner.matching import admits
from elasticdl.planner.outcome import Plan
from elasticdl.planner.view import (
    ClusterView,
    Holder,
    Job,
    JobKey,
    Node,
    Pod,
    Resources,
    Template,
)

Event = tuple[float, Callable[["World"], None]]
_START_SECONDS = 2.0  # of a master's pod, and of the master in it


@dataclass
class Master:
    """What a job's master knows and does."""

    job: Job
    next_index: int = 0
    since: float = -1.0  # its pod has a node since then
    quota: int = 1_000_000  # workers beyond it are never scheduled: not modelled
    beside: Resources = field(
        default_factory=Resources
    )  # what somebody puts beside each worker


@dataclass
class World:
    """The cluster."""

    random: Random
    nodes: dict[str, Node] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    masters: dict[JobKey, Master] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    now: float = 1000.0
    lag_seconds: float = 0.0  # until a grant is in the view, and obeyed
    leave_seconds: float = 1.0
    spreads: bool = True  # the scheduler prefers the emptiest node, else any
    in_vain: set[str] = field(default_factory=set)  # pods that no node takes
    changed: bool = True
    _grants: list[tuple[float, JobKey, int, tuple[int, ...]]] = field(
        default_factory=list
    )
    _gone_at: dict[str, float] = field(default_factory=dict)

    def view(self) -> ClusterView:
        """Return what the planner is shown."""
        jobs = tuple(one.job for one in self.masters.values())
        return ClusterView(tuple(self.nodes.values()), tuple(self.pods.values()), jobs)

    def obey(self, plan: Plan) -> None:
        """Take a plan's grants, after a while."""
        for key, size in plan.sizes.items():
            job = self.masters[key].job
            if (job.granted, job.leave) != (size, plan.leave[key]):
                at = self.now + self.lag_seconds
                self._grants.append((at, key, size, plan.leave[key]))

    def step(self) -> None:
        """Let a second pass."""
        self.now += 1.0
        due = [one for one in self.events if one[0] <= self.now]
        self.events = [one for one in self.events if one[0] > self.now]
        for _, act in due:
            act(self)
            self.changed = True
        self._take_grants()
        for name in [name for name, at in self._gone_at.items() if at <= self.now]:
            del self._gone_at[name]
            self.pods.pop(name, None)
            self.changed = True
        for master in list(self.masters.values()):
            self._work(master)
        self._schedule()

    def moves(self) -> bool:
        """Return whether something is under way."""
        return bool(self.events or self._gone_at or self._grants) or any(
            self._starts(master) for master in self.masters.values()
        )

    def _starts(self, master: Master) -> bool:
        if master.since < 0:  # unless its pod waits, it begins at the next step
            pod = self.pods.get(self._name(master.job, Role.MASTER, 0))
            return pod is None or bool(pod.node)
        return self.now - master.since <= _START_SECONDS + 1

    def _take_grants(self) -> None:
        for at, key, size, leave in self._grants:
            if at <= self.now and key in self.masters:
                master = self.masters[key]
                master.job = replace(
                    master.job, granted=size, leave=leave, until=self.now + 1e6
                )
                self.changed = True
        self._grants = [one for one in self._grants if one[0] > self.now]

    # Jobs.

    def add_job(self, job: Job, quota: int = 1_000_000) -> None:
        """Submit a job: its master's pod is made by others, its PS by the master."""
        self.masters[job.key] = Master(replace(job, arrived=self.now), quota=quota)
        self.changed = True

    def end_job(self, key: JobKey) -> None:
        """Let a job end."""
        if self.masters.pop(key, None):
            for name in [n for n, pod in self.pods.items() if pod.of == key]:
                self.delete(name)

    def edit(self, key: JobKey, **fields: object) -> None:
        """Change a job's specification."""
        if key in self.masters:
            master = self.masters[key]
            master.job = replace(master.job, **fields)  # type: ignore[arg-type]

    def put_beside(self, key: JobKey, beside: Resources) -> None:
        """Let new workers of a job ask for more than its template."""
        if key in self.masters:
            self.masters[key].beside = beside

    def delete(self, name: str) -> None:
        """Let a pod leave."""
        if name in self.pods and name not in self._gone_at:
            pod = self.pods[name]
            self.pods[name] = replace(pod, leaving=True, running=False)
            self._gone_at[name] = self.now + (self.leave_seconds if pod.node else 0)
            self.changed = True

    def _work(self, master: Master) -> None:
        job = master.job
        mine: dict[Role | None, list[Pod]] = defaultdict(list)
        for pod in self.pods.values():
            if pod.of == job.key and not pod.leaving:
                mine[pod.role].append(pod)
        if job.master:
            if not mine[Role.MASTER]:
                self._make(job, Role.MASTER, 0, job.master)
                master.since = -1.0
                return
            if not mine[Role.MASTER][0].node:
                return
        if master.since < 0:
            master.since = self.now
        if self.now - master.since < _START_SECONDS:
            return
        seen = {pod.index for pod in mine[Role.PS]}
        for index in set(range(job.num_ps)) - seen:
            assert job.ps
            self._make(job, Role.PS, index, job.ps)
        self._resize(master, mine[Role.WORKER])

    def _resize(self, master: Master, workers: list[Pod]) -> None:
        job = master.job
        wanted = job.replicas
        if job.takes_part and job.granted is not None and job.until > self.now:
            wanted = min(max(job.granted, job.floor), job.max)
        if job.resting:
            wanted = 0
        workers.sort(
            key=lambda one: (one.index not in job.leave, bool(one.node), -one.index)
        )
        for pod in workers[: max(0, len(workers) - wanted)]:
            self.delete(self._name(job, Role.WORKER, pod.index))
        for _ in range(wanted - len(workers)):
            asked = job.worker.request.plus(master.beside)
            template = replace(job.worker, request=asked)
            self._make(job, Role.WORKER, master.next_index, template)
            master.next_index += 1

    @staticmethod
    def _name(job: Job, role: Role, index: int) -> str:
        return f"{job.namespace}/{job.name}-{role}-{index}"

    def _make(self, job: Job, role: Role, index: int, template: Template) -> None:
        name = self._name(job, role, index)
        if name in self.pods:
            return  # the one before has not gone yet
        self.pods[name] = Pod(
            job.namespace,
            name.partition("/")[2],
            template.request,
            priority=template.priority,
            holder=Holder.TRAINING,
            job=job.name,
            role=role,
            index=index,
            waiting_since=self.now,
            placement=template.placement,
        )
        self.changed = True

    # Others.

    def add_pod(self, name: str, request: Resources, priority: int) -> None:
        """Make a pod of somebody else."""
        holder = Holder.SERVING if priority > 0 else Holder.OTHER
        self.pods[f"web/{name}"] = Pod(
            *("web", name, request),
            priority=priority,
            holder=holder,
            waiting_since=self.now,
        )

    def lose_node(self, name: str) -> None:
        """Let a node be silent; its pods are given up after a while."""
        self.nodes[name] = replace(self.nodes[name], ready=False)
        at = self.now + 5
        self.events.append((at, lambda world: world.give_up(name)))

    def give_up(self, name: str) -> None:
        """Forget the pods of a node."""
        if not self.nodes[name].ready:
            for key in [k for k, pod in self.pods.items() if pod.node == name]:
                del self.pods[key]
                self._gone_at.pop(key, None)

    def find_node(self, name: str) -> None:
        """Let a node be ready again."""
        self.nodes[name] = replace(
            self.nodes[name], ready=True, cordoned=False, ready_since=self.now
        )

    def cordon(self, name: str) -> None:
        """Let no more pods come to a node."""
        self.nodes[name] = replace(self.nodes[name], cordoned=True)

    def lose_devices(self, name: str) -> None:
        """Let a node have CPU, memory and pods alone for a while."""
        node = self.nodes[name]
        kept = {n: v for n, v in node.allocatable.items if "/" not in n}
        self.nodes[name] = replace(node, allocatable=Resources.of(kept))

    def find_devices(self, name: str, allocatable: Resources) -> None:
        """Let a node have all again."""
        self.nodes[name] = replace(self.nodes[name], allocatable=allocatable)

    # The scheduler.

    def free(self) -> dict[str, dict[str, int]]:
        """Return what is free on each node."""
        free = {name: dict(node.allocatable.items) for name, node in self.nodes.items()}
        for pod in self.pods.values():
            if pod.node:
                _take(free[pod.node], pod.request)
        return free

    def _schedule(self) -> None:
        free = self.free()
        waiting = [
            name
            for name, pod in self.pods.items()
            if not (pod.node or pod.leaving or pod.gated)
        ]
        waiting.sort(
            key=lambda one: (-self.pods[one].priority, self.pods[one].waiting_since)
        )
        for name in waiting:
            pod = self.pods[name]
            if self._beyond_quota(pod):
                self.pods[name] = replace(pod, waiting_why="quota is used up")
                continue
            nodes = [
                node for node in self._allowed(pod)
                if fits(free[node], pod.request)
            ]  # fmt: skip
            if not nodes:
                self._preempt(name, free)
                continue
            node = self._choose(nodes, free, pod)
            _take(free[node], pod.request)
            self.pods[name] = replace(
                pod, node=node, running=True, waiting_since=0.0, nominated=""
            )
            self.changed = True

    def _choose(
        self, nodes: list[str], free: dict[str, dict[str, int]], pod: Pod
    ) -> str:
        if pod.nominated in nodes:
            return pod.nominated
        if self.spreads:
            most = max(free[node]["cpu"] for node in nodes)
            nodes = [node for node in nodes if free[node]["cpu"] == most]
        return self.random.choice(nodes)

    def _beyond_quota(self, pod: Pod) -> bool:
        if pod.role != Role.WORKER or pod.of not in self.masters:
            return False
        there = [
            one for one in self.pods.values()
            if one.of == pod.of and one.role == Role.WORKER and one.node
        ]  # fmt: skip
        return len(there) >= self.masters[pod.of].quota

    def _allowed(self, pod: Pod) -> list[str]:
        if pod.name in self.in_vain:
            return []
        return [
            node.name
            for node in self.nodes.values()
            if node.ready and not node.cordoned and admits(node, pod.placement)
        ]

    def _preempt(self, name: str, free: dict[str, dict[str, int]]) -> None:
        pod = self.pods[name]
        if pod.nominated or pod.priority < 1_000_000:
            return  # workers push nobody out
        for node in self._allowed(pod):
            room = dict(free[node])
            victims = []
            for key, other in self.pods.items():
                if other.node == node and other.priority < pod.priority:
                    if fits(room, pod.request):
                        break
                    victims.append(key)
                    _take(room, other.request, -1)
            if fits(room, pod.request):
                for key in victims:
                    self.delete(key)
                self.pods[name] = replace(pod, nominated=node)
                self.changed = True
                return


def fits(free: dict[str, int], request: Resources) -> bool:
    """Return whether a pod fits into what is free on a node."""
    if free.get("pods", 1) < 1:
        return False
    return all(free.get(name, 0) >= amount for name, amount in request.items)


def _take(free: dict[str, int], request: Resources, count: int = 1) -> None:
    for name, amount in request.items:
        free[name] = free.get(name, 0) - count * amount
    if "pods" in free:
        free["pods"] -= count
