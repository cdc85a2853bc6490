"""The one mapping between gRPC statuses and ElasticDL's errors.

Owns both directions. Called by every client (`raise_for`) and servicer (`status_of`).
Knows nothing of services.

    ABORTED              FencedError          the caller is too old
    FAILED_PRECONDITION  NotInitializedError  a PS has no parameters
    INVALID_ARGUMENT     RefusedError         the same call can never succeed
    UNAUTHENTICATED      RefusedError         the caller has not the job's token
    PERMISSION_DENIED    RefusedError         the caller's certificate does not allow it
    UNAVAILABLE and all others  RpcError      try again
"""

from __future__ import annotations

from typing import NoReturn

import grpc

from elasticdl.errors import (
    ElasticDLError,
    FencedError,
    NotInitializedError,
    RefusedError,
    RpcError,
)

_ERRORS: dict[grpc.StatusCode, type[RpcError]] = {
    grpc.StatusCode.ABORTED: FencedError,
    grpc.StatusCode.FAILED_PRECONDITION: NotInitializedError,
    grpc.StatusCode.INVALID_ARGUMENT: RefusedError,
    grpc.StatusCode.UNAUTHENTICATED: RefusedError,
    grpc.StatusCode.PERMISSION_DENIED: RefusedError,
    grpc.StatusCode.UNIMPLEMENTED: RefusedError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: RefusedError,
}


def raise_for(error: grpc.RpcError, what: str) -> NoReturn:
    """Raise the error of ours that the status means; `what` names call and peer."""
    # Every error a call raises is also a grpc.Call, but the types do not say so.
    code = error.code() if isinstance(error, grpc.Call) else grpc.StatusCode.UNKNOWN
    details = error.details() if isinstance(error, grpc.Call) else str(error)
    kind = _ERRORS.get(code, RpcError)
    raise kind(f"{what}: {code.name.lower()}: {details}") from error


def status_of(error: ElasticDLError) -> grpc.StatusCode:
    """Return the status that a servicer answers with for an error."""
    if isinstance(error, FencedError):
        return grpc.StatusCode.ABORTED
    if isinstance(error, NotInitializedError):
        return grpc.StatusCode.FAILED_PRECONDITION
    if isinstance(error, RpcError) and not isinstance(error, RefusedError):
        return grpc.StatusCode.UNAVAILABLE
    return grpc.StatusCode.INVALID_ARGUMENT
