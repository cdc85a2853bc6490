"""One run: a job with all its processes, from its launch to its end.

Owns what a seed's scenario is made of and what is watched while it runs. Called by
`run`. The roles begin in the product's own wiring: `master.serving.serve`,
`ps.main.serve_until_stopped`, `worker.main.work`.
"""

from __future__ import annotations

import gc
import shutil
import tempfile
import threading
import warnings
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path as RealPath
from typing import Any

from elasticdl.errors import ElasticDLError, ExitCode, FencedError
from elasticdl.job.context import RoleContext
from elasticdl.job.heartbeats import PsReport
from elasticdl.job.names import JobDir, Role
from elasticdl.job.spec.job import JobSpec
from elasticdl.job.tasks import LeaseReply, LeaseRequest, TaskOutcome, TaskType
from elasticdl.job.values.document import ValuesFile
from elasticdl.job.values.file import write_values
from elasticdl.master import main as master_main
from elasticdl.master import serving
from elasticdl.master.calls.leasing import Leasing
from elasticdl.master.members.member import Member
from elasticdl.master.model.ps_group import PsGroup
from elasticdl.master.tasks.side_tasks import is_side
from elasticdl.ps import main as ps_main
from elasticdl.ps.optimizers import kernels
from elasticdl.ps.parameters import Parameters
from elasticdl.ps.server import ParameterServer
from elasticdl.ps.starting import Begun
from elasticdl.rpc.master_client import MasterClient
from elasticdl.rpc.ps import wire as ps_wire
from elasticdl.rpc.watch import CallWatch
from elasticdl.runner.base import Launch
from elasticdl.worker import main as worker_main
from elasticdl.worker.life import WorkerLife
from elasticdl.worker.tasks.records import LoadedTask, RecordLoader
from elasticdl.worker.training import Training

from tests.simulation import disk, network, threads, toys
from tests.simulation.event_loop import SimulatedLoop
from tests.simulation.kernel import Kernel, Killed, Process, current_process
from tests.simulation.losses import Applied, Losses
from tests.simulation.platform import Platform, SimulatedRunner

kernels.warm_up = lambda: None

_MASTER = "127.0.0.1:10001"
_TOKEN = "simulated"
EXPORTS = "export"
_MEMORY = RealPath("/dev/shm")


@dataclass(frozen=True)
class Beginning:
    """What a job begins with that names a checkpoint in `checkpoint.initFrom`."""

    files: str  # to be moved into the world's folder
    named: str  # what initFrom names there
    values: Sequence[Any]  # by PS
    version: int


@dataclass
class Seen:
    """What is watched from outside, without believing a role."""

    applied: dict[int, list[Applied]] = field(default_factory=lambda: defaultdict(list))
    faults: list[str] = field(default_factory=list)
    last_fault: float = 0.0
    initial: list[str] = field(default_factory=list)  # PS that began from nothing
    while_paused: list[float] = field(default_factory=list)  # leases given then
    # (time, gradients, workers that trained) of versions of fewer gradients.
    short_versions: list[tuple[float, int, int]] = field(default_factory=list)


