"""Writes, reads and publishes checkpoints on a file system.

Owns the order of writes that makes a checkpoint complete or absent: shards first, each
whole or not there, then the manifest, then the folder's name. Called by the PS and by
workers with strategy local (shards), the master (manifest, name) and everybody who
loads one. Knows nothing of who decides when, leaves the meaning of tensors to
`checkpoint/reshard.py` and the choice among several to `checkpoint/shelf.py`.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import mmap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elasticdl.beneath import opened, reader
from elasticdl.checkpoint import files
from elasticdl.checkpoint.layout import (
    ABANDONED,
    FORMAT,
    MANIFEST,
    Manifest,
    ShardFile,
    shard_file,
    version_dir,
)
from elasticdl.errors import CheckpointError
from elasticdl.tensor.codec import Array, FrameError, decode, encode

# Names that are tried for one version before something else must be wrong.
_MOST_NAMES = 10_000


@dataclass(frozen=True)
class StoredShard:
    """A shard that was read: its meta document, and read-only views of its tensors."""

    meta: Mapping[str, Any]
    tensors: Mapping[str, Array]


def write_shard(
    directory: Path,
    index: int,
    total: int,
    tensors: Mapping[str, Array],
    meta: Mapping[str, Any],
    *,
    progress: Callable[[int], None] = files.ignore,
) -> ShardFile:
    """Write one shard of a checkpoint and return its entry for the manifest.

    `meta` needs "version"; `checkpoint/reshard.py` says what else readers expect. The
    tensors must not change meanwhile. A manifest in the folder that names another
    content for this shard is removed: that checkpoint is being made anew. `progress`
    is told the bytes that the disk has, again and again.

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
    return entry(files.write_whole(path, frame, before=before, progress=progress))


def write_manifest(
    directory: Path, manifest: Manifest, *, root: Path | None = None
) -> Path:
    """Complete a checkpoint; no link is followed below `root`.

    Raises CheckpointError if it cannot be written.
    """
    path = Path(directory) / MANIFEST
    text = manifest.model_dump_json(indent=2).encode()
    files.write_whole(path, [text], root=root)
    return path


def publish(
    aside: Path, directory: Path, version: int, *, root: Path | None = None
) -> Path:
    """Give a complete checkpoint its name among the others; return the new path.

    It lies in the same folder. No link is followed below `root`, by default that one.

    A name that is taken, or was before it was abandoned, is left to whoever has it:
    the bytes there are of another moment, another course or another run. Raises
    CheckpointError.
    """
    for again in itertools.count():
        target = directory / version_dir(version, again)
        try:
            with opened(directory, root=root or directory) as folder:
                taken_names = (target.name, ABANDONED + target.name)
                if not any(folder.has(name) for name in taken_names):
                    folder.rename(aside.name, target.name)
                    folder.flush()
                    return target
        except OSError as error:
            taken = error.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR)
            if not taken or again > _MOST_NAMES:
                raise CheckpointError(
                    f"{target}: cannot be given its name: {error.strerror}"
                ) from error
    raise AssertionError("count() has no end")


def read_manifest(version_dir: Path, *, root: Path | None = None) -> Manifest:
    """Return the manifest of a complete checkpoint.

    No link is followed below `root`, the checkpoint's folder by default.

    Raises CheckpointError if it is missing or if a shard is missing or has another
    size. Whether the bytes fit their checksums is seen where they are loaded.
    """
    path = Path(version_dir) / MANIFEST
    try:
        with reader(path, root=root or path.parent) as written:
            tree = json.loads(written.read())
        form = tree.get("format") if isinstance(tree, dict) else None
        if isinstance(form, int) and form > FORMAT:
            raise CheckpointError(
                f"{path}: got format {form}, expected {FORMAT} or less: a newer "
                "ElasticDL wrote it; load it with that one"
            )
        manifest = Manifest.model_validate(tree)
    except FileNotFoundError:
        raise CheckpointError(
            f"{version_dir}: no {MANIFEST}: the checkpoint was never completed"
        ) from None
    except (OSError, ValueError) as error:  # ValueError: no JSON, or no manifest
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
    return manifest


def verify(version_dir: Path) -> None:
    """Read all of a checkpoint. Raises CheckpointError if a byte of it is wrong."""
    for shard in read_manifest(version_dir).shards:
        read_shard(version_dir, shard)


def read_shard(
    version_dir: Path, shard: ShardFile, *, verify: bool = True
) -> StoredShard:
    """Return a shard, mapped into memory: tensors are read on first access.

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
    return StoredShard(meta, frame.tensors)
