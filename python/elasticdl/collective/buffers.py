"""The memory of a member's exchange, and its messages as frames.

Owns the vectors that gradients are received into and summed in, how they are cut into
buckets and these into a part for each member, and the bytes of each message. Called by
`collective.group`, under its lock but for `read`, which the threads that receive call.
Must not know why a message is sent.

One vector has the sum of the step under way, and before it that of the last step, for
a member that may have to be handed it. A part of the next sum needs pieces of all
members, so all have made the last step by then. After a loss that is not known before
all members of the new round were heard: the step under way has another vector then.

Two members that exchange directly receive each other's gradient where its sum will be.
They have two such vectors in turn: the piece of the next step may come before that of
the present one is added.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elasticdl.collective import wire
from elasticdl.collective.encoding import GradientForm
from elasticdl.collective.lent_vectors import (
    CACHE_LINE,
    LentValues,
    Reader,
    Vectors,
    aligned_zeros,
)
from elasticdl.collective.messages import (
    Copy,
    Finished,
    HandOver,
    Header,
    Hello,
    Message,
    Piece,
    Reduced,
    Round,
    Snapshot,
)
from elasticdl.errors import RpcError

Floats = NDArray[np.float32]
_ALIGNED = CACHE_LINE // 4  # floats: parts begin at cache lines
_COPY = struct.Struct("!QQQ")
_NUMBER = np.dtype(">u8")  # of a member


# A piece that came in a frame or is the own, or one where its member has it.
Values = Floats | LentValues


class StaleError(RpcError):
    """A member has written over values that it lent."""

    def __init__(self, member: int, why: str) -> None:
        """Take the member's number, and what is wrong."""
        super().__init__(why)
        self.member = member


@dataclass(frozen=True)
class RoundMemory:
    """What the frames of one round are read into, while its links are there.

    Attributes:
        round: Who is in.
        bounds: Of each part, in floats.
        cut: Into how many parts each bucket is cut.
        results: Reduced gradients; that of a step is at the step modulo their number.
        pieces: What others send, by member, own part and place of the result.
        lent: Reads what others lend.
        raw: Encoded values, by the member that sends them.
    """

    round: Round
    bounds: list[tuple[int, int]]
    cut: int
    results: tuple[Floats, ...]
    pieces: dict[tuple[int, int, int], Floats]
    lent: Reader
    raw: dict[int, bytearray] = field(default_factory=dict)

    @property
    def is_direct(self) -> bool:
        """Whether two members exchange whole buckets."""
        return self.cut < len(self.round.members)

    def result(self, step: int) -> Floats:
        """Return the vector of a step's reduced gradient."""
        return self.results[step % len(self.results)]

    def piece(self, member: int, head: wire.Head) -> Floats:
        """Return where a member's piece goes. Raises RpcError for none of mine."""
        turn = head.step % len(self.results)
        piece = self.pieces.get((member, head.part, turn))
        if piece is None:
            raise RpcError(
                f"member {member} sent a piece of part {head.part}, not mine"
            )
        return piece

    def part_of(self, member: int, head: wire.Head) -> tuple[int, int]:
        """Return where a member's part is. Raises RpcError for one of another."""
        owner = self.round.members[head.part % self.cut]
        if head.part >= len(self.bounds) or owner != member or self.is_direct:
            raise RpcError(f"member {member} sent part {head.part}, not its own")
        return self.bounds[head.part]


