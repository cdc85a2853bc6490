"""Sizes by the planner, as the controller of a cluster asks it: the policy `elastic`.

Owns the view that the planner is given of a simulated cluster, and the grants that come
of its plan. Called by `simulator.simulation`. Must not decide sizes: that is
`planner.plan`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from elasticdl.job.grant import Grant
from elasticdl.job.names import Role
from elasticdl.planner import view as planned
from elasticdl.planner.memory import Memory
from elasticdl.planner.plan import plan
from elasticdl.planner.view import ClusterView, Resources, Settings
from elasticdl.simulator.cluster import Cluster, Node, Pod, PodKind, PodState, Vector
from elasticdl.simulator.job import SimulatedJob
from elasticdl.simulator.policy import Decision, World
from elasticdl.simulator.trace import Asked, Jobs, Trace

NAMESPACE = "simulated"
# The planner's times are Unix seconds, of which 0 is none.
_EPOCH = 1_000_000.0
_HOLDERS = {
    PodKind.TRAINING: planned.Holder.TRAINING,
    PodKind.SERVING: planned.Holder.SERVING,
    PodKind.OTHER: planned.Holder.OTHER,
}
# Without a change the planner is asked again after so long: while something that it
# asked for is on its way, and else.
_PAUSE_SECONDS, _LONG_PAUSE_SECONDS = 5.0, 30.0
_State = tuple[object, ...]


class Elastic:
    """The project's own planner."""

    name = "elastic"
    every_seconds = 0.0

    def __init__(self, settings: Settings | None = None) -> None:
        """Begin without memory; `settings` replaces those of the trace."""
        self._given = settings
        self._memory = Memory()
        self._written: dict[str, Grant] = {}
        self._seen_pods: dict[int, tuple[_State, planned.Pod]] = {}
        self._seen_nodes: dict[str, tuple[_State, planned.Node]] = {}
        self._seen_jobs: dict[str, planned.Job] = {}

    def replicas(self, job: Jobs) -> int:
        """Return the number in its file: it holds until there is a grant."""
        return job.workers.replicas or job.workers.max

    def admits(self, world: World) -> Sequence[str]:
        """Let every job begin."""
        return list(world.jobs)

    def decide(self, world: World, *, now: float) -> Decision:
        """Return the grants that a plan changes, or that get old."""
        settings = self._given or settings_of(world.trace)
        made = plan(self.view(world), self._memory, settings, now + _EPOCH)
        self._memory = made.memory
        grants = {}
        for key, size in made.sizes.items():
            grant = Grant(
                workers=size,
                leave=tuple(made.leave.get(key, ())),
                until=now + settings.grant_seconds,
                by=self.name,
                why=made.reasons.get(key, ""),
            )
            before = self._written.get(key.name)
            same = before is not None and (before.workers, before.leave) == (
                grant.workers,
                grant.leave,
            )
            fresh = before is not None and (
                before.until - now > settings.grant_seconds * 2 / 3
            )
            if not (same and fresh):
                grants[key.name] = self._written[key.name] = grant
        for name in set(self._written) - set(world.jobs):
            del self._written[name]
        return Decision(grants=grants, next_time=_next_time(made.memory, now))

    # -- the view ---------------------------------------------------------------------

    def view(self, world: World) -> ClusterView:
        """Return the cluster as the controller would see it."""
        cluster = world.cluster
        return ClusterView(
            nodes=tuple(self._node(node, world) for node in cluster.nodes.values()),
            pods=tuple(self._pods(cluster)),
            jobs=tuple(self._job(job, world) for job in world.jobs.values()),
        )

    def _node(self, node: Node, world: World) -> planned.Node:
        state = (node.ready, world.node_back.get(node.name))
        known = self._seen_nodes.get(node.name)
        if known is None or known[0] != state:
            known = (state, _node(node, world.cluster, state[1]))
            self._seen_nodes[node.name] = known
        return known[1]

    def _pods(self, cluster: Cluster) -> Iterator[planned.Pod]:
        seen = {}
        for number, pod in cluster.pods.items():
            state = (pod.state, pod.node, pod.nominated, pod.leaving_since, pod.refused)
            known = self._seen_pods.get(number)
            if known is None or known[0] != state:
                known = (state, _pod(pod, cluster))
            seen[number] = known
            yield known[1]
        self._seen_pods = seen

    def _job(self, job: SimulatedJob, world: World) -> planned.Job:
        known = self._seen_jobs.get(job.name)
        if known is None:
            known = self._seen_jobs[job.name] = _job(job, world)
        grant = self._written.get(job.name)
        if grant is None:
            return known
        return replace(
            known,
            granted=grant.workers,
            leave=grant.leave,
            until=grant.until + _EPOCH,
        )