class World:
    """One run."""

    current: World | None = None

    def __init__(
        self, seed: int, *, verbose: bool = False, begins: Beginning | None = None
    ) -> None:
        self.seed = seed
        self.kernel = Kernel(seed, verbose=verbose)
        self.network = network.Network()
        where = str(_MEMORY) if _MEMORY.is_dir() else None
        self.root = tempfile.mkdtemp(prefix="elasticdl-simulated-", dir=where)
        self.disk = disk.Disk(self.root)
        self.platform = Platform(self)
        self.seen = Seen()
        self.begins = begins
        if begins is not None:
            shutil.move(begins.files, self.root)
            RealPath(begins.files).parent.rmdir()
        self.losses = Losses(
            self.seen.applied,
            toys.settings.batch_size,
            begins.values if begins is not None else (),
            begins.version if begins is not None else 0,
        )
        self.job_dir = JobDir(disk.paths.Path(self.root) / "job")
        self.spec: JobSpec | None = None
        self.before_master_step = lambda _process: None
        self.excused: set[int] = set()  # processes whose silence is their own
        self.damaged: set[str] = set()
        self.was_full = False
        self.launch_again = 0
        self.last_words = ""
        self._newest_master: Any = None  # that served: who knows whose leases are
        Kernel.instance = self.kernel
        World.current = self
        disk.use(self.disk)
        network.use(self.network)

    def begin(self, spec: JobSpec) -> None:
        """Fill the job's folder and launch its first master."""
        self.spec = spec
        self.job_dir.root.mkdir(parents=True, exist_ok=True)
        write_values(self.job_dir.spec_file, ValuesFile(kind="job", job=spec))
        self.platform.start_master()

    @property
    def init_from(self) -> str:
        """What the job is to begin with, as its specification names it."""
        return f"{self.root}/{self.begins.named}" if self.begins is not None else ""

    @property
    def exports(self) -> str:
        """Where the job is to export its model."""
        return f"{self.root}/{EXPORTS}"

    def edit(self, change: dict[str, dict[str, Any]]) -> None:
        """Change fields of the values file, by their group ("" is the job's own)."""
        if self.spec is None:
            return
        tree = self.spec.document()
        for group, fields in change.items():
            (tree.setdefault(group, {}) if group else tree).update(fields)
        self.spec = JobSpec.model_validate(tree)
        write_values(self.job_dir.spec_file, ValuesFile(kind="job", job=self.spec))

    def goes_on(self, code: int) -> bool:
        """Whether the user launches the job again that ended so."""
        if code == ExitCode.STORAGE and self.was_full:
            self.was_full = self.disk.full  # until there is room, it may fail again
            return True
        if code == ExitCode.STOPPED and self.launch_again:
            self.launch_again -= 1
            return True
        return False

    def start_seconds(self) -> float:
        return self.kernel.random.uniform(0.05, 0.8)

    # -- roles -------------------------------------------------------------------

    def _context(self, role: Role, index: int, generation: int) -> RoleContext:
        return RoleContext(
            job_dir=self.job_dir,
            role=role,
            index=index,
            generation=generation,
            launch=f"launch {self.platform.launches}",
            master_address=_MASTER,
            token=_TOKEN,
            lifeline_fd=1,
            host="127.0.0.1",
            port=10001 if role is Role.MASTER else 0,
        )

    def run_master(self, process: Process) -> int:
        context = self._context(Role.MASTER, 0, process.generation)
        loop = SimulatedLoop(process, lambda: self.before_master_step(process))
        try:
            return loop.run(master_main.serve_here(context))
        except ElasticDLError as error:
            self.kernel.log(f"{process.name}: {error}")
            self.last_words = str(error)
            return error.exit_code
        except Exception as error:  # noqa: BLE001 - as master.main
            self.kernel.uncaught(process, "main", error)
            return ExitCode.CRASHED

    def runner(self) -> SimulatedRunner:
        """Return the platform as the calling master sees it."""
        return SimulatedRunner(self.platform, current_process())

    def run_ps(self, process: Process, launch: Launch) -> int:
        context = self._context(Role.PS, launch.key.index, launch.generation)
        process.__dict__["on_bug"] = lambda: process.exit(ExitCode.JOB_FAILED)
        try:
            return ps_main.serve_until_stopped(context, self.spec)
        except FencedError:
            return ExitCode.FENCED
        except ElasticDLError as error:
            self.kernel.log(f"{process.name}: {error}")
            return error.exit_code
        except Exception as error:  # noqa: BLE001 - Python ends with 1
            self.kernel.uncaught(process, "main", error)
            return 1

    def run_worker(self, process: Process, launch: Launch) -> int:
        context = self._context(Role.WORKER, launch.key.index, launch.generation)
        leaving = threads.threading.Event()
        process.handlers[15] = lambda *_: leaving.set()
        life = WorkerLife(context, self.spec, leaving)
        try:
            worker_main.work(life, self.spec)
        except FencedError:
            return ExitCode.FENCED
        except ElasticDLError as error:
            self.kernel.log(f"{process.name}: {error}")
            return error.exit_code
        except Exception as error:  # noqa: BLE001 - Python ends with 1
            self.kernel.uncaught(process, "main", error)
            return 1
        finally:
            if process.alive:
                life.close()
        return ExitCode.OK

    # -- watching ----------------------------------------------------------------

    def dies(self, process: Process) -> None:
        """A process is about to be killed by a fault."""

    def installed(self, parameters: Parameters, rewind: int, *, loaded: bool) -> None:
        """A PS begins with these parameters."""
        ps = parameters.shard.ps
        held = self.losses.trained(ps)
        # A rewind to the job's beginning is told by its number.
        same = self.losses.begins(
            ps,
            current_process().pid,
            parameters,
            rewind,
            launch=self.platform.launches,
        )
        gone = same and held is not None and held.any()
        if gone and not loaded and not self.losses.trained(ps).any():
            self.seen.initial.append(f"PS {ps} at {self.kernel.now:.1f} s")

    def stands(self) -> str:
        """Say where a job stands that does not end."""
        process = self.platform.master
        master = process.__dict__.get("master") if process is not None else None
        if master is None:
            return "no master serves"
        job = master.job
        queue = job.parts.ledger.queue
        ps = [
            f"{m.name} {m.state} init={m.initialized} v{m.version()}"
            for m in job.parts.table.ps()
            if m is not None
        ]
        workers = [f"{m.name} {m.state} {m.phase}" for m in job.parts.table.workers()]
        done = f"{queue.done_records} done, {len(queue.leased)} leased" if queue else ""
        rewinding = job.parts.holder.rewinding
        return f"{job.state} {done}, rewinding {rewinding}, {ps}, {workers}"

    def applied(self, parameters: Parameters, pushes: Any) -> None:
        """A PS has made a version."""
        process = current_process()
        if self.kernel.verbose:
            told = [f"{p.push_id} task {p.task_id} to {p.records_done}" for p in pushes]
            ps = parameters.shard.ps
            self.kernel.log(f"ps-{ps} makes version {parameters.version} of {told}")
        if parameters.shard.ps == 0 and toys.settings.sync:
            training = self._training()
            if len(pushes) < training:
                entry = (self.kernel.now, len(pushes), training)
                self.seen.short_versions.append(entry)
        self.seen.applied[parameters.shard.ps].append(
            Applied(
                self.kernel.now,
                parameters.shard.ps,
                process.pid,
                parameters.version,
                tuple(str(push.push_id) for push in pushes),
                tuple(push.task_id for push in pushes),
            )
        )

    @property
    def epochs(self) -> int:
        """How many epochs the newest master trained: an edit may have come too late."""
        job = self._newest_master.job if self._newest_master is not None else None
        queue = job.parts.ledger.queue if job is not None else None
        return queue.plan.epochs if queue is not None else 0

    def _training(self) -> int:
        """Return how many workers train a task that is theirs, by the newest master.

        At most as many as a version takes gradients.
        """
        if self._newest_master is None:
            return 0
        job = self._newest_master.job
        queue = job.parts.ledger.queue
        leased = queue.leased if queue is not None else {}
        workers = [p for p in self.platform.all if p.alive and p.role == "worker"]
        training = sum(p.__dict__.get("training") in leased for p in workers)
        return min(training, job.spec.ps.grads_to_wait or job.spec.worker.replicas)

    # -- running -----------------------------------------------------------------

    def run(self, *, most_seconds: float) -> None:
        """Run to the end. Raises StuckError."""
        gc.disable()
        try:
            self.kernel.run(self._is_over, most_seconds=most_seconds)
        finally:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.kernel.close(self.platform.all)
                self.kernel.over = True
            disk.use(disk.Disk("/nowhere"))

    def _is_over(self) -> bool:
        return self.platform.ended is not None and not any(
            process.alive and not process.isolated for process in self.platform.all
        )

    def close(self) -> None:
        """Remove what the run left."""
        Kernel.instance = None
        World.current = None
        shutil.rmtree(self.root, ignore_errors=True)
        gc.enable()


