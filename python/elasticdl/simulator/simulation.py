"""The simulated clock: pods' lives, serving, and who is asked when.

Owns the heap of events. Called by the verb `simulate`, tests and benchmarks. Decides
nothing: jobs ask the master's rules, places are the scheduler's, sizes the policy's.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import logging
import math
import random
from collections.abc import Callable, Iterator
from functools import partial

from elasticdl.job.names import Role
from elasticdl.job.words import ExitReason
from elasticdl.master.members.goodput import share
from elasticdl.master.members.member import Member
from elasticdl.simulator.cluster import Cluster, Pod, PodKind, PodState
from elasticdl.simulator.course import Course, JobCourse, Sample
from elasticdl.simulator.failures import Failures
from elasticdl.simulator.job import SimulatedJob
from elasticdl.simulator.packing import workers_that_fit
from elasticdl.simulator.policy import Policy, World
from elasticdl.simulator.scheduler import Scheduler
from elasticdl.simulator.serving import Deployment
from elasticdl.simulator.trace import Asked, Jobs, Serving, Trace

Action = Callable[[], None]
_MOST_SECONDS = 90 * 86_400.0


@contextlib.contextmanager
def _masters_say_nothing() -> Iterator[None]:
    """Ends of replicas, of which there are hundreds, are warnings in a real master."""
    log = logging.getLogger("elasticdl.master")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)


class Simulation:
    """One trace under one policy."""

    def __init__(
        self, trace: Trace, policy: Policy, *, seed: int | None = None
    ) -> None:
        """Set up the cluster; `seed` replaces the trace's."""
        if seed is not None:
            trace = trace.model_copy(update={"seed": seed})
        self.trace = trace
        self.policy = policy
        self.now = 0.0
        chance = random.Random(trace.seed)
        self.cluster = Cluster(trace)
        self._scheduler = Scheduler(self.cluster, chance)
        self._heap: list[tuple[float, int, Action]] = []
        self._number = itertools.count()
        self.jobs: dict[str, SimulatedJob] = {}
        self._failures = Failures(self, chance, leave_seconds=trace.times.leave)
        self._scheduler_woken = self._admission_woken = False
        self._policy_at = math.inf
        self._changed = True
        self._held_by_workers = 0
        inputs = trace.all_jobs()
        names = tuple(job.name for job in inputs)
        self.course = Course(trace.name, policy.name, trace.seed, names)
        for job in inputs:
            self.call(job.at, partial(self._submit, job))
        self._deployments = [self._deployment(one) for one in trace.serving]
        for one in self._deployments:
            for step in one.inputs.replicas:
                self.call(step.at, partial(self._scale, one, step.replicas))
        for failure in trace.failures:
            self.call(failure.at, partial(self._failures.begin, failure))

    # -- the clock --------------------------------------------------------------------

    def call(self, time: float, action: Action) -> None:
        """Call later."""
        heapq.heappush(self._heap, (max(time, self.now), next(self._number), action))

    def run(self) -> Course:
        """Run to the end; return what was seen."""
        with _masters_say_nothing():
            return self._run()

    def _run(self) -> Course:
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
        done = len(self.jobs) == len(self.course.jobs)
        return done and not any(job.alive for job in self.jobs.values())

    def changed(self) -> None:
        """Note a change: it is recorded, and the policy looks at it."""
        self._changed = True
        if not self.policy.every_seconds:
            self._look(self.now + self.trace.times.controller)

    def woken(self) -> None:
        """Look at everything again: something came back, or is gone."""
        self._wake_scheduler()
        self._wake_admission()
        self.changed()

    def _look(self, time: float) -> None:
        if time < self._policy_at:
            self._policy_at = time
            self.call(time, partial(self._decide, time))

    # -- jobs -------------------------------------------------------------------------

    def _submit(self, inputs: Jobs) -> None:
        if self._failures.api_away:
            self._failures.ask(partial(self._submit, inputs))
            return
        replicas = self.policy.replicas(inputs)
        self.jobs[inputs.name] = SimulatedJob(inputs, self, replicas=replicas)
        self.changed()
        self._wake_admission()
        if self.policy.every_seconds and self._policy_at == math.inf:
            self._look(self.now + self.policy.every_seconds)

    def _world(self) -> World:
        alive = {job.name: job for job in self.jobs.values() if job.alive}
        return World(self.trace, self.cluster, alive, self._failures.node_back)

    def _wake_admission(self) -> None:
        held = any(job.alive and not job.admitted for job in self.jobs.values())
        if held and not self._admission_woken:
            self._admission_woken = True
            self.call(self.now, self._admit)

    def _admit(self) -> None:
        self._admission_woken = False
        for name in self.policy.admits(self._world()):
            job = self.jobs[name]
            if not job.admitted:
                job.admitted = True
                self._make_master(job)

    def _make_master(self, job: SimulatedJob) -> None:
        job.master = self._pod(
            f"elasticdl-{job.name}-master",
            PodKind.TRAINING,
            job.inputs.master,
            priority="high",
        )
        job.master.job, job.master.role = job.name, str(Role.MASTER)
        self._wait(job.master)

    def make_replica(self, job: SimulatedJob, member: Member) -> None:
        """Create the pod of a member."""
        self._failures.ask(partial(self._make_replica, job, member))

    def _make_replica(self, job: SimulatedJob, member: Member) -> None:
        if not job.alive or job.table.members.get(member.key) is not member:
            return
        worker = job.inputs.workers
        pod = self._pod(
            f"elasticdl-{job.name}-{member.name}",
            PodKind.TRAINING,
            worker if member.is_worker else job.inputs.ps,
            priority=member.priority,
        )
        pod.job, pod.role = job.name, str(member.key.role)
        pod.index, pod.generation = member.key.index, member.generation
        if member.is_worker:
            pod.selector = tuple(sorted(worker.node_selector.items()))
            pod.tolerations = frozenset(worker.tolerations)
        self._wait(pod)
        job.pods[pod.generation] = pod
        job.show(pod)

    def done(self, job: SimulatedJob) -> None:
        """Have all pods of a job leave."""
        for pod in self.cluster.of_job(job.name):
            self.end_pod(pod, ExitReason.COMPLETED)
        self.changed()

    # -- pods -------------------------------------------------------------------------

    def _pod(self, name: str, kind: PodKind, asked: Asked, *, priority: str) -> Pod:
        named = self.trace.priorities.get(priority)
        return Pod(
            name,
            kind,
            self.cluster.vector(asked),
            priority=named.value if named else 0,
            preempts=named.preempts if named else True,
            created=self.now,
        )

    def _wait(self, pod: Pod) -> None:
        """Have a new pod wait for a node."""
        self.cluster.add(pod)
        self._scheduler.waiting[pod.number] = pod
        self._wake_scheduler()
        self.changed()

    def _wake_scheduler(self) -> None:
        if not self._scheduler_woken:
            self._scheduler_woken = True
            self.call(self.now, self._schedule)

    def _schedule(self) -> None:
        self._scheduler_woken = False
        if self._failures.api_away:
            return
        found = self._scheduler.turn()
        for pod in found.bound:
            pod.state = PodState.STARTING
            self.count(pod, 1)
            self.call(self.now + self.trace.times.pod_start, partial(self._runs, pod))
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
            later = self.now + times.master_start
            self.call(later, partial(self._master_works, job, pod))
            return
        self._tell(pod)
        if pod.role == Role.WORKER:
            self.call(self.now + times.first_step, partial(job.first_step, pod))

    @staticmethod
    def _master_works(job: SimulatedJob, pod: Pod) -> None:
        if pod is job.master and pod.state is PodState.RUNNING and job.alive:
            job.master_works()

    def _tell(self, pod: Pod) -> None:
        """Tell a job's master of a change of one of its pods."""
        job = self.jobs.get(pod.job)
        if job is not None and pod is not job.master:
            job.show(pod, heard=not self._failures.api_away)

    def _push_out(self, pod: Pod) -> None:
        if pod.leaving_since >= 0:
            return  # it goes already
        self._leaves(pod, ExitReason.PREEMPTED)
        job = self.jobs.get(pod.job)
        if job is not None and pod is not job.master:
            job.pushed_out(pod)

    def end_pod(self, pod: Pod, reason: ExitReason) -> None:
        """Have a pod leave; one without a node is gone at once."""
        if reason is ExitReason.COMPLETED:  # by a word of its master
            self._end_pod(pod, reason)
        else:
            self._failures.ask(partial(self._end_pod, pod, reason))

    def _end_pod(self, pod: Pod, reason: ExitReason) -> None:
        if pod.leaving_since < 0 and pod.state is not PodState.GONE:
            self._leaves(pod, reason)

    def _leaves(self, pod: Pod, reason: ExitReason) -> None:
        pod.why_it_leaves, pod.leaving_since = reason, self.now
        seconds = self.trace.times.leave
        if pod.state is PodState.WAITING:
            # Later, as whoever asked is looking at the job's pods.
            self._scheduler.waiting.pop(pod.number, None)
            seconds = 0.0
        else:
            pod.state = PodState.LEAVING
            if pod.role == Role.WORKER:
                seconds = self._failures.leave_seconds
        self.call(self.now + seconds, partial(self.gone, pod))
        self.changed()

    def gone(self, pod: Pod) -> None:
        """Note that a pod has ended."""
        if pod.state is PodState.GONE:
            return
        self.count(pod, -1)
        self._scheduler.waiting.pop(pod.number, None)
        self.cluster.remove(pod)
        if job := self.jobs.get(pod.job):
            self._gone_of(job, pod)
        for one in self._deployments:
            if pod.number in one.pods:
                one.gone(pod)
        self.woken()

    def _gone_of(self, job: SimulatedJob, pod: Pod) -> None:
        if pod is not job.master:
            self._failures.ask(partial(job.gone, pod))
            return
        job.up = False
        if job.alive:
            self._make_master(job)  # as the batch Job does

    def count(self, pod: Pod, sign: int) -> None:
        """Count what a worker holds on a node that is there."""
        if pod.role == Role.WORKER and _is_up(pod):
            self._held_by_workers += sign * pod.request[self.cluster.measured]

    # -- serving ----------------------------------------------------------------------

    def _deployment(self, inputs: Serving) -> Deployment:
        numbers = itertools.count()

        def make() -> Pod:
            name = f"{inputs.name}-{next(numbers)}"
            pod = self._pod(name, PodKind.SERVING, inputs, priority=inputs.priority)
            self._wait(pod)
            return pod

        end = partial(self.end_pod, reason=ExitReason.DELETED)
        return Deployment(inputs, make, end)

    def _scale(self, deployment: Deployment, replicas: int) -> None:
        self._failures.ask(partial(deployment.scale, replicas))
        self.changed()

    # -- the policy -------------------------------------------------------------------

    def _decide(self, time: float) -> None:
        if time != self._policy_at:
            return
        self._policy_at = math.inf
        if self.policy.every_seconds:
            self._look(self.now + self.policy.every_seconds)
        if self._failures.api_away or self._failures.controller_dead:
            return
        world = self._world()
        made = self.policy.decide(world, now=self.now)
        self.course.decisions += 1
        later = self.now + self.trace.times.grant
        for name, grant in made.grants.items():
            take = partial(self.jobs[name].take_grant, grant)
            self.call(later, partial(self._obeys, take))
        for name, size in made.replicas.items():
            take = partial(self.jobs[name].take_replicas, size)
            self.call(later, partial(self._obeys, take))
        if made.next_time is not None and world.jobs:
            self._look(max(made.next_time, self.now + self.trace.times.controller))

    def _obeys(self, take: Action) -> None:
        take()
        self._changed = True

    # -- the record -------------------------------------------------------------------

    def _sample(self) -> None:
        if not self._changed:
            return
        self._changed = False
        there = [self.jobs.get(name) for name in self.course.jobs]
        jobs = [job if job is not None and job.alive else None for job in there]
        waiting = self._scheduler.waiting.values()
        sample = Sample(
            time=self.now,
            use=self.cluster.use,
            training=self._held_by_workers / (self.cluster.total or 1),
            running=tuple(job.workers(PodState.RUNNING) if job else 0 for job in jobs),
            wanted=tuple(job.wanted if job else 0 for job in jobs),
            alive=tuple(job is not None for job in jobs),
            waiting=sum(pod.kind is PodKind.TRAINING for pod in waiting),
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
        alive = [job.inputs for job in self.jobs.values() if job.alive]
        course.packed, course.workers_that_fit = workers_that_fit(
            self.cluster, alive, ceiling=self.trace.ceiling
        )
        return course


def _is_up(pod: Pod) -> bool:
    return pod.node is not None and pod.node.ready
