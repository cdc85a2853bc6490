"""Parameters that are there: what workers and master ask of them.

Owns one set of parameters with its updater and the cuts taken of it, and whether a
worker has said that its model and optimizer are those of the parameters; a rewind puts
another one in its place. Called by ps/server.py, always under its lock. Knows nothing
of rewinds or RPC.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from elasticdl.checkpoint.layout import AVERAGE
from elasticdl.errors import NotInitializedError, RefusedError, RpcError
from elasticdl.job.tasks import Ticket
from elasticdl.ps.parameters import Parameters
from elasticdl.ps.snapshots import CHECKPOINT_PREFIX, Cut, Snapshots, WantedSnapshot
from elasticdl.ps.updater import Control, Pin, Updater
from elasticdl.rpc.ps.tensors import UNTRAINED
from elasticdl.tensor.codec import Array
from elasticdl.tensor.shared_state import StateLayout

log = logging.getLogger(__name__)

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class PsSetup:
    """The model and optimizer of a worker, as far as a PS depends on them."""

    digest: str  # of the layout; "" is any
    optimizer_json: str
    state: StateLayout


@dataclass(frozen=True)
class PullAnswer:
    """Answer to a pull; without values if the caller has them."""

    version: int
    values: Floats | None
    ticket: Ticket | None = None
    state: Floats | None = None  # PS 0: with the values
    untrained: Mapping[str, Array] = field(default_factory=dict)  # alone
    first_step: int = 0  # Parameters.first_step


class Live:
    """The parameters of one life of a PS."""

    def __init__(
        self,
        parameters: Parameters,
        snapshots: Snapshots,
        *,
        restored: bool,
        new_updater: Callable[[Pin], Updater],
    ) -> None:
        """`restored`: loaded by the PS; no worker has confirmed the layout yet."""
        self.parameters = parameters
        self.updater = new_updater(self._pin)
        self._snapshots = snapshots
        self._restored = parameters.version if restored else -1
        self.confirmed = not restored

    def fits(self, job: PsSetup) -> bool:
        """Return whether the held parameters fit a worker's model and optimizer.

        False if it was restored from a checkpoint of another model or optimizer and
        nothing happened since: then it is loaded again, for this one. Raises
        RefusedError otherwise, for a layout other than that of the job's workers.
        """
        if not job.digest:
            return True
        mine = self.parameters
        fits = job.digest == mine.shard.layout.digest and job.state == mine.state.layout
        same = job.optimizer_json == mine.optimizer.text
        anew = not self.confirmed and self._restored == mine.version
        if anew and not (fits and same):
            return False
        if not fits:
            raise RefusedError(
                f"got layout {job.digest} and {job.state.size} floats of non-trainable "
                f"state, the PS have {mine.shard.layout.digest} and "
                f"{mine.state.layout.size}: the worker's model is not the one that the "
                "job was started with"
            )
        if not same:
            log.warning(
                "A worker's optimizer is not the one that the job was started with, "
                "which stays: %s; stop the job and launch it again to train with: %s",
                mine.optimizer.text,
                job.optimizer_json,
            )
        self.confirmed = True
        return True

    def pull(self, have_version: int, ticket: Ticket | None) -> PullAnswer:
        """Return the live values, at least at the ticket's version."""
        if ticket is not None:
            self.updater.advance(ticket)
        parameters = self.parameters
        if parameters.version == have_version:
            return PullAnswer(
                parameters.version,
                None,
                self.updater.ticket,
                first_step=parameters.first_step,
            )
        return self.now()

    def now(self) -> PullAnswer:
        """Return the live values."""
        parameters = self.parameters
        return PullAnswer(
            parameters.version,
            parameters.frozen(),
            self.updater.ticket,
            parameters.state.values,
            first_step=parameters.first_step,
        )

    def pull_snapshot(self, snapshot: str, ticket: Ticket | None) -> PullAnswer:
        """Return a snapshot's values; raise NotInitializedError if there is none.

        AVERAGE is always there, as it is now, where the optimizer keeps averages, and
        so is UNTRAINED: it is the same in every version.
        """
        parameters = self.parameters
        if snapshot == UNTRAINED:
            return PullAnswer(parameters.version, None, untrained=parameters.untrained)
        if snapshot == AVERAGE:
            averages = parameters.shard.slots.get(AVERAGE)
            if averages is None:
                raise RefusedError(f"{parameters.optimizer.name} keeps no averages")
            state = parameters.state.values
            return PullAnswer(parameters.version, averages.copy(), state=state)
        self._pin_at(snapshot, ticket)
        cut = self._snapshots.get(snapshot)
        if cut is None:
            raise NotInitializedError(
                f"snapshot {snapshot!r} is not held here (version "
                f"{parameters.version}); hand the task back: the master asks for "
                "another one"
            )
        return PullAnswer(cut.version, cut.shard.values, state=cut.state.values)

    def obey(self, control: Control, requests: Sequence[WantedSnapshot]) -> None:
        """Take the master's settings and its whole list of snapshots."""
        self.updater.control(control)
        for request in requests:
            self._serve(request)
        self._snapshots.claim(requests)

    def _serve(self, request: WantedSnapshot) -> None:
        snapshot, ticket = request.snapshot, request.ticket
        if self.updater.follows and ticket is None:
            return  # the master waits for PS 0 to say which version
        if ticket is None:
            if snapshot not in self._snapshots:
                self._pin(snapshot)
                self.updater.announce(snapshot)
            return
        try:
            self._pin_at(snapshot, ticket)
        except RpcError as error:
            log.warning("Snapshot %s: %s", snapshot, error)
            return  # the request is repeated, or a rewind comes
        version = self.parameters.version
        if snapshot not in self._snapshots and version > ticket.version:
            self._snapshots.refuse(
                snapshot,
                version=version,
                error=f"asked for version {ticket.version}, already at {version}",
            )

    def _pin_at(self, snapshot: str, ticket: Ticket | None) -> None:
        if ticket is None or snapshot in self._snapshots:
            return
        self.updater.advance(ticket)
        if self.parameters.version == ticket.version:
            self._pin(snapshot)

    def _pin(self, snapshot: str) -> None:
        if snapshot in self._snapshots:
            return
        parameters = self.parameters
        slots = {}
        if snapshot.startswith(CHECKPOINT_PREFIX):
            slots = parameters.frozen_slots()
        cut = Cut(
            shard=replace(parameters.shard, values=parameters.frozen(), slots=slots),
            optimizer_json=parameters.optimizer.text,
            version=parameters.version,
            state=parameters.state,
            first_step=parameters.first_step,
            untrained=parameters.untrained,
            last_pushes=parameters.pushed.by_source(),
        )
        self._snapshots.take(
            snapshot,
            cut,
            ticket=self.updater.ticket,
            applied=dict(parameters.applied),
        )
