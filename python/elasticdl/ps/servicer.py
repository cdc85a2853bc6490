"""The PS's calls: wire messages to ParameterServer methods and back.

Owns that translation and the figures of each call. Called by gRPC's threads. Decides
nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from elasticdl.errors import RefusedError
from elasticdl.metrics.registry import PsMetrics
from elasticdl.proto import ps_pb2
from elasticdl.ps.apply import Gradient
from elasticdl.ps.live import PullAnswer
from elasticdl.ps.parameters import Push
from elasticdl.ps.server import ParameterServer
from elasticdl.ps.starting import Initial
from elasticdl.ps.traffic import Traffic
from elasticdl.ps.updater import PushAnswer
from elasticdl.rpc.ps.tensors import (
    DENSE,
    STALE,
    STATE,
    VALUES,
    Floats,
    PushId,
    gradient_rows,
    untrained_of,
    untrained_tensors,
)
from elasticdl.rpc.ps.wire import Tensors
from elasticdl.rpc.task_messages import ticket_from_wire, ticket_to_wire
from elasticdl.tensor.placement import Layout
from elasticdl.tensor.shared_state import SharedState, StateLayout, StateShare


class PsServicer:
    """Answers workers. Implements `rpc.ps.wire.PsCalls`."""

    def __init__(self, server: ParameterServer, metrics: PsMetrics) -> None:
        """Take the server and its metrics."""
        self._server = server
        self._metrics = metrics
        self.traffic = Traffic()

    def probe(self, request: ps_pb2.InitRequest) -> ps_pb2.InitReply:
        digest = _layout(request.layout_json).digest if request.layout_json else ""
        known, version = self._server.probe(
            rewind=request.header.rewind,
            digest=digest,
            optimizer_json=request.optimizer_json,
            state=_state_layout(request.state_json),
        )
        return self._init_reply(accepted=known, version=version)

    def init(self, request: ps_pb2.InitRequest, tensors: Tensors) -> ps_pb2.InitReply:
        initial = Initial(
            _layout(request.layout_json),
            request.optimizer_json,
            _floats(tensors, VALUES),
            request.version,
            pulled=request.pulled,
            first_step=request.first_step,
            state=SharedState(
                _state_layout(request.state_json),
                np.array(tensors.get(STATE, ()), np.float32),
            ),
            untrained=untrained_of(tensors),
        )
        with self._timed("init"):
            accepted, version = self._server.initialize(
                initial, rewind=request.header.rewind
            )
        return self._init_reply(accepted=accepted, version=version)

    def _init_reply(self, *, accepted: bool, version: int) -> ps_pb2.InitReply:
        return ps_pb2.InitReply(
            accepted=accepted,
            version=version,
            optimizer_json=self._server.optimizer_json(),
        )

    def pull(self, request: ps_pb2.PullRequest) -> tuple[ps_pb2.PullReply, Tensors]:
        with self._timed("pull"):
            pulled = self._server.pull(
                rewind=request.header.rewind,
                have_version=request.have_version,
                snapshot=request.snapshot,
                ticket=ticket_from_wire(request.ticket)
                if request.HasField("ticket")
                else None,
            )
        reply = ps_pb2.PullReply(
            version=pulled.version,
            unchanged=pulled.values is None,
            ticket=ticket_to_wire(pulled.ticket),
            first_step=pulled.first_step,
        )
        return reply, self._sent(pulled)

    def push(
        self, request: ps_pb2.PushRequest, tensors: Tensors
    ) -> tuple[ps_pb2.PushReply, Tensors]:
        received = sum(array.nbytes for array in tensors.values())
        self._metrics.received.inc(received)
        self.traffic.add(received_bytes=received)
        push = Push(
            push_id=PushId(request.source, request.number),
            version=request.version,
            gradient=_gradient(tensors),
            task_id=request.task_id,
            records_done=request.records_done,
            learning_rate=request.learning_rate if request.has_learning_rate else None,
            records=max(1, request.batch_records),
            state=StateShare(
                np.asarray(tensors[STATE], np.float32), tuple(request.still)
            )
            if STATE in tensors
            else None,
        )
        with self._timed("push"):
            answer, pulled = self._server.push(
                push, rewind=request.header.rewind, pull=request.pull
            )
        self._count(answer)
        reply = ps_pb2.PushReply(
            accepted=answer.accepted,
            version=answer.version,
            reason=answer.reason,
            ticket=ticket_to_wire(answer.ticket),
        )
        return reply, self._sent(pulled)

    def _sent(self, pulled: PullAnswer | None) -> Tensors:
        if pulled is None:
            return {}
        tensors = untrained_tensors(pulled.untrained)
        if pulled.values is not None:
            tensors[VALUES] = pulled.values
            if pulled.state is not None and pulled.state.size:
                tensors[STATE] = pulled.state
        nbytes = sum(tensor.nbytes for tensor in tensors.values())
        self._metrics.sent.inc(nbytes)
        self.traffic.add(sent_bytes=nbytes)
        return tensors

    @contextmanager
    def _timed(self, method: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            seconds = time.perf_counter() - began
            self._metrics.call_seconds.labels(method).observe(seconds)
            self.traffic.add(calls=1, call_seconds=seconds)

    def _count(self, answer: PushAnswer) -> None:
        if answer.duplicate:
            self._metrics.pushes.labels("duplicate").inc()
        elif answer.accepted:
            self._metrics.pushes.labels("accepted").inc()
        elif answer.reason == STALE:
            self._metrics.pushes.labels("stale").inc()
        if answer.staleness is not None:
            self._metrics.staleness.observe(answer.staleness)


def _floats(tensors: Tensors, name: str) -> Floats:
    if name not in tensors:
        raise RefusedError(
            f"got a call with the tensors {sorted(tensors)}, expected {name!r} among "
            "them; the caller runs another version of ElasticDL"
        )
    return np.asarray(tensors[name], np.float32)


def _gradient(tensors: Tensors) -> Gradient:
    try:
        return Gradient(_floats(tensors, DENSE), gradient_rows(tensors))
    except (ValueError, KeyError) as error:
        raise RefusedError(
            f"got rows that cannot be read ({error!r}), expected ids/N and rows/N of a "
            "piece N; the caller runs another version of ElasticDL"
        ) from error


def _layout(text: str) -> Layout:
    try:
        return Layout.from_json(text)
    except (ValueError, KeyError, TypeError) as error:
        raise RefusedError(f"the layout cannot be read: {error}") from error


def _state_layout(text: str) -> StateLayout:
    try:
        return StateLayout.from_json(text)
    except ValueError as error:
        raise RefusedError(str(error)) from error
