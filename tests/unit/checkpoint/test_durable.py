"""A checkpoint is on the disk, whole and under its names, before its name is.

A power cut keeps what was synced, and may keep any of the rest: a name given to a file
before its bytes were synced may come back as a name without bytes. So the real calls
are recorded, in their order, and each one that has to come first is looked for.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from elasticdl.beneath import opened
from elasticdl.checkpoint import store
from elasticdl.checkpoint.layout import Manifest

Call = tuple[str, int, int]  # what, of which inode, in which folder's (of names)


class Calls:
    """Passes calls of `os` on and writes them down; may leave one kind of sync out."""

    def __init__(self, without: Callable[[os.stat_result, int], bool]) -> None:
        self.seen: list[Call] = []
        self._without = without
        self._syncs = 0

    def fsync(self, handle: int) -> None:
        self._syncs += 1
        if not self._without(os.fstat(handle), self._syncs):
            REAL_FSYNC(handle)
            self.seen.append(("sync", os.fstat(handle).st_ino, 0))

    def write(self, handle: int, data: bytes) -> int:
        self.seen.append(("write", os.fstat(handle).st_ino, 0))
        return REAL_WRITE(handle, data)

    def named(self, real: Callable[..., None]) -> Callable[..., None]:
        def call(source: str, target: str, *, dst_dir_fd: int, **rest: object) -> None:
            real(source, target, dst_dir_fd=dst_dir_fd, **rest)
            inode, folder = os.stat(target, dir_fd=dst_dir_fd), os.fstat(dst_dir_fd)
            self.seen.append(("name", inode.st_ino, folder.st_ino))

        return call

    def mkdir(self, path: str, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        REAL_MKDIR(path, mode, dir_fd=dir_fd)
        inode = os.stat(path, dir_fd=dir_fd)
        folder = os.stat(Path(path).parent, dir_fd=dir_fd)
        self.seen.append(("name", inode.st_ino, folder.st_ino))


REAL_FSYNC, REAL_WRITE, REAL_MKDIR = os.fsync, os.write, os.mkdir


def published(place: Path, calls: Calls, patch: pytest.MonkeyPatch) -> Path:
    """Write a checkpoint of two shards as PS and master do; return where it is."""
    with patch.context() as patched:
        patched.setattr(os, "fsync", calls.fsync)
        patched.setattr(os, "write", calls.write)
        patched.setattr(os, "mkdir", calls.mkdir)
        patched.setattr(os, "rename", calls.named(os.rename))
        patched.setattr(os, "replace", calls.named(os.replace))
        aside = place / "checkpoints" / ".run-1"
        with (
            opened(aside.parent, root=place, make=True) as above,
            above.made(aside.name, durable=False),
        ):
            pass  # it is there now
        shards = [
            store.write_shard(
                aside, index, 2, {"value|w|0|9": np.ones(9)}, {"version": 4}
            )
            for index in range(2)
        ]
        manifest = Manifest(job="j", strategy="s", version=4, shards=shards)
        store.write_manifest(aside, manifest)
        return store.publish(aside, aside.parent, 4)


def not_durable(checkpoint: Path, seen: list[Call], root: Path) -> list[str]:
    """Return what a power cut may take of a checkpoint whose name it leaves."""

    def inode(path: Path) -> int:
        return path.stat().st_ino

    def last(call: Call) -> int:
        return max((i for i, one in enumerate(seen) if one == call), default=-1)

    def follows(call: Call, before: int, until: int) -> bool:
        return call in seen[before + 1 : until]

    end = len(seen)
    folder, above = inode(checkpoint), inode(checkpoint.parent)
    published = last(("name", folder, above))
    found = []
    for file in sorted(checkpoint.iterdir()):
        named = last(("name", inode(file), folder))
        written = last(("write", inode(file), 0))
        assert -1 < written < named < published
        if not follows(("sync", inode(file), 0), written, named):
            found.append(f"bytes of {file.name}")
        # Whoever is told that it is written goes on: to the next file, or to publish.
        following = next(i for i in range(named + 1, end) if seen[i][0] == "name")
        if not follows(("sync", folder, 0), named, following):
            found.append(f"name of {file.name}")
    if not follows(("sync", above, 0), published, end):
        found.append("name of the checkpoint")
    made = last(("name", above, inode(root)))
    if not follows(("sync", inode(root), 0), made, published):
        found.append("name of the folder of checkpoints")
    return found


def test_a_checkpoint_is_durable_before_its_name_is_and_its_name_when_it_counts(
    tmp_path, monkeypatch
):
    calls = Calls(without=lambda _inode, _number: False)
    checkpoint = published(tmp_path, calls, monkeypatch)
    assert len(list(checkpoint.iterdir())) == 3
    assert not_durable(checkpoint, calls.seen, tmp_path) == []


def test_no_sync_of_a_checkpoint_can_be_left_out(tmp_path, monkeypatch):
    every = Calls(without=lambda _inode, _number: False)
    (tmp_path / "whole").mkdir()
    published(tmp_path / "whole", every, monkeypatch)
    number = sum(call[0] == "sync" for call in every.seen)
    assert number
    for left_out in range(1, number + 1):
        place = tmp_path / str(left_out)
        place.mkdir()
        calls = Calls(without=lambda _inode, n, out=left_out: n == out)
        checkpoint = published(place, calls, monkeypatch)
        missing = not_durable(checkpoint, calls.seen, place)
        assert missing, f"sync {left_out} of {number} makes nothing durable"
