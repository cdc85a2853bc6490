"""The PS service on the wire: gRPC methods that carry raw frames.

Owns method names, chunking and the buffers that frames are received into. Used by
`rpc.ps.client` and `ps.servicer`. Knows nothing of what a PS does with the tensors.

Each message is one frame (`tensor.codec`): protobuf meta of proto/ps.proto and raw
tensors. A frame of up to SMALL_BYTES goes as one message; a larger one as a stream of
chunks, which is faster and has no size limit. A message has a deadline; a stream may
take any time as long as chunks come and go (`rpc.watch`). Frames are received into one
buffer aligned to 64 bytes, so tensors in it may be lent to TensorFlow without a copy.
Between processes of one machine large frames do not travel at all
(`rpc.ps.lent_calls`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeVar

import grpc
import numpy as np
from google.protobuf.message import DecodeError, Message

from elasticdl.errors import ElasticDLError, RpcError
from elasticdl.job.names import Role
from elasticdl.proto import ps_pb2
from elasticdl.rpc.errors import raise_for, status_of
from elasticdl.rpc.ps import lent_calls as ps_lent
from elasticdl.rpc.tls.peers import Caller, caller_of, check_caller
from elasticdl.rpc.watch import CallWatch, Watched
from elasticdl.tensor import codec
from elasticdl.tensor.codec import Array, Frame, FrameError

SERVICE = "elasticdl.ParameterServer"
SMALL_BYTES = 512 << 10  # Below this one message is quicker than a stream.
CHUNK_BYTES = 2 << 20  # Larger chunks cost memory, smaller ones calls.
# From here on a frame is worth the look at lent memory.
LENT_BYTES = 64 << 10
# Most that a frame takes beside its large tensors, in answers.
_FRAME_BYTES = 64 << 10

# A stream whose next chunk does not come, or is not taken, for so long is ended. The
# first of an answer may take longer: a PS serves as many streams at a time as it has
# threads, and the others wait for them.
CHUNK_SECONDS = 20.0
FIRST_CHUNK_SECONDS = 300.0

Tensors = Mapping[str, Array]
Answer = tuple[Message, Tensors]
M = TypeVar("M", bound=Message)
R = TypeVar("R", ps_pb2.InitRequest, ps_pb2.PullRequest, ps_pb2.PushRequest)
Call = Callable[[Frame, Caller], Answer]
_watch = CallWatch()


class PsCalls(Protocol):
    """The methods of a PS. They raise ElasticDLErrors, which become statuses."""

    def probe(self, request: ps_pb2.InitRequest) -> ps_pb2.InitReply:
        """Return whether (`accepted`) and at which version the PS is initialized."""

    def init(self, request: ps_pb2.InitRequest, tensors: Tensors) -> ps_pb2.InitReply:
        """Take initial values."""

    def pull(self, request: ps_pb2.PullRequest) -> tuple[ps_pb2.PullReply, Tensors]:
        """Return values."""

    def push(
        self, request: ps_pb2.PushRequest, tensors: Tensors
    ) -> tuple[ps_pb2.PushReply, Tensors]:
        """Take gradients; return the values after them, if asked for."""


def aligned_buffer(size: int) -> memoryview:
    """Return `size` writable bytes at an address that is a multiple of 64."""
    raw = np.empty(size + codec.ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % codec.ALIGNMENT
    return raw[start : start + size].data


def assemble(chunks: Iterable[bytes]) -> Frame:
    """Return the frame of the chunks, received into one aligned buffer.

    Raises FrameError when the stream ends early or is not a frame.
    """
    buffer: memoryview | None = None
    position = 0
    for chunk in chunks:
        if buffer is None:
            size = codec.frame_bytes(chunk)
            try:
                buffer = aligned_buffer(size)
            except (MemoryError, ValueError) as error:
                raise FrameError(
                    f"a frame says that it has {size} bytes, which is more than there "
                    "is memory for"
                ) from error
        if position + len(chunk) > len(buffer):
            raise FrameError(
                f"got more than the {len(buffer)} bytes that the frame's header says"
            )
        buffer[position : position + len(chunk)] = chunk
        position += len(chunk)
    if buffer is None or position < len(buffer):
        raise FrameError(f"the stream ended after {position} bytes: it was cut")
    return codec.decode(buffer)


def _encode(meta: Message, tensors: Tensors) -> list[codec.Buffer]:
    return codec.encode(meta.SerializeToString(), tensors)


def _message(kind: type[M], frame: Frame) -> M:
    """Return the frame's meta as a message. Raises FrameError."""
    try:
        return kind.FromString(frame.meta)
    except DecodeError as error:
        raise FrameError(f"the frame's meta is no {kind.__name__}: {error}") from error