class _PerProcess:
    """A global of a module, of which each process has its own."""

    def __init__(self, make: Any) -> None:
        self._make = make

    def __getattr__(self, name: str) -> Any:
        held = current_process().__dict__.setdefault("globals", {})
        if self not in held:
            held[self] = self._make()
        return getattr(held[self], name)


def _watched(apply: Any) -> Any:
    def watched(self: Parameters, pushes: Any, **options: Any) -> None:
        apply(self, pushes, **options)
        if World.current is not None:
            World.current.applied(self, pushes)

    return watched


def _noticed(load: Any) -> Any:
    def noticed(
        self: ParameterServer, begun: Begun, *args: Any, **options: Any
    ) -> None:
        load(self, begun, *args, **options)
        if World.current is not None:
            # Of this job: what initFrom names are initial values.
            own = str(World.current.job_dir.root)
            loaded = bool(options.get("restored")) and str(
                self._restore_dir
            ).startswith(own)
            World.current.installed(begun.parameters, self._target, loaded=loaded)

    return noticed


def _trains(run: Any) -> Any:
    def trains(self: Training, loaded: Any) -> None:
        process = current_process()
        process.__dict__["training"] = loaded.task.lease_id
        try:
            run(self, loaded)
        finally:
            process.__dict__["training"] = None

    return trains


