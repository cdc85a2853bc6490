"""Tasks, reports and tickets as messages, and back.

Owns which field of a message is which of `job.tasks`. Called by `rpc.master_client`,
`rpc.master_service` and, for tickets, by both sides of a PS. A sub-message that is not
there is None, also where one with default values would look the same on the wire.
"""

from __future__ import annotations

from elasticdl.job.tasks import (
    LIVE,
    LeaseReply,
    LeaseRequest,
    ModelVersion,
    RecordShare,
    ReplicaId,
    ReportResult,
    ShardInfo,
    SkippedRecord,
    Task,
    TaskOutcome,
    TaskReport,
    TaskType,
    Ticket,
)
from elasticdl.proto import master_pb2, ps_pb2

# By their numbers on the wire, which are the protocol's and never change.
_TYPES = {
    TaskType.UNSPECIFIED: master_pb2.TASK_TYPE_UNSPECIFIED,
    TaskType.TRAINING: master_pb2.TRAINING,
    TaskType.EVALUATION: master_pb2.EVALUATION,
    TaskType.PREDICTION: master_pb2.PREDICTION,
    TaskType.EXPORT: master_pb2.EXPORT,
    TaskType.PREPARE: master_pb2.PREPARE,
    TaskType.SHARDS: master_pb2.SHARDS,
    TaskType.SUMMARIZE: master_pb2.SUMMARIZE,
}
_OUTCOMES = {
    TaskOutcome.UNSPECIFIED: master_pb2.OUTCOME_UNSPECIFIED,
    TaskOutcome.DONE: master_pb2.DONE,
    TaskOutcome.FAILED: master_pb2.FAILED,
    TaskOutcome.RETURNED: master_pb2.RETURNED,
}
_TYPE_OF = {number: ours for ours, number in _TYPES.items()}
_OUTCOME_OF = {number: ours for ours, number in _OUTCOMES.items()}


def replica_to_wire(replica: ReplicaId) -> master_pb2.Replica:
    """Return the message of a caller's identity."""
    return master_pb2.Replica(
        role=replica.role, index=replica.index, generation=replica.generation
    )


def replica_from_wire(message: master_pb2.Replica) -> ReplicaId:
    """Return the caller's identity."""
    return ReplicaId(message.role, message.index, message.generation)


def ticket_to_wire(ticket: Ticket | None) -> ps_pb2.Ticket | None:
    """Return the message of a ticket."""
    if ticket is None:
        return None
    return ps_pb2.Ticket(
        version=ticket.version,
        push_ids=ticket.push_ids,
        snapshots=ticket.snapshots,
        rate_scale=ticket.rate_scale,
    )


def ticket_from_wire(message: ps_pb2.Ticket) -> Ticket:
    """Return the ticket of a message."""
    return Ticket(
        message.version,
        tuple(message.push_ids),
        tuple(message.snapshots),
        message.rate_scale,
    )


# -- tasks ----------------------------------------------------------------------------


def task_to_wire(task: Task) -> master_pb2.Task:
    """Return the message of a task."""
    model = task.model
    return master_pb2.Task(
        task_id=task.task_id,
        lease_id=task.lease_id,
        type=_TYPES[task.type],
        source=task.source,
        start=task.start,
        end=task.end,
        epoch=task.epoch,
        seed=task.seed,
        snapshot=model.snapshot,
        ticket=ticket_to_wire(model.ticket),
        state=task.state,
        target=task.target,
        round=task.round,
        replay=task.replay,
        move=task.move,
        beside=task.beside,
        life=task.life,
    )


def task_from_wire(message: master_pb2.Task) -> Task:
    """Return the task of a message."""
    model = LIVE
    if message.snapshot or message.HasField("ticket"):
        ticket = (
            ticket_from_wire(message.ticket) if message.HasField("ticket") else None
        )
        model = ModelVersion(message.snapshot, ticket)
    return Task(
        task_id=message.task_id,
        lease_id=message.lease_id,
        type=_TYPE_OF.get(message.type, TaskType.UNSPECIFIED),
        source=message.source,
        start=message.start,
        end=message.end,
        epoch=message.epoch,
        seed=message.seed,
        model=model,
        state=message.state,
        target=message.target,
        round=message.round,
        replay=message.replay,
        move=message.move,
        beside=message.beside,
        life=message.life,
    )


