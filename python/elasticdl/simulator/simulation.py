"""The simulated clock: pods' lives, serving, failures, and who is asked when.

Owns the heap of events. Called by the verb `simulate`, tests and benchmarks. Decides
nothing: jobs ask the master's rules, places are the scheduler's, sizes the policy's.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections.abc import Callable

from elasticdl.job.names import Role
from elasticdl.job.words import ExitReason
from elasticdl.master.members.goodput import share
from elasticdl.master.members.member import Member
from elasticdl.simulator.cluster import Cluster, Node, Pod, PodKind, PodState
from elasticdl.simulator.course import Course, JobCourse, Sample
from elasticdl.simulator.job import SimulatedJob
from elasticdl.simulator.packing import workers_that_fit
from elasticdl.simulator.policy import Policy, World
from elasticdl.simulator.scheduler import Scheduler
from elasticdl.simulator.serving import Deployment
from elasticdl.simulator.trace import Asked, Failure, Jobs, Serving, Trace

Action = Callable[[], None]
# A master counts a replica as dead after `worker.deadSeconds`, a node's own pods are
# given up by the node controller.
_SILENT_SECONDS = 6.0
_NODE_GIVEN_UP_SECONDS = 40.0
_MOST_SECONDS = 90 * 86_400.0


class Simulation:
    """One trace under one policy."""

    def __init__(self, trace: Trace, policy: Policy, *, seed: int | None = None) -> None:
        """Set up the cluster; `seed` replaces the trace's."""
        if seed is not None:
            trace = trace.model_copy(update={"seed": seed})
        self.trace = trace
        self.policy = policy
        self.now = 0.0
        chance = random.Random(trace.seed)
        self._chance = chance
        self.cluster = Cluster(trace)
        self._scheduler = Scheduler(self.cluster, chance)
        self._heap: list[tuple[float, int, Action]] = []
        self._number = itertools.count()
        inputs = trace.all_jobs()
        self.jobs: dict[str, SimulatedJob] = {}
        self._expected = {job.name: job for job in inputs}
        self._deployments = [self._deployment(one) for one in trace.serving]
        self._node_back: dict[str, float] = {}
        self._leave_seconds = trace.times.leave
        self._api_away = False
        self._controller_dead = False
        self._when_back: list[Action] = []
        self._scheduler_woken = self._admission_woken = False
        self._policy_at = math.inf
        self._changed = True
        self._cpu_of_workers = 0
        names = tuple(job.name for job in inputs)
        self.course = Course(trace.name, policy.name, trace.seed, names)
        for job in inputs:
            self.call(job.at, lambda job=job: self._submit(job))  # type: ignore[misc]
        for one in self._deployments:
            for step in one.inputs.replicas:
                size = step.replicas
                self.call(
                    step.at,
                    lambda one=one, size=size: self._ask(lambda: one.scale(size)),  # type: ignore[misc]
                )
        for failure in trace.failures:
            self.call(failure.at, lambda f=failure: self._fail(f))  # type: ignore[misc]

    # -- the clock --------------------------------------------------------------------

    def call(self, time: float, action: Action) -> None:
        """Call later."""
        heapq.heappush(self._heap, (max(time, self.now), next(self._number), action))

    def run(self) -> Course:
        """Run to the end; return what was seen."""
        until = self.trace.until or _MOST_SECONDS
        while self._heap and self._heap[0][0] <= until:
            time, _, action = heapq.heappop(self._heap)
            if time > self.now:
                self._sample()
                self.now = time
            action()
            if not self.trace.until and self._all_done:
                break
        self._sample()
        self.now = self.trace.until or self.now
        return self._closed()

    @property
    def _all_done(self) -> bool:
        done = len(self.jobs) == len(self._expected)
        return done and not any(job.alive for job in self.jobs.values())

    def changed(self) -> None:
        """Note a change: it is recorded, and the policy looks at it."""
        self._changed = True
        if not self.policy.every_seconds:
            self._look(self.now + self.trace.times.controller)

    def _look(self, time: float) -> None:
        if time < self._policy_at:
            self._policy_at = time
            self.call(time, lambda: self._decide(time))

    # -- jobs -------------------------------------------------------------------------

    def _submit(self, inputs: Jobs) -> None:
        if self._api_away:
            self._when_back.append(lambda: self._submit(inputs))
            return
        replicas = self.policy.replicas(inputs)
        self.jobs[inputs.name] = SimulatedJob(inputs, self, replicas=replicas)
        self.changed()
        self._wake_admission()
        if self.policy.every_seconds and self._policy_at == math.inf:
            self._look(self.now + self.policy.every_seconds)

    def _world(self) -> World:
        alive = {job.name: job for job in self.jobs.values() if job.alive}
        return World(self.trace, self.cluster, alive, self._node_back)

    def _wake_admission(self) -> None:
        if not self._admission_woken and self._any_held:
            self._admission_woken = True
            self.call(self.now, self._admit)

    @property
    def _any_held(self) -> bool:
        return any(job.alive and not job.admitted for job in self.jobs.values())

    def _admit(self) -> None:
        self._admission_woken = False
        for name in self.policy.admits(self._world()):
            job = self.jobs[name]
            if not job.admitted:
                job.admitted = True
                self._make_master(job)

    def _make_master(self, job: SimulatedJob) -> None:
        job.master = self._make(
            name=f"elasticdl-{job.name}-master",
            kind=PodKind.TRAINING,
            asked=job.inputs.master,
            priority="high",
            job=job.name,
            role=str(Role.MASTER),
        )

    def make_replica(self, job: SimulatedJob, member: Member) -> None:
        """Create the pod of a member."""
        if self._api_away:
            self._when_back.append(lambda: self._make_replica(job, member))
        else:
            self._make_replica(job, member)

    def _make_replica(self, job: SimulatedJob, member: Member) -> None:
        if not job.alive or job.table.members.get(member.key) is not member:
            return
        is_worker = member.key.role is Role.WORKER
        asked = job.inputs.workers if is_worker else job.inputs.ps
        worker = job.inputs.workers
        pod = self._make(
            name=f"elasticdl-{job.name}-{member.name}",
            kind=PodKind.TRAINING,
            asked=asked,
            priority=member.priority,
            job=job.name,
            role=str(member.key.role),
            index=member.key.index,
            generation=member.generation,
            selector=worker.node_selector if is_worker else None,
            tolerations=worker.tolerations if is_worker else (),
        )
        job.pods[pod.generation] = pod
        job.show(pod)

    def done(self, job: SimulatedJob) -> None:
        """Have all pods of a job leave, its master's at last."""
        for pod in self.cluster.of_job(job.name):
            self.end_pod(pod, ExitReason.COMPLETED)
        self.changed()

    # -- pods -------------------------------------------------------------------------

    def _make(
        self, *, name: str, kind: PodKind, asked: Asked, priority: str, **more: object
    ) -> Pod:
        named = self.trace.priorities.get(priority)
        pod = self.cluster.new_pod(
            name=name,
            kind=kind,
            request=self.cluster.vector(asked),
            priority=named.value if named else 0,
            priority_class=priority,
            preempts=named.preempts if named else True,
            created=self.now,
            **more,  # type: ignore[arg-type]
        )
        self._scheduler.waiting[pod.number] = pod
        self._wake_scheduler()
        self.changed()
        return pod

    def _wake_scheduler(self) -> None:
        if not self._scheduler_woken:
            self._scheduler_woken = True
            self.call(self.now, self._schedule)

    def _schedule(self) -> None:
        self._scheduler_woken = False
        if self._api_away:
            return
        found = self._scheduler.turn()
        for pod in found.bound:
            pod.state = PodState.STARTING
            self._count(pod, 1)
            start = self.now + self.trace.times.pod_start
            self.call(start, lambda pod=pod: self._runs(pod))  # type: ignore[misc]
            self.changed()
        for pod in found.refused:
            if not pod.refused:
                pod.refused = True
                self._tell(pod)
        for pod in found.victims:
            self._push_out(pod)

    def _runs(self, pod: Pod) -> None:
        if pod.state is not PodState.STARTING or not _is_up(pod):
            return
        pod.state, pod.running_since = PodState.RUNNING, self.now
        self.changed()
        job = self.jobs.get(pod.job)
        if job is None or not job.alive:
            return
        times = self.trace.times
        if pod is job.master:
            self.call(self.now + times.master_start, lambda: self._master_works(pod))
            return
        self._tell(pod)
        if pod.role == Role.WORKER:
            self.call(self.now + times.first_step, lambda: job.first_step(pod))

    def _master_works(self, pod: Pod) -> None:
        job = self.jobs[pod.job]
        if pod is job.master and pod.state is PodState.RUNNING and job.alive:
            job.master_works()

    def _tell(self, pod: Pod) -> None:
        """Tell a job's master of a change of one of its pods."""
        job = self.jobs.get(pod.job)
        if job is not None and pod is not job.master and not self._api_away:
            job.show(pod)

    def _push_out(self, pod: Pod) -> None:
        if pod.leaving_since >= 0:
            return  # it goes already
        job = self.jobs.get(pod.job)
        self._leaves(pod, ExitReason.PREEMPTED)
        if job is not None and pod is not job.master:
            job.pushed_out(pod)

    def end_pod(self, pod: Pod, reason: ExitReason) -> None:
        """Have a pod leave; one without a node is gone at once."""
        if self._api_away and reason is not ExitReason.COMPLETED:
            self._when_back.append(lambda: self.end_pod(pod, reason))
        elif pod.leaving_since < 0 and pod.state is not PodState.GONE:
            self._leaves(pod, reason)

    def _leaves(self, pod: Pod, reason: ExitReason) -> None:
        pod.why_it_leaves = reason
        if pod.state is PodState.WAITING:
            # Not within the call of whoever asked: that one is looking at the job's pods.
            pod.leaving_since = self.now
            self._scheduler.waiting.pop(pod.number, None)
            self.call(self.now, lambda: self._gone(pod))
            return
        pod.state, pod.leaving_since = PodState.LEAVING, self.now
        trains = pod.kind is PodKind.TRAINING and pod.role == Role.WORKER
        seconds = self._leave_seconds if trains else self.trace.times.leave
        self.call(self.now + seconds, lambda: self._gone(pod))
        self.changed()

    def _gone(self, pod: Pod) -> None:
        if pod.state is PodState.GONE:
            return
        if pod.node is not None:
            self._count(pod, -1)
        self._scheduler.waiting.pop(pod.number, None)
        self.cluster.remove(pod)
        self.changed()
        job = self.jobs.get(pod.job)
        if job is not None and pod is job.master:
            job.up = False
            if job.alive:
                self._make_master(job)  # as the batch Job does
        elif job is not None and not self._api_away:
            job.gone(pod)
        elif job is not None:
            self._when_back.append(lambda: job.gone(pod))
        for one in self._deployments:
            if pod.number in one.pods:
                one.gone(pod)
        self._wake_scheduler()
        self._wake_admission()

    def _count(self, pod: Pod, sign: int) -> None:
        if pod.role == Role.WORKER and _is_up(pod):
            self._cpu_of_workers += sign * pod.request[self.cluster.measured]

    # -- serving ----------------------------------------------------------------------

    def _deployment(self, inputs: Serving) -> Deployment:
        def make() -> Pod:
            return self._make(
                name=f"{inputs.name}-{next(numbers)}",
                kind=PodKind.SERVING,
                asked=inputs,
                priority=inputs.priority,
            )

        numbers = itertools.count()
        return Deployment(
            inputs, make, lambda pod: self.end_pod(pod, ExitReason.DELETED)
        )

    def _ask(self, action: Action) -> None:
        if self._api_away:
            self._when_back.append(action)
        else:
            action()
            self.changed()

    # -- failures ---------------------------------------------------------------------

    def _fail(self, failure: Failure) -> None:
        back: Action
        match failure.kind:
            case "node":
                ready = sorted(n for n, one in self.cluster.nodes.items() if one.ready)
                node = self.cluster.nodes[failure.node or self._chance.choice(ready)]
                self._lose(node)
                back = lambda: self._regain(node)  # noqa: E731
            case "api":
                self._api_away = True
                back = self._api_back
            case "controller":
                self._controller_dead = True
                back = self._controller_back
            case "slowLeaving":
                self._leave_seconds = failure.leave
                back = self._leave_as_ever
        if failure.seconds:
            self.call(self.now + failure.seconds, back)

    def _lose(self, node: Node) -> None:
        for pod in node.pods.values():
            self._count(pod, -1)
        self.cluster.set_ready(node, False)
        self._node_back.pop(node.name, None)
        for pod in list(node.pods.values()):
            job = self.jobs.get(pod.job)
            if pod.kind is PodKind.OTHER:
                continue
            if job is not None and pod is not job.master:
                job.lost(pod)
                self.call(self.now + _SILENT_SECONDS, lambda p=pod: self._silent(p))  # type: ignore[misc]
                continue
            pod.why_it_leaves = ExitReason.NODE_LOST
            self.call(self.now + _NODE_GIVEN_UP_SECONDS, lambda p=pod: self._gone(p))  # type: ignore[misc]
        self.changed()

    def _silent(self, pod: Pod) -> None:
        """Have a master end a replica that it hears no more of."""
        job = self.jobs[pod.job]
        if pod.state is PodState.GONE:
            return
        job.silent(pod)
        pod.why_it_leaves = ExitReason.NODE_LOST
        self._gone(pod)

    def _regain(self, node: Node) -> None:
        self.cluster.set_ready(node, True)
        self._node_back[node.name] = self.now
        self._wake_scheduler()
        self._wake_admission()
        self.changed()

    def _api_back(self) -> None:
        self._api_away = False
        asked, self._when_back = self._when_back, []
        for action in asked:
            action()
        for job in self.jobs.values():
            job.resync()
        self._wake_scheduler()
        self.changed()

    def _controller_back(self) -> None:
        self._controller_dead = False
        self.changed()

    def _leave_as_ever(self) -> None:
        self._leave_seconds = self.trace.times.leave

    # -- the policy -------------------------------------------------------------------

    def _decide(self, time: float) -> None:
        if time != self._policy_at:
            return
        self._policy_at = math.inf
        if self.policy.every_seconds:
            self._look(self.now + self.policy.every_seconds)
        if self._api_away or self._controller_dead:
            return
        world = self._world()
        made = self.policy.decide(world, now=self.now)
        self.course.decisions += 1
        later = self.now + self.trace.times.grant
        for name, grant in made.grants.items():
            job = self.jobs[name]
            self.call(later, lambda j=job, g=grant: self._obeys(lambda: j.take_grant(g)))  # type: ignore[misc]
        for name, size in made.replicas.items():
            job = self.jobs[name]
            self.call(later, lambda j=job, s=size: self._obeys(lambda: j.take_replicas(s)))  # type: ignore[misc]
        if made.next_time is not None and world.jobs:
            self._look(max(made.next_time, self.now + self.trace.times.controller))

    def _obeys(self, action: Action) -> None:
        action()
        self._changed = True

    # -- the record -------------------------------------------------------------------

    def _sample(self) -> None:
        if not self._changed:
            return
        self._changed = False
        jobs = [self.jobs.get(name) for name in self.course.jobs]
        sample = Sample(
            time=self.now,
            use=self.cluster.use,
            training=self._cpu_of_workers / (self.cluster.total or 1),
            running=tuple(
                job.workers(PodState.RUNNING) if job and job.alive else 0 for job in jobs
            ),
            wanted=tuple(job.wanted if job and job.alive else 0 for job in jobs),
            alive=tuple(bool(job and job.alive) for job in jobs),
            waiting=sum(
                pod.kind is PodKind.TRAINING for pod in self._scheduler.waiting.values()
            ),
            serving=sum(one.running for one in self._deployments),
            serving_wanted=sum(one.wanted for one in self._deployments),
        )
        self.course.samples.append(sample)

    def _closed(self) -> Course:
        course = self.course
        course.until = self.now
        for job in self.jobs.values():
            job.settle()
            course.done.append(
                JobCourse(
                    name=job.name,
                    came=job.inputs.at,
                    floor=job.inputs.workers.min,
                    first_worker=job.first_worker,
                    ended=job.ended,
                    work=job.work_done,
                    moved=job.moved,
                    preempted=job.preempted,
                    goodput=share(job.goodput.seconds(now=self.now)),
                )
            )
        alive = [job for job in self.jobs.values() if job.alive]
        course.packed, course.workers_that_fit = workers_that_fit(
            self.cluster, [job.inputs for job in alive], ceiling=self.trace.ceiling
        )
        return course


def _is_up(pod: Pod) -> bool:
    return pod.node is not None and pod.node.ready
