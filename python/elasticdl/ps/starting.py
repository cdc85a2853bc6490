"""The parameters that one PS begins with: a checkpoint's, or those of a worker.

Owns what a worker brings must be to fit this PS, and how values, slots and state of an
earlier optimizer become those of the present one. Called by ps/server.py, without its
lock: a copy of many GB takes long. Must not know whether other parameters are served
meanwhile, nor of rewinds.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elasticdl.errors import SpecError
from elasticdl.ps.apply import ParameterShard
from elasticdl.ps.carry_over import carry_over
from elasticdl.ps.optimizers.optimizer import Optimizer, optimizer_from_json
from elasticdl.ps.parameters import Compute, ParameterOrigin, Parameters
from elasticdl.ps.restore import PsPlace, ShardStore, StartingState
from elasticdl.tensor.codec import Array
from elasticdl.tensor.placement import Layout
from elasticdl.tensor.shared_state import SharedState, StateLayout

log = logging.getLogger(__name__)

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Initial:
    """Initial parameters from a worker."""

    layout: Layout
    optimizer_json: str
    values: Floats
    version: int
    pulled: bool = False  # from this job's PS; else they are a model's initial ones
    first_step: int = 0  # of pulled ones: Parameters.first_step
    state: SharedState = field(default_factory=SharedState)  # PS 0
    untrained: Mapping[str, Array] = field(default_factory=dict)  # PS 0: by variable


@dataclass(frozen=True)
class Begun:
    """Parameters to serve, and the version of what they were made of."""

    parameters: Parameters
    version: int
    warning: str = ""  # of slots that begin anew


class ParameterLoader:
    """Makes the parameters of one PS. Raises CheckpointError, SpecError and OSError."""

    def __init__(self, place: PsPlace, store: ShardStore, compute: Compute) -> None:
        self._place = place
        self._store = store
        self._compute = compute

    def restored(self, directory: Path, *, min_version: int) -> Begun | None:
        """Return what a checkpoint has, with the optimizer that wrote it.

        None if the checkpoint does not say its layout, or no PS runs its optimizer
        (strategy local did): then the first worker says which one it is to be. Versions
        below `min_version` were used before and are not used again.
        """
        loaded = self._store.own(directory)
        if loaded is None:
            return None
        try:
            optimizer = optimizer_from_json(loaded.written_by)
            optimizer.check(loaded.layout)
        except SpecError as error:
            log.info("Waiting for a worker's optimizer: %s", error)
            return None
        return self._begun(loaded, optimizer, min_version)

    def brought(
        self, initial: Initial, *, restore_dir: Path | None, min_version: int
    ) -> Begun:
        """Return what a worker brings, or in its layout and optimizer a checkpoint's.

        `min_version`: as for `restored`.
        """
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
        optimizer = optimizer_from_json(initial.optimizer_json)
        optimizer.check(layout)
        state = SharedState() if place.index else initial.state
        if state.values.shape != (state.layout.size,):
            raise SpecError(
                f"got {state.values.size} floats of non-trainable state, expected "
                f"{state.layout.size} as in its layout"
            )
        if restore_dir is not None:
            loaded = self._store.fitted(restore_dir, layout, state, initial.untrained)
        else:
            loaded = StartingState(
                layout,
                initial.values.copy(),
                initial.version,
                first_step=initial.first_step,
                state=state,
                untrained=initial.untrained,
            )
        return self._begun(loaded, optimizer, min_version)

    def own_state(self, state: StateLayout) -> StateLayout:
        """Return what this PS keeps of a state that a worker names: all is on PS 0."""
        return StateLayout() if self._place.index else state

    def _begun(
        self, loaded: StartingState, optimizer: Optimizer, min_version: int
    ) -> Begun:
        optimizer.warm_up()
        version = max(loaded.version, min_version)
        first_step, warning = loaded.first_step, ""
        if loaded.slots is None:
            slots = optimizer.slots(loaded.values.size, loaded.values)
        else:
            carried = carry_over(
                optimizer,
                loaded.values,
                loaded.slots,
                lacking=loaded.lacking,
                written_by=loaded.written_by,
            )
            slots = carried.slots
            if not carried.steps_go_on:
                first_step = version
            warning = carried.warning(optimizer.name)
            if warning:
                log.warning("%s", warning)
        shard = ParameterShard(loaded.layout, self._place.index, loaded.values, slots)
        state, untrained = loaded.state, loaded.untrained
        origin = ParameterOrigin(
            version, first_step, loaded.last_pushes, state, {}, untrained
        )
        parameters = Parameters(shard, optimizer, origin=origin, compute=self._compute)
        return Begun(parameters, loaded.version, warning)
