"""One job of a simulation: its master's own rules, its pods and its work.

Owns what a worker brings and when the job is done. Driven by `simulator.simulation`.
Who belongs to the job, who is replaced, who leaves and how many are wanted is asked of
`master.members`, as it is: this module stands for the master's loop, its calls and its
disk alone. Must not know nodes or policies.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from typing import Protocol

from elasticdl.job.grant import Grant
from elasticdl.job.heartbeats import WorkerReport
from elasticdl.job.names import Role
from elasticdl.job.spec.job import JobSpec
from elasticdl.job.words import (
    EndCause,
    ExitReason,
    GoodputCause,
    WorkerPhase,
)
from elasticdl.master.happenings import Diary
from elasticdl.master.members.goodput import Goodput
from elasticdl.master.members.member import Member
from elasticdl.master.members.membership import Departure, Membership, Stop
from elasticdl.master.members.relaunches import Relaunches
from elasticdl.master.members.table import MemberTable
from elasticdl.master.tasks.journal import Journal
from elasticdl.master.tasks.journal_files import Event
from elasticdl.master.tasks.ledger import Ledger
from elasticdl.runner.base import Observation, ObservedReplica, Phase, ReplicaKey
from elasticdl.simulator.cluster import Pod, PodState
from elasticdl.simulator.trace import Jobs

_FULL = "Unschedulable: no node has room"
# The master's own time limits need heartbeats, which nobody sends here: that a replica
# is lost is told by `silent`.
_NEVER = 1e9
_SOON = 0.001


class _Nowhere(Journal):
    """A journal without files: nobody restarts a simulated master from a disk."""

    def __init__(self) -> None:
        """Write nothing."""

    def append(self, event: Event) -> None:
        """Forget the event."""


class Host(Protocol):
    """What a job asks of the cluster around it."""

    @property
    def now(self) -> float:
        """The simulated time."""

    def call(self, time: float, action: Callable[[], None]) -> None:
        """Call later."""

    def make_replica(self, job: SimulatedJob, member: Member) -> None:
        """Create the pod of a member."""

    def end_pod(self, pod: Pod, reason: ExitReason) -> None:
        """Have a pod leave."""

    def done(self, job: SimulatedJob) -> None:
        """Note that the job has nothing left to do."""


class SimulatedJob:
    """A job, from its submission to its end."""

    def __init__(self, inputs: Jobs, host: Host, *, replicas: int) -> None:
        """Submit it; `replicas` is its size where nobody decides."""
        self.inputs = inputs
        self.name = inputs.name
        self._host = host
        self.ps_seats = inputs.ps.replicas
        self.spec = _specification(inputs, replicas)
        ledger, diary = Ledger(_Nowhere()), Diary()
        self.goodput = Goodput()
        self.relaunches = Relaunches(ledger, diary)
        self.table = MemberTable(self.spec, ledger, ps_seats=self.ps_seats)
        self.members = Membership(
            self.table, ledger, self.relaunches, self.goodput, diary
        )
        self._diary = diary
        self.master: Pod | None = None
        self.admitted = False
        self.up = False  # the master works
        self.ended: float | None = None
        self.first_worker: float | None = None
        self.pods: dict[int, Pod] = {}  # by generation
        self.work_done = 0.0  # worker seconds
        self.moved = 0  # workers that were told to leave, or pushed out
        self.preempted = 0
        self._since = inputs.at
        self._at_work: set[int] = set()
        self._ps_up = 0
        self._started: dict[int, float] = {}  # first step of a worker
        self._waited_ps: defaultdict[int, float] = defaultdict(float)
        self._version = 0
        self._timer = math.inf
        self._turning = self._again = False

    # -- what others see --------------------------------------------------------------

    @property
    def alive(self) -> bool:
        """Whether it is submitted and not done."""
        return self.ended is None

    @property
    def wanted(self) -> int:
        """How many workers its master wants."""
        return self.table.wanted

    def workers(self, *states: PodState) -> int:
        """Return how many workers' pods are in one of these states."""
        return sum(
            pod.role == Role.WORKER and pod.state in states
            for pod in self.pods.values()
        )

    @property
    def rate(self) -> float:
        """Worker seconds that it gets done in a second."""
        if not self.alive or self._ps_up < self.ps_seats:
            return 0.0
        count = len(self._at_work)
        return float(min(count, self.inputs.saturates or count))

    # -- the policy -------------------------------------------------------------------

    def take_grant(self, grant: Grant | None) -> None:
        """Obey a grant until it expires."""
        self.table.grant = grant
        if grant is not None and math.isfinite(grant.until):
            self._host.call(grant.until, self._expire)
        self.turn()

    def _expire(self) -> None:
        grant = self.table.grant
        if grant is not None and grant.expired(now=self._host.now):
            self.table.grant = None
            self.turn()

    def take_replicas(self, replicas: int) -> None:
        """Take an edit of `worker.replicas`, as `scale` makes one."""
        worker = self.spec.worker.model_copy(update={"replicas": replicas})
        self.spec = self.spec.model_copy(update={"worker": worker})
        self.table.take_spec(self.spec)
        self.turn()

    # -- the master's loop ------------------------------------------------------------

    def master_works(self) -> None:
        """Begin, or go on after another master."""
        self.up = True
        self.resync()

    def resync(self) -> None:
        """Hear of every pod again, as after a break of the watch."""
        if not self.up or not self.alive:
            return
        states = tuple(_seen(pod) for pod in self.pods.values())
        self._observe(Observation(states, resync=True))

    def turn(self) -> None:
        """Do what the master's loop does in a turn, again if that changed something."""
        self._again = True
        if self._turning:
            return
        self._turning = True
        while self._again:
            self._again = False
            self._turn()
        self._turning = False

    def _turn(self) -> None:
        if not self.up or not self.alive:
            return
        now = self._host.now
        self.table.dead(now=now)  # nobody is; it says when somebody may be
        stops = self.members.plan(workers=self.table.wanted, now=now)
        stops += self.members.overdue(now=now)
        self._stop(stops)
        if self.table.take_orders():
            self._tell_who_leaves()
        for member in self.table.due(now=now):
            self.members.launched(member, now=now)
            self._host.make_replica(self, member)
        self._diary.take()
        time = self.table.next_time()
        if time is not None and time < self._timer and time < now + _NEVER / 2:
            self._timer = max(time, now + _SOON)
            self._host.call(self._timer, self._timed)

    def _timed(self) -> None:
        self._timer = math.inf
        self.turn()

    def _stop(self, stops: list[Stop]) -> None:
        for stop in stops:
            for pod in list(self.pods.values()):
                if (pod.role, pod.index) == (stop.key.role, stop.key.index):
                    self._goes(pod, ExitReason.DELETED)

    def _tell_who_leaves(self) -> None:
        """Answer the heartbeats of those who are to leave."""
        for member in self.table.workers():
            pod = self.pods.get(member.generation)
            if member.drain and member.registered and pod is not None:
                self._goes(pod, ExitReason.COMPLETED)

    def _goes(self, pod: Pod, reason: ExitReason) -> None:
        if pod.role == Role.WORKER and pod.leaving_since < 0:
            self.moved += pod.state is not PodState.WAITING
        self._stops_work(pod)
        self._host.end_pod(pod, reason)

    # -- what happens to its pods -----------------------------------------------------

    def show(self, pod: Pod, *, heard: bool = True) -> None:
        """Note a change of a pod; the master is told if it can be heard of."""
        if pod.state is PodState.RUNNING and pod.role == Role.PS:
            self._progress()
            self._ps_up += 1
            self._schedule_end()
        runs = pod.state is PodState.RUNNING and pod.role == Role.WORKER
        if runs and self.first_worker is None:
            self.first_worker = self._host.now
        if self.up and self.alive and heard:
            self._observe(Observation((_seen(pod),)))

    def pushed_out(self, pod: Pod) -> None:
        """Note that a pod is being preempted; it hands its tasks back meanwhile."""
        self.preempted += 1
        if pod.role == Role.WORKER:
            self.moved += 1
        self._stops_work(pod)
        if self.up and self.alive and pod.state is not PodState.WAITING:
            self._observe(Observation((_seen(pod),)))

    def gone(self, pod: Pod) -> None:
        """Note that a pod has ended."""
        self._stops_work(pod)
        if self.pods.pop(pod.generation, None) is None:
            return
        self._account(pod)
        if self.up and self.alive:
            self._observe(Observation((_seen(pod),)))

    def lost(self, pod: Pod) -> None:
        """Note that a pod's node is gone: it works no more, and is silent."""
        self._stops_work(pod)

    def silent(self, pod: Pod) -> None:
        """Have the master find out that a replica of a lost node is silent."""
        key = ReplicaKey(Role(pod.role), pod.index)
        member = self.table.members.get(key)
        known = member is not None and member.generation == pod.generation
        if member is None or not known or not self.up or not self.alive:
            return
        now = self._host.now
        self._departed([self.members.give_up_on(member, EndCause.SILENT, now=now)])
        self.pods.pop(pod.generation, None)
        self.turn()

    def _observe(self, observation: Observation) -> None:
        now = self._host.now
        departures, stops = self.members.observe(observation, now=now)
        self._departed(departures)
        self._stop(stops)
        self.turn()

    def _departed(self, departures: list[Departure]) -> None:
        if any(departure.give_up for departure in departures):
            self._end()  # no rule gives a job up for what is simulated here

    # -- work -------------------------------------------------------------------------

    def first_step(self, pod: Pod) -> None:
        """Have a worker make its first step."""
        key = ReplicaKey(Role.WORKER, pod.index)
        member = self.table.members.get(key)
        if not self.alive or pod.state is not PodState.RUNNING:
            return
        if member is None or member.generation != pod.generation or member.drain:
            return
        now = self._host.now
        member.up(address="", metrics_port=0, pid=1, now=now)
        member.register()
        member.model_built()
        member.heard_worker(WorkerReport(phase=WorkerPhase.TRAIN), now=now)
        self.members.works(member, now=now)
        self._progress()
        self._at_work.add(pod.generation)
        self._started[pod.generation] = now
        self._schedule_end()

    def _stops_work(self, pod: Pod) -> None:
        was_ps = (
            pod.role == Role.PS and pod.running_since >= 0 and pod.leaving_since < 0
        )
        if was_ps or pod.generation in self._at_work:
            self._progress()
            self._ps_up -= was_ps
            self._at_work.discard(pod.generation)
            self._schedule_end()

    def _progress(self) -> None:
        now = self._host.now
        passed = now - self._since
        if self._ps_up < self.ps_seats:
            for generation in self._at_work:
                self._waited_ps[generation] += passed
        self.work_done += self.rate * passed
        self._since = now

    def _schedule_end(self) -> None:
        self._version += 1
        left = self.inputs.work - self.work_done
        if self.inputs.work and self.rate:
            version = self._version
            end = self._host.now + max(0.0, left / self.rate)
            self._host.call(end, lambda: self._may_end(version))

    def _may_end(self, version: int) -> None:
        if version == self._version and self.alive:
            self._progress()
            self._end()

    def settle(self) -> None:
        """Count work and the seconds of workers up to now."""
        if self.alive:
            self._progress()
        for pod in self.pods.values():
            self._account(pod)

    def _end(self) -> None:
        self.settle()
        self.members.let_leave()
        self.ended = self._host.now
        self._at_work.clear()
        self._host.done(self)

    def _account(self, pod: Pod) -> None:
        """Report a worker's seconds, as its heartbeats do."""
        key = ReplicaKey(Role(pod.role), pod.index)
        member = self.table.members.get(key)
        if member is None or member.generation != pod.generation:
            return
        if not member.is_worker or pod.running_since < 0:
            return
        until = pod.leaving_since if pod.leaving_since >= 0 else self._host.now
        began = self._started.get(pod.generation, until)
        waited = self._waited_ps.get(pod.generation, 0.0)
        seconds = {
            GoodputCause.START: max(0.0, began - pod.running_since),
            GoodputCause.TRAIN: max(0.0, until - began - waited),
            GoodputCause.WAIT_PS: waited,
            GoodputCause.IDLE: max(0.0, self._host.now - until),
        }
        told = {str(cause): value for cause, value in seconds.items()}
        self.members.heard(member, told, now=self._host.now)