def report_to_wire(report: TaskReport) -> master_pb2.TaskReport:
    """Return the message of a report."""
    return master_pb2.TaskReport(
        task_id=report.task_id,
        lease_id=report.lease_id,
        outcome=_OUTCOMES[report.outcome],
        error=report.error,
        records=report.records,
        steps=report.steps,
        loss=report.loss,
        model_version=report.model_version,
        bad_records=[
            master_pb2.BadRecord(source=b.source, record=b.record, reason=b.reason)
            for b in report.bad_records
        ],
        state=report.state,
        results_json=report.results_json,
        shards=[
            master_pb2.ShardInfo(source=s.source, start=s.start, end=s.end)
            for s in report.shards
        ],
        skipped_batches=report.skipped_batches,
        fatal=report.fatal,
        exit_code=report.exit_code,
        rows=report.rows,
        skipped_rows=report.skipped_rows,
        shares=[
            master_pb2.RecordShare(worker=s.worker, records=s.records)
            for s in report.shares
        ],
    )


def report_from_wire(message: master_pb2.TaskReport) -> TaskReport:
    """Return the report of a message."""
    return TaskReport(
        task_id=message.task_id,
        lease_id=message.lease_id,
        outcome=_OUTCOME_OF.get(message.outcome, TaskOutcome.UNSPECIFIED),
        error=message.error,
        records=message.records,
        steps=message.steps,
        loss=message.loss,
        model_version=message.model_version,
        bad_records=tuple(
            SkippedRecord(b.source, b.record, b.reason) for b in message.bad_records
        ),
        state=message.state,
        results_json=message.results_json,
        shards=tuple(ShardInfo(s.source, s.start, s.end) for s in message.shards),
        skipped_batches=message.skipped_batches,
        fatal=message.fatal,
        exit_code=message.exit_code,
        rows=message.rows if message.HasField("rows") else None,
        skipped_rows=message.skipped_rows,
        shares=tuple(RecordShare(s.worker, s.records) for s in message.shares),
    )


# -- leases ---------------------------------------------------------------------------


def lease_request_to_wire(request: LeaseRequest) -> master_pb2.LeaseRequest:
    """Return the message of a call that reports and leases."""
    return master_pb2.LeaseRequest(
        replica=replica_to_wire(request.replica),
        reports=map(report_to_wire, request.reports),
        want=request.want,
        wait_seconds=request.wait_seconds,
        ps_versions=request.ps_versions,
        ps_rewind=request.ps_rewind,
        resumes=request.resumes,
        held=request.held,
    )


def lease_request_from_wire(message: master_pb2.LeaseRequest) -> LeaseRequest:
    """Return a worker's reports and the number of tasks that it wants."""
    return LeaseRequest(
        replica_from_wire(message.replica),
        tuple(map(report_from_wire, message.reports)),
        message.want,
        message.wait_seconds,
        tuple(message.ps_versions),
        message.ps_rewind,
        message.resumes,
        tuple(message.held),
    )


def lease_reply_to_wire(reply: LeaseReply) -> master_pb2.LeaseReply:
    """Return the message of an answer to a lease call."""
    return master_pb2.LeaseReply(
        tasks=map(task_to_wire, reply.tasks),
        results=[
            master_pb2.ReportResult(
                lease_id=r.lease_id, accepted=r.accepted, reason=r.reason
            )
            for r in reply.results
        ],
        finished=reply.finished,
        call_seconds=reply.call_seconds,
        steps_wait=reply.steps_wait,
    )


def lease_reply_from_wire(message: master_pb2.LeaseReply) -> LeaseReply:
    """Return the answer to a lease call."""
    return LeaseReply(
        tuple(map(task_from_wire, message.tasks)),
        tuple(ReportResult(r.lease_id, r.accepted, r.reason) for r in message.results),
        message.finished,
        message.call_seconds,
        message.steps_wait,
    )
