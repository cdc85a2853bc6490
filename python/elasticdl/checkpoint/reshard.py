"""Cuts the tensors of a checkpoint for any number of PS.

Owns which tensors a shard has and the loading by variable and rows. Called by the
PS (`shard_tensors` to write, `load_pieces` to restore) and by whoever needs the whole
model (`load_all`: evaluation, prediction, export, local training). Knows nothing of
optimizers beyond the names of their slots.

A shard's meta: "version" of its PS, "layout" it was cut by and the "layout_digest" of
it, "optimizer" (JSON of the optimizer). With it a PS restores before any worker came.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elasticdl.checkpoint import shelf, store
from elasticdl.checkpoint.layout import (
    SCALAR,
    SLOT,
    STATE,
    VALUE,
    Manifest,
    parse_tensor_name,
    tensor_name,
)
from elasticdl.errors import CheckpointError
from elasticdl.tensor.codec import Array
from elasticdl.tensor.placement import Layout, Piece, Variable

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Lacking:
    """Floats [start, end) of a PS's buffer: those of a variable without some slot."""

    variable: str
    start: int
    end: int


@dataclass(frozen=True)
class RestoredShard:
    """What one PS restores: flat buffers in the order of its layout, and the rest.

    `slots` has those slots that the checkpoint has for some of the PS's pieces, and
    `lacking` the pieces without one, whose part of the buffer is undefined. `states`
    are there for PS 0, which alone holds them.
    """

    values: Floats
    slots: dict[str, Floats]
    lacking: dict[str, tuple[Lacking, ...]]  # by slot
    scalars: dict[str, float]
    states: dict[str, Array]
    version: int
    optimizer: str  # JSON of the optimizer that wrote it; "" if unknown


@dataclass(frozen=True)
class Whole:
    """A checkpoint put together: each variable, slot and state in full."""

    values: dict[str, Array]
    slots: dict[str, dict[str, Array]]  # slot name -> variable -> array
    scalars: dict[str, float]
    states: dict[str, Array]
    version: int
    optimizer: str
    manifest: Manifest


@dataclass(frozen=True)
class _Part:
    """Rows [start, end) of a variable, value or slot, in some shard."""

    start: int
    end: int
    array: Array


@dataclass(frozen=True)
class _Catalog:
    """All tensors of some shards of one checkpoint, by kind and variable."""

    path: Path
    parts: dict[tuple[str, str], list[_Part]] = field(default_factory=dict)
    states: dict[str, Array] = field(default_factory=dict)
    scalars: dict[str, float] = field(default_factory=dict)

    def parts_of(self, kind: str, name: str) -> list[_Part] | None:
        """Return the parts of a variable; None if there are none of this kind.

        The value of one that the job which wrote it did not train is among its states.
        """
        parts = self.parts.get((kind, name))
        if parts is None and kind == VALUE and name in self.states:
            array = self.states[name]
            return [_Part(0, array.shape[0] if array.ndim else 1, array)]
        return parts

    def variables(self) -> list[str]:
        """Names of all variables."""
        return sorted({name for kind, name in self.parts if kind == VALUE})

    def slots(self) -> list[str]:
        """Names of all slots."""
        kinds = {kind for kind, _ in self.parts if kind.startswith(SLOT)}
        return sorted(kind.removeprefix(SLOT) for kind in kinds)


def shard_tensors(
    layout: Layout,
    ps: int,
    values: Floats,
    slots: Mapping[str, Floats],
    *,
    scalars: Mapping[str, float],
    states: Mapping[str, Array],
) -> dict[str, Array]:
    """Return what PS `ps` writes, as views of its buffers.

    `values` and each slot are its flat buffers; `states` is given by PS 0 alone.
    """
    tensors: dict[str, Array] = {}
    for kind, buffer in [(VALUE, values), *((SLOT + n, s) for n, s in slots.items())]:
        for piece in layout.pieces[ps]:
            variable = layout.variables[piece.variable]
            part = buffer[piece.offset : piece.offset + piece.size]
            name = tensor_name(kind, variable.name, piece.start, piece.end)
            tensors[name] = part.reshape(_piece_shape(variable, piece))
    for name, number in scalars.items():
        tensors[tensor_name(SCALAR + name, "")] = np.array(number, np.float64)
    for name, array in states.items():
        tensors[tensor_name(STATE, name)] = array
    return tensors


