"""The job's token: how calls carry it, and how servers refuse those that do not.

Owns the header and both checks of it. Used by `rpc.channel` and `rpc.server`. Knows
nothing of services, nor where the token comes from.

Whoever has the token belongs to the job: it keeps strangers on the same network or
machine from stopping a job or reading its parameters. On one machine it is sent in the
clear; in a cluster calls are encrypted (`rpc.tls.identity`).
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import grpc
import grpc.aio

from elasticdl.errors import SpecError

HEADER = "authorization"
_REFUSAL = (
    "this call does not carry the job's token; processes of a job get it from their "
    "platform (ELASTICDL_TOKEN), the command line reads it from the job's folder"
)
Wrap = Callable[[grpc.GenericRpcHandler], grpc.GenericRpcHandler]
_KINDS = frozenset({"unary_unary", "unary_stream", "stream_unary", "stream_stream"})

Details = grpc.HandlerCallDetails
if TYPE_CHECKING:
    Handler = grpc.RpcMethodHandler[Any, Any]  # at run time it has no parameters


def header_value(token: str) -> str:
    """Return the value of the header. Raises SpecError for an empty token."""
    if not token:
        raise SpecError("a job's token is empty; every job has one, give it")
    return f"Bearer {token}"


class Carrier:
    """A channel whose calls all carry the token.

    Metadata given with a call cost nothing that can be measured; gRPC's interceptors
    make a new callable for each call (30 us, a tenth of a small one).
    """

    def __init__(self, channel: Any, token: str) -> None:
        """Take the channel to call on."""
        self._channel = channel
        self._metadata = ((HEADER, header_value(token)),)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._channel, name)
        if name not in _KINDS:
            return found
        return lambda *args, **options: _Carried(
            found(*args, **options), self._metadata
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._channel.close()


class _Carried:
    """A method whose calls carry the token: at once, or as a future to withdraw."""

    def __init__(self, method: Any, metadata: Sequence[tuple[str, str]]) -> None:
        self._method = method
        self._metadata = metadata

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self._method(*args, metadata=self._metadata, **options)

    def future(self, *args: Any, **options: Any) -> Any:
        return self._method.future(*args, metadata=self._metadata, **options)


class _Check:
    def __init__(self, token: str) -> None:
        self._expected = header_value(token).encode()

    def _carried(self, details: Details) -> bool:
        for key, value in details.invocation_metadata:
            if key == HEADER:
                got = value.encode() if isinstance(value, str) else value
                return hmac.compare_digest(got, self._expected)
        return False


class TokenCheck(_Check, grpc.ServerInterceptor):
    """Interceptor that refuses calls without the token, at a server of threads."""

    def intercept_service(
        self, continuation: Callable[[Details], Handler | None], details: Details
    ) -> Handler | None:
        """Continue, or answer UNAUTHENTICATED without reading the request."""
        return continuation(details) if self._carried(details) else _REFUSE


class CheckedServer:
    """Server of an event loop that refuses calls without the token.

    Not by an interceptor: that of an event loop costs a quarter of a small call, for
    it is a coroutine and a handler looked up anew each time.
    """

    def __init__(
        self, server: grpc.aio.Server, token: str, after: Wrap = lambda inner: inner
    ) -> None:
        """Check all calls of `server`, whose services are added here.

        `after`: what is checked once the token is found to be right.
        """
        self._server = server
        self._token = token
        self._after = after
        # No others: what else takes handlers would go round the check.
        self.add_insecure_port = server.add_insecure_port
        self.start, self.stop = server.start, server.stop

    def add_secure_port(self, address: str, credentials: grpc.ServerCredentials) -> int:
        """Listen for encrypted connections."""
        return self._server.add_secure_port(address, credentials)

    def add_generic_rpc_handlers(
        self, handlers: Sequence[grpc.GenericRpcHandler]
    ) -> None:
        """Serve these, after the check."""
        checked = tuple(
            _CheckedHandlers(self._after(inner), self._token) for inner in handlers
        )
        self._server.add_generic_rpc_handlers(checked)

    def add_registered_method_handlers(
        self, service_name: str, method_handlers: Mapping[str, Handler]
    ) -> None:
        """Skip them: gRPC would prefer them to the generic ones, unchecked."""


class _CheckedHandlers(_Check, grpc.GenericRpcHandler):
    def __init__(self, inner: grpc.GenericRpcHandler, token: str) -> None:
        super().__init__(token)
        self._inner = inner

    def service(self, details: Details) -> Handler | None:
        """Continue, or answer UNAUTHENTICATED without reading the request."""
        return self._inner.service(details) if self._carried(details) else _REFUSE_AIO


def _refuse(_requests: object, context: grpc.ServicerContext) -> None:
    context.abort(grpc.StatusCode.UNAUTHENTICATED, _REFUSAL)


async def _refuse_aio(
    _requests: object, context: grpc.aio.ServicerContext[Any, Any]
) -> None:
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, _REFUSAL)


# Of this kind whatever the method's is: it needs no request before it answers.
_REFUSE: Handler = grpc.stream_stream_rpc_method_handler(_refuse)
_REFUSE_AIO: Handler = grpc.stream_stream_rpc_method_handler(_refuse_aio)
