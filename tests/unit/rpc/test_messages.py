"""What crosses the wire arrives as it was: each field of each class."""

import dataclasses
import typing
from collections.abc import Mapping
from enum import IntEnum

import pytest
from elasticdl.job import heartbeats, tasks
from elasticdl.job.tasks import LIVE, ModelVersion, Task, TaskOutcome, TaskType, Ticket
from elasticdl.proto import master_pb2
from elasticdl.rpc import heartbeat_messages as beats
from elasticdl.rpc import task_messages
from elasticdl.rpc.master_client import MasterClient
from elasticdl.rpc.master_service import add_master
from elasticdl.rpc.server import bind, threaded_server


def filled(kind):
    """Return a value of a type that differs from every default."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return kind(**{f.name: filled(hints[f.name]) for f in dataclasses.fields(kind)})
    if origin is tuple:
        return (filled(inner[0]), filled(inner[0]))
    if origin is Mapping:
        return {filled(inner[0]): filled(inner[1])}
    if inner:  # an optional one
        return filled(inner[0])
    if issubclass(kind, IntEnum):
        return list(kind)[-1]
    return {str: "some", int: 7, float: 0.5, bool: True, bytes: b"some"}[kind]


WAYS = [
    (tasks.LeaseRequest, task_messages.lease_request_to_wire,
     task_messages.lease_request_from_wire),
    (tasks.LeaseReply, task_messages.lease_reply_to_wire,
     task_messages.lease_reply_from_wire),
    (heartbeats.Registration, beats.registration_to_wire, beats.registration_from_wire),
    (heartbeats.RegistrationReply, beats.registration_reply_to_wire,
     beats.registration_reply_from_wire),
    (heartbeats.ModelInfo, beats.model_to_wire, beats.model_from_wire),
    (heartbeats.WorkerHeartbeat, beats.worker_beat_to_wire,
     beats.worker_beat_from_wire),
    (heartbeats.WorkerOrders, beats.worker_orders_to_wire,
     beats.worker_orders_from_wire),
    (heartbeats.PsHeartbeat, beats.ps_beat_to_wire, beats.ps_beat_from_wire),
    (heartbeats.PsOrders, beats.ps_orders_to_wire, beats.ps_orders_from_wire),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "out", "back"), WAYS, ids=lambda x: x.__name__)
def test_every_field_arrives(kind, out, back):
    sent = filled(kind)
    message = out(sent)
    assert back(type(message).FromString(message.SerializeToString())) == sent


@pytest.mark.parametrize(("kind", "out", "back"), WAYS, ids=lambda x: x.__name__)
def test_what_has_its_default_arrives_as_that(kind, out, back):
    message = out(kind())
    assert back(type(message).FromString(message.SerializeToString())) == kind()


@pytest.mark.parametrize("kind", list(TaskType))
def test_a_task_of_each_type_keeps_it(kind):
    message = task_messages.task_to_wire(Task(type=kind))
    assert task_messages.task_from_wire(message).type is kind
    name = master_pb2.TaskType.Name(message.type)
    assert name.removeprefix("TASK_TYPE_") == kind.name


@pytest.mark.parametrize("outcome", list(TaskOutcome))
def test_a_report_of_each_outcome_keeps_it(outcome):
    message = task_messages.report_to_wire(tasks.TaskReport(outcome=outcome))
    assert task_messages.report_from_wire(message).outcome is outcome
    name = master_pb2.Outcome.Name(message.outcome)
    assert name.removeprefix("OUTCOME_") == outcome.name


@pytest.mark.parametrize(
    "model",
    [LIVE, ModelVersion("eval-1"), ModelVersion("eval-1", Ticket(0, (), (), 0))],
)
def test_a_ticket_of_version_0_is_not_taken_for_none(model):
    data = task_messages.task_to_wire(Task(model=model)).SerializeToString()
    message = master_pb2.Task.FromString(data)
    assert task_messages.task_from_wire(message).model == model


class Told:
    """A master of which one can only ask; its calls run in threads."""

    def Echo(self, request, _):
        assert request == ()

    def Status(self, request, _):
        assert request == ()
        return "{}"

    def Stop(self, reason, _):
        assert reason == "enough"


def test_a_server_with_threads_answers_requests_that_say_nothing():
    server = threaded_server(2, "token")
    add_master(Told(), server)
    port = bind(server, "127.0.0.1", 0)
    server.start()
    try:
        who = tasks.ReplicaId(role="worker", index=0, generation=1)
        client = MasterClient(f"127.0.0.1:{port}", who, token="token")
        assert client.status() == "{}"
        client.stop("enough")
        client.close()
    finally:
        server.stop(0).wait()
