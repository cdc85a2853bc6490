"""Calls to the PS that outlive the loss of a PS.

Owns waiting for a PS to come back, handing values to one that lost them, and the rule
that nothing computed before a rewind is used after it. Called by the PS trainer, its
transfer thread, and the heartbeat, which says when a PS waits for values: a worker that
has nothing to do, or evaluates, hands over what it has too. Must not import TensorFlow.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from elasticdl.errors import (
    FencedError,
    NotInitializedError,
    RefusedError,
    RpcError,
)
from elasticdl.job.heartbeats import PsView
from elasticdl.rpc.ps.client import PsClient
from elasticdl.rpc.ps.tensors import Gradients, PulledValues, Pushed, PushOrder
from elasticdl.tensor.codec import Array
from elasticdl.tensor.placement import Layout
from elasticdl.tensor.shared_state import SharedState
from elasticdl.worker.trainer import LeavingError

log = logging.getLogger(__name__)

T = TypeVar("T")
Floats = NDArray[np.float32]
# A PS that is replaced is back in a second; the first tries are quick.
FIRST_WAIT_SECONDS = 0.05
MOST_WAIT_SECONDS = 1.0


@dataclass(frozen=True)
class _Held:
    """Values of all PS, with the generations they came from."""

    buffers: list[Floats]
    versions: list[int]  # by PS; empty: initial values, nothing was pulled yet
    rewind: int | None  # they belong to
    state: Floats  # of PS 0, likewise
    first_step: int = 0  # Pulled.first_step


class Views(Protocol):
    """Source of the newest PsView (worker.heartbeat)."""

    @property
    def view(self) -> PsView:
        """The newest view."""

    def wait_for_view(self, newer_than: int, seconds: float) -> PsView:
        """Wait for a newer one; return the newest there is then."""


class Untrained(Protocol):
    """Weights of the model that no step moves (worker.untrained)."""

    def read(self) -> Mapping[str, Array]:
        """Return the weights by variable."""

    def take(self, arrays: Mapping[str, Array]) -> None:
        """Set the weights. Raises RefusedError naming missing ones."""


class PsLink:
    """Calls to the PS that wait through the loss of one. Thread-safe."""

    def __init__(  # noqa: PLR0913 - what PS begin with, and how to wait for them
        self,
        client: PsClient,
        views: Views,
        *,
        layout: Layout,
        optimizer_json: str,
        initial: Sequence[Floats],
        initial_state: SharedState,
        untrained: Untrained | None = None,
        leaving: threading.Event,
        on_wait: Callable[[], None],
    ) -> None:
        """Take what a PS needs to be initialized.

        Args:
            client: All PS as one.
            views: Where the PS are.
            layout: Which PS has what.
            optimizer_json: The user's optimizer, serialized.
            initial: Buffers per PS of the values that training starts from.
            initial_state: The non-trainable state, which is on PS 0, likewise.
            untrained: The weights that no step moves; None if the model has none.
            leaving: Once set, a call that would have to wait ends with LeavingError.
            on_wait: Called while waiting, as a sign of life.
        """
        self._client = client
        self._views = views
        self._layout = layout
        self._optimizer_json = optimizer_json
        # Kept, a copy of the model: a rewind to version 0 begins with it, as does a
        # variable that the checkpoint of an edited job lacks.
        self._initial = list(initial)
        self._initial_state = initial_state
        self._untrained = untrained
        self._leaving = leaving
        self._on_wait = on_wait
        self._lock = threading.Lock()
        # What is handed to a PS that has none: of the last pull, once there was one.
        self._held = _Held(list(initial), [], None, initial_state.values)
        self._differs = False  # that the PS have another optimizer, was said
        self._answered: list[int] = []  # by PS: the newest version that it told us
        self._offering: threading.Thread | None = None

    @property
    def layout(self) -> Layout:
        """The layout of the variables on the PS."""
        return self._layout

    @property
    def client(self) -> PsClient:
        """The client, for use inside `call`."""
        return self._client

    @property
    def versions(self) -> list[int]:
        """Versions of the last pull, by PS; empty before the first."""
        return self._held.versions

    def answered(self) -> tuple[int, list[int]]:
        """Return a rewind, and by PS the newest version that it answered with in it.

        No versions: nothing was pulled since that rewind.
        """
        with self._lock:
            held = self._held
            return held.rewind or 0, list(self._answered) if held.versions else []

    def push(self, gradients: Gradients, order: PushOrder) -> Pushed:
        """Push a batch's gradients, with retries while a PS is away. Raises as `call`.

        What a PS answers is known at once, not when all have answered: while another
        one is away this may be all that is left of the news of a PS that is lost.
        """

        def once() -> Pushed:
            rewind = self._held.rewind
            return self._client.push(
                gradients,
                order,
                lambda ps, version: self._applied(ps, version, rewind),
            )

        return self.call("push", once)

    def _applied(self, ps: int, version: int, rewind: int | None) -> None:
        with self._lock:
            # Empty before the first pull of a rewind, which tells of all PS.
            if self._answered and rewind == self._held.rewind:
                self._answered[ps] = max(self._answered[ps], version)

    def offer(self, view: PsView) -> None:
        """Offer pulled values to the PS that wait for them, in a separate thread.

        Called with each view that names such PS, so what fails is tried again.
        """
        busy = self._offering is not None and self._offering.is_alive()
        if busy or not self._held.versions or view.rewind != self._held.rewind:
            return
        self._client.set_view(view)
        self._offering = threading.Thread(
            target=self._offer, name="hand values over", daemon=True
        )
        self._offering.start()

    def _offer(self) -> None:
        try:
            self._hand_over()
        except RpcError as error:
            log.info("values not handed over: %s", error)

    @property
    def first_step(self) -> int:
        """Version at which the optimizer's step was 0; known after a pull."""
        return self._held.first_step

    @property
    def state(self) -> Floats:
        """PS 0's non-trainable state, as it came with the last values of PS 0."""
        return self._held.state

    def join(self) -> None:
        """Adopt the present rewind; initialize every PS that has no values."""
        while True:
            view = self._views.view
            with self._lock:
                self._held = _Held(
                    list(self._initial), [], view.rewind, self._initial_state.values
                )
                self._answered = []
            try:
                self.call("begin", self._hand_over)
                if self._untrained is not None:
                    # PS 0 may have them from a checkpoint.
                    self._untrained.take(
                        self.call("begin", self._client.pull_untrained)
                    )
            except FencedError as error:
                # Rewound again, or the PS know of a rewind that we do not yet.
                log.info("waiting for the PS after a rewind: %s", error)
                self._wait(view.revision, FIRST_WAIT_SECONDS)
            else:
                return

    def pull(self) -> tuple[list[Floats], list[int]]:
        """Return the live buffers of all PS and their versions."""
        pulled: PulledValues = self.call(
            "pull", lambda: self._client.pull(have=self.versions or None)
        )
        return self.took(pulled, first_step=pulled.first_step)

    def took(
        self, pulled: PulledValues, first_step: int | None = None
    ) -> tuple[list[Floats], list[int]]:
        """Keep pulled values; return the newest buffers of all PS and their versions.

        What comes with the answer to a push does not tell `first_step`, which stays.
        """
        versions = list(pulled.versions)
        with self._lock:
            buffers = [
                new if new.size else old
                for new, old in zip(pulled.buffers, self._held.buffers, strict=True)
            ]
            state = self._held.state if pulled.state is None else pulled.state
            self._held = _Held(
                buffers,
                versions,
                self._held.rewind,
                state,
                self._held.first_step if first_step is None else first_step,
            )
            self._answered = list(map(max, self._answered or versions, versions))
            return list(buffers), versions

    def call_snapshot(self, what: str, function: Callable[[], T]) -> T:
        """Like `call` for a snapshot, which a PS may have lost for good.

        Raises NotInitializedError then: the master has to ask for another one.
        """
        return self._call(what, function, lasting=False)

    def call(self, what: str, function: Callable[[], T]) -> T:
        """Return what `function` returns, with retries while a PS is away.

        Raises FencedError when the PS were rewound, RefusedError, LeavingError.
        """
        return self._call(what, function, lasting=True)

    def _call(self, what: str, function: Callable[[], T], *, lasting: bool) -> T:
        wait = FIRST_WAIT_SECONDS
        level = logging.INFO  # once per outage; what follows is for debugging
        while True:
            view = self._views.view
            mine = self._held.rewind
            if view.rewind != mine:
                raise FencedError(
                    f"{what}: the PS were rewound (rewind {view.rewind}, this worker "
                    f"is at {mine}); tasks under way begin again"
                )
            self._client.set_view(view)
            try:
                return function()
            except (FencedError, RefusedError):
                raise
            except NotInitializedError as error:
                log.log(level, "%s: handing values to a PS: %s", what, error)
                self._try_hand_over()
                if not lasting:
                    raise
            except RpcError as error:
                log.log(level, "%s: waiting for the PS: %s", what, error)
            level = logging.DEBUG
            self._wait(view.revision, wait)
            wait = min(2 * wait, MOST_WAIT_SECONDS)

    def _wait(self, revision: int, seconds: float) -> None:
        if self._leaving.is_set():
            raise LeavingError("told to leave while waiting for the PS")
        self._on_wait()
        self._views.wait_for_view(revision, seconds)

    def _try_hand_over(self) -> None:
        try:
            self._hand_over()
        except (FencedError, RefusedError):
            raise
        except RpcError as error:
            log.debug("values not handed over yet: %s", error)

    def _hand_over(self) -> None:
        held = self._held
        in_force = self._client.initialize(
            self._layout,
            self._optimizer_json,
            held.buffers,
            versions=held.versions,
            rewind=held.rewind,
            state=SharedState(self._initial_state.layout, held.state),
            untrained=dict if self._untrained is None else self._untrained.read,
            first_step=held.first_step,
        )
        if in_force != self._optimizer_json and not self._differs:
            self._differs = True
            log.warning(
                "This worker's optimizer is not the one that the job was started with, "
                "which stays: %s; stop the job and launch it again to train with: %s",
                in_force,
                self._optimizer_json,
            )