def _specification(inputs: Jobs, replicas: int) -> JobSpec:
    """Return the specification that such a job would have in its values file."""
    worker = inputs.workers
    return JobSpec.model_validate(
        {
            "name": inputs.name[:40].rstrip("-"),
            "model": {"definition": "simulated.model"},
            "data": {"training": "simulated"},
            # What a replica asks for is the cluster's business alone.
            "ps": {"replicas": max(1, inputs.ps.replicas)},
            "worker": {
                "replicas": replicas,
                "min": worker.min,
                "max": worker.max,
                "priority": worker.priority,
                "startSeconds": _NEVER,
                "deadSeconds": _NEVER,
                "graceSeconds": 60.0,
            },
        }
    )


def _seen(pod: Pod) -> ObservedReplica:
    """Return a pod as the platform shows it."""
    key = ReplicaKey(Role(pod.role), pod.index)
    reason, pending = ExitReason.NONE, ""
    match pod.state:
        case PodState.WAITING:
            phase, pending = Phase.PENDING, _FULL if pod.refused else ""
        case PodState.STARTING:
            phase, pending = Phase.PENDING, "ContainerCreating"
        case PodState.RUNNING:
            phase = Phase.RUNNING
        case PodState.LEAVING:
            ran = pod.running_since >= 0
            phase = Phase.RUNNING if ran else Phase.PENDING
            taken = pod.why_it_leaves in (ExitReason.PREEMPTED, ExitReason.EVICTED)
            reason = pod.why_it_leaves if ran and taken else ExitReason.NONE
        case PodState.GONE:
            reason = pod.why_it_leaves or ExitReason.DELETED
            left = reason is ExitReason.COMPLETED
            phase = Phase.SUCCEEDED if left else Phase.FAILED
    return ObservedReplica(
        key, pod.generation, phase, reason=reason, pending_reason=pending
    )
