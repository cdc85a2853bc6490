"""The master's services as handlers of gRPC: messages outside, our own classes inside.

Owns which call takes and returns what. Called by `master.serving`, and
by masters that only pretend. Must not know what a call does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio

from elasticdl.proto import master_pb2
from elasticdl.rpc import heartbeat_messages as beats
from elasticdl.rpc import task_messages as tasks

_MASTER, _ENROLMENT = "elasticdl.Master", "elasticdl.Enrolment"
_Encode = Callable[[Any], bytes]
_Decode = Callable[[bytes], Any]


def _reading(message: Any, ours: Callable[[Any], Any]) -> _Decode:
    parse = message.FromString
    return lambda data: ours(parse(data))


def _writing(message: Callable[[Any], Any]) -> _Encode:
    def encode(value: Any) -> bytes:
        data: bytes = message(value).SerializeToString()
        return data

    return encode


def _writing_once(message: Callable[[Any], Any]) -> _Encode:
    """Like `_writing`; equal answers to many callers are encoded once."""
    encode = _writing(message)
    last: tuple[Any, bytes] = (None, b"")

    def again(value: Any) -> bytes:
        nonlocal last
        told, data = last
        if value is not told:
            data = encode(value)
            last = (value, data)
        return data

    return again


def _nothing(_message: object) -> tuple[()]:
    # Not None: a server with threads takes that for a request that cannot be read.
    return ()


@dataclass(frozen=True, slots=True)
class Enrolled:
    """A certificate, its chain and the authority; all PEM."""

    certificate: bytes  # for the key of the request
    authority: bytes  # whom to believe from now on
    enrolment: bytes  # for the same key: good for Enrol alone, and for longer


def _enrolled_to_wire(enrolled: Enrolled) -> master_pb2.EnrolReply:
    return master_pb2.EnrolReply(
        certificate=enrolled.certificate,
        authority=enrolled.authority,
        enrolment=enrolled.enrolment,
    )


# By call: how its request is read, and how its reply is written.
_CALLS: dict[str, tuple[_Decode, _Encode]] = {
    "Register": (
        _reading(master_pb2.RegisterRequest, beats.registration_from_wire),
        _writing(beats.registration_reply_to_wire),
    ),
    "ModelReady": (
        _reading(master_pb2.ModelReadyRequest, beats.model_from_wire),
        _writing(lambda _: master_pb2.ModelReadyReply()),
    ),
    "Lease": (
        _reading(master_pb2.LeaseRequest, tasks.lease_request_from_wire),
        _writing(tasks.lease_reply_to_wire),
    ),
    "WorkerSync": (
        _reading(master_pb2.WorkerSyncRequest, beats.worker_beat_from_wire),
        _writing_once(beats.worker_orders_to_wire),
    ),
    "PsSync": (
        _reading(master_pb2.PsSyncRequest, beats.ps_beat_from_wire),
        _writing(beats.ps_orders_to_wire),
    ),
    "Echo": (
        _reading(master_pb2.EchoRequest, _nothing),
        _writing(lambda _: master_pb2.EchoReply()),
    ),
    "Status": (
        _reading(master_pb2.StatusRequest, _nothing),
        _writing(lambda json: master_pb2.StatusReply(json=json)),
    ),
    "Stop": (
        _reading(master_pb2.StopRequest, lambda message: message.reason),
        _writing(lambda _: master_pb2.StopReply()),
    ),
}
_ENROL: dict[str, tuple[_Decode, _Encode]] = {
    "Enrol": (
        _reading(master_pb2.EnrolRequest, lambda message: message.request),
        _writing(_enrolled_to_wire),
    )
}


def add_master(servicer: object, server: grpc.Server | grpc.aio.Server) -> None:
    """Serve the methods of `servicer` named as the service's calls."""
    _add(_MASTER, _CALLS, servicer, server)


def add_enrolment(servicer: object, server: grpc.Server | grpc.aio.Server) -> None:
    """Serve `servicer.Enrol`: the bytes of a request in, Enrolled out."""
    _add(_ENROLMENT, _ENROL, servicer, server)


def _add(
    service: str,
    calls: dict[str, tuple[_Decode, _Encode]],
    servicer: object,
    server: grpc.Server | grpc.aio.Server,
) -> None:
    handlers = {
        name: grpc.unary_unary_rpc_method_handler(
            getattr(servicer, name),
            request_deserializer=decode,
            response_serializer=encode,
        )
        for name, (decode, encode) in calls.items()
        if hasattr(servicer, name)
    }
    generic = grpc.method_handlers_generic_handler(service, handlers)
    server.add_generic_rpc_handlers((generic,))