def shard_meta(layout: Layout, *, version: int, optimizer: str) -> dict[str, Any]:
    """Return the meta document of a shard: layout, version and optimizer."""
    return {
        "version": version,
        "layout": layout.to_json(),
        "layout_digest": layout.digest,
        "optimizer": optimizer,
    }


class CheckpointReader:
    """A checkpoint that is being loaded: each shard is read and verified once.

    What has not been verified is not believed, not even for its variables.
    """

    def __init__(self, path: Path) -> None:
        """Take a checkpoint or a folder of them. Raises CheckpointError if torn."""
        self.path, self.manifest = shelf.resolve(path)
        self._shards: dict[int, store.StoredShard] = {}

    def shard(self, index: int) -> store.StoredShard:
        """Return a verified shard. Raises CheckpointError if its checksum is wrong."""
        if index not in self._shards:
            entry = self.manifest.shards[index]
            self._shards[index] = store.read_shard(self.path, entry)
        return self._shards[index]

    def own_shard(self, ps: int) -> store.StoredShard:
        """Return the shard that tells PS `ps` the layout: its own, else the first."""
        return self.shard(ps if ps < len(self.manifest.shards) else 0)


def load_pieces(reader: CheckpointReader, layout: Layout, ps: int) -> RestoredShard:
    """Return what PS `ps` of a layout restores from any number of shards.

    If the checkpoint was cut by this very layout, only the PS's own shard is read, and
    the version is that shard's; else all are, and the version is the checkpoint's,
    which is PS 0's.

    Raises CheckpointError if it is torn or damaged, or if a variable is missing or has
    another shape: all such variables are named, with got and expected.
    """
    manifest = reader.manifest
    mine = reader.own_shard(ps)
    same = (
        mine.meta.get("layout_digest") == layout.digest
        and len(manifest.shards) == layout.num_ps
    )
    indexes = [ps] if same else range(len(manifest.shards))
    catalog = _read(reader.path, (reader.shard(index) for index in indexes))
    if not same:
        _check_shapes(catalog, layout, ps)
    values, none = _fill(catalog, VALUE, layout, ps)
    if none:
        raise CheckpointError(
            f"{reader.path}: has no values for PS {ps}: it is damaged"
        )
    slots, lacking = {}, {}
    for name in catalog.slots():
        slot, without = _fill(catalog, SLOT + name, layout, ps)
        if len(without) < len(layout.pieces[ps]):
            slots[name], lacking[name] = slot, without
    return RestoredShard(
        values=values,
        slots=slots,
        lacking=lacking,
        scalars=catalog.scalars,
        states=catalog.states if ps == 0 else {},
        version=manifest.shards[ps].version if same else manifest.version,
        optimizer=str(mine.meta.get("optimizer", "")),
    )


def load_values(reader: CheckpointReader, names: Iterable[str]) -> dict[str, Array]:
    """Return the full values of those named variables that the checkpoint has."""
    wanted = set(names)
    if not wanted:
        return {}
    shards = [reader.shard(index) for index in range(len(reader.manifest.shards))]
    catalog = _read(reader.path, shards)
    found = wanted.intersection(catalog.variables())
    return {name: _whole(catalog, VALUE, name) for name in found}


def load_all(path: Path) -> Whole:
    """Return the whole checkpoint, for one process that holds the whole model.

    Raises CheckpointError if it is torn or damaged or if rows are missing in it.
    """
    reader = CheckpointReader(path)
    manifest = reader.manifest
    shards = [reader.shard(index) for index in range(len(manifest.shards))]
    catalog = _read(reader.path, shards)
    values = {name: _whole(catalog, VALUE, name) for name in catalog.variables()}
    slots: dict[str, dict[str, Array]] = {name: {} for name in catalog.slots()}
    for kind, name in catalog.parts:
        if kind.startswith(SLOT):
            slots[kind.removeprefix(SLOT)][name] = _whole(catalog, kind, name)
    return Whole(
        values=values,
        slots=slots,
        scalars=catalog.scalars,
        states=catalog.states,
        version=manifest.version,
        optimizer=str(shards[0].meta.get("optimizer", "")),
        manifest=manifest,
    )


