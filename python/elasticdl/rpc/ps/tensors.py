"""What travels between a worker and a PS, as arrays and plain records.

Owns the names of tensors and the reasons for a refusal that both sides use. Called by
`rpc.ps.client` and by the PS's servicer and updaters. Knows nothing of connections.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from elasticdl.proto import ps_pb2
from elasticdl.tensor.codec import Array
from elasticdl.tensor.shared_state import StateShare

# Reasons in PushReply.reason.
STALE = "stale"
WAITING = "waiting"  # sync: the version is not complete yet, push again

VALUES = "values"
DENSE = "dense"
STATE = "state"  # non-trainable: values or a batch's share, to and from PS 0
# Weights that no step moves. They are pulled from PS 0 by this name, like a snapshot;
# each is a tensor of its own, `untrained/<variable>`.
UNTRAINED = "untrained"

# PS 0 answers a waiting push after at most this long (ps.sync_updater).
SYNC_WAIT_SECONDS = 20.0

Floats = NDArray[np.float32]
Rows = Mapping[int, tuple[NDArray[np.int64], Floats]]


@dataclass(frozen=True, order=True)
class PushId:
    """Names a push: the same in a retry, so that it is applied once.

    A PS remembers the last number of each source, not all of them: a source sends its
    pushes one after another, so that whatever is not newer than the last is a repeat.
    """

    source: str  # one life of one worker
    number: int  # 1, 2, ... in the order of sending

    def __str__(self) -> str:
        return f"{self.source}/{self.number}"


class PushIds:
    """The ids of one worker process's pushes."""

    def __init__(self, source: str) -> None:
        """`source` comes from `new_source`, or is as unique."""
        self._source = source
        self._numbers = itertools.count(1)

    def next(self) -> PushId:
        """Return the id of the next push."""
        return PushId(self._source, next(self._numbers))


def new_source(worker: int, generation: int) -> str:
    """Return a name for this life of a worker that is unique in the job.

    Worker and generation tell only the lives of one job apart. A checkpoint brings the
    sources of an earlier job along (`checkpoint.initFrom`), whose worker 0 has
    generation 1 as well; the random part tells those apart.
    """
    # 48 bits; short, since a ticket of sync mode names each gradient of its version.
    return f"{worker}-{generation}-{secrets.token_urlsafe(6)}"


@dataclass(frozen=True)
class Brought:
    """The tensors in one PS's answer."""

    values: Floats  # empty if it had nothing newer
    state: Floats | None = None

    @staticmethod
    def of(tensors: Mapping[str, Array]) -> Brought:
        """Return the tensors of an answer, read-only."""
        values = np.asarray(tensors.get(VALUES, np.empty(0, np.float32)), np.float32)
        state = tensors.get(STATE)
        values.flags.writeable = False
        return Brought(values, None if state is None else np.array(state, np.float32))

    @property
    def nbytes(self) -> int:
        """Size of the answer."""
        return self.values.nbytes + (0 if self.state is None else self.state.nbytes)


@dataclass(frozen=True)
class PulledValues:
    """Values of all PS, as pulled at one moment.

    `buffers[i]` is the flat buffer of PS i in its layout's order: read-only, aligned
    to 64 bytes. Empty (size 0) for a PS that had nothing newer than `have`.
    """

    buffers: list[Floats]
    versions: list[int]
    version: int  # of PS 0
    ticket: ps_pb2.Ticket | None  # sync mode: what made that version
    unchanged: bool  # no PS had anything newer: all buffers are empty
    state: Floats | None = None  # of PS 0; None if that had nothing newer, or has none
    first_step: int = 0  # of PS 0: version at which the optimizer was at its step 0


@dataclass(frozen=True)
class Gradients:
    """Gradients of one batch, split by PS.

    `dense[i]` is the prefix of PS i's buffer. `rows[i]` maps the number of a row-wise
    piece of PS i to (row numbers from the piece's start, rows of shape
    [n, row_size]), with duplicates already summed.
    """

    dense: list[Floats]
    rows: list[dict[int, tuple[NDArray[np.int64], Floats]]]


@dataclass(frozen=True)
class PushOrder:
    """The metadata of a push."""

    push_id: PushId  # the same in a retry: applied once
    versions: Sequence[int]  # Pulled.versions that they were computed at
    task_id: int
    records_done: int  # leading records of the task covered with it; 0 unknown
    learning_rate: float | None  # None: the PS's own schedule
    batch_records: int
    pull: bool = False  # bring back the values after it
    state: StateShare | None = None  # what the batch put into PS 0's


@dataclass(frozen=True)
class Pushed:
    """The outcome of a push. If not accepted: compute the batch again at new values."""

    accepted: bool
    version: int  # of PS 0 after it
    reason: str
    versions: list[int] = field(default_factory=list)
    # The values after it, where they were asked for and every PS could give them.
    pulled: PulledValues | None = None


def as_pull(reply: ps_pb2.PushReply) -> ps_pb2.PullReply:
    """Return the pull reply equivalent to a push's answer."""
    ticket = reply.ticket if reply.HasField("ticket") else None
    return ps_pb2.PullReply(version=reply.version, ticket=ticket)


def pulled_from_replies(
    answers: Sequence[tuple[ps_pb2.PullReply, Brought]],
) -> PulledValues:
    first, brought = answers[0]
    return PulledValues(
        buffers=[each.values for _, each in answers],
        state=brought.state,
        versions=[reply.version for reply, _ in answers],
        version=first.version,
        ticket=first.ticket if first.HasField("ticket") else None,
        unchanged=all(reply.unchanged for reply, _ in answers),
        first_step=first.first_step,
    )


def untrained_tensors(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return untrained weights as named tensors of a call."""
    return {f"{UNTRAINED}/{name}": array for name, array in arrays.items()}


def untrained_of(tensors: Mapping[str, Array]) -> dict[str, Array]:
    """Return the weights of `untrained_tensors`, as copies that hold no frame."""
    start = UNTRAINED + "/"
    return {
        name.removeprefix(start): np.array(array)
        for name, array in tensors.items()
        if name.startswith(start)
    }


def gradient_tensors(dense: Floats, rows: Rows) -> dict[str, NDArray[np.generic]]:
    """Return a PS's gradient as named tensors of a push."""
    tensors: dict[str, NDArray[np.generic]] = {DENSE: dense}
    for piece, (numbers, values) in rows.items():
        tensors[f"ids/{piece}"] = numbers
        tensors[f"rows/{piece}"] = values
    return tensors


def gradient_rows(
    tensors: Mapping[str, NDArray[np.generic]],
) -> dict[int, tuple[NDArray[np.int64], Floats]]:
    """Return the row-wise parts of a gradient from `gradient_tensors`."""
    rows = {}
    for name, numbers in tensors.items():
        kind, _, piece = name.partition("/")
        if kind == "ids":
            rows[int(piece)] = (
                np.asarray(numbers, np.int64),
                np.asarray(tensors[f"rows/{piece}"], np.float32),
            )
    return rows
