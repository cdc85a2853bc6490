"""What every worker has from its first second: heartbeat, goodput, orders to leave.

Owns these parts and how they hang together; made by main before anything slow. Must
not import TensorFlow.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol, TypeVar

import psutil

from elasticdl.errors import ExitCode
from elasticdl.job.context import RoleContext, set_log_level
from elasticdl.job.heartbeats import (
    GroupFigures,
    GroupReport,
    GroupRound,
    ModelInfo,
    PsView,
    Registration,
    RegistrationReply,
    SnapshotDone,
    WorkerOrders,
    WorkerReport,
)
from elasticdl.job.spec.job import JobSpec
from elasticdl.job.tasks import LeaseReply, LeaseRequest, ReplicaId
from elasticdl.metrics.goodput import GoodputLedger
from elasticdl.metrics.memory import container_limit_bytes
from elasticdl.metrics.registry import WorkerMetrics
from elasticdl.metrics.server import MetricsServer
from elasticdl.rpc.held_call import HeldCall
from elasticdl.rpc.master_client import MasterClient
from elasticdl.rpc.retry import retry
from elasticdl.rpc.tls.https import secure_metrics
from elasticdl.rpc.tls.identity import Identity
from elasticdl.running import RunningClock, keep_reading
from elasticdl.worker.heartbeat import Heartbeat
from elasticdl.worker.model_warnings import ModelWarnings
from elasticdl.worker.progress import WorkerProgress

log = logging.getLogger(__name__)

T = TypeVar("T")

# A worker that ends waits so long for its last warnings to arrive.
_WARNING_SECONDS = 1.0


class ValuesHeld(Protocol):
    """The PS's values that a worker holds (worker.ps_link)."""

    def answered(self) -> tuple[int, list[int]]:
        """Return a rewind, and by PS the newest version answered in it."""

    def offer(self, view: PsView) -> None:
        """Offer values to the PS that wait for them; returns at once."""


class SaysOfGroup(Protocol):
    """What a worker knows of its group (worker.group.link)."""

    def report(self) -> GroupReport:
        """Return what the next heartbeat says of it."""

    def figures(self) -> GroupFigures:
        """Return what steps with others cost."""

    def told(self, order: GroupRound) -> None:
        """Take the round that the master says."""


