"""The connections of one member in one round: to each other member, and from each.

Owns sockets, the threads that send and receive on them, and the listener that others
connect to. Called by `collective.group`. Must not know what a frame means: who made
these connections is told of heads, and says where their data go.

A connection carries frames in one direction: to the member that accepted it. A thread
that sends and one that receives never work on the same TLS connection, which OpenSSL
does not allow.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from elasticdl.collective import wire
from elasticdl.collective.lent_vectors import Vectors
from elasticdl.collective.outbox import Outbox
from elasticdl.errors import RpcError
from elasticdl.job.context import split_address

log = logging.getLogger(__name__)

_GREETING_SECONDS = 5.0  # a peer on the same network answers in milliseconds
_LOOK_SECONDS = 0.5  # how late the end of the time for a round may be noticed
_RETRY_SECONDS = 0.02  # a peer enters the round when the master's word reaches it
_ACCEPT_PAUSE_SECONDS = 0.5  # strangers that are silent end in seconds
# A machine that is gone is noticed in 2 + 3 * 1 s by a member that waits for it, and in
# 5 s by one that sends to it.
_KEEPALIVE = (
    (socket.TCP_KEEPIDLE, 2),
    (socket.TCP_KEEPINTVL, 1),
    (socket.TCP_KEEPCNT, 3),
)
_USER_TIMEOUT_MS = 5000
# Errors of a machine without IPv6.
_NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)


class Encryption(Protocol):
    """Encrypts connections between members (`rpc.tls.links`)."""

    def encrypted(
        self, connection: socket.socket, *, accepted: bool
    ) -> tuple[socket.socket, int]:
        """Return the connection encrypted, and which member is at the other end.

        Raises RpcError if nobody of the group is. `accepted`: the other end connected.
        """


@dataclass(frozen=True)
class Door:
    """Where a member listens, and what others have to prove there.

    Attributes:
        host: `::` is every address of the machine, whichever family.
        port: 0 is any free one.
        token: The job's.
        encryption: None: connections are in the clear.
        vectors: Those that members on this machine may read.
    """

    token: str = field(repr=False)
    host: str = "127.0.0.1"
    port: int = 0
    encryption: Encryption | None = None
    vectors: Vectors = field(default_factory=Vectors)


Serve = Callable[[socket.socket, int], None]  # a connection, the newcomer's number


class Listener:
    """Accepts the connections of members, and keeps them until they are asked for."""

    def __init__(self, door: Door, me: int, serve: Serve) -> None:
        """Listen. Raises OSError.

        `serve` is called with each connection of a newcomer that listens, in a thread
        of its own; the connection is closed after it.
        """
        self._socket = _listening(door.host, door.port)
        self._door = door
        self._me = me
        self._serve = serve
        self._changed = threading.Condition()
        self._waiting: dict[tuple[int, int], socket.socket] = {}
        self._closed = False
        threading.Thread(target=self._accept, name="group-accept", daemon=True).start()

    @property
    def port(self) -> int:
        """The port that members connect to."""
        return int(self._socket.getsockname()[1])

    def take(
        self, number: int, member: int, *, go_on: Callable[[], bool]
    ) -> socket.socket:
        """Return a member's connection for a round. Raises RpcError if none comes.

        `go_on` says whether to wait any longer; `wake` has it asked again.
        """
        with self._changed:
            while (number, member) not in self._waiting:
                if self._closed or not go_on():
                    raise RpcError(f"member {member} did not connect in time")
                self._changed.wait(_LOOK_SECONDS)
            return self._waiting.pop((number, member))

    def wake(self) -> None:
        """Have `take` ask whether to go on."""
        with self._changed:
            self._changed.notify_all()

    def drop_before(self, number: int) -> None:
        """Close connections that were made for earlier rounds."""
        with self._changed:
            for key in [key for key in self._waiting if key[0] < number]:
                self._waiting.pop(key).close()

    def close(self) -> None:
        """Accept no more; close connections that nobody has asked for."""
        with self._changed:
            self._closed = True
            for connection in self._waiting.values():
                connection.close()
            self._waiting.clear()
            self._changed.notify_all()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
                self._greet(connection)
            except (OSError, RuntimeError) as error:
                if self._closed:
                    return
                # No file or thread is left for it, as when strangers knock.
                log.warning("A connection to the group cannot be accepted: %s", error)
                time.sleep(_ACCEPT_PAUSE_SECONDS)

    def _greet(self, connection: socket.socket) -> None:
        """Ask a connection for its greeting. Raises RuntimeError without a thread."""
        thread = threading.Thread(
            target=self._greeted, args=(connection,), name="group-greet", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:
            connection.close()
            raise

    def _greeted(self, connection: socket.socket) -> None:
        connection.settimeout(_GREETING_SECONDS)
        try:
            connection, member = _encrypted(connection, self._door, accepted=True)
            greeting = wire.greeted(
                connection, self._door.token, self._door.vectors.can_read
            )
            if member not in (None, greeting.sender):
                raise RpcError(f"member {member} says that it is {greeting.sender}")
        except RpcError as error:
            log.warning("A connection to the group was refused: %s", error)
            connection.close()
            return
        if greeting.receiver != self._me:
            connection.close()
            return
        if greeting.purpose is wire.Purpose.LISTEN:
            with connection:
                tune(connection)
                self._serve(connection, greeting.sender)
            return
        with self._changed:
            if self._closed:
                connection.close()
                return
            old = self._waiting.pop((greeting.round, greeting.sender), None)
            if old is not None:
                old.close()
            self._waiting[greeting.round, greeting.sender] = connection
            self._changed.notify_all()


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    both = host == "::" and socket.has_dualstack_ipv6()
    try:
        return socket.create_server(
            (host, port), family=family, backlog=128, dualstack_ipv6=both
        )
    except OSError as error:
        if host != "::" or error.errno not in _NO_IPV6:
            raise
    return socket.create_server(("0.0.0.0", port), backlog=128)


@dataclass(frozen=True)
class Outgoing:
    """A connection that another member accepted, and whether it reads lent vectors."""

    connection: socket.socket
    reads_lent: bool


def connect(
    address: str, greeting: wire.Greeting, door: Door, *, go_on: Callable[[], bool]
) -> Outgoing:
    """Return a connection to a member, tried while `go_on` says so. Raises RpcError."""
    while True:
        try:
            return _connected(address, greeting, door)
        except (OSError, RpcError) as error:
            if not go_on():
                raise RpcError(
                    f"member {greeting.receiver} at {address} does not answer: {error}"
                ) from error
        time.sleep(_RETRY_SECONDS)


def _connected(address: str, greeting: wire.Greeting, door: Door) -> Outgoing:
    connection = socket.create_connection(
        split_address(address), timeout=_GREETING_SECONDS
    )
    try:
        connection, member = _encrypted(connection, door, accepted=False)
        if member not in (None, greeting.receiver):
            raise RpcError(f"{address} is the address of member {member}")
        offer = b"" if door.encryption else door.vectors.offer(connection)
        reads_lent = wire.greet(connection, greeting, door.token, offer)
    except BaseException:
        connection.close()
        raise
    return Outgoing(connection, reads_lent)


def _encrypted(
    connection: socket.socket, door: Door, *, accepted: bool
) -> tuple[socket.socket, int | None]:
    """Return the connection to go on with, and who is at its other end, if known."""
    if door.encryption is None:
        return connection, None
    return door.encryption.encrypted(connection, accepted=accepted)


OnFrame = Callable[[int, socket.socket, wire.Head, bytes], None]


class Links:
    """The connections of one round; threads end with `close`."""

    def __init__(
        self,
        outgoing: Mapping[int, Outgoing],
        incoming: Mapping[int, socket.socket],
        *,
        on_lost: Callable[[int, str], None],
    ) -> None:
        """Take connections by member; `start` begins to receive.

        Args:
            outgoing: To each member, which accepted them.
            incoming: From each member, which made them.
            on_lost: Called with a member when a connection with it broke, and why.
        """
        self._outgoing = {member: to.connection for member, to in outgoing.items()}
        self._reads = {member for member, to in outgoing.items() if to.reads_lent}
        self._incoming = dict(incoming)
        self._on_lost = on_lost
        self._outboxes = {
            member: Outbox(connection) for member, connection in self._outgoing.items()
        }
        self._threads: list[threading.Thread] = []
        self._closed = False
        for connection in self._all:
            tune(connection)
        for member in self._outgoing:
            self._thread(self._send_all, member)

    @property
    def _all(self) -> list[socket.socket]:
        return [*self._outgoing.values(), *self._incoming.values()]

    def start(self, on_frame: OnFrame) -> None:
        """Begin to receive.

        `on_frame` is called with the member, its connection, a head and the meta data;
        it reads the data that follow.
        """
        for member in self._incoming:
            self._thread(partial(self._receive_all, on_frame), member)

    def send(self, member: int, buffers: Sequence[wire.Buffer]) -> None:
        """Send a frame after those before; returns at once."""
        self._outboxes[member].send(buffers)

    def reads_lent(self, member: int) -> bool:
        """Whether a member can read the own vectors where they are."""
        return member in self._reads

    def shut(self) -> None:
        """End all connections; returns at once: a thread may still be reading."""
        self._closed = True
        for outbox in self._outboxes.values():
            outbox.end()
        for connection in self._all:
            with contextlib.suppress(OSError):
                # Not that of `ssl`, after which a thread would send in the clear.
                socket.socket.shutdown(connection, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close all connections and wait for the threads, but for the caller's own."""
        self.shut()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()
        for connection in self._all:
            connection.close()

    def _thread(self, run: Callable[[int], None], member: int) -> None:
        thread = threading.Thread(
            target=run, args=(member,), name=f"group-{member}", daemon=True
        )
        self._threads.append(thread)
        thread.start()

    def _send_all(self, member: int) -> None:
        try:
            self._outboxes[member].send_all()
        except RpcError as error:
            self._lost(member, str(error))

    def _receive_all(self, on_frame: OnFrame, member: int) -> None:
        connection = self._incoming[member]
        try:
            while True:
                head = wire.read_head(connection)
                meta = bytes(wire.read_bytes(connection, head.meta_bytes))
                on_frame(member, connection, head, meta)
        except RpcError as error:
            self._lost(member, str(error))

    def _lost(self, member: int, why: str) -> None:
        if not self._closed:
            self._on_lost(member, why)


def tune(connection: socket.socket) -> None:
    """Let a connection wait for any time, and notice an end that is gone."""
    connection.settimeout(None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE:
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        connection.setsockopt(
            socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _USER_TIMEOUT_MS
        )