def _size(buffers: Iterable[codec.Buffer]) -> int:
    return sum(len(buffer) for buffer in buffers)


# Server side


def handlers(calls: PsCalls, *, keeps: bool = True) -> grpc.GenericRpcHandler:
    """Return the service's handlers for `grpc.Server.add_generic_rpc_handlers`.

    `keeps`: whether `push` holds on to gradients after it has answered.
    """

    def probe(frame: Frame, caller: Caller) -> Answer:
        return calls.probe(_request(ps_pb2.InitRequest, frame, caller)), {}

    def init(frame: Frame, caller: Caller) -> Answer:
        request = _request(ps_pb2.InitRequest, frame, caller)
        return calls.init(request, frame.tensors), {}

    def pull(frame: Frame, caller: Caller) -> Answer:
        return calls.pull(_request(ps_pb2.PullRequest, frame, caller))

    def push(frame: Frame, caller: Caller) -> Answer:
        request = _request(ps_pb2.PushRequest, frame, caller)
        return calls.push(request, frame.tensors)

    lent = ps_lent.handler(  # between processes of one machine, not encrypted
        {
            "Pull": lambda f: _encode(*pull(f, None)),
            "Push": lambda f: _encode(*push(f, None)),
        },
        keeps=keeps,
    )
    return grpc.method_handlers_generic_handler(
        SERVICE,
        {
            "Probe": grpc.unary_unary_rpc_method_handler(_one_to_one(probe)),
            "Init": grpc.stream_stream_rpc_method_handler(_many_to_many(init)),
            "Pull": grpc.unary_stream_rpc_method_handler(_one_to_many(pull)),
            "PullSmall": grpc.unary_unary_rpc_method_handler(_one_to_one(pull)),
            "Push": grpc.stream_stream_rpc_method_handler(_many_to_many(push)),
            "PushSmall": grpc.unary_unary_rpc_method_handler(_one_to_one(push)),
            ps_lent.METHOD: grpc.unary_unary_rpc_method_handler(lent),
        },
    )


def _request(kind: type[R], frame: Frame, caller: Caller) -> R:
    """Return a request, after a check that it is the caller's own.

    Raises FrameError and RefusedError.
    """
    request = _message(kind, frame)
    header = request.header
    check_caller(caller, Role.WORKER, header.worker, header.generation)
    return request


def _answer(
    call: Call,
    chunks: Iterable[bytes],
    context: grpc.ServicerContext,
) -> list[codec.Buffer]:
    try:
        return _encode(*call(assemble(chunks), caller_of(context)))
    except ElasticDLError as error:
        context.abort(status_of(error), str(error))
    except FrameError as error:
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
    raise AssertionError("abort does not return")  # pragma: no cover


def _one_to_one(
    call: Call,
) -> Callable[[bytes, grpc.ServicerContext], bytes]:
    return lambda data, context: codec.join(_answer(call, (data,), context))


