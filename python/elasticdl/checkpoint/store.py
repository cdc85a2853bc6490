"""Writes, finds, reads and deletes checkpoints on a file system.

Owns the order of writes that makes a checkpoint complete or absent: shards first, each
whole or not there, the manifest last. Called by the PS and by workers with strategy
local (shards), the master (manifest, deletion) and everybody who loads one. Knows
nothing of who decides when, and leaves the meaning of tensors to
`checkpoint/reshard.py`.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import mmap
import shutil
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pydantic

from elasticdl.checkpoint import files
from elasticdl.checkpoint.layout import (
    MANIFEST,
    Manifest,
    ShardFile,
    parse_version_dir,
    shard_file,
)
from elasticdl.errors import CheckpointError
from elasticdl.job.names import JobDir
from elasticdl.tensor.codec import Array, FrameError, decode, encode

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Shard:
    """A shard that was read: its meta document, and read-only views of its tensors."""

    meta: Mapping[str, Any]
    tensors: Mapping[str, Array]


def write_shard(
    directory: Path,
    index: int,
    total: int,
    tensors: Mapping[str, Array],
    meta: Mapping[str, Any],
) -> ShardFile:
    """Write one shard of a checkpoint and return its entry for the manifest.

    `meta` needs "version"; `checkpoint/reshard.py` says what else readers expect. The
    tensors must not change meanwhile. A manifest in the folder that names another
    content for this shard is removed: that checkpoint is being made anew.

    Raises CheckpointError if it cannot be written (with the free bytes); then no part
    of it is left behind.
    """
    path = Path(directory) / shard_file(index, total)

    def entry(written: files.Written) -> ShardFile:
        return ShardFile(
            file=path.name,
            bytes=written.bytes,
            crc32=written.crc32,
            version=int(meta["version"]),
        )

    def before(written: files.Written) -> None:
        if (path.parent / MANIFEST).exists():
            with contextlib.suppress(CheckpointError):
                if entry(written) in read_manifest(path.parent).shards:
                    return
            (path.parent / MANIFEST).unlink(missing_ok=True)

    frame = encode(json.dumps(dict(meta), sort_keys=True).encode(), tensors)
    return entry(files.write_whole(path, frame, before=before))


def write_manifest(directory: Path, manifest: Manifest) -> Path:
    """Complete a checkpoint. Raises CheckpointError if it cannot be written."""
    path = Path(directory) / MANIFEST
    files.write_whole(path, [manifest.model_dump_json(indent=2).encode()])
    return path


def read_manifest(version_dir: Path, *, deep: bool = False) -> Manifest:
    """Return the manifest of a complete checkpoint.

    Raises CheckpointError if it is missing or if a shard is missing or has another
    size; with `deep` also if a shard's bytes do not fit its checksum.
    """
    path = Path(version_dir) / MANIFEST
    try:
        manifest = Manifest.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise CheckpointError(
            f"{version_dir}: no {MANIFEST}: the checkpoint was never completed"
        ) from None
    except (OSError, pydantic.ValidationError) as error:
        raise CheckpointError(f"{path}: cannot be read: {error}") from error
    if not manifest.shards:
        raise CheckpointError(f"{path}: names no shards, expected one or more")
    for shard in manifest.shards:
        file = path.parent / shard.file
        try:
            size = file.stat().st_size
        except OSError as error:
            raise CheckpointError(f"{file}: {error.strerror}") from error
        if size != shard.bytes:
            raise CheckpointError(
                f"{file}: got {size} bytes, expected {shard.bytes}: it was cut or "
                "belongs to another checkpoint"
            )
        if deep:
            read_shard(path.parent, shard)
    return manifest


def read_shard(version_dir: Path, shard: ShardFile, *, verify: bool = True) -> Shard:
    """Return a shard, mapped into memory: a tensor is read when it is touched.

    Raises CheckpointError if it is missing, is not a frame or (with `verify`, which
    reads all of it) does not fit its checksum.
    """
    path = Path(version_dir) / shard.file
    try:
        with path.open("rb") as file:
            view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError) as error:  # ValueError: an empty file
        raise CheckpointError(f"{path}: cannot be read: {error}") from error
    if verify:
        crc = files.checksum(view)
        if len(view) != shard.bytes or crc != shard.crc32:
            raise CheckpointError(
                f"{path}: got {len(view)} bytes with CRC {crc:08x}, expected "
                f"{shard.bytes} with {shard.crc32:08x}: the file is damaged; use an "
                "older checkpoint"
            )
    try:
        frame = decode(view)
        meta = json.loads(frame.meta)
    except (FrameError, ValueError) as error:
        raise CheckpointError(f"{path}: cannot be read: {error}") from error
    return Shard(meta, frame.tensors)


def newest(directory: Path, *, deep: bool = False) -> tuple[Path, Manifest] | None:
    """Return the complete checkpoint of the highest version in a folder of them.

    Torn ones are skipped with a warning; `deep` also reads all bytes of each until one
    fits. None if there is none.
    """
    return next(_complete(Path(directory), deep=deep), None)


def _complete(directory: Path, *, deep: bool) -> Iterator[tuple[Path, Manifest]]:
    for _, path in reversed(_versions(directory)):
        try:
            manifest = read_manifest(path, deep=deep)
        except CheckpointError as error:
            _log.warning("Skipped an incomplete checkpoint: %s", error)
            continue
        yield path, manifest


def _versions(directory: Path) -> list[tuple[int, Path]]:
    try:
        paths = list(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    numbered = [(parse_version_dir(path.name), path) for path in paths]
    return sorted((number, path) for number, path in numbered if number is not None)


def resolve(path: Path) -> tuple[Path, Manifest]:
    """Return the checkpoint that a user's path means.

    It is the path itself, or the newest in that folder or in that job's folder.

    Raises CheckpointError, with what was found, if there is no complete one.
    """
    path = Path(path)
    named = parse_version_dir(path.name) is not None and path.is_dir()
    if (path / MANIFEST).exists() or named:
        return path, read_manifest(path)
    found = newest(path) or newest(JobDir(path).checkpoints_dir)
    if found is not None:
        return found
    if not path.exists():
        there = "no such folder"
    elif not path.is_dir():
        there = "a file"
    else:
        names = sorted(entry.name for entry in path.iterdir())
        there = f"a folder with {', '.join(names[:8])}" if names else "an empty folder"
        there += ", ..." if len(names) > 8 else ""
    raise CheckpointError(
        f"{path}: got {there}, expected a checkpoint (version-<N> with {MANIFEST}) or "
        "a folder of them; give the folder that checkpoint.dir of the first job named"
    )


def delete_old(
    directory: Path, keep: int, *, protect: Collection[Path] = ()
) -> list[Path]:
    """Delete all but the `keep` newest complete checkpoints; return what was deleted.

    `keep` 0 keeps all. Never deleted: the newest complete one, anything newer (it may
    be in the making), and `protect` (the one just written, one being loaded). Torn
    ones older than the newest complete one go too.

    Failures are logged, not raised: a folder that stays does no harm.
    """
    directory = Path(directory)
    complete = _complete(directory, deep=False) if keep else iter(())
    kept = [path for path, _ in itertools.islice(complete, keep)]
    if not kept:
        return []
    limit = parse_version_dir(kept[0].name) or 0
    safe = {path.resolve() for path in (*kept, *protect)}
    old = [path for version, path in _versions(directory) if version < limit]
    return [path for path in old if path.resolve() not in safe and _delete(path)]


def _delete(version_dir: Path) -> bool:
    try:
        # Without its manifest nobody takes it for complete while it goes.
        (version_dir / MANIFEST).unlink(missing_ok=True)
        shutil.rmtree(version_dir)
    except OSError as error:
        _log.warning("Cannot delete the old checkpoint %s: %s", version_dir, error)
        return False
    return True