def _with_epoch(load: Any) -> Any:
    def with_epoch(self: RecordLoader, task: Any) -> LoadedTask:
        loaded = load(self, task)
        records = [toys.in_epoch(record, task.epoch) for record in loaded.records]
        return LoadedTask(loaded.task, records, loaded.bad)

    return with_epoch


def _not_paused(lease: Any) -> Any:
    def leased(self: Leasing, *args: Any, **options: Any) -> Any:
        tasks = lease(self, *args, **options)
        world, job = World.current, self._job
        trains = [task for task in tasks if task.type == TaskType.TRAINING]
        if world is not None and trains and job.spec.paused:
            world.seen.while_paused.append(world.kernel.now)
        return tasks

    return leased


def _of_ps(heard: Any) -> Any:
    def told(self: PsGroup, member: Member, status: PsReport, **options: Any) -> bool:
        if World.current is not None and status.initialized:
            World.current.losses.told(
                member.key.index, status.version, current_process().pid
            )
        return heard(self, member, status, **options)

    return told


def _of_worker(heard: Any) -> Any:
    def told(self: PsGroup, member: Member, **options: Any) -> None:
        versions = member.worker.ps_versions if member.worker else ()
        if World.current is not None and member.worker.ps_rewind == self.rewind:
            World.current.losses.told_all(versions, current_process().pid)
        heard(self, member, **options)

    return told


def _of_report(report: Any) -> Any:
    def told(self: Leasing, member: Member, sent: Any, **options: Any) -> Any:
        result = report(self, member, sent, **options)
        done = result.accepted and sent.outcome == TaskOutcome.DONE
        if done and World.current is not None:
            losses = World.current.losses
            worker, master = member.key.index, current_process().pid
            task, lease = sent.task_id, sent.lease_id
            losses.reported(worker, member.generation, task, lease, master)
            if not is_side(sent.lease_id):
                rewinds = self._parts.ledger.rewinds
                losses.taken(sent.lease_id, master, rewinds)
        return result

    return told


def _of_answer(lease: Any) -> Any:
    def answered(self: MasterClient, request: LeaseRequest) -> LeaseReply:
        reply = lease(self, request)
        if World.current is not None:
            for result in reply.results:
                World.current.losses.answered(result.lease_id)
        return reply

    return answered


def _asked(registered: Any) -> Any:
    def asked(self: PsGroup, member: Member, **options: Any) -> Any:
        began = member.restore is None and not member.is_worker
        restore = registered(self, member, **options)
        if began and World.current is not None:
            World.current.losses.asked(member.key.index, current_process().pid)
        return restore

    return asked


ps_wire._watch = _PerProcess(CallWatch)
RecordLoader.load = _with_epoch(RecordLoader.load)


def _shown(assemble: Any) -> Any:
    def shown(*args: Any, **options: Any) -> Any:
        master = assemble(*args, **options)
        current_process().__dict__["master"] = master
        if World.current is not None:
            World.current._newest_master = master
        return master

    return shown


master_main.LocalRunner = lambda *_, **__: World.current.runner()
master_main.hold_lifeline = lambda _: None
master_main.set_up_logging = lambda *_: None
serving.assemble = _shown(serving.assemble)
Parameters.apply = _watched(Parameters.apply)
ParameterServer._install = _noticed(ParameterServer._install)
Training.run = _trains(Training.run)
Leasing.give = _not_paused(Leasing.give)
Leasing.report = _of_report(Leasing.report)
MasterClient.lease = _of_answer(MasterClient.lease)
PsGroup.heard = _of_ps(PsGroup.heard)
PsGroup.heard_worker = _of_worker(PsGroup.heard_worker)
PsGroup.registered = _asked(PsGroup.registered)

__all__ = ["Applied", "Killed", "Seen", "World", "threading", "toys"]
