"""What people ask of a running master: its status, and a clean end.

Owns the translation of these two calls. Called by `client.local.calls`. Must not know
what a status says.
"""

from __future__ import annotations

import grpc

from elasticdl.proto import master_pb2, master_pb2_grpc


class AskedMaster:
    """A master as a command line calls it. All calls raise grpc.RpcError."""

    def __init__(self, channel: grpc.Channel) -> None:
        """Use this channel, which the caller closes."""
        self._stub = master_pb2_grpc.MasterStub(channel)

    def status(self, *, timeout_seconds: float) -> str:
        """Return the job's status, as JSON."""
        request = master_pb2.StatusRequest()
        return self._stub.Status(request, timeout=timeout_seconds).json

    def stop(self, reason: str, *, timeout_seconds: float) -> None:
        """Ask for a clean end of the job."""
        request = master_pb2.StopRequest(reason=reason)
        self._stub.Stop(request, timeout=timeout_seconds)
