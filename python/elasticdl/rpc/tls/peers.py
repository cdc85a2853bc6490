"""Who may call what, where calls are encrypted: by role, and each as itself alone.

Owns the rules of all services and their check. Used by `rpc.server`; `rpc.ps.wire` asks
for the caller, since the requests of a PS are frames. Knows nothing of what methods do.
TLS has already refused whoever has no certificate of this job's authority.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from elasticdl.errors import RefusedError
from elasticdl.job.names import Role
from elasticdl.rpc.tls.peer_name import PeerName

if TYPE_CHECKING:
    Handler = grpc.RpcMethodHandler[Any, Any]  # at run time it has no parameters

Caller = PeerName | None  # None where calls are not encrypted

# Why a call is refused, from its request and context; "" if it is not.
Refusal = Callable[[object, Any], str]

_DENIED = grpc.StatusCode.PERMISSION_DENIED
_NAMES = "x509_subject_alternative_name"
_REPLICAS = frozenset({Role.PS, Role.WORKER})
_WORKERS = frozenset({Role.WORKER})

# Methods that are not here are served to nobody.
_ALLOWED: dict[str, frozenset[Role]] = {
    "/elasticdl.Enrolment/Enrol": _REPLICAS,
    "/elasticdl.Master/Register": _REPLICAS,
    "/elasticdl.Master/ModelReady": _WORKERS,
    "/elasticdl.Master/Lease": _WORKERS,
    "/elasticdl.Master/WorkerSync": _WORKERS,
    "/elasticdl.Master/PsSync": frozenset({Role.PS}),
    "/elasticdl.Master/Echo": _REPLICAS | {Role.MASTER},
    # Of launchers on one machine, where calls are not encrypted.
    "/elasticdl.Master/Status": frozenset({Role.MASTER}),
    "/elasticdl.Master/Stop": frozenset({Role.MASTER}),
    "/elasticdl.ParameterServer/Probe": _WORKERS,
    "/elasticdl.ParameterServer/Init": _WORKERS,
    "/elasticdl.ParameterServer/Pull": _WORKERS,
    "/elasticdl.ParameterServer/PullSmall": _WORKERS,
    "/elasticdl.ParameterServer/Push": _WORKERS,
    "/elasticdl.ParameterServer/PushSmall": _WORKERS,
    # Not `Lent`: memory is lent between processes of one machine alone.
}
# What a replica may call that has no certificate of its own yet.
_ENROLLING = "/elasticdl.Enrolment/Enrol"


def caller_of(context: Any) -> Caller:
    """Return the caller; None if calls are not encrypted.

    Raises RefusedError if the certificate has no name of ours.
    """
    shown = context.auth_context()
    if not shown.get("transport_security_type") or _NAMES not in shown:
        return None
    for name in shown[_NAMES]:
        found = PeerName.parse(name.decode())
        if found is not None:
            return found
    raise RefusedError(f"the caller's certificate names nobody of a job: {shown}")


def check_caller(caller: Caller, role: Role, index: int, generation: int) -> None:
    """Raise RefusedError if a request names another replica than its caller.

    Where calls are not encrypted nobody knows.
    """
    if caller is None:
        return
    if (caller.role, caller.index, caller.generation) != (role, index, generation):
        raise RefusedError(
            f"a request of {caller} says that it is of {role}-{index}, generation "
            f"{generation}; nobody may speak for another one"
        )


class CheckedPeers(grpc.GenericRpcHandler):
    """Handlers behind a check of the caller, for servers of threads or of a loop."""

    def __init__(self, inner: grpc.GenericRpcHandler, own: PeerName) -> None:
        """Serve `inner` to replicas of the same job as `own`."""
        self._inner = inner
        self._own = own
        self._checked: dict[str, Handler | None] = {}

    def service(self, details: grpc.HandlerCallDetails) -> Handler | None:
        """Return the method's handler behind the check."""
        method = str(details.method)
        if method not in self._checked:
            found = self._inner.service(details)
            if found is None:  # not remembered: anybody may ask for any name
                return None
            self._checked[method] = self._with_check(method, found)
        return self._checked[method]

    def _with_check(self, method: str, handler: Handler) -> Handler:
        roles = _ALLOWED.get(method, frozenset())

        def refusal(request: object, context: Any) -> str:
            try:
                caller = caller_of(context)
                if caller is None:
                    raise RefusedError("the call is not encrypted")
                own = self._own
                if (caller.namespace, caller.job) != (own.namespace, own.job):
                    raise RefusedError(f"{caller} is not of this job")
                if caller.role not in roles:
                    raise RefusedError(f"{caller} may not call {method}")
                if caller.enrolling and method != _ENROLLING:
                    raise RefusedError(f"{caller} may not call {method}")
                said = getattr(request, "replica", None)
                if said is not None:
                    check_caller(caller, said.role, said.index, said.generation)
            except RefusedError as error:
                return str(error)
            return ""

        return _guarded(handler, refusal)


def _guarded(handler: Handler, refusal: Refusal) -> Handler:
    kind = (
        f"{'stream' if handler.request_streaming else 'unary'}_"
        f"{'stream' if handler.response_streaming else 'unary'}"
    )
    behaviour = getattr(handler, kind)
    if inspect.iscoroutinefunction(behaviour):
        answer = _in_loop(behaviour, refusal)
    else:
        answer = _in_thread(behaviour, refusal, streams=handler.response_streaming)
    make = getattr(grpc, f"{kind}_rpc_method_handler")
    made: Handler = make(
        answer, handler.request_deserializer, handler.response_serializer
    )
    return made


def _in_loop(behaviour: Callable[..., Any], refusal: Refusal) -> Callable[..., Any]:
    async def answer(request: Any, context: Any) -> Any:
        why = refusal(request, context)
        if why:
            await context.abort(_DENIED, why)
        return await behaviour(request, context)

    return answer


def _in_thread(
    behaviour: Callable[..., Any], refusal: Refusal, *, streams: bool
) -> Callable[..., Any]:
    def answer(request: Any, context: Any) -> Any:
        why = refusal(request, context)
        if why:
            context.abort(_DENIED, why)
        return behaviour(request, context)

    def stream(request: Any, context: Any) -> Iterator[Any]:
        yield from answer(request, context)

    return stream if streams else answer