class Buffers:
    """Vectors of one size; those of a round are made by `enter`."""

    def __init__(
        self,
        me: int,
        form: GradientForm,
        most_state_bytes: int,
        vectors: Vectors | None = None,
    ) -> None:
        """Take the own number, how gradients are cut and travel, and a state's limit.

        `vectors` makes those that are received into and summed in.
        """
        self._me = me
        self._form = form
        self._encoding = form.encoding
        self.num_buckets = len(form.ends)
        self._most_state_bytes = most_state_bytes
        self._vectors = vectors or Vectors()
        self._adding: int | None = None  # the step whose sum is made
        results = (self._vectors.new(form.size),)
        nobody, lent = Round(0, (), ()), Reader(self._vectors)
        self._memory = RoundMemory(nobody, [], 0, results, {}, lent)
        # The last step and its sum, until the next one is made.
        self._before: tuple[int, Floats] | None = None

    @property
    def round(self) -> Round:
        """The round that frames are of."""
        return self._memory.round

    def enter(
        self, entered: Round, *, version: int = 0, lingers: bool = False
    ) -> RoundMemory:
        """Make the memory that a round needs; frames are of this round from now on.

        Args:
            entered: Who is in.
            version: Steps in the own state.
            lingers: The next step was not begun in the round before. Else threads of
                that round may still write into its sum: this one has another vector.
        """
        members = entered.members
        cut = entered.parts_of_bucket(direct=self._form.is_direct)
        bounds = part_bounds(self._form.ends, cut)
        is_direct = cut < len(members)
        results = self._memory.results
        if not lingers or is_direct or len(results) > 1:
            last = version - 1
            if self._before is None or self._before[0] != last:
                self._before = last, self._memory.result(last)
            num = 2 if is_direct else 1
            results = tuple(self._vectors.new(self._form.size) for _ in range(num))
        pieces = {
            (member, part, turn): (
                result[begin:end] if is_direct else np.empty(end - begin, np.float32)
            )
            for turn, result in enumerate(results)
            for part, (begin, end) in enumerate(bounds)
            if is_direct or part % cut == members.index(self._me)
            for member in members
            if member != self._me
        }
        # A reader of its own: what was lent in rounds before is let go.
        lent = Reader(self._vectors)
        self._memory = RoundMemory(entered, bounds, cut, results, pieces, lent)
        return self._memory

    def parts(self, gradient: Floats, bucket: int) -> tuple[Floats, ...]:
        """Return a bucket of a gradient, cut into its parts."""
        memory = self._memory
        of_bucket = memory.bounds[bucket * memory.cut : (bucket + 1) * memory.cut]
        return tuple([gradient[begin:end] for begin, end in of_bucket])

    def whole(self, step: int, parts: tuple[Any, ...]) -> Floats:
        """Return the reduced gradient of a step that is made now."""
        self._before = None
        whole = self._memory.result(step)
        if len(parts) == 1 and not np.may_share_memory(parts[0], whole):
            np.copyto(whole, parts[0])
        return whole

    def _sum_of(self, step: int) -> Floats:
        """Return the reduced gradient of the last step."""
        if self._before is not None and self._before[0] == step:
            return self._before[1]
        return self._memory.result(step)

    def add(self, step: int, part: int, pieces: Sequence[Values]) -> Floats:
        """Return the sum of all members' pieces of a part, as all will have it.

        Raises StaleError where a member has written over a piece that it lent.
        """
        result = self._memory.result(step)
        if self._adding != step:
            self._adding = step
            self._vectors.rewrite(result)
        begin, end = self._memory.bounds[part]
        total = result[begin:end]
        first, *others = map(_values, pieces)
        if not others:
            np.copyto(total, first)
            return total
        np.add(first, others[0], out=total)
        for other in others[1:]:
            np.add(total, other, out=total)
        for member, piece in zip(self.round.members, pieces, strict=True):
            if isinstance(piece, LentValues):
                try:
                    piece.check()
                except RpcError as error:
                    raise StaleError(member, str(error)) from error
        self._encoding.round(total, begin)
        return total

    def num_bytes(self, message: Piece | Reduced) -> int:
        """Return the bytes of a message's values, on the way or in lent memory."""
        begin, end = self._memory.bounds[message.part]
        return self._encoding.num_bytes(begin, end - begin)

    # -- frames ------------------------------------------------------------------------

    def frame(self, message: Message, *, lends: bool = False) -> list[wire.Buffer]:
        """Return a message as a frame of the round.

        `lends`: its receiver can read vectors where they are.
        """
        number = self.round.number
        match message:
            case Hello(version, copy):
                said = -1 if version is None else version
                meta = encoded_copy(copy)
                return wire.frame(wire.Kind.HELLO, number, step=said, meta=meta)
            case Header(step, plan, word):
                return wire.frame(
                    wire.Kind.HEADER,
                    number,
                    step=step,
                    part=0 if plan is None else 1,
                    meta=word if plan is None else plan,
                )
            case Finished(step):
                return wire.frame(wire.Kind.FINISHED, number, step=step)
            case HandOver(step):
                # One that is kept has an array of its own.
                kept = message.parts[0] if len(message.parts) == 1 else None
                whole = self._sum_of(step) if kept is None else kept
                return wire.frame(
                    wire.Kind.HAND_OVER,
                    number,
                    step=step,
                    meta=encoded_plan(message),
                    data=[_bytes(whole)],
                )
            case Snapshot(version, state):
                return wire.frame(
                    wire.Kind.SNAPSHOT, number, step=version, data=list(state)
                )
            case Piece() | Reduced():
                return self._values_frame(message, lends=lends)

    def _values_frame(
        self, message: Piece | Reduced, *, lends: bool
    ) -> list[wire.Buffer]:
        kind = wire.Kind.REDUCED if isinstance(message, Reduced) else wire.Kind.PIECE
        place, values = b"", []
        if lends and self._encoding.is_plain:
            place = self._vectors.place(message.data)
        if not place:
            begin, _ = self._memory.bounds[message.part]
            values = self._encoding.encoded(message.data, begin)
        return wire.frame(
            kind,
            self.round.number,
            step=message.step,
            part=message.part,
            meta=place,
            data=values,
        )

    def read(
        self,
        memory: RoundMemory,
        member: int,
        connection: socket.socket,
        head: wire.Head,
        meta: bytes,
    ) -> Message:
        """Read what follows a head. Raises RpcError for a frame that does not fit."""
        entered = memory.round
        if head.round != entered.number:
            raise RpcError(f"got a frame of round {head.round} in {entered.number}")
        step = head.step
        match head.kind:
            case wire.Kind.HELLO:
                return Hello(None if step < 0 else step, decoded_copy(meta))
            case wire.Kind.HEADER:
                return Header(step, meta) if head.part else Header(step, word=meta)
            case wire.Kind.HAND_OVER:
                return self.read_hand_over(connection, head, meta)
            case wire.Kind.SNAPSHOT:
                return self.read_snapshot(connection, head)
            case wire.Kind.FINISHED:
                return Finished(step)
            case wire.Kind.PIECE | wire.Kind.REDUCED:
                return self._read_part(memory, member, connection, head, meta)

    def _read_part(
        self,
        memory: RoundMemory,
        member: int,
        connection: socket.socket,
        head: wire.Head,
        place: bytes,
    ) -> Piece | Reduced:
        is_piece = head.kind is wire.Kind.PIECE
        if is_piece:
            part = memory.piece(member, head)
        else:
            begin, end = memory.part_of(member, head)
            part = memory.result(head.step)[begin:end]
        if place:
            _expect(head, 0)
            if is_piece:
                # Added where it is: one pass over memory less.
                lent = memory.lent.look(place, len(part))
                return Piece(head.step, head.part, lent)
            memory.lent.read(place, part)
        else:
            self._read_values(memory, member, connection, head, part)
        if is_piece:
            return Piece(head.step, head.part, part)
        return Reduced(head.step, head.part, part)

    def read_hand_over(
        self, connection: socket.socket, head: wire.Head, meta: bytes
    ) -> HandOver:
        """Read the sum of a step, into memory of its own: several may wait."""
        whole = aligned_zeros(self._form.size)
        _expect(head, whole.nbytes)
        wire.read_into(connection, _bytes(whole))
        plan, members = decoded_plan(meta)
        return HandOver(head.step, plan, (whole,), members)

    def read_snapshot(self, connection: socket.socket, head: wire.Head) -> Snapshot:
        """Read a state. Raises RpcError for one that is too large."""
        if head.data_bytes > self._most_state_bytes:
            raise RpcError(
                f"got a state of {head.data_bytes} bytes; expected at most "
                f"{self._most_state_bytes}"
            )
        return Snapshot(head.step, wire.read_bytes(connection, head.data_bytes))

    def _read_values(
        self,
        memory: RoundMemory,
        member: int,
        connection: socket.socket,
        head: wire.Head,
        out: Floats,
    ) -> None:
        begin, _ = memory.bounds[head.part]
        _expect(head, self._encoding.num_bytes(begin, len(out)))
        if head.data_bytes == out.nbytes:
            wire.read_into(connection, _bytes(out))
            return
        # From each member on a thread of its own.
        kept = memory.raw.setdefault(member, bytearray())
        if len(kept) < head.data_bytes:
            kept = memory.raw[member] = bytearray(head.data_bytes)
        raw = memoryview(kept)[: head.data_bytes]
        wire.read_into(connection, raw)
        self._encoding.decode(raw, begin, out)


