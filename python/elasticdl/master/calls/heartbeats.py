"""Register, ModelReady and workers' heartbeats: what replicas say and are told.

Owns the answers to them; those of PS are in `master.calls.ps_heartbeats`. Called by
`master.calls.servicer`. Must not know RPC; whom to kill is left to the loop.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import NoReturn

from elasticdl.errors import ExitCode, RefusedError, UserCodeError
from elasticdl.job.heartbeats import (
    LocalSnapshot,
    ModelInfo,
    Registration,
    RegistrationReply,
    WorkerHeartbeat,
    WorkerOrders,
)
from elasticdl.job.version_skew import skew
from elasticdl.job.words import JobState
from elasticdl.master.calls.leasing import Leasing
from elasticdl.master.happenings import AttentionNeeded
from elasticdl.master.job_state import Job
from elasticdl.master.members.member import Member
from elasticdl.master.model import callbacks
from elasticdl.master.tasks import model_facts

log = logging.getLogger(__name__)

# Of a job; a sentence that differs in each batch is no news.
_MOST_WARNINGS = 100


class Heartbeats:
    """Handles registrations and heartbeats."""

    def __init__(self, job: Job, leasing: Leasing) -> None:
        """Handle the calls for this job."""
        self._job = job
        self._parts = job.parts
        self._leasing = leasing
        # What all workers are told alike, and what it was made of.
        self._common: tuple[object, ...] = ()
        self._reply = WorkerOrders()

    def register(self, request: Registration, *, now: float) -> RegistrationReply:
        """Register a replica.

        Raises FencedError, RefusedError for one of another version, and RpcError to be
        asked again.
        """
        member = self._parts.table.require(request.replica)
        wrong = skew(request.version)
        if wrong:
            self._refuse(member, wrong)
        member.up(
            address=request.address,
            metrics_port=request.metrics_port,
            pid=request.pid,
            now=now,
        )
        if request.unloadable:
            reason = request.unloadable_reason
            fall_back(self._job, member, request.unloadable, reason, now=now)
        self._parts.membership.runs(member, now=now)
        restore = self._parts.holder.registered(member, now=now)
        if member.register():
            log.info("%s is up (pid %d)", member.name, member.pid)
        self._parts.table.note(member, now=now)
        self._parts.table.heard(member)
        if member.is_worker:
            self._parts.signals.wake()
        else:
            self._parts.signals.bump()  # workers learn where it is
        return RegistrationReply(
            master_generation=self._parts.ledger.generation,
            ps=self._parts.holder.view(),
            restore_dir=restore.dir,
            handback=restore.handback,
            min_version=restore.min_version,
        )

    def _refuse(self, member: Member, wrong: str) -> NoReturn:
        """End a replica with a wrong registration: the job could not begin with it."""
        message = f"{member.name} is refused: {wrong}"
        log.error("%s", message)
        if not self._parts.holder.begun:
            self._job.end(JobState.FAILED, message, ExitCode.SPEC)
        raise RefusedError(message)

    def model_ready(self, request: ModelInfo, *, now: float) -> None:
        """A worker has built the model. Raises FencedError."""
        member = self._parts.table.require(request.replica)
        member.heard(now=now)
        self._parts.holder.built(member)
        if member.model_built():
            self._parts.table.note(member, now=now)
        if not self._parts.ledger.all_of(model_facts.ModelFact):
            self._parts.ledger.record(
                model_facts.ModelFact(
                    callbacks=request.callbacks_json,
                    custom_reader=request.custom_reader,
                    parameters=request.num_parameters,
                )
            )
            log.info("the model has %d parameters", request.num_parameters)
        self.take_model()
        self._parts.signals.wake()
        self._parts.signals.work()

    def take_model(self) -> None:
        """Apply what is known about the model, now or from before a restart."""
        known = self._parts.ledger.newest_of(model_facts.ModelFact)
        if known is None or self._job.callbacks is not None:
            return
        try:
            self._job.take_callbacks(callbacks.from_json(known.callbacks))
        except UserCodeError as error:
            self._job.end(JobState.FAILED, str(error), error.exit_code)
            return
        self._parts.data.model_known(custom_reader=known.custom_reader)

    # -- heartbeats ---------------------------------------------------------------

    def worker(self, request: WorkerHeartbeat, *, now: float) -> list[int]:
        """Take a worker's heartbeat; return its lost leases. Raises FencedError."""
        member = self._parts.table.require(request.replica)
        worker = request.worker
        was = member.phase
        before = member.worker.batches if member.worker else 0
        stepped = member.worker is not None and worker.step > member.worker.step
        self._job.hear_of_batches(
            max(0, worker.batches - before),
            # The phase counts from its last step.
            step_time=now - worker.phase_seconds if stepped else None,
        )
        member.heard_worker(worker, now=now)
        self._parts.table.heard(member)
        awaited = self._parts.holder.awaited_version(member)
        self._parts.holder.heard_worker(member, now=now)
        if 0 < awaited <= self._parts.holder.version:
            # Within a long task a worker wakes the loop by nothing else.
            self._parts.signals.wake()
        self._parts.membership.heard(member, worker.seconds, now=now)
        if worker.group_figures.round:
            # It made a step; a member that does not lead leases nothing.
            self._parts.membership.works(member, now=now)
        warn(self._job, worker.warnings, now=now)
        for done in worker.snapshots:
            self._parts.checkpoints.take(0, done, now=now)
        patience = 2.0 ** min(self._parts.membership.hangs, 30)
        hung = member.is_hung(self._job.spec.worker, patience=patience)
        if hung:
            self._parts.table.suspect(member)
        if hung or was != worker.phase:
            self._parts.signals.wake()
        return self._leasing.renew(member, list(worker.lease_ids), now=now)

    def worker_reply(self, request: WorkerHeartbeat, lost: list[int]) -> WorkerOrders:
        """Return the answer to a worker's heartbeat. Raises FencedError."""
        member = self._parts.table.require(request.replica)
        job, parts = self._job, self._parts
        common = (
            parts.signals.revision,
            parts.table.num_active,
            job.epochs_done,
            job.learning_rate_scale,
            str(job.spec.log.level),
        )
        if common != self._common:
            self._common = common
            self._reply = WorkerOrders(
                revision=parts.signals.revision,
                ps=parts.holder.view(),
                active_workers=parts.table.num_active,
                epoch=job.epochs_done,
                learning_rate_scale=job.learning_rate_scale,
                log_level=str(job.spec.log.level),
            )
        snapshot = parts.holder.asks_worker(member)
        if job.stops and not parts.holder.outlives_workers:
            # What is trained after the last copy of the model would be lost.
            snapshot = replace(snapshot or LocalSnapshot(), last=True)
        group = parts.holder.round_of(member)
        awaited = parts.holder.awaited_version(member)
        if not (lost or member.drain or snapshot or group or awaited):
            return self._reply
        return replace(
            self._reply,
            drain=member.drain,
            lost_leases=tuple(lost),
            local_snapshot=snapshot or self._reply.local_snapshot,
            group=group or self._reply.group,
            awaited_version=awaited,
        )


def warn(job: Job, warnings: Iterable[str], *, now: float) -> None:
    """Tell people what replicas warn of: model, data, checkpoint. Each once."""
    known = job.warnings
    for text in warnings:
        if text and text not in known and len(known) < _MOST_WARNINGS:
            known.append(text)
            job.parts.signals.diary.say(AttentionNeeded(time=now, message=text))


def fall_back(
    job: Job, member: Member, directory: str, reason: str, *, now: float
) -> None:
    """Take all replicas to an older checkpoint, since one cannot load the newest."""
    holder = job.parts.holder
    if holder.gave_up(directory):
        return  # it has not heard yet what to load instead
    log.error("%s cannot load %s: %s", member.name, directory, reason)
    meant = holder.origin.dir
    advice = holder.fall_back(member, directory, now=now)
    if not advice and holder.origin.dir != meant:
        # What it trains, measures or predicts is of another model than was meant.
        job.tell(
            f"{meant} cannot be loaded ({reason}): the job begins with the older "
            f"{holder.origin.dir} instead"
        )
    if advice:
        job.end(
            JobState.FAILED,
            f"{member.name}: cannot restore from {directory}: {reason}; {advice}",
            ExitCode.STORAGE,
        )
