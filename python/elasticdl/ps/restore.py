"""Cuts of one PS to checkpoint shards and back.

Owns what a PS adds to a shard's meta, so that a relaunched PS can restore by itself,
before any worker told it the layout. Called by ps/server.py and ps/snapshots.py.
Knows nothing of locks or calls; the format is `checkpoint`'s.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elasticdl.checkpoint import reshard, store
from elasticdl.checkpoint.layout import ShardFile
from elasticdl.ps.snapshots import Cut, State
from elasticdl.tensor.placement import Layout, place

Floats = NDArray[np.float32]
Observe = Callable[[float, bool], None]


def _ignore(_seconds: float, _written: bool) -> None:
    """Tell nobody of a shard."""


@dataclass(frozen=True)
class Place:
    """Which of the PS this is."""

    index: int
    num_ps: int


@dataclass(frozen=True)
class Loaded:
    """What a PS starts from; slots None are new ones."""

    layout: Layout
    optimizer_json: str
    values: Floats
    version: int
    slots: Mapping[str, Floats] | None = None
    last_pushes: Mapping[str, int] = field(default_factory=dict)  # by source
    state: State = field(default_factory=dict)


class ShardStore:
    """Writes and loads the shards of one PS.

    Raises CheckpointError for what is torn, damaged, does not fit or cannot be
    written.
    """

    def __init__(
        self, place: Place, *, common_version: bool, observe: Observe = _ignore
    ) -> None:
        """`common_version`: all PS restore to one version (sync mode).

        `observe` is told of each shard how long it took and whether it was written.
        """
        self._place = place
        self._common_version = common_version
        self._observe = observe

    def write(self, cut: Cut, directory: Path) -> ShardFile:
        """Write a cut that has slots into a checkpoint's folder."""
        began, written = time.perf_counter(), False
        try:
            file = self._write(cut, directory)
            written = True
        finally:
            self._observe(time.perf_counter() - began, written)
        return file

    def _write(self, cut: Cut, directory: Path) -> ShardFile:
        layout, mine = cut.shard.layout, self._place
        tensors = reshard.shard_tensors(
            layout,
            mine.index,
            cut.shard.values,
            cut.shard.slots,
            scalars={},
            states=cut.state,
        )
        meta = {
            "version": cut.version,
            "layout_digest": layout.digest,
            "layout": layout.to_json(),
            "optimizer": cut.optimizer_json,
            "last_pushes": dict(cut.last_pushes),
        }
        return store.write_shard(directory, mine.index, mine.num_ps, tensors, meta)

    def own(self, directory: Path) -> Loaded | None:
        """Load without a worker: by the variables that the checkpoint names.

        With another number of PS they are placed anew, as every worker would. None if
        the checkpoint does not say which gradients are row-wise. `directory` is a
        checkpoint or a folder of them.
        """
        path, manifest = store.resolve(directory)
        first = store.read_shard(path, manifest.shards[0], verify=False)
        text = first.meta.get("layout")
        if not text:
            return None
        layout = Layout.from_json(str(text))
        if layout.num_ps != self._place.num_ps:
            layout = place(layout.variables, self._place.num_ps)
        return self._load(path, layout, "")

    def fitted(self, directory: Path, layout: Layout, optimizer_json: str) -> Loaded:
        """Load values and slots by a worker's layout, for a worker's optimizer."""
        path, _ = store.resolve(directory)
        return self._load(path, layout, optimizer_json)

    def _load(self, path: Path, layout: Layout, optimizer_json: str) -> Loaded:
        pieces = reshard.load_pieces(path, layout, self._place.index)
        manifest = store.read_manifest(path)
        last_pushes: Mapping[str, int] = {}
        if len(manifest.shards) == self._place.num_ps:
            entry = manifest.shards[self._place.index]
            meta = store.read_shard(path, entry, verify=False).meta
            last_pushes = meta.get("last_pushes") or {}  # older ones have none
        first = self._place.index == 0
        return Loaded(
            layout=layout,
            optimizer_json=optimizer_json or pieces.optimizer,
            values=pieces.values,
            version=manifest.version if self._common_version else pieces.version,
            slots=pieces.slots,
            last_pushes=last_pushes,
            # The mapped file may be deleted while the job runs on.
            state={n: np.array(a) for n, a in pieces.states.items()} if first else {},
        )
