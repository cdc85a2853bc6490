"""Registrations, heartbeats and orders as messages, and back.

Owns which field of a message is which of `job.heartbeats`. Called by
`rpc.master_client` and `rpc.master_service`.
"""

from __future__ import annotations

from elasticdl.job.heartbeats import (
    GroupFigures,
    GroupMember,
    GroupReport,
    GroupRound,
    LocalSnapshot,
    ModelInfo,
    PsHeartbeat,
    PsOrders,
    PsReport,
    PsView,
    Registration,
    RegistrationReply,
    SnapshotDone,
    SnapshotRequest,
    WorkerHeartbeat,
    WorkerOrders,
    WorkerReport,
)
from elasticdl.proto import master_pb2
from elasticdl.rpc.task_messages import (
    replica_from_wire,
    replica_to_wire,
    ticket_from_wire,
    ticket_to_wire,
)

_NO_SNAPSHOT = LocalSnapshot()


def view_to_wire(view: PsView) -> master_pb2.PsView:
    """Return the message of where the PS are."""
    return master_pb2.PsView(
        revision=view.revision,
        addresses=view.addresses,
        generations=view.generations,
        rewind=view.rewind,
        wants_values=view.wants_values,
    )


def view_from_wire(message: master_pb2.PsView) -> PsView:
    """Return where the PS are."""
    return PsView(
        message.revision,
        tuple(message.addresses),
        tuple(message.generations),
        message.rewind,
        tuple(message.wants_values),
    )


def registration_to_wire(request: Registration) -> master_pb2.RegisterRequest:
    """Return the message of a registration."""
    return master_pb2.RegisterRequest(
        replica=replica_to_wire(request.replica),
        address=request.address,
        metrics_port=request.metrics_port,
        pid=request.pid,
        unloadable=request.unloadable,
        unloadable_reason=request.unloadable_reason,
        version=request.version,
    )


def registration_from_wire(message: master_pb2.RegisterRequest) -> Registration:
    """Return the registration of a message."""
    return Registration(
        replica_from_wire(message.replica),
        message.address,
        message.metrics_port,
        message.pid,
        message.unloadable,
        message.unloadable_reason,
        message.version,
    )


def registration_reply_to_wire(reply: RegistrationReply) -> master_pb2.RegisterReply:
    """Return the message of what a replica needs to begin."""
    return master_pb2.RegisterReply(
        master_generation=reply.master_generation,
        ps=view_to_wire(reply.ps),
        restore_dir=reply.restore_dir,
        handback=reply.handback,
        min_version=reply.min_version,
    )


def registration_reply_from_wire(
    message: master_pb2.RegisterReply,
) -> RegistrationReply:
    """Return what a replica needs to begin."""
    return RegistrationReply(
        message.master_generation,
        view_from_wire(message.ps),
        message.restore_dir,
        message.handback,
        message.min_version,
    )


def model_to_wire(model: ModelInfo) -> master_pb2.ModelReadyRequest:
    """Return the message about a model that was built."""
    return master_pb2.ModelReadyRequest(
        replica=replica_to_wire(model.replica),
        callbacks_json=model.callbacks_json,
        num_parameters=model.num_parameters,
        metric_names=model.metric_names,
        order_preserved=model.order_preserved,
        custom_reader=model.custom_reader,
    )


def model_from_wire(message: master_pb2.ModelReadyRequest) -> ModelInfo:
    """Return the description of a worker's model."""
    return ModelInfo(
        replica_from_wire(message.replica),
        message.callbacks_json,
        message.num_parameters,
        tuple(message.metric_names),
        message.order_preserved,
        message.custom_reader,
    )


# -- snapshots ------------------------------------------------------------------------


def done_to_wire(done: SnapshotDone) -> master_pb2.SnapshotDone:
    """Return the message of a replica's answer about a snapshot."""
    return master_pb2.SnapshotDone(
        id=done.id,
        version=done.version,
        ticket=ticket_to_wire(done.ticket),
        file=done.file,
        file_bytes=done.file_bytes,
        crc32=done.crc32,
        applied=done.applied,
        error=done.error,
        pinned_only=done.pinned_only,
        written_bytes=done.written_bytes,
    )


def done_from_wire(message: master_pb2.SnapshotDone) -> SnapshotDone:
    """Return a replica's answer about a snapshot."""
    return SnapshotDone(
        id=message.id,
        version=message.version,
        ticket=(
            ticket_from_wire(message.ticket) if message.HasField("ticket") else None
        ),
        file=message.file,
        file_bytes=message.file_bytes,
        crc32=message.crc32,
        applied=dict(message.applied),
        error=message.error,
        pinned_only=message.pinned_only,
        written_bytes=message.written_bytes,
    )


def _wanted_to_wire(request: SnapshotRequest) -> master_pb2.SnapshotRequest:
    return master_pb2.SnapshotRequest(
        id=request.id, dir=request.dir, ticket=ticket_to_wire(request.ticket)
    )


