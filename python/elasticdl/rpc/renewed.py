"""A channel that shows the newest certificate of its process.

Owns the gRPC channel in force and the one before it. Made by `rpc.channel` where calls
are encrypted. Knows nothing of tokens and services.

gRPC fixes a channel's certificate when it is made, and asks for it whenever it connects
again. So each new certificate needs a new channel; the calls that go on by the old one
are left to end, until the next certificate comes, hours later.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elasticdl.rpc.certificates import Credentials
    from elasticdl.rpc.identity import Identity

_closing: set[asyncio.Task[None]] = set()
_KINDS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")


class RenewedChannel:
    """A channel of threads or of an event loop. Thread-safe."""

    def __init__(self, identity: Identity, make: Callable[[Credentials], Any]) -> None:
        """Make the first one at once; `make` gives a channel that shows credentials."""
        self._identity = identity
        self._make = make
        self._lock = threading.Lock()
        self._closed = False
        self._shown = identity.credentials
        self._channel = make(self._shown)
        self._before: Any = None

    def current(self) -> Any:
        """Return the channel that shows the credentials in force."""
        if self._identity.credentials is self._shown:
            return self._channel
        with self._lock:
            newest = self._identity.credentials
            if newest is not self._shown and not self._closed:
                _close(self._before)
                self._before = self._channel
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
            _close(self._before)
            self._before = None
            return self._channel.close()


class _Method:
    """A method of a service, called on the channel in force."""

    def __init__(
        self, channel: RenewedChannel, kind: str, args: Any, options: Any
    ) -> None:
        self._of = channel
        self._make = (kind, args, options)
        self._channel: Any = None
        self._call: Any = None

    def __call__(self, *args: Any, **options: Any) -> Any:
        channel = self._of.current()
        if channel is not self._channel:
            kind, made_of, with_options = self._make
            # In this order: another thread may call between the two lines.
            self._call = getattr(channel, kind)(*made_of, **with_options)
            self._channel = channel
        return self._call(*args, **options)


def _close(channel: Any) -> None:
    if channel is None:
        return
    closing = channel.close()
    if inspect.iscoroutine(closing):
        task = asyncio.get_running_loop().create_task(closing)
        _closing.add(task)  # the loop itself keeps no task alive
        task.add_done_callback(_closing.discard)
