"""How a worker reaches parameter servers: its connections, and calls of all at once.

Owns the present view with its connections, what each call says of its caller, and the
threads in which several PS are called. Made by `rpc.ps.client` and used by it alone.
Must not know what a call asks for or how long one may take.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from elasticdl.errors import RpcError
from elasticdl.job.heartbeats import PsView
from elasticdl.proto import ps_pb2
from elasticdl.rpc.fan_out import call_all
from elasticdl.rpc.ps.view import PsCallView
from elasticdl.rpc.ps.wire import PsStub
from elasticdl.rpc.tls.identity import Identity

T = TypeVar("T")


class PsCalls:
    """Stubs of all PS, and calls of several of them. Thread-safe."""

    def __init__(
        self,
        *,
        worker: int,
        generation: int,
        token: str,
        identity: Identity | None,
        lends: bool,
        delay_seconds: float,
    ) -> None:
        """Take the caller's identity and the job's token; see `PsClient`."""
        self._worker = worker
        self._generation = generation
        self._token = token
        self._identity = identity
        self._lends = lends
        self._delay_seconds = delay_seconds
        self._lock = threading.Lock()
        self._view = PsCallView()
        self._pool: ThreadPoolExecutor | None = None

    def set_view(self, view: PsView) -> None:
        """Take the PS's present addresses; an older revision is ignored.

        Calls in flight to a PS that has moved end with RpcError.
        """
        with self._lock:
            old = self._view
            if view.revision < old.revision or not view.addresses:
                return
            who = self._token, self._identity
            self._view, gone = old.moved_to(view, *who, lends=self._lends)
            stubs = self._view.stubs
            if self._pool is None and len(stubs) > 1:
                # One thread per PS for a pull and one for a push beside it; the
                # first PS is called by the caller's own thread.
                self._pool = ThreadPoolExecutor(
                    2 * len(stubs), thread_name_prefix="ps-client"
                )
        for channel in gone:
            channel.close()

    @property
    def view(self) -> PsCallView:
        """The present view; without stubs before the first one."""
        return self._view

    def require_view(self) -> PsCallView:
        """Return the present view. Raises RpcError before the first one."""
        view = self._view
        if not view.stubs:
            raise RpcError("no PS is known yet; wait for the master's view")
        return view

    def header(self, view: PsCallView) -> ps_pb2.RequestHeader:
        """Return what each request says of its caller and of the view it goes by."""
        return ps_pb2.RequestHeader(
            worker=self._worker, generation=self._generation, rewind=view.rewind
        )

    def stub(self, view: PsCallView, ps: int) -> PsStub:
        """Return the calls of a PS, for one call. Raises RpcError while it is away."""
        stub = view.stubs[ps]
        if stub is None:
            raise RpcError(f"ps-{ps} is away; wait for the master's next view")
        if self._delay_seconds:
            time.sleep(self._delay_seconds)
        return stub

    def each(self, numbers: Sequence[int], call: Callable[[int], T]) -> list[T]:
        """Call all PS concurrently; wait for all, then raise the first error."""
        if not numbers:
            return []
        pool = self._pool
        if pool is None or len(numbers) == 1:
            return [call(number) for number in numbers]
        return call_all(pool, numbers, call)

    def close(self) -> None:
        """Close all connections; calls in flight end with RpcError."""
        with self._lock:
            view, self._view = self._view, PsCallView(revision=self._view.revision)
            pool, self._pool = self._pool, None
        for channel in view.channels:
            if channel is not None:
                channel.close()
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)
