"""A channel that shows the newest certificate of its process.

Owns the gRPC channel in force and those before it. Made by `rpc.channel` where calls
are encrypted. Knows nothing of tokens and services.

gRPC fixes a channel's certificate when it is made, and asks for it whenever it connects
again. So each new certificate needs a new channel; the calls that go on by an old one
are left to end.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elasticdl.rpc.tls.certificates import Credentials
    from elasticdl.rpc.tls.identity import Identity

# A pull of a large model by a slow network takes a quarter of that.
_LONGEST_CALL_SECONDS = 3600.0
_closing: set[asyncio.Task[None]] = set()
_KINDS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")


class RenewedChannel:
    """A channel that is renewed with its credentials. Thread-safe."""

    def __init__(self, identity: Identity, make: Callable[[Credentials], Any]) -> None:
        """Create the first channel; `make` returns a channel with given credentials."""
        self._identity = identity
        self._make = make
        self._lock = threading.Lock()
        self._closed = False
        self._shown = identity.credentials
        self._channel = make(self._shown)
        self._retired: list[tuple[float, Any]] = []  # when, and which channel

    def current(self) -> Any:
        """Return the channel with the current credentials."""
        if self._identity.credentials is self._shown:
            return self._channel
        with self._lock:
            newest = self._identity.credentials
            if newest is not self._shown and not self._closed:
                self._retired.append((time.monotonic(), self._channel))
                self._close_old()
                self._channel = self._make(newest)
                self._shown = newest
            return self._channel

    def __getattr__(self, name: str) -> Any:
        if name not in _KINDS:
            return getattr(self.current(), name)
        return lambda *args, **options: _Method(self, name, args, options)

    def close(self) -> Any:
        """End all calls; in an event loop, to be awaited."""
        with self._lock:
            self._closed = True
            for _, channel in self._retired:
                _close(channel)
            self._retired.clear()
            return self._channel.close()

    def _close_old(self) -> None:
        """Close the channels whose last calls have long ended."""
        until = time.monotonic() - _LONGEST_CALL_SECONDS
        while self._retired and self._retired[0][0] <= until:
            _close(self._retired.pop(0)[1])


class _Method:
    """A method of a service, called on the current channel."""

    def __init__(
        self, channel: RenewedChannel, kind: str, args: Any, options: Any
    ) -> None:
        self._of = channel
        self._make = (kind, args, options)
        self._channel: Any = None
        self._call: Any = None

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self._current()(*args, **options)

    def future(self, *args: Any, **options: Any) -> Any:
        return self._current().future(*args, **options)

    def _current(self) -> Any:
        channel = self._of.current()
        if channel is not self._channel:
            kind, made_of, with_options = self._make
            # In this order: another thread may call between the two lines.
            self._call = getattr(channel, kind)(*made_of, **with_options)
            self._channel = channel
        return self._call


def _close(channel: Any) -> None:
    if channel is None:
        return
    closing = channel.close()
    if inspect.iscoroutine(closing):
        task = asyncio.get_running_loop().create_task(closing)
        _closing.add(task)  # the loop itself keeps no task alive
        task.add_done_callback(_closing.discard)
