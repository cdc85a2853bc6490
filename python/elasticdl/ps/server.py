"""One parameter server: its life, and the one lock of the process.

Owns whether there are parameters, which rewind they belong to, the non-trainable
state, and the lock that updater, snapshots and counters are used under. Called by the
RPC adapter (ps/servicer.py) and the control loop (ps/control.py). Knows nothing of
gRPC, nor which update policy it runs.

A PS has no parameters until `begin` finds a checkpoint of its own, or `init` brings
a layout: then values come from the checkpoint, if there is one to load, else from the
worker. `begin` with a newer rewind takes everything back.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elasticdl.errors import (
    CheckpointError,
    FencedError,
    NotInitializedError,
    RefusedError,
    RpcError,
    SpecError,
)
from elasticdl.ps.apply import Shard
from elasticdl.ps.optimizer import optimizer_from_json
from elasticdl.ps.parameters import Compute, Origin, Parameters, Push
from elasticdl.ps.restore import Loaded, Place, ShardStore
from elasticdl.ps.snapshots import CHECKPOINT_PREFIX, Cut, Done, Request, Snapshots
from elasticdl.ps.updater import Answer, Control, NewUpdater, Ticket, Updater
from elasticdl.rpc.ps_client import STALE
from elasticdl.tensor.placement import Layout

logger = logging.getLogger(__name__)

# A call that comes while the PS loads waits for it so long; then it is tried again.
LOADING_WAIT_SECONDS = 5.0

Floats = NDArray[np.float32]
State = Mapping[str, NDArray[np.generic]]


@dataclass(frozen=True)
class Initial:
    """What a worker hands over to a PS that has no parameters."""

    layout: Layout
    optimizer_json: str
    values: Floats
    version: int


@dataclass(frozen=True)
class Pulled:
    """An answer to a pull; no values when the caller has them."""

    version: int
    values: Floats | None
    ticket: Ticket | None


@dataclass(frozen=True)
class Figures:
    """What a PS tells of itself."""

    initialized: bool
    version: int
    nbytes: int
    pushes: int
    rejected: int
    staleness_sum: float
    snapshots: Sequence[Done]
    pending: bool  # something is about to change
    rewind: int
    error: str


@dataclass(frozen=True)
class _Live:
    parameters: Parameters
    updater: Updater
    digest: str
    restored: int  # version that it restored by itself; -1 if it did not


class ParameterServer:
    """One PS. Thread-safe: every public method takes the lock itself."""

    def __init__(
        self,
        place: Place,
        *,
        new_updater: NewUpdater,
        store: ShardStore,
        compute: Compute | None = None,
    ) -> None:
        """Refuse every call with RpcError until `begin`."""
        self._place = place
        self._new_updater = new_updater
        self._store = store
        self._compute = compute or Compute()
        self._changed = threading.Condition()
        self._live: _Live | None = None
        self._snapshots = Snapshots(store.write, self._changed)
        self._state: dict[str, NDArray[np.generic]] = {}
        self._control = Control()
        self._loading = True
        self._closed = False
        self._rewind = -1  # whose parameters these are
        self._target = -1  # the rewind that is being carried out
        self._restore_dir: Path | None = None
        self._min_version = 0
        self._pushes = 0
        self._rejected = 0
        self._staleness_sum = 0.0
        self._error = ""

    # Life

    def begin(
        self, *, rewind: int, restore_dir: Path | None, min_version: int = 0
    ) -> None:
        """Start, or start again, at this rewind, from a checkpoint if one is named.

        Versions below `min_version` were used before and are not used again. What
        cannot be loaded is told in `figures().error`. May take long; an older rewind
        than the present one is ignored.
        """
        with self._changed:
            if rewind <= self._target:
                return
            self._target = rewind
            self._loading = True
            self._take_back(FencedError(f"the PS are rewound (rewind {rewind})"))
            self._restore_dir = restore_dir
            self._min_version = min_version
        loaded: Loaded | None = None
        problem = ""
        try:
            if restore_dir is not None:
                loaded = self._store.own(restore_dir)
            parameters = None if loaded is None else self._load(loaded)
        except (OSError, CheckpointError, SpecError) as error:
            parameters, problem = None, f"cannot restore from {restore_dir}: {error}"
            logger.error("PS %d %s", self._place.index, problem)
        with self._changed:
            if rewind != self._target or self._closed:
                return  # a newer rewind came meanwhile
            self._error = problem
            self._rewind = rewind
            if parameters is not None and loaded is not None:
                self._install(parameters, loaded.state, restored=True)
            # After an error there is nothing to serve; the master ends the job.
            self._loading = bool(problem)
            self._changed.notify_all()

    def _take_back(self, error: Exception) -> None:
        if self._live is not None:
            self._live.updater.close(error)
        self._live = None
        self._state = {}
        self._snapshots.clear()
        self._changed.notify_all()

    def _load(self, loaded: Loaded) -> Parameters:
        optimizer = optimizer_from_json(loaded.optimizer_json)
        optimizer.check(loaded.layout)
        optimizer.warm_up()
        size = loaded.layout.size(self._place.index)
        shard = Shard(
            loaded.layout,
            self._place.index,
            loaded.values,
            optimizer.restore_slots(size, loaded.slots)
            if loaded.slots is not None
            else optimizer.slots(size),
        )
        origin = Origin(max(loaded.version, self._min_version), loaded.recent)
        return Parameters(shard, optimizer, origin=origin, compute=self._compute)

    def _install(
        self, parameters: Parameters, state: State, *, restored: bool = False
    ) -> None:
        updater = self._new_updater(parameters, self._changed, self._pin, self._control)
        self._live = _Live(
            parameters,
            updater,
            parameters.shard.layout.digest,
            parameters.version if restored else -1,
        )
        self._state = dict(state)
        logger.info(
            "Parameters are there: %d floats, version %d, %s",
            parameters.shard.values.size,
            parameters.version,
            parameters.optimizer.name,
        )

    def close(self) -> None:
        """End: whoever waits gets RpcError, as does every later call."""
        with self._changed:
            self._closed = True
            if self._live is not None:
                self._live.updater.close(RpcError("this PS is shutting down"))
            self._changed.notify_all()

    # Calls of workers

    def probe(self, *, rewind: int, digest: str = "") -> tuple[bool, int]:
        """Return whether there are parameters, and their version (-1 if none).

        Raises RefusedError if there are, of another layout than `digest`.
        """
        with self._changed:
            self._enter(rewind)
            if self._live is None or not _fits(self._live, digest):
                return False, -1
            return True, self._live.parameters.version

    def initialize(self, initial: Initial, *, rewind: int) -> tuple[bool, int]:
        """Take the first values; return whether they were taken, and the version.

        With a checkpoint to load, values and slots come from there.
        """
        with self._changed:
            self._enter(rewind)
            if self._live is not None and _fits(self._live, initial.layout.digest):
                return False, self._live.parameters.version
            self._loading = True  # others wait meanwhile; the lock is free
        try:
            parameters, state = self._first(initial)
        except (CheckpointError, SpecError, OSError) as error:
            raise RefusedError(f"the PS cannot start: {error}") from error
        else:
            with self._changed:
                if self._target != rewind:
                    raise FencedError(f"the PS are rewound (rewind {self._target})")
                self._install(parameters, state)
                return True, parameters.version
        finally:
            with self._changed:
                if self._target == rewind:
                    self._loading = False
                self._changed.notify_all()

    def _first(self, initial: Initial) -> tuple[Parameters, State]:
        layout, place = initial.layout, self._place
        if layout.num_ps != place.num_ps:
            raise SpecError(
                f"got a layout for {layout.num_ps} PS, expected {place.num_ps}; the "
                "worker was started with another specification"
            )
        if initial.values.shape != (layout.size(place.index),):
            raise SpecError(
                f"got values of shape {initial.values.shape}, expected "
                f"({layout.size(place.index)},) as in the layout"
            )
        if self._restore_dir is not None:
            loaded = self._store.fitted(
                self._restore_dir, layout, initial.optimizer_json
            )
            return self._load(loaded), loaded.state
        loaded = Loaded(
            layout, initial.optimizer_json, initial.values.copy(), initial.version
        )
        return self._load(loaded), {}

    def pull(
        self,
        *,
        rewind: int,
        have_version: int = -1,
        snapshot: str = "",
        ticket: Ticket | None = None,
    ) -> Pulled:
        """Return live values, or those of a snapshot.

        Raises NotInitializedError if there are none, or no such snapshot.
        """
        with self._changed:
            live = self._require_live(rewind)
            if snapshot:
                return self._pull_snapshot(live, snapshot, ticket)
            if ticket is not None:
                live.updater.advance(ticket)
            parameters = live.parameters
            values = None
            if parameters.version != have_version:
                values = parameters.frozen()
            return Pulled(parameters.version, values, live.updater.ticket)

    def _pull_snapshot(
        self, live: _Live, snapshot: str, ticket: Ticket | None
    ) -> Pulled:
        self._pin_at(live, snapshot, ticket)
        cut = self._snapshots.get(snapshot)
        if cut is None:
            raise NotInitializedError(
                f"snapshot {snapshot!r} is not held here (version "
                f"{live.parameters.version}); hand the task back: the master asks for "
                "another one"
            )
        return Pulled(cut.version, cut.shard.values, None)

    def push(self, push: Push, *, rewind: int) -> Answer:
        """Give a gradient to the updater; in sync mode wait for its version."""
        with self._changed:
            answer = self._require_live(rewind).updater.push(push)
            if answer.accepted and not answer.duplicate:
                self._pushes += 1
            elif answer.reason == STALE:
                self._rejected += 1
            self._staleness_sum += answer.staleness or 0
            return answer

    def exchange_state(
        self, arrays: State, *, rewind: int, weight: float, snapshot: str = ""
    ) -> State | None:
        """Move the state towards `arrays` by `weight` and return it.

        What is not known yet is taken as it is. With a snapshot, or weight 0, only
        reads. None when there is no state.
        """
        with self._changed:
            self._require_live(rewind)
            if snapshot:
                cut = self._snapshots.get(snapshot)
                return cut.state or None if cut is not None else None
            if weight:
                # New arrays each time: snapshots and replies hold the old ones.
                for name, mine in arrays.items():
                    before = self._state.get(name)
                    self._state[name] = _moved(name, before, mine, weight)
            return dict(self._state) or None

    # Calls of the master, by the control loop

    def control(self, control: Control, requests: Sequence[Request]) -> None:
        """Take the master's figures and its whole list of snapshots."""
        with self._changed:
            self._control = control
            live = self._live
            if live is None:
                return
            live.updater.control(control)
            for request in requests:
                self._serve(live, request)
            self._snapshots.claim(requests)

    def _serve(self, live: _Live, request: Request) -> None:
        snapshot, ticket = request.snapshot, request.ticket
        if live.updater.follows and ticket is None:
            return  # the master waits for PS 0 to say which version
        if ticket is None:
            if snapshot not in self._snapshots:
                self._pin(snapshot)
                live.updater.announce(snapshot)
            return
        try:
            self._pin_at(live, snapshot, ticket)
        except RpcError as error:
            logger.warning("Snapshot %s: %s", snapshot, error)
            return  # the request is repeated, or a rewind comes
        version = live.parameters.version
        if snapshot not in self._snapshots and version > ticket.version:
            self._snapshots.refuse(
                snapshot,
                version=version,
                error=f"asked for version {ticket.version}, already at {version}",
            )

    def _pin_at(self, live: _Live, snapshot: str, ticket: Ticket | None) -> None:
        if ticket is None or snapshot in self._snapshots:
            return
        live.updater.advance(ticket)
        if live.parameters.version == ticket.version:
            self._pin(snapshot)

    def _pin(self, snapshot: str) -> None:
        if self._live is None or snapshot in self._snapshots:
            return
        parameters = self._live.parameters
        slots = {}
        if snapshot.startswith(CHECKPOINT_PREFIX):
            slots = {name: slot.copy() for name, slot in parameters.shard.slots.items()}
        cut = Cut(
            shard=replace(parameters.shard, values=parameters.frozen(), slots=slots),
            optimizer_json=parameters.optimizer.text,
            version=parameters.version,
            state=dict(self._state),
            recent=tuple(parameters.recent),
        )
        self._snapshots.take(
            snapshot,
            cut,
            ticket=self._live.updater.ticket,
            applied=dict(parameters.applied),
        )

    def figures(self) -> Figures:
        """Return what the master and the metrics are told."""
        with self._changed:
            live = self._live
            return Figures(
                initialized=live is not None,
                version=live.parameters.version if live else 0,
                nbytes=live.parameters.nbytes if live else 0,
                pushes=self._pushes,
                rejected=self._rejected,
                staleness_sum=self._staleness_sum,
                snapshots=self._snapshots.report,
                pending=self._loading or live is None or self._snapshots.pending,
                rewind=max(0, self._rewind),
                error=self._error,
            )

    # Parts

    def _enter(self, rewind: int) -> None:
        """Let a call in whose rewind is the present one; wait while this PS loads."""
        if rewind < self._target:
            raise FencedError(
                f"got a call of rewind {rewind}, the PS are at {self._target}; give up "
                "what was computed and pull again"
            )
        self._changed.wait_for(
            lambda: (
                self._closed
                or rewind < self._target
                or (not self._loading and rewind == self._rewind)
            ),
            LOADING_WAIT_SECONDS,
        )
        if rewind < self._target:
            raise FencedError(f"got a call of rewind {rewind}; now {self._target}")
        if self._closed or self._loading or rewind != self._rewind:
            what = "shutting down" if self._closed else "loading"
            raise RpcError(f"this PS is {what}; try again")

    def _require_live(self, rewind: int) -> _Live:
        self._enter(rewind)
        if self._live is None:
            raise NotInitializedError(
                "this PS has no parameters yet; a worker has to hand them over"
            )
        return self._live


def _fits(live: _Live, digest: str) -> bool:
    """Return whether what is held has this layout ("" is any).

    False if it was restored from a checkpoint of another layout and nothing happened
    since: then it is loaded again, by the new one. Raises RefusedError otherwise.
    """
    if not digest or digest == live.digest:
        return True
    if live.restored == live.parameters.version:
        return False
    raise RefusedError(
        f"got layout {digest}, the PS have {live.digest}: the worker's model is not "
        "the one that the job was started with"
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