def _wanted_from_wire(message: master_pb2.SnapshotRequest) -> SnapshotRequest:
    ticket = ticket_from_wire(message.ticket) if message.HasField("ticket") else None
    return SnapshotRequest(message.id, message.dir, ticket)


# -- workers --------------------------------------------------------------------------


def worker_beat_to_wire(beat: WorkerHeartbeat) -> master_pb2.WorkerSyncRequest:
    """Return the message of a worker's heartbeat."""
    worker = beat.worker
    return master_pb2.WorkerSyncRequest(
        replica=replica_to_wire(beat.replica),
        worker=master_pb2.Worker(
            phase=worker.phase,
            step=worker.step,
            model_version=worker.model_version,
            loss=worker.loss,
            step_seconds=worker.step_seconds,
            seconds=worker.seconds,
            memory_bytes=worker.memory_bytes,
            phase_seconds=worker.phase_seconds,
            lease_ids=worker.lease_ids,
            snapshots=map(done_to_wire, worker.snapshots),
            ps_versions=worker.ps_versions,
            batches=worker.batches,
            ps_rewind=worker.ps_rewind,
            usual_seconds=worker.usual_seconds,
            group=_group_to_wire(worker.group),
            group_figures=_figures_to_wire(worker.group_figures),
            warnings=worker.warnings,
        ),
        seen_revision=beat.seen_revision,
        hold_seconds=beat.hold_seconds,
    )


def worker_beat_from_wire(message: master_pb2.WorkerSyncRequest) -> WorkerHeartbeat:
    """Return a worker's heartbeat."""
    worker = message.worker
    return WorkerHeartbeat(
        replica_from_wire(message.replica),
        WorkerReport(
            phase=worker.phase,
            step=worker.step,
            model_version=worker.model_version,
            loss=worker.loss,
            step_seconds=worker.step_seconds,
            seconds=dict(worker.seconds),
            memory_bytes=worker.memory_bytes,
            phase_seconds=worker.phase_seconds,
            lease_ids=tuple(worker.lease_ids),
            snapshots=tuple(map(done_from_wire, worker.snapshots)),
            ps_versions=tuple(worker.ps_versions),
            batches=worker.batches,
            ps_rewind=worker.ps_rewind,
            usual_seconds=worker.usual_seconds,
            group=_group_from_wire(worker.group),
            group_figures=_figures_from_wire(worker.group_figures),
            warnings=tuple(worker.warnings),
        ),
        message.seen_revision,
        message.hold_seconds,
    )


def worker_orders_to_wire(orders: WorkerOrders) -> master_pb2.WorkerSyncReply:
    """Return the message of the answer to a worker's heartbeat."""
    wanted = orders.local_snapshot
    return master_pb2.WorkerSyncReply(
        revision=orders.revision,
        ps=view_to_wire(orders.ps),
        drain=orders.drain,
        learning_rate_scale=orders.learning_rate_scale,
        log_level=orders.log_level,
        lost_leases=orders.lost_leases,
        local_snapshot=(
            master_pb2.LocalSnapshot(id=wanted.id, dir=wanted.dir, last=wanted.last)
            if wanted != _NO_SNAPSHOT
            else None
        ),
        active_workers=orders.active_workers,
        epoch=orders.epoch,
        group=_round_to_wire(orders.group),
        awaited_version=orders.awaited_version,
    )


def worker_orders_from_wire(message: master_pb2.WorkerSyncReply) -> WorkerOrders:
    """Return the answer to a worker's heartbeat."""
    wanted = _NO_SNAPSHOT
    if message.HasField("local_snapshot"):
        told = message.local_snapshot
        wanted = LocalSnapshot(told.id, told.dir, told.last)
    return WorkerOrders(
        revision=message.revision,
        ps=view_from_wire(message.ps),
        drain=message.drain,
        learning_rate_scale=message.learning_rate_scale,
        log_level=message.log_level,
        lost_leases=tuple(message.lost_leases),
        local_snapshot=wanted,
        active_workers=message.active_workers,
        epoch=message.epoch,
        group=_round_from_wire(message.group),
        awaited_version=message.awaited_version,
    )


def _group_to_wire(said: GroupReport) -> master_pb2.GroupStatus | None:
    if not said.address:
        return None
    return master_pb2.GroupStatus(
        address=said.address,
        round=said.round,
        level=said.level,
        broken=said.broken,
        lost=said.lost,
        stateless=said.stateless,
        copied=said.copied,
        differing=said.differing,
        leaves=said.leaves,
        version=said.version,
    )


def _group_from_wire(message: master_pb2.GroupStatus) -> GroupReport:
    return GroupReport(
        address=message.address,
        round=message.round,
        level=message.level,
        broken=message.broken,
        lost=message.lost,
        stateless=message.stateless,
        copied=message.copied,
        differing=tuple(message.differing),
        leaves=message.leaves,
        version=message.version,
    )


