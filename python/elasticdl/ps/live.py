"""Parameters that are there: what workers and master ask of them.

Owns one set of parameters with its updater, its non-trainable state and the cuts taken
of it; a rewind puts another one in its place. Called by ps/server.py, always under its
lock. Knows nothing of rewinds or RPC.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from elasticdl.checkpoint.layout import AVERAGE
from elasticdl.errors import NotInitializedError, RefusedError, RpcError
from elasticdl.ps.parameters import Parameters
from elasticdl.ps.snapshots import CHECKPOINT_PREFIX, Cut, Request, Snapshots, State
from elasticdl.ps.updater import Control, Pin, Ticket, Updater

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Pulled:
    """An answer to a pull; no values when the caller has them."""

    version: int
    values: NDArray[np.float32] | None
    ticket: Ticket | None


class Live:
    """The parameters of one life of a PS."""

    def __init__(
        self,
        parameters: Parameters,
        state: State,
        snapshots: Snapshots,
        *,
        restored: bool,
        new_updater: Callable[[Pin], Updater],
    ) -> None:
        """`restored`: loaded by the PS itself, no worker has said its layout yet."""
        self.parameters = parameters
        self.updater = new_updater(self._pin)
        self._state = dict(state)
        self._snapshots = snapshots
        self._restored = parameters.version if restored else -1

    def fits(self, digest: str) -> bool:
        """Return whether what is held has this layout ("" is any).

        False if it was restored from a checkpoint of another layout and nothing
        happened since: then it is loaded again, by the new one. Raises RefusedError
        otherwise.
        """
        mine = self.parameters.shard.layout.digest
        if not digest or digest == mine:
            return True
        if self._restored == self.parameters.version:
            return False
        raise RefusedError(
            f"got layout {digest}, the PS have {mine}: the worker's model is not the "
            "one that the job was started with"
        )

    def pull(self, have_version: int, ticket: Ticket | None) -> Pulled:
        """Return the live values, at the ticket's version if that is newer."""
        if ticket is not None:
            self.updater.advance(ticket)
        parameters = self.parameters
        values = None
        if parameters.version != have_version:
            values = parameters.frozen()
        return Pulled(parameters.version, values, self.updater.ticket)

    def pull_snapshot(self, snapshot: str, ticket: Ticket | None) -> Pulled:
        """Return a snapshot's values; raise NotInitializedError if there is none.

        AVERAGE is always there, as it is now, where the optimizer keeps averages.
        """
        parameters = self.parameters
        if snapshot == AVERAGE:
            averages = parameters.shard.slots.get(AVERAGE)
            if averages is None:
                raise RefusedError(f"{parameters.optimizer.name} keeps no averages")
            return Pulled(parameters.version, averages.copy(), None)
        self._pin_at(snapshot, ticket)
        cut = self._snapshots.get(snapshot)
        if cut is None:
            raise NotInitializedError(
                f"snapshot {snapshot!r} is not held here (version "
                f"{parameters.version}); hand the task back: the master asks for "
                "another one"
            )
        return Pulled(cut.version, cut.shard.values, None)

    def exchange_state(self, arrays: State, weight: float) -> State | None:
        """Move the state towards `arrays` by `weight` and return it."""
        if weight:
            # New arrays each time: snapshots and replies hold the old ones.
            for name, mine in arrays.items():
                before = self._state.get(name)
                self._state[name] = _moved(name, before, mine, weight)
        return dict(self._state) or None

    def state_of(self, snapshot: str) -> State | None:
        """Return the state of a snapshot, None if there is none."""
        cut = self._snapshots.get(snapshot)
        return cut.state or None if cut is not None else None

    def obey(self, control: Control, requests: Sequence[Request]) -> None:
        """Take the master's figures and its whole list of snapshots."""
        self.updater.control(control)
        for request in requests:
            self._serve(request)
        self._snapshots.claim(requests)

    def _serve(self, request: Request) -> None:
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
            logger.warning("Snapshot %s: %s", snapshot, error)
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
            state=dict(self._state),
            last_pushes=parameters.pushed.by_source(),
        )
        self._snapshots.take(
            snapshot,
            cut,
            ticket=self.updater.ticket,
            applied=dict(parameters.applied),
        )


def _moved(
    name: str,
    before: NDArray[np.generic] | None,
    mine: NDArray[np.generic],
    weight: float,
) -> NDArray[np.generic]:
    if before is None:
        return mine.copy()
    if before.shape != mine.shape:
        raise RefusedError(
            f"state {name!r}: got shape {mine.shape}, expected {before.shape}"
        )
    if not np.issubdtype(mine.dtype, np.floating):
        return mine.copy()
    old = before.astype(np.float64)
    return (old + weight * (mine.astype(np.float64) - old)).astype(before.dtype)