def _one_to_many(
    call: Call,
) -> Callable[[bytes, grpc.ServicerContext], Iterator[bytes]]:
    def serve(data: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        return _many_to_many(call)(iter((data,)), context)

    return serve


def _many_to_many(
    call: Call,
) -> Callable[[Iterator[bytes], grpc.ServicerContext], Iterator[bytes]]:
    def serve(data: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        # A caller that stands still must not hold a thread of the PS.
        with _watch.over(context.cancel) as watched:
            answer = _answer(call, watched.given(data, CHUNK_SECONDS), context)
            yield from watched.taken(codec.chunks(answer, CHUNK_BYTES), CHUNK_SECONDS)

    return serve


# Client side


class _Call(Protocol):
    """A gRPC stream of answers."""

    def __iter__(self) -> Iterator[bytes]:
        """Yield the answer's chunks."""

    def cancel(self) -> object:
        """Cancel the call."""


def _sent(request: Iterable[bytes], watched: Watched) -> Iterator[bytes]:
    """Yield a request's chunks; while the PS serves others, the limit is suspended."""
    for chunk in request:
        watched.expect(FIRST_CHUNK_SECONDS)
        yield chunk


def _moving(answer: Iterable[bytes], watched: Watched) -> Iterator[bytes]:
    """Yield an answer's chunks, of which the first may take longer."""
    watched.expect(FIRST_CHUNK_SECONDS)
    for chunk in answer:
        watched.expect(CHUNK_SECONDS)
        yield chunk
    watched.rest()


class PsStub:
    """One PS, called with messages and tensors. Thread-safe.

    Calls raise ElasticDL's errors (`rpc.errors`). `timeout` is that of a message, in
    seconds; streams have to move instead.
    """

    def __init__(self, channel: grpc.Channel, name: str, address: str = "") -> None:
        """Take a channel and the PS's name for messages (`ps-0 at host:port`).

        `address`: where the PS is, if memory may be lent to one on this machine.
        """
        self._name = name
        # Without serializers, grpc passes bytes through as they are.
        self._probe: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
            f"/{SERVICE}/Probe"
        )
        self._init: grpc.StreamStreamMultiCallable[bytes, bytes] = (
            channel.stream_stream(f"/{SERVICE}/Init")
        )
        self._pull: grpc.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(
            f"/{SERVICE}/Pull"
        )
        self._pull_small: grpc.UnaryUnaryMultiCallable[bytes, bytes] = (
            channel.unary_unary(f"/{SERVICE}/PullSmall")
        )
        self._push: grpc.StreamStreamMultiCallable[bytes, bytes] = (
            channel.stream_stream(f"/{SERVICE}/Push")
        )
        self._push_small: grpc.UnaryUnaryMultiCallable[bytes, bytes] = (
            channel.unary_unary(f"/{SERVICE}/PushSmall")
        )
        self._lender = ps_lent.Lender(
            channel.unary_unary(f"/{SERVICE}/{ps_lent.METHOD}"), address
        )

    def probe(self, request: ps_pb2.InitRequest, *, timeout: float) -> ps_pb2.InitReply:
        data = codec.join(_encode(request, {}))
        frame = self._one("probe", lambda: (self._probe(data, timeout=timeout),))
        return _message(ps_pb2.InitReply, frame)

    def init(self, request: ps_pb2.InitRequest, tensors: Tensors) -> ps_pb2.InitReply:
        data = _encode(request, tensors)
        frame = self._stream("init", self._init, codec.chunks(data, CHUNK_BYTES))
        return _message(ps_pb2.InitReply, frame)

    def pull(
        self, request: ps_pb2.PullRequest, *, size: int, timeout: float
    ) -> tuple[ps_pb2.PullReply, Tensors]:
        """Pull; `size` is the expected size of the answer in bytes, 0 if unknown."""
        data = codec.join(_encode(request, {}))
        frame = self._lent("Pull", [data], size, timeout) if size else None
        if frame is None and 0 < size <= SMALL_BYTES:
            frame = self._one(
                "pull", lambda: (self._pull_small(data, timeout=timeout),)
            )
        elif frame is None:
            frame = self._stream("pull", lambda _: self._pull(data), ())
        return _message(ps_pb2.PullReply, frame), frame.tensors

    def push(
        self,
        request: ps_pb2.PushRequest,
        tensors: Tensors,
        *,
        size: int,
        timeout: float,
    ) -> tuple[ps_pb2.PushReply, Tensors]:
        """Push; `size` is the expected size of the answer in bytes."""
        data = _encode(request, tensors)
        frame = self._lent("Push", data, size, timeout)
        if frame is None and max(size, _size(data)) <= SMALL_BYTES:
            joined = codec.join(data)
            frame = self._one(
                "push", lambda: (self._push_small(joined, timeout=timeout),)
            )
        elif frame is None:
            frame = self._stream("push", self._push, codec.chunks(data, CHUNK_BYTES))
        return _message(ps_pb2.PushReply, frame), frame.tensors

    def _stream(
        self,
        what: str,
        method: Callable[[Iterator[bytes]], _Call],
        chunks: Iterable[bytes],
    ) -> Frame:
        """Call with chunks; both directions are watched for stalls."""
        with self._errors(what), _watch.over() as watched:
            call = method(_sent(chunks, watched))
            watched.end = call.cancel
            try:
                return assemble(_moving(call, watched))
            except grpc.RpcError as error:
                if watched.stalled:
                    raise RpcError(
                        f"{what} at {self._name}: nothing moved for "
                        f"{watched.seconds:g} s"
                    ) from error
                raise

    def _lent(
        self, method: str, data: Sequence[codec.Buffer], size: int, timeout: float
    ) -> Frame | None:
        if max(size, _size(data)) < LENT_BYTES:
            return None
        room = size + _FRAME_BYTES
        with self._errors(method.lower()):
            return self._lender.call(method, data, room=room, timeout=timeout)

    def _one(self, what: str, call: Callable[[], Iterable[bytes]]) -> Frame:
        with self._errors(what):
            return assemble(call())

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except grpc.RpcError as error:
            raise_for(error, f"{what} at {self._name}")
        except ValueError as error:
            # A cut stream, or gRPC's answer to a call on a closed channel.
            raise RpcError(f"{what} at {self._name}: {error}") from error