def part_bounds(ends: Sequence[int], members: int) -> list[tuple[int, int]]:
    """Return where each part of a vector begins and ends, bucket by bucket.

    `ends`: of the buckets; each is cut into as many parts as there are members.
    """
    bounds = []
    for first, last in zip((0, *ends), ends, strict=False):
        size = -(-(last - first) // members)
        size = -(-size // _ALIGNED) * _ALIGNED
        cuts = [min(first + i * size, last) for i in range(members + 1)]
        bounds += list(pairwise(cuts))
    return bounds


# -- what a hello and a hand-over say beside their numbers -----------------------------


def encoded_copy(copy: Copy | None) -> bytes:
    """Return a newcomer's copy as bytes; none for none."""
    return b"" if copy is None else _COPY.pack(copy.sponsor, copy.round, copy.version)


def decoded_copy(raw: bytes) -> Copy | None:
    """Return what `encoded_copy` wrote. Raises RpcError for other bytes."""
    try:
        return Copy(*_COPY.unpack(raw)) if raw else None
    except struct.error as error:
        raise RpcError(f"got {len(raw)} bytes of a newcomer's copy: {error}") from error


def encoded_plan(message: HandOver) -> bytes:
    """Return the plan of a step, and among which members it was divided."""
    members = np.asarray(message.members, _NUMBER)
    return len(members).to_bytes(2) + members.tobytes() + bytes(message.plan)


def decoded_plan(raw: bytes) -> tuple[bytes, tuple[int, ...]]:
    """Return what `encoded_plan` wrote. Raises RpcError for other bytes."""
    count = int.from_bytes(raw[:2])
    begin = 2 + count * _NUMBER.itemsize
    if len(raw) < begin:
        raise RpcError(f"got {len(raw)} bytes of a plan, expected at least {begin}")
    members = np.frombuffer(raw, _NUMBER, count, 2)
    return raw[begin:], tuple(int(member) for member in members)


def _expect(head: wire.Head, size: int) -> None:
    if head.data_bytes != size:
        raise RpcError(
            f"got {head.data_bytes} bytes of {head.kind.name.lower()}; expected "
            f"{size}: do all workers have the same model?"
        )


def _values(piece: Values) -> Floats:
    return piece.values if isinstance(piece, LentValues) else piece


def _bytes(array: Floats) -> memoryview:
    return array.data.cast("B") if array.size else memoryview(b"")