def _named(path: Path, text: str) -> tuple[str, str, int, int]:
    try:
        return parse_tensor_name(text)
    except ValueError as error:
        raise CheckpointError(
            f"{path}: got tensor {text!r}, expected a name like "
            "'value|<variable>|<start>|<end>': another version of ElasticDL wrote it"
        ) from error


def _read(path: Path, shards: Iterable[store.StoredShard]) -> _Catalog:
    catalog = _Catalog(path)
    for shard in shards:
        for text, array in shard.tensors.items():
            kind, name, start, end = _named(path, text)
            if kind == STATE:
                catalog.states.setdefault(name, array)
            elif kind.startswith(SCALAR):
                key = kind.removeprefix(SCALAR)
                catalog.scalars.setdefault(key, float(np.float64(array)))
            else:
                part = _Part(start, end, array)
                catalog.parts.setdefault((kind, name), []).append(part)
    return catalog


def _check_shapes(catalog: _Catalog, layout: Layout, ps: int) -> None:
    mistakes = []
    for index in sorted({piece.variable for piece in layout.pieces[ps]}):
        variable = layout.variables[index]
        parts = catalog.parts_of(VALUE, variable.name)
        if parts is None:
            mistakes.append(f"{variable.name}: got none, expected {variable.shape}")
            continue
        row_shape = parts[0].array.shape[1:]
        rows = max(part.end for part in parts)
        got = (rows, *row_shape) if parts[0].array.ndim else ()
        if got != variable.shape:
            mistakes.append(f"{variable.name}: got {got}, expected {variable.shape}")
    if mistakes:
        raise CheckpointError(
            f"{catalog.path}: does not fit the model: {'; '.join(mistakes)}; it has "
            f"{', '.join(sorted(catalog.variables()))}. Resume with the model that "
            "wrote it"
        )


def _fill(
    catalog: _Catalog, kind: str, layout: Layout, ps: int
) -> tuple[Floats, tuple[Lacking, ...]]:
    """Return a PS's flat buffer of one kind, and the pieces that lack it."""
    buffer = np.empty(layout.size(ps), np.float32)
    lacking = []
    for piece in layout.pieces[ps]:
        variable = layout.variables[piece.variable]
        end = piece.offset + piece.size
        if catalog.parts_of(kind, variable.name) is None:
            lacking.append(Lacking(variable.name, piece.offset, end))
            continue
        rows = buffer[piece.offset : end].reshape(_piece_shape(variable, piece))
        _copy(catalog, kind, variable.name, (piece.start, piece.end), rows)
    return buffer, tuple(lacking)


def _whole(catalog: _Catalog, kind: str, name: str) -> Array:
    parts = catalog.parts[kind, name]
    if len(parts) == 1 and parts[0].start == 0:
        return parts[0].array
    end = max(part.end for part in parts)
    first = parts[0].array
    target = np.empty((end, *first.shape[1:]), first.dtype)
    _copy(catalog, kind, name, (0, end), target)
    return target


def _copy(
    catalog: _Catalog, kind: str, name: str, rows: tuple[int, int], target: Array
) -> None:
    """Copy rows [start, end) of a variable from the shards that hold them."""
    start, end = rows
    copied = []
    for part in catalog.parts_of(kind, name) or ():
        first, last = max(start, part.start), min(end, part.end)
        if first >= last:
            continue
        if target.ndim:
            source = part.array[first - part.start : last - part.start]
            target[first - start : last - start] = source
        else:
            target[...] = part.array
        copied.append((first, last))
    copied.sort()
    firsts, lasts = [first for first, _ in copied], [last for _, last in copied]
    if [*firsts, end] != [start, *lasts]:  # some are twice there, or missing
        got = ", ".join(f"{first} to {last}" for first, last in copied) or "none"
        raise CheckpointError(
            f"{catalog.path}: got of {kind} of {name} the rows {got}, expected each of "
            f"the rows {start} to {end} once: it is damaged; use an older checkpoint"
        )


def _piece_shape(variable: Variable, piece: Piece) -> tuple[int, ...]:
    rows = piece.end - piece.start
    return (rows, *variable.shape[1:]) if variable.shape else ()
