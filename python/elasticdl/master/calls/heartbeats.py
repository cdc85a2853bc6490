"""Register, ModelReady and the heartbeats: what replicas say and are told.

Owns the answers to them. Called by `master.calls.servicer`. Must not know RPC; whom to
kill is returned or left to the loop.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import NoReturn

from elasticdl.checkpoint import store
from elasticdl.errors import ExitCode, FencedError, RefusedError, UserCodeError
from elasticdl.job.version_skew import skew
from elasticdl.job.words import JobState
from elasticdl.master.calls.leasing import Leasing
from elasticdl.master.job_state import Job
from elasticdl.master.members.member import Member
from elasticdl.master.model import callbacks
from elasticdl.master.tasks import facts
from elasticdl.master.tasks.facts import Restore
from elasticdl.proto import master_pb2

log = logging.getLogger(__name__)


class Heartbeats:
    """What replicas say of themselves."""

    def __init__(self, job: Job, leasing: Leasing) -> None:
        """Work on this job."""
        self._job = job
        self._parts = job.parts
        self._leasing = leasing
        # What all workers are told alike, and what it was made of.
        self._common: tuple[object, ...] = ()
        self._reply = master_pb2.WorkerSyncReply()

    def register(
        self, request: master_pb2.RegisterRequest, *, now: float
    ) -> master_pb2.RegisterReply:
        """Take up a replica.

        Raises FencedError, RefusedError for one of another version, and RpcError to be
        asked again.
        """
        member = self._parts.table.require(request.replica)
        wrong = skew(request.version)
        if wrong:
            self._refuse(member, wrong)
        member.last_heard = now
        member.address = request.address
        member.metrics_port = request.metrics_port
        member.pid = request.pid or member.pid
        if request.unloadable:
            directory, reason = request.unloadable, request.unloadable_reason
            if self._fall_back(member, directory, reason, now=now):
                member.restore = Restore(dir=self._parts.ps.rewind_dir)
        self._parts.membership.runs(member, now=now)
        restore = self._restore(member, now=now)
        if not member.registered:
            member.registered = True
            log.info("%s is up (pid %d)", member.name, member.pid)
        self._parts.table.note(member, now=now)
        self._parts.table.heard(member)
        if member.is_worker:
            self._parts.signals.wake()
        else:
            self._parts.signals.bump()  # workers learn where it is
        return master_pb2.RegisterReply(
            master_generation=self._parts.ledger.generation,
            ps=self._parts.ps.view(),
            restore_dir=restore.dir,
            handback=restore.handback,
            min_version=restore.min_version,
        )

    def _refuse(self, member: Member, wrong: str) -> NoReturn:
        """Let a replica end; a job that has not begun would never do so with it."""
        message = f"{member.name} is refused: {wrong}"
        log.error("%s", message)
        if not self._parts.ps.begun:
            self._job.end(JobState.FAILED, message, ExitCode.SPEC)
        raise RefusedError(message)

    def _restore(self, member: Member, *, now: float) -> Restore:
        if not member.is_worker:
            return self._parts.ps.registered(member, now=now)
        if not self._job.trains:
            member.restore = Restore(dir=self._parts.ps.origin.dir)
            return member.restore
        if not self._job.local:
            return Restore()
        if member.restore is None:
            # All state was in the worker before this one.
            if self._parts.ps.begun:
                self._parts.ps.go_back("the worker was lost", now=now)
                member.restore = Restore(dir=self._parts.ps.rewind_dir)
            else:
                member.restore = Restore(dir=self._parts.ps.origin.dir)
        return member.restore

    def _fall_back(
        self, member: Member, directory: str, reason: str, *, now: float
    ) -> bool:
        """A replica cannot load what it was told to: all take an older one.

        False if there is none, or they have gone back already.
        """
        keeper, origin = self._parts.keeper, self._parts.ps.origin
        if keeper.gave_up(directory) or origin.gave_up(directory):
            return False  # it has not heard yet what to load instead
        log.error("%s cannot load %s: %s", member.name, directory, reason)
        others = [m for m in self._parts.table.workers() if m.ready]
        if not self._job.trains and others:
            advice = (
                f"{others[0].name} works with it already, and what a job says is of "
                "one checkpoint: launch it again"
            )
        elif keeper.give_up(directory) or origin.give_up(directory):
            advice = ""
        else:
            advice = origin.advice
        if advice:
            self._job.end(
                JobState.FAILED,
                f"{member.name}: cannot restore from {directory}: {reason}; {advice}",
                ExitCode.STORAGE,
            )
            return False
        if not self._job.trains:
            self._job.version = store.read_manifest(Path(origin.dir)).version
            return False  # nothing was trained that could go back
        self._parts.ps.go_back(f"{member.name} could not load {directory}", now=now)
        return True

    def model_ready(self, request: master_pb2.ModelReadyRequest, *, now: float) -> None:
        """A worker has built the model. Raises FencedError."""
        member = self._parts.table.require(request.replica)
        member.last_heard = now
        told = member.restore.dir if member.restore else ""
        if not (self._job.trains or told in ("", self._parts.ps.origin.dir)):
            raise FencedError(
                f"{member.name} has loaded {told}, which others cannot; all take "
                f"{self._parts.ps.origin.dir}: it is replaced"
            )
        if not member.ready:
            member.ready = True
            self._parts.table.note(member, now=now)
        if not self._parts.ledger.all_of(facts.Model):
            self._parts.ledger.record(
                facts.Model(
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
        """Take what is known of the model, now or from before a restart."""
        known = self._parts.ledger.newest_of(facts.Model)
        if known is None or self._job.callbacks is not None:
            return
        try:
            self._job.callbacks = callbacks.from_json(known.callbacks)
        except UserCodeError as error:
            self._job.end(JobState.FAILED, str(error), error.exit_code)
            return
        self._parts.data.model_known(custom_reader=known.custom_reader)

    # -- heartbeats ---------------------------------------------------------------

    def worker(self, request: master_pb2.WorkerSyncRequest, *, now: float) -> list[int]:
        """Take a worker's heartbeat; return the leases it has lost. FencedError."""
        member = self._parts.table.require(request.replica)
        worker = request.worker
        was = member.phase
        if member.worker and worker.step > member.worker.step:
            # The phase counts from its last step.
            self._job.last_step_time = now - worker.phase_seconds
        before = member.worker.batches if member.worker else 0
        self._job.batches += max(0, worker.batches - before)
        member.heard_worker(worker, now=now)
        self._parts.table.heard(member)
        self._parts.ps.heard_worker(member)
        self._parts.membership.heard(member, worker.seconds, now=now)
        if self._job.local and worker.model_version:
            self._job.version = worker.model_version
            self._parts.ps.begins(now=now)
        for done in worker.snapshots:
            self._parts.keeper.take(0, done, now=now)
        patience = 2.0**self._parts.membership.hangs
        hung = member.is_hung(self._job.spec.worker, patience=patience)
        if hung:
            self._parts.table.suspect(member)
        if hung or was != worker.phase:
            self._parts.signals.wake()
        return self._leasing.renew(member, list(worker.lease_ids), now=now)

    def worker_reply(
        self, request: master_pb2.WorkerSyncRequest, lost: list[int]
    ) -> master_pb2.WorkerSyncReply:
        """Answer a worker's heartbeat. Raises FencedError if it ended meanwhile."""
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
            self._reply = master_pb2.WorkerSyncReply(
                revision=parts.signals.revision,
                ps=parts.ps.view(),
                active_workers=parts.table.num_active,
                epoch=job.epochs_done,
                learning_rate_scale=job.learning_rate_scale,
                log_level=str(job.spec.log.level),
            )
        if not (lost or member.drain or job.local):
            return self._reply
        reply = master_pb2.WorkerSyncReply()
        reply.CopyFrom(self._reply)
        reply.drain = member.drain
        reply.lost_leases.extend(lost)
        snapshot = parts.keeper.local_request() if job.local else None
        if snapshot is not None:
            reply.local_snapshot.CopyFrom(snapshot)
        return reply

    def ps(self, request: master_pb2.PsSyncRequest, *, now: float) -> None:
        """Take a PS's heartbeat. Raises FencedError."""
        member = self._parts.table.require(request.replica)
        status = request.status
        if status.error:
            self._job.end(JobState.FAILED, f"{member.name}: {status.error}")
        if status.unloadable:
            self._fall_back(
                member, status.unloadable, status.unloadable_reason, now=now
            )
        first = self._parts.ps.heard(member, status, now=now)
        self._parts.table.heard(member)
        if first:
            self._parts.table.note(member, now=now)
            self._parts.signals.wake()
        if status.pushes:  # of this process: its first gradient is applied
            self._parts.membership.works(member, now=now)
        if member.key.index == 0:
            self._job.version = status.version
        for done in status.snapshots:
            self._parts.rounds.take(member.key.index, done)
            self._parts.keeper.take(member.key.index, done, now=now)
        spec = self._job.spec
        if spec.evaluation.every_steps or spec.checkpoint.every_steps:
            self._parts.signals.wake()

    def ps_reply(self, request: master_pb2.PsSyncRequest) -> master_pb2.PsSyncReply:
        """Answer a PS's heartbeat. Raises FencedError if it ended meanwhile."""
        member = self._parts.table.require(request.replica)
        index = member.key.index
        return master_pb2.PsSyncReply(
            revision=self._parts.signals.ps_revision,
            quorum=self._parts.ps.quorum.number,
            learning_rate_scale=self._job.learning_rate_scale,
            snapshots=[
                *self._parts.rounds.requests(index),
                *self._parts.keeper.ps_request(index, sync=self._job.sync),
            ],
            rewind=self._parts.ps.rewind,
            restore_dir=self._parts.ps.rewind_dir,
            stop=member.drain,
        )