def settings_of(trace: Trace) -> Settings:
    """Return what the administrator of such a cluster decides."""
    ceilings = ((planned.CPU, trace.ceiling), (planned.MEMORY, trace.ceiling))
    return Settings(ceilings=ceilings, grant_seconds=1800.0)


def _next_time(memory: Memory, now: float) -> float:
    """Return when something is due that no change of the cluster would tell."""
    on_its_way = memory.asked or memory.expected or memory.fairness.open
    pause = _PAUSE_SECONDS if on_its_way else _LONG_PAUSE_SECONDS
    due = [until for _, until in memory.fairness.frozen]
    due += [one.until for one in memory.pauses]
    later = [time - _EPOCH for time in due if time - _EPOCH > now]
    return min([now + pause, *later])


def _resources(amounts: Vector, cluster: Cluster, *, pods: bool) -> Resources:
    named = {planned.CPU: amounts[0], planned.MEMORY: amounts[1]}
    if pods:
        named[planned.PODS] = amounts[2]
    named.update(zip(cluster.extras, amounts[3:], strict=True))
    return Resources.of(named)


def _node(node: Node, cluster: Cluster, back: float | None) -> planned.Node:
    return planned.Node(
        name=node.name,
        allocatable=_resources(node.allocatable, cluster, pods=True),
        labels=tuple(sorted(node.labels.items())),
        taints=tuple(
            planned.Taint(key, value)
            for key, value in sorted(node.taint_values.items())
        ),
        ready=node.ready,
        ready_since=0.0 if back is None else back + _EPOCH,
    )


def _pod(pod: Pod, cluster: Cluster) -> planned.Pod:
    waits = pod.state is PodState.WAITING
    return planned.Pod(
        namespace=NAMESPACE,
        name=pod.name,
        request=_resources(pod.request, cluster, pods=False),
        node=pod.node.name if pod.node else "",
        nominated=pod.nominated.name if pod.nominated else "",
        priority=pod.priority,
        holder=_HOLDERS[pod.kind],
        job=pod.job,
        role=Role(pod.role) if pod.role else None,
        index=pod.index,
        leaving=pod.leaving_since >= 0,
        running=pod.running_since >= 0,
        waiting_since=pod.created + _EPOCH if waits else 0.0,
        waiting_why="Unschedulable: no node has room" if waits and pod.refused else "",
        placement=planned.Placement(
            pod.selector,
            tuple(planned.Toleration(key, "Exists") for key in sorted(pod.tolerations)),
        ),
    )


def _job(job: SimulatedJob, world: World) -> planned.Job:
    inputs, classes = job.inputs, world.trace.priorities

    def template(asked: Asked, priority: str) -> planned.Template:
        named = classes.get(priority)
        request = _resources(world.cluster.vector(asked), world.cluster, pods=False)
        return planned.Template(request, priority=named.value if named else 0)

    worker = inputs.workers
    placement = planned.Placement(
        tuple(sorted(worker.node_selector.items())),
        tuple(planned.Toleration(key, "Exists") for key in sorted(worker.tolerations)),
    )
    return planned.Job(
        namespace=NAMESPACE,
        name=job.name,
        worker=replace(template(worker, worker.priority), placement=placement),
        min=worker.min,
        max=worker.max,
        replicas=job.spec.worker.replicas,
        weight=inputs.weight,
        arrived=inputs.at + _EPOCH,
        master=template(inputs.master, "high"),
        ps=template(inputs.ps, "high") if inputs.ps.replicas else None,
        num_ps=inputs.ps.replicas,
    )