def _figures_to_wire(said: GroupFigures) -> master_pb2.GroupFigures | None:
    if not said.round:
        return None
    return master_pb2.GroupFigures(
        round=said.round,
        change_seconds=said.change_seconds,
        wait_seconds=said.wait_seconds,
        step_bytes=said.step_bytes,
        sent_bytes=said.sent_bytes,
    )


def _figures_from_wire(message: master_pb2.GroupFigures) -> GroupFigures:
    return GroupFigures(
        round=message.round,
        change_seconds=message.change_seconds,
        wait_seconds=message.wait_seconds,
        step_bytes=message.step_bytes,
        sent_bytes=message.sent_bytes,
    )


def _round_to_wire(formed: GroupRound) -> master_pb2.GroupRound | None:
    if not formed.number:
        return None
    return master_pb2.GroupRound(
        number=formed.number,
        members=[
            master_pb2.GroupMember(
                number=one.number, address=one.address, since=one.since
            )
            for one in formed.members
        ],
        begins=formed.begins,
        restore_dir=formed.restore_dir,
        step_records=formed.step_records,
        waits=formed.waits,
        newcomers=formed.newcomers,
        stays=formed.stays,
        goes=formed.goes,
    )


def _round_from_wire(message: master_pb2.GroupRound) -> GroupRound:
    return GroupRound(
        number=message.number,
        members=tuple(
            GroupMember(one.number, one.address, one.since) for one in message.members
        ),
        begins=message.begins,
        restore_dir=message.restore_dir,
        step_records=message.step_records,
        waits=message.waits,
        newcomers=message.newcomers,
        stays=message.stays,
        goes=message.goes,
    )


# -- parameter servers ----------------------------------------------------------------


def ps_beat_to_wire(beat: PsHeartbeat) -> master_pb2.PsSyncRequest:
    """Return the message of a PS's heartbeat."""
    status = beat.status
    return master_pb2.PsSyncRequest(
        replica=replica_to_wire(beat.replica),
        status=master_pb2.PsStatus(
            initialized=status.initialized,
            version=status.version,
            bytes=status.bytes,
            pushes=status.pushes,
            rejected=status.rejected,
            staleness_sum=status.staleness_sum,
            memory_bytes=status.memory_bytes,
            snapshots=map(done_to_wire, status.snapshots),
            rewind=status.rewind,
            error=status.error,
            embedding_rows=status.embedding_rows,
            received_bytes=status.received_bytes,
            sent_bytes=status.sent_bytes,
            calls=status.calls,
            call_seconds=status.call_seconds,
            memory_limit_bytes=status.memory_limit_bytes,
            unloadable=status.unloadable,
            unloadable_reason=status.unloadable_reason,
            began_at=status.began_at,
            obeyed_revision=status.obeyed_revision,
            wants_optimizer=status.wants_optimizer,
            warning=status.warning,
        ),
        seen_revision=beat.seen_revision,
        hold_seconds=beat.hold_seconds,
    )


def ps_beat_from_wire(message: master_pb2.PsSyncRequest) -> PsHeartbeat:
    """Return a PS's heartbeat."""
    status = message.status
    return PsHeartbeat(
        replica_from_wire(message.replica),
        PsReport(
            initialized=status.initialized,
            version=status.version,
            bytes=status.bytes,
            pushes=status.pushes,
            rejected=status.rejected,
            staleness_sum=status.staleness_sum,
            memory_bytes=status.memory_bytes,
            snapshots=tuple(map(done_from_wire, status.snapshots)),
            rewind=status.rewind,
            error=status.error,
            embedding_rows=status.embedding_rows,
            received_bytes=status.received_bytes,
            sent_bytes=status.sent_bytes,
            calls=status.calls,
            call_seconds=status.call_seconds,
            memory_limit_bytes=status.memory_limit_bytes,
            unloadable=status.unloadable,
            unloadable_reason=status.unloadable_reason,
            began_at=status.began_at,
            obeyed_revision=status.obeyed_revision,
            wants_optimizer=status.wants_optimizer,
            warning=status.warning,
        ),
        message.seen_revision,
        message.hold_seconds,
    )


def ps_orders_to_wire(orders: PsOrders) -> master_pb2.PsSyncReply:
    """Return the message of the answer to a PS's heartbeat."""
    return master_pb2.PsSyncReply(
        revision=orders.revision,
        quorum=orders.quorum,
        learning_rate_scale=orders.learning_rate_scale,
        snapshots=map(_wanted_to_wire, orders.snapshots),
        rewind=orders.rewind,
        restore_dir=orders.restore_dir,
        stop=orders.stop,
        log_level=orders.log_level,
        awaited_version=orders.awaited_version,
    )


def ps_orders_from_wire(message: master_pb2.PsSyncReply) -> PsOrders:
    """Return the answer to a PS's heartbeat."""
    return PsOrders(
        message.revision,
        message.quorum,
        message.learning_rate_scale,
        tuple(map(_wanted_from_wire, message.snapshots)),
        message.rewind,
        message.restore_dir,
        message.stop,
        message.log_level,
        message.awaited_version,
    )
