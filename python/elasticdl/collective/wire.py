"""A member's messages as frames on a TCP connection, and the handshake before them.

Owns the layout of a frame and the proof that both ends have the job's token (which is
never sent). Called by `collective.links`. Must not know who is in a round, or why.

A frame is a fixed head, then `meta` (a plan, or where lent values are), then `data`
(float32 values, or a state).
A head of another protocol, or of more bytes than there may be, is refused before
anything is allocated for it.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import socket
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from elasticdl.errors import RpcError

PROTOCOL = 10  # raised when an older version could not read a frame
MOST_META_BYTES = 16 << 20  # a plan names some thousand ranges at most
_MAGIC = b"EDLG"
_HEAD = struct.Struct("!4sBBQqIIQ")
_GREETING = struct.Struct("!4sBBQII32s")
_NONCE_BYTES = 32
_CAN_READ, _CANNOT_READ = b"\1", b"\0"
_AT_ONCE = 64 << 20  # TLS takes at most 2 GB
Buffer = bytes | bytearray | memoryview


class Kind(IntEnum):
    """What a frame carries; a message of `collective.messages` each."""

    HELLO = 1
    HAND_OVER = 2
    SNAPSHOT = 3
    HEADER = 4
    PIECE = 5
    REDUCED = 6
    FINISHED = 7


class Purpose(IntEnum):
    """What a connection is for."""

    ROUND = 1  # frames of a round, from its sender
    LISTEN = 2  # its sender is a newcomer: it asks for a copy of the state


_KINDS = {int(kind): kind for kind in Kind}
_PURPOSES = frozenset(Purpose)


class Head(NamedTuple):
    """The head of a frame: what follows it, and how many bytes."""

    kind: Kind
    round: int
    step: int
    part: int
    meta_bytes: int
    data_bytes: int


def frame(
    kind: Kind,
    number: int,
    *,
    step: int = 0,
    part: int = 0,
    meta: bytes = b"",
    data: Sequence[Buffer] = (),
) -> list[Buffer]:
    """Return a frame as buffers to send one after another."""
    size = num_bytes(data)
    head = _HEAD.pack(_MAGIC, PROTOCOL, kind, number, step, part, len(meta), size)
    return [head + meta, *data]


def num_bytes(buffers: Sequence[Buffer]) -> int:
    """Return the bytes of all buffers together."""
    return sum([memoryview(buffer).nbytes for buffer in buffers])


def read_head(connection: socket.socket) -> Head:
    """Read the head of the next frame. Raises RpcError for none that is valid."""
    raw = bytearray(_HEAD.size)
    read_into(connection, memoryview(raw))
    magic, protocol, kind, number, step, part, meta, data = _HEAD.unpack(raw)
    if magic != _MAGIC or protocol != PROTOCOL:
        raise RpcError(
            f"got a frame of {magic!r}, protocol {protocol}; expected {_MAGIC!r}, "
            f"protocol {PROTOCOL}: all workers need the same version of ElasticDL"
        )
    known = _KINDS.get(kind)
    if known is None or meta > MOST_META_BYTES:
        raise RpcError(f"got a frame of kind {kind} with {meta} bytes of meta data")
    return Head(known, number, step, part, meta, data)


def read_into(connection: socket.socket, target: memoryview) -> None:
    """Fill a buffer. Raises RpcError when the connection ends before."""
    at, size = 0, len(target)
    while at < size:
        try:
            got = connection.recv_into(target[at:])
        except OSError as error:
            raise RpcError(f"the connection broke: {error}") from error
        if not got:
            raise RpcError("the other end closed the connection")
        at += got


def read_bytes(connection: socket.socket, size: int) -> bytearray:
    """Read so many bytes. Raises RpcError when the connection ends before."""
    raw = bytearray(size)
    if size:
        read_into(connection, memoryview(raw))
    return raw


def send(connection: socket.socket, buffers: Sequence[Buffer]) -> None:
    """Send a frame. Raises RpcError when the connection is broken."""
    try:
        for buffer in buffers:
            raw = memoryview(buffer).cast("B")
            for at in range(0, len(raw), _AT_ONCE):
                connection.sendall(raw[at : at + _AT_ONCE])
    except OSError as error:
        raise RpcError(f"the connection broke: {error}") from error


# -- the handshake ---------------------------------------------------------------------


@dataclass(frozen=True)
class Greeting:
    """Who connects to whom, in which round, and what for."""

    round: int
    sender: int
    receiver: int
    purpose: Purpose = Purpose.ROUND


def greet(
    connection: socket.socket, greeting: Greeting, token: str, offer: bytes = b""
) -> bool:
    """Prove the token to the other end, and have it prove it. Raises RpcError.

    `offer` says where memory is that it could be lent; return whether it can read it.
    """
    nonce = os.urandom(_NONCE_BYTES)
    said = _GREETING.pack(
        _MAGIC,
        PROTOCOL,
        greeting.purpose,
        greeting.round,
        greeting.sender,
        greeting.receiver,
        nonce,
    )
    send(connection, [said])
    answer = bytes(read_bytes(connection, 2 * _NONCE_BYTES))
    theirs, proof = answer[:_NONCE_BYTES], answer[_NONCE_BYTES:]
    if not hmac.compare_digest(proof, _proof(token, b"receiver", said, theirs)):
        raise RpcError("the other end does not have this job's token")
    send(
        connection, [_proof(token, b"sender", said, theirs), bytes([len(offer)]), offer]
    )
    return bytes(read_bytes(connection, 1)) == _CAN_READ


def greeted(
    connection: socket.socket, token: str, can_read: Callable[[bytes], bool]
) -> Greeting:
    """Answer a greeting; return it once its sender has proved the token.

    `can_read` takes what the sender offers to lend, and says whether it can be read.
    Raises RpcError for another protocol, or a sender without the token.
    """
    said = bytes(read_bytes(connection, _GREETING.size))
    magic, protocol, purpose, number, sender, receiver, _ = _GREETING.unpack(said)
    if magic != _MAGIC or protocol != PROTOCOL or purpose not in _PURPOSES:
        raise RpcError(
            f"got a greeting of {magic!r}, protocol {protocol}, purpose {purpose}; "
            f"expected {_MAGIC!r}, protocol {PROTOCOL}"
        )
    nonce = os.urandom(_NONCE_BYTES)
    send(connection, [nonce + _proof(token, b"receiver", said, nonce)])
    proof = bytes(read_bytes(connection, _NONCE_BYTES))
    if not hmac.compare_digest(proof, _proof(token, b"sender", said, nonce)):
        raise RpcError("a peer does not have this job's token")
    (size,) = read_bytes(connection, 1)
    offer = bytes(read_bytes(connection, size))
    send(connection, [_CAN_READ if can_read(offer) else _CANNOT_READ])
    return Greeting(number, sender, receiver, Purpose(purpose))


def _proof(token: str, side: bytes, said: bytes, nonce: bytes) -> bytes:
    return hmac.new(token.encode(), side + said + nonce, hashlib.sha256).digest()
