"""One parameter server: its life, and the one lock of the process.

Owns whether there are parameters, which rewind they belong to, the non-trainable
state, and the lock that updater, snapshots and counters are used under. Called by the
RPC adapter (ps/servicer.py) and the control loop (ps/control.py). Knows nothing of
gRPC, nor which update policy it runs.

A PS has no parameters until `begin` finds a checkpoint of its own, or `init` brings
a layout: then values come from the checkpoint, if there is one to load, else from the
worker. Told so by `begin`, it takes but values that a worker has pulled: a job that
has begun is never given initial ones. `begin` with a newer rewind takes all back.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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
from elasticdl.job.tasks import Ticket
from elasticdl.ps.figures import PsFigures
from elasticdl.ps.live import Live, PsSetup, PullAnswer
from elasticdl.ps.parameters import Compute, Push
from elasticdl.ps.restore import PsPlace, ShardStore
from elasticdl.ps.snapshots import Snapshots, WantedSnapshot
from elasticdl.ps.starting import Begun, Initial, ParameterLoader
from elasticdl.ps.updater import Control, NewUpdater, PushAnswer
from elasticdl.rpc.ps.tensors import STALE, WAITING
from elasticdl.tensor.shared_state import StateLayout

log = logging.getLogger(__name__)

# A call that comes while the PS loads waits for it so long; then it is tried again.
LOADING_WAIT_SECONDS = 5.0

Floats = NDArray[np.float32]


class ParameterServer:
    """One PS. Thread-safe: every public method but `figures` takes the lock."""

    def __init__(
        self,
        place: PsPlace,
        *,
        new_updater: NewUpdater,
        store: ShardStore,
        compute: Compute | None = None,
        clock: Callable[[], float] = time.monotonic,
        reached: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Refuse every call with RpcError until `begin`.

        `clock` is in seconds. `reached` is told the version under the lock; it must not
        wait.
        """
        self._reached = reached
        self._clock = clock
        self._held_since: float | None = None
        self._new_updater = new_updater
        self._loader = ParameterLoader(place, store, compute or Compute())
        self._changed = threading.Condition()
        self._live: Live | None = None
        self._control = Control()
        self._loading = True
        self._closed = False
        self._rewind = self._target = -1  # of these parameters; being carried out
        self._restore_dir: Path | None = None
        self._min_version = 0
        self._handback = False
        self._began_at = 0
        self._pushes = 0
        self._rejected = 0
        self._staleness_sum = 0.0
        self._error = ""
        self._unloadable = ""
        self._warning = ""
        self._snapshots = Snapshots(store.write, self._changed, tell=self._tell)
        self._tell()

    # Life

    def begin(
        self,
        *,
        rewind: int,
        restore_dir: Path | None,
        min_version: int = 0,
        handback: bool = False,
    ) -> None:
        """Start or restart in this rewind, from a checkpoint if one is named.

        Versions below `min_version` were used before and are not used again. With
        `handback` only values that a worker has pulled are taken from one. What cannot
        be loaded is told in `figures().unloadable`: the master rewinds to another one.
        May take long; an older rewind than the present one is ignored.
        """
        with self._locked():
            if rewind <= self._target:
                return
            self._target = rewind
            self._loading = True
            self._take_back(FencedError(f"the PS are rewound (rewind {rewind})"))
            self._restore_dir = restore_dir
            self._min_version = min_version
            self._handback = handback
        begun: Begun | None = None
        problem = unloadable = ""
        try:
            if restore_dir is not None:
                begun = self._loader.restored(restore_dir, min_version=min_version)
        except (OSError, CheckpointError) as error:
            problem, unloadable = str(error), str(restore_dir)
            log.error("Cannot load %s: %s", restore_dir, error)
        except SpecError as error:  # an older checkpoint says the same
            problem = f"cannot restore from {restore_dir}: {error}"
            log.error("%s", problem)
        with self._locked():
            if rewind != self._target or self._closed:
                return  # a newer rewind came meanwhile
            self._error, self._unloadable = problem, unloadable
            self._rewind = rewind
            if begun is not None:
                self._install(begun, restored=True)
            # After an error there is nothing to serve until the master says more.
            self._loading = bool(problem)
            self._changed.notify_all()

    def _take_back(self, error: Exception) -> None:
        if self._live is not None:
            self._live.updater.close(error)
        self._live = None
        self._snapshots.clear()
        self._changed.notify_all()

    def _install(self, begun: Begun, *, restored: bool = False) -> None:
        parameters, self._began_at = begun.parameters, begun.version
        self._warning = begun.warning
        self._live = Live(
            parameters,
            self._snapshots,
            restored=restored,
            new_updater=lambda pin: self._new_updater(
                parameters, self._changed, pin, self._control
            ),
        )
        log.info(
            "Parameters are there: %d floats, version %d, %s",
            parameters.shard.values.size,
            parameters.version,
            parameters.optimizer.name,
        )

    def close(self) -> None:
        """End: waiting and later calls get RpcError."""
        with self._locked():
            self._closed = True
            self._snapshots.close()
            if self._live is not None:
                self._live.updater.close(RpcError("this PS is shutting down"))
            self._changed.notify_all()

    # Calls of workers

    def probe(
        self,
        *,
        rewind: int,
        digest: str = "",
        optimizer_json: str = "",
        state: StateLayout | None = None,
    ) -> tuple[bool, int]:
        """Return whether there are parameters, and their version (-1 if none).

        Those of a checkpoint that was written by another model or optimizer are none
        yet: `initialize` loads them for this one. Raises RefusedError if there are some
        that are trained with another layout than `digest`.
        """
        job = PsSetup(
            digest, optimizer_json, self._loader.own_state(state or StateLayout())
        )
        with self._locked():
            self._enter(rewind)
            if self._live is None or not self._live.fits(job):
                return False, -1
            return True, self._live.parameters.version

    def optimizer_json(self) -> str:
        """Return the optimizer that the workers agreed on; "" if none."""
        with self._locked():
            live = self._live
            return live.parameters.optimizer.text if live and live.confirmed else ""

    def initialize(self, initial: Initial, *, rewind: int) -> tuple[bool, int]:
        """Take initial values; return whether they were accepted, and the version.

        With a checkpoint to load, values and slots come from there.
        """
        job = PsSetup(
            initial.layout.digest,
            initial.optimizer_json,
            self._loader.own_state(initial.state.layout),
        )
        with self._locked():
            self._enter(rewind)
            if self._live is not None and self._live.fits(job):
                return False, self._live.parameters.version
            if self._handback and not initial.pulled:
                raise NotInitializedError(
                    "got initial values, expected those that a worker has pulled: the "
                    "job has begun; wait until another worker hands them over"
                )
            self._loading = True  # others wait meanwhile; the lock is free
        try:
            begun = self._loader.brought(
                initial, restore_dir=self._restore_dir, min_version=self._min_version
            )
        except (CheckpointError, SpecError, OSError) as error:
            raise RefusedError(f"the PS cannot start: {error}") from error
        else:
            with self._locked():
                if self._target != rewind:
                    raise FencedError(f"the PS are rewound (rewind {self._target})")
                # Cuts of what was loaded before are of another model or optimizer.
                self._snapshots.give_up("a worker brought another model or optimizer")
                self._install(begun)
                return True, begun.parameters.version
        finally:
            with self._locked():
                if self._target == rewind:
                    self._loading = False
                self._changed.notify_all()

    def pull(
        self,
        *,
        rewind: int,
        have_version: int = -1,
        snapshot: str = "",
        ticket: Ticket | None = None,
    ) -> PullAnswer:
        """Return live values, or those of a snapshot.

        Raises NotInitializedError if there are none, or no such snapshot.
        """
        with self._locked():
            live = self._require_live(rewind)
            if snapshot:
                return live.pull_snapshot(snapshot, ticket)
            return live.pull(have_version, ticket)

    def push(
        self, push: Push, *, rewind: int, pull: bool = False
    ) -> tuple[PushAnswer, PullAnswer | None]:
        """Give a gradient to the updater; in sync mode wait for its version.

        With `pull` also return the values of `PushAnswer.version`, read under the lock
        of the update; None while that version waits for more gradients. Raises
        NotInitializedError until a worker has confirmed that the restored model is the
        one it trains, or has had it loaded for its own model and optimizer.
        """
        with self._locked():
            live = self._require_live(rewind)
            if not live.confirmed:
                raise NotInitializedError(
                    "this PS has loaded a checkpoint, and no worker has told it the "
                    "job's optimizer yet"
                )
            answer = live.updater.push(push)
            if answer.accepted and not answer.duplicate:
                self._pushes += 1
            elif answer.reason == STALE:
                self._rejected += 1
            self._staleness_sum += answer.staleness or 0
            made = pull and answer.reason != WAITING
            return answer, live.now() if made else None

    # Calls of the master, by the control loop

    def control(
        self,
        control: Control,
        requests: Sequence[WantedSnapshot],
        *,
        rewind: int | None = None,
    ) -> None:
        """Take the master's settings and its whole list of snapshots.

        What was said at another `rewind` than the present one is passed over: the
        master repeats it all in each answer. May take long: snapshots are copied.
        """
        with self._locked():
            if rewind not in (None, self._target):
                return
            self._control = control
            if self._live is not None:
                self._live.obey(control, requests)

    def figures(self) -> PsFigures:
        """Return the figures for the master and the metrics.

        Never waits: a PS that copies or updates a large buffer holds the lock for
        seconds, and must not look dead meanwhile. What is returned is of the last
        moment at which nobody held it.
        """
        return self._told

    @property
    def held_seconds(self) -> float:
        """Seconds for which one call has held the lock; 0 if it is free."""
        since = self._held_since
        return 0.0 if since is None else self._clock() - since

    @property
    def nbytes(self) -> int:
        """Bytes of values and slots; 0 if there are none. Never waits."""
        return self._told.nbytes

    # Parts

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock; publish changed figures afterwards."""
        with self._changed:
            self._held_since = self._clock()
            try:
                yield
            finally:
                self._tell()
                self._held_since = None

    def _tell(self) -> None:
        """Replace the figures at once. Called under the lock."""
        live = self._live
        self._told = PsFigures(
            initialized=live is not None,
            version=live.parameters.version if live else 0,
            nbytes=live.parameters.nbytes if live else 0,
            embedding_rows=live.parameters.embedding_rows if live else {},
            pushes=self._pushes,
            rejected=self._rejected,
            staleness_sum=self._staleness_sum,
            snapshots=self._snapshots.report,
            pending=self._loading or live is None or self._snapshots.pending,
            rewind=max(0, self._rewind),
            error=self._error,
            unloadable=self._unloadable,
            began_at=self._began_at,
            obeyed=self._control.revision,
            wants_optimizer=self._wants_optimizer,
            warning=self._warning,
        )
        self._reached(self._told.version)

    @property
    def _wants_optimizer(self) -> bool:
        # Also while `initialize` loads: a PS whose address goes loses that call.
        read = self._rewind == self._target and not self._error
        return read and self._live is None and self._restore_dir is not None

    def _enter(self, rewind: int) -> None:
        """Admit a call of the present rewind; wait while this PS loads."""
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

    def _require_live(self, rewind: int) -> Live:
        self._enter(rewind)
        if self._live is None:
            raise NotInitializedError(
                "this PS has no parameters yet; a worker has to hand them over"
            )
        return self._live
