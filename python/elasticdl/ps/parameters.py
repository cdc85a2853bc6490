"""What one PS holds: values, slots, version, and what went into them.

Owns everything that belongs to one consistent cut. Called by the updaters, always
under the PS's lock (ps/server.py); has none of its own. Knows nothing of RPC, nor of
who decides which gradients are applied.

Hash embedding tables will be a second member beside the dense shard.
"""

from __future__ import annotations

import itertools
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from elasticdl.errors import RefusedError
from elasticdl.job.tasks import REMEMBERED_TASKS
from elasticdl.ps.apply import (
    Gradient,
    ParameterShard,
    apply_gradient,
    check_gradient,
    mean_gradient,
)
from elasticdl.ps.optimizers.optimizer import Optimizer
from elasticdl.ps.pushes import LastPushes
from elasticdl.ps.recycling import Recycler
from elasticdl.rpc.ps.tensors import PushId
from elasticdl.tensor.codec import Array
from elasticdl.tensor.shared_state import SharedState, StateShare

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Push:
    """A worker's gradient for this PS, and the records it covers."""

    push_id: PushId
    version: int  # that it was computed at
    gradient: Gradient
    task_id: int = 0
    records_done: int = 0  # leading records of the task covered now; 0 unknown
    learning_rate: float | None = None  # None: the PS's own schedule
    records: int = 1  # batch size: the gradient's weight in a mean
    state: StateShare | None = None  # what the batch put into it; PS 0 alone

    @property
    def place(self) -> tuple[int, int, PushId]:
        """Position of the batch in the data: orders gradients equally in each run."""
        return self.task_id, self.records_done, self.push_id


def _ignore(_seconds: float) -> None:
    """Default observer: ignore how long an update took."""


@dataclass(frozen=True)
class Compute:
    """Threads for a dense update; `threads` is None for one part."""

    threads: Executor | None = None
    parts: int = 1
    observe: Callable[[float], None] = _ignore  # told of each update's seconds


@dataclass(frozen=True)
class ParameterOrigin:
    """The starting point of parameters that do not start at version 0."""

    version: int = 0
    # At which the optimizer was new: its count of steps begins there.
    first_step: int = 0
    last_pushes: Mapping[str, int] = field(default_factory=dict)  # by source
    state: SharedState = field(default_factory=SharedState)
    slots: Mapping[str, Floats] = field(default_factory=dict)
    untrained: Mapping[str, Array] = field(default_factory=dict)  # PS 0: by variable


class Parameters:
    """Values, slots and version of one PS."""

    def __init__(
        self,
        shard: ParameterShard,
        optimizer: Optimizer,
        *,
        origin: ParameterOrigin,
        compute: Compute,
    ) -> None:
        """Take over the shard's arrays, which are updated in place from now on."""
        self.shard = shard
        self.optimizer = optimizer
        self.version = origin.version
        self.first_step = origin.first_step
        self.state = origin.state
        # Of PS 0, its values at the versions before this one, the newest last.
        self._past: deque[Floats] = deque(maxlen=origin.state.layout.past)
        self.untrained = origin.untrained
        self.pushed = LastPushes(origin.last_pushes)
        # Task id -> leading records applied since this process took the parameters.
        self.applied: OrderedDict[int, int] = OrderedDict()
        self._compute = compute
        self._frozen: Floats | None = None
        self._copies = Recycler()
        # Of values and slots.
        self.nbytes = shard.values.nbytes + sum(s.nbytes for s in shard.slots.values())
        self.embedding_rows = shard.embedding_rows()

    @property
    def step(self) -> int:
        """The optimizer's step count, Keras's `iterations`."""
        return self.version - self.first_step

    def check(self, push: Push) -> None:
        """Raise RefusedError unless the gradient fits the shard."""
        if push.learning_rate is None and self.optimizer.needs_worker_learning_rate:
            raise RefusedError(
                f"push {push.push_id}: got no learning rate, but the schedule of "
                f"{self.optimizer.name} is the user's own code: expected the worker to "
                "send it"
            )
        if push.state is not None and not self.state.takes(push.state):
            raise RefusedError(
                f"push {push.push_id}: got {push.state.values.size} floats of "
                f"non-trainable state, the PS have {self.state.values.size}; the "
                "worker's model is not the one that they were initialized with"
            )
        try:
            check_gradient(self.shard, push.gradient)
        except ValueError as error:
            raise RefusedError(
                f"push {push.push_id}: {error}; the worker's model is not the one that "
                "the PS were initialized with"
            ) from error

    def apply(
        self, pushes: Sequence[Push], *, rate_factor: float, late: int | None = None
    ) -> None:
        """Make the next version from the mean of checked gradients, in this order.

        The learning rate is that of the first push, or the optimizer's own at this
        step, times `rate_factor`. Averages of the state are led over `late` versions
        (tensor/shared_state.py); None where they never are, and none is kept for it.
        """
        began = time.perf_counter()
        first = pushes[0]
        rate = first.learning_rate
        if rate is None:
            rate = self.optimizer.learning_rate_at(self.step)
        gradients = [push.gradient for push in pushes]
        threads, parts = self._compute.threads, self._compute.parts
        apply_gradient(
            self.optimizer,
            self.shard,
            gradients[0]
            if len(gradients) == 1
            else mean_gradient(
                gradients,
                [push.records for push in pushes],
                threads=threads,
                parts=parts,
            ),
            step=self.step,
            learning_rate=rate * rate_factor,
            threads=threads,
            parts=parts,
        )
        self._frozen = None
        place = max(0, len(self._past) - (late or 0))
        since = tuple(itertools.islice(self._past, place, None))
        self.version += 1
        if late is not None:
            self._past.append(self.state.values)
        for push in pushes:
            # One after another, in sync mode too: statistics count batches.
            if push.state is not None:
                self.state = self.state.moved(push.state, since)
            self._remember(push)
        self._compute.observe(time.perf_counter() - began)

    def frozen(self) -> Floats:
        """Return a read-only copy of the values at this version.

        The same copy serves every pull of a version, and is never written again, so
        a pull that is still being sent cannot see half an update.
        """
        if self._frozen is None:
            self._frozen = self._copies.copy(self.shard.values)
            self._frozen.flags.writeable = False
        return self._frozen

    def frozen_slots(self) -> dict[str, Floats]:
        """Return copies of the slots at this version."""
        return {
            name: self._copies.copy(slot) for name, slot in self.shard.slots.items()
        }

    def _remember(self, push: Push) -> None:
        self.pushed.add(push.push_id)
        if push.records_done > 0:
            before = self.applied.get(push.task_id, 0)
            self.applied[push.task_id] = max(before, push.records_done)
            self.applied.move_to_end(push.task_id)
            while len(self.applied) > REMEMBERED_TASKS:
                self.applied.popitem(last=False)