class WorkerLife:
    """The part of a worker process that talks to the master."""

    def __init__(
        self,
        context: RoleContext,
        spec: JobSpec,
        leaving: threading.Event,
        identity: Identity | None = None,
        *,
        inter_op_threads: int = 1,
    ) -> None:
        """Start heartbeats at once; calls are encrypted if there is an identity.

        `inter_op_threads`: in how many TensorFlow runs operations side by side.
        """
        self.context = context
        self.inter_op_threads = inter_op_threads
        self.identity = identity
        self.leaving = leaving
        self._process = psutil.Process()
        # Linux counts what a process reads and writes, from files and pipes alone.
        self._counts_bytes = hasattr(self._process, "io_counters")
        # The interpreter and its imports took their time before this line.
        age = max(0.0, time.time() - self._process.create_time())
        self.goodput = GoodputLedger(time.monotonic, age_seconds=age)
        clock = keep_reading(RunningClock())
        held = HeldCall()
        self.metrics = WorkerMetrics()
        self.progress = WorkerProgress(
            clock, reached=held.reached, counted=self.metrics.count_steps
        )
        self._warnings = ModelWarnings()
        logging.getLogger("elasticdl").addHandler(self._warnings)
        if context.in_pod:
            self.metrics.memory_limit.set(container_limit_bytes())
        self.replica = ReplicaId(
            role=context.role, index=context.index, generation=context.generation
        )
        self.master = MasterClient(
            context.master_address,
            self.replica,
            token=context.token,
            identity=identity,
            most_silence_seconds=context.most_silence_seconds,
            clock=clock,
        )
        self._held: Callable[[], list[int]] = list
        self._values: ValuesHeld | None = None
        self._group: SaysOfGroup | None = None
        self._log_level = str(spec.log.level)
        self._registered = threading.Event()
        self.heartbeat = Heartbeat(
            lambda beat: self.master.worker_sync(beat, held),
            self.replica,
            status=self._status,
            seconds=spec.worker.heartbeat_seconds,
            on_fenced=leave_fenced,
            on_reply=self._on_reply,
            held=held,
        )
        self.monitor = MetricsServer(
            self.metrics.registry,
            ready=self._is_ready,
            healthy=lambda: True,
            refresh=self._refresh,
            host=context.host,
            port=context.metrics_port,
            secure=secure_metrics(identity, context.metrics_token),
        )
        self.heartbeat.start()

    def register(self, *, unloadable: str = "", reason: str = "") -> RegistrationReply:
        """Register this worker. Raises FencedError; RpcError when leaving.

        `unloadable`: the checkpoint that it was told to load and cannot, and why.
        """
        reply = self._answered(
            lambda: self.master.register(
                Registration(
                    metrics_port=self.monitor.port,
                    pid=os.getpid(),
                    unloadable=unloadable,
                    unloadable_reason=reason,
                )
            )
        )
        self.heartbeat.learn_view(reply.ps)
        self._registered.set()
        return reply

    def tell_model_ready(self, request: ModelInfo) -> None:
        """Report the model to the master. Raises FencedError; RpcError when leaving."""
        self._answered(lambda: self.master.model_ready(request))

    def _answered(self, call: Callable[[], T]) -> T:
        """Return what the master answers; who waits for that does not hang."""

        def touched() -> T:
            self.progress.touch()
            return call()

        return retry(touched, stop=self.leaving)

    def answer_for(self, held: Callable[[], list[int]]) -> None:
        """Name these leases in heartbeats from now on."""
        self._held = held

    def hold_values(self, values: ValuesHeld) -> None:
        """Report these values in heartbeats, and offer them to PS that need them."""
        self._values = values

    def join_group(self, link: SaysOfGroup) -> None:
        """Say of a group what this link says, and tell it of rounds, from now on."""
        self._group = link
        self.heartbeat.hurry()  # no round begins before the master knows of it

    def lease(self, request: LeaseRequest) -> LeaseReply:
        """Report and lease, with the PS versions that contain what is reported.

        A PS that is lost next lacks updates of tasks that count as done: the master has
        to know of them though no heartbeat came through. Raises as MasterClient.lease.
        """
        if self._values is not None:
            rewind, versions = self._values.answered()
            request = replace(request, ps_rewind=rewind, ps_versions=tuple(versions))
        return self.master.lease(request)

    def close(self) -> None:
        """End heartbeats and connections."""
        self._tell_last_warnings()
        self.leaving.set()
        self.heartbeat.stop()
        self.monitor.close()
        self.master.close()

    def _tell_last_warnings(self) -> None:
        """Let a heartbeat carry what the export warned of, say."""
        end = time.monotonic() + _WARNING_SECONDS
        while self._warnings.waiting and time.monotonic() < end:
            self.heartbeat.hurry()
            time.sleep(_WARNING_SECONDS / 20)

    def _is_ready(self) -> bool:
        """Whether the job can count on this worker: it traces or trains."""
        return self._registered.is_set() and not self.leaving.is_set()

    def _status(self, snapshots: list[SnapshotDone]) -> WorkerReport:
        if self._counts_bytes:
            moved = self._process.io_counters()
            self.progress.moved(moved.read_chars + moved.write_chars)
        rewind, versions = self._values.answered() if self._values else (0, [])
        report = self.progress.report(
            seconds=self.goodput.seconds(),
            memory_bytes=self._process.memory_info().rss,
            lease_ids=self._held(),
            snapshots=snapshots,
            ps_rewind=rewind,
            ps_versions=versions,
        )
        report = replace(report, warnings=self._warnings.send())
        if self._group is None:
            return report
        said, figures = self._group.report(), self._group.figures()
        return replace(report, group=said, group_figures=figures)

    def _on_reply(self, reply: WorkerOrders) -> None:
        self._warnings.delivered()
        if reply.drain and not self.leaving.is_set():
            log.info("Told to hand tasks back and leave")
            self.leaving.set()
        if self._group is not None and reply.group.number:
            self._group.told(reply.group)
        if self._values is not None and any(reply.ps.wants_values):
            self._values.offer(reply.ps)
        if reply.log_level and reply.log_level != self._log_level:
            self._log_level = reply.log_level
            set_log_level(reply.log_level)

    def _refresh(self) -> None:
        self.progress.count()
        self.metrics.memory.set(self._process.memory_info().rss)
        self.metrics.goodput.set_by(self.goodput.seconds())
        if self._group is not None:
            sent = self._group.figures().sent_bytes
            self.metrics.gradient_bytes.set_one(sent)


def leave_fenced(reason: str) -> None:
    """End the process: no master accepts this worker, so its work does not count."""
    log.warning("This worker is not needed any more: %s", reason)
    logging.shutdown()
    os._exit(ExitCode.FENCED)
