"""Cuts of one PS to checkpoint shards and back.

Owns what a PS adds to a shard's meta, so that a relaunched PS can restore by itself,
before any worker told it the layout. Called by ps/starting.py and ps/snapshots.py.
Knows nothing of locks or calls; the format is `checkpoint`'s.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elasticdl.checkpoint import files, reshard, store
from elasticdl.checkpoint.layout import FIRST_STEP, ITERATIONS, ShardFile
from elasticdl.checkpoint.reshard import CheckpointReader
from elasticdl.errors import CheckpointError
from elasticdl.ps import untrained_state
from elasticdl.ps.snapshots import Cut, Progress
from elasticdl.tensor.codec import Array
from elasticdl.tensor.placement import Layout, place
from elasticdl.tensor.shared_state import SharedState

Floats = NDArray[np.float32]
Observe = Callable[[float, bool], None]


def _ignore(_seconds: float, _written: bool) -> None:
    """Default observer: ignore that a shard was read."""


@dataclass(frozen=True)
class PsPlace:
    """Index of this PS, and the number of PS."""

    index: int
    num_ps: int


@dataclass(frozen=True)
class StartingState:
    """What a PS starts from; None slots are initialized anew."""

    layout: Layout
    values: Floats
    version: int
    slots: Mapping[str, Floats] | None = None
    lacking: Mapping[str, Sequence[reshard.Lacking]] = field(default_factory=dict)
    written_by: str = ""  # JSON of the optimizer that the slots are of
    first_step: int = 0  # version at which that optimizer was new
    last_pushes: Mapping[str, int] = field(default_factory=dict)  # by source
    state: SharedState = field(default_factory=SharedState)
    untrained: Mapping[str, Array] = field(default_factory=dict)  # PS 0: by variable


class ShardStore:
    """Writes and loads the shards of one PS.

    Raises CheckpointError for what is torn, damaged, does not fit or cannot be
    written.
    """

    def __init__(
        self, place: PsPlace, *, common_version: bool, observe: Observe = _ignore
    ) -> None:
        """`common_version`: all PS restore to one version (sync mode).

        `observe` is told of each shard how long it took and whether it was written.
        """
        self._place = place
        self._common_version = common_version
        self._observe = observe

    def write(
        self, cut: Cut, directory: Path, progress: Progress = files.ignore
    ) -> ShardFile:
        """Write a cut with slots into a checkpoint's folder."""
        began, written = time.perf_counter(), False
        try:
            file = self._write(cut, directory, progress)
            written = True
        finally:
            self._observe(time.perf_counter() - began, written)
        return file

    def _write(self, cut: Cut, directory: Path, progress: Progress) -> ShardFile:
        layout, mine = cut.shard.layout, self._place
        tensors = reshard.shard_tensors(
            layout,
            mine.index,
            cut.shard.values,
            cut.shard.slots,
            scalars={FIRST_STEP: float(cut.first_step)} if cut.first_step else {},
            states={**cut.state.arrays(), **cut.untrained},
        )
        meta = {
            "version": cut.version,
            "layout_digest": layout.digest,
            "layout": layout.to_json(),
            "optimizer": cut.optimizer_json,
            "state": cut.state.layout.to_json(),
            "last_pushes": dict(cut.last_pushes),
        }
        return store.write_shard(
            directory, mine.index, mine.num_ps, tensors, meta, progress=progress
        )

    def own(self, directory: Path) -> StartingState | None:
        """Return the shard of a checkpoint by its own variables, without a worker.

        With another number of PS they are placed anew, as every worker would. None if
        the checkpoint does not say which gradients are row-wise: then all of it is read
        all the same, so that damage is found now, when another one can be taken.
        `directory` is a checkpoint or a folder of them.
        """
        reader = CheckpointReader(directory)
        text = reader.own_shard(self._place.index).meta.get("layout")
        if not text:
            if len(reader.manifest.shards) > 1:
                store.verify(reader.path)
            return None
        try:
            layout = Layout.from_json(str(text))
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"{reader.path}: got a layout that cannot be read ({error}); another "
                "version of ElasticDL wrote it"
            ) from error
        if layout.num_ps != self._place.num_ps:
            layout = place(layout.variables, self._place.num_ps)
        return self._load(reader, layout, None)

    def fitted(
        self,
        directory: Path,
        layout: Layout,
        state: SharedState,
        untrained: Mapping[str, Array],
    ) -> StartingState:
        """Return values, slots, state and untrained weights in a worker's layouts.

        State that the checkpoint does not have stays as the worker has it, with a
        warning. Weights that nothing ever moves must be there.
        """
        return self._load(CheckpointReader(directory), layout, (state, untrained))

    def _load(
        self,
        reader: CheckpointReader,
        layout: Layout,
        wanted: tuple[SharedState, Mapping[str, Array]] | None,
    ) -> StartingState:
        index = self._place.index
        pieces = reshard.load_pieces(reader, layout, index)
        last_pushes: Mapping[str, int] = {}
        if len(reader.manifest.shards) == self._place.num_ps:
            meta = reader.shard(index).meta
            last_pushes = meta.get("last_pushes") or {}  # older ones have none
        version = reader.manifest.version if self._common_version else pieces.version
        first_step = pieces.scalars.get(FIRST_STEP, 0.0)
        if ITERATIONS in pieces.scalars:  # strategy local counts steps themselves
            first_step = max(0.0, version - pieces.scalars[ITERATIONS])
        state = SharedState()
        untrained: Mapping[str, Array] = {}
        if index == 0:
            state, untrained = (
                untrained_state.as_written(reader, pieces.states)
                if wanted is None
                else untrained_state.as_wanted(reader, pieces.states, *wanted)
            )
        return StartingState(
            layout=layout,
            values=pieces.values,
            version=version,
            slots=pieces.slots,
            lacking=pieces.lacking,
            written_by=pieces.optimizer,
            first_step=int(first_step),
            last_pushes=last_pushes,
            state=state,
            untrained=untrained,
        )
