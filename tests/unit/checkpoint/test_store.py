"""Claims about checkpoints on disk: complete or skipped, never half."""

from __future__ import annotations

import json
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from elasticdl.checkpoint import store
from elasticdl.checkpoint.layout import (
    MANIFEST,
    Manifest,
    ShardFile,
    is_shard_file,
    version_dir,
)
from elasticdl.errors import CheckpointError


def write(directory: Path, version: int, shards: int = 2, seed: int = 0) -> Path:
    """Write a complete checkpoint of some shards with one tensor each."""
    target = directory / version_dir(version)
    rng = np.random.default_rng(seed + version)
    entries = [
        store.write_shard(
            target,
            index,
            shards,
            {"value|w|0|100": rng.standard_normal((100, 3)).astype(np.float32)},
            {"version": version},
        )
        for index in range(shards)
    ]
    store.write_manifest(target, manifest(version, entries))
    return target


def manifest(version: int, shards: list[ShardFile]) -> Manifest:
    return Manifest(job="j", strategy="parameterServer", version=version, shards=shards)


@contextmanager
def at_most(bytes_per_file: int) -> Iterator[None]:
    """Let the kernel refuse longer files: what a full disk does to a writer."""
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_per_file, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        signal.signal(signal.SIGXFSZ, ignored)


def test_a_shard_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    tensors = {
        "value|a/b|0|2": np.arange(6, dtype=np.float32).reshape(2, 3),
        "scalar:s||0|0": np.array(2.5),
        "state|empty|0|0": np.zeros((0, 4), np.float32),
    }
    entry = store.write_shard(tmp_path, 0, 1, tensors, {"version": 7, "note": "x"})
    assert entry.version == 7
    assert entry.bytes == (tmp_path / entry.file).stat().st_size
    shard = store.read_shard(tmp_path, entry)
    assert shard.meta == {"version": 7, "note": "x"}
    assert list(shard.tensors) == list(tensors)
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(shard.tensors[name], tensor)
        assert shard.tensors[name].shape == tensor.shape


def test_a_shard_leaves_no_other_file_and_may_be_read_by_others(tmp_path: Path) -> None:
    entry = store.write_shard(tmp_path, 0, 1, {}, {"version": 0})
    assert [path.name for path in tmp_path.iterdir()] == [entry.file]
    assert (tmp_path / entry.file).stat().st_mode & 0o777 == 0o644


def test_what_is_no_frame_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "shard-0-of-1.edl"
    path.write_bytes(b"x" * 100)
    entry = ShardFile(file=path.name, bytes=100, crc32=0, version=0)
    with pytest.raises(CheckpointError, match="cannot be read: got magic"):
        store.read_shard(tmp_path, entry, verify=False)
    path.write_bytes(b"")
    with pytest.raises(CheckpointError, match="cannot be read"):
        store.read_shard(tmp_path, entry)


def test_a_manifest_that_is_no_manifest_is_refused(tmp_path: Path) -> None:
    target = write(tmp_path, 1)
    (target / MANIFEST).write_text("{}")
    with pytest.raises(CheckpointError, match="cannot be read"):
        store.read_manifest(target)
    store.write_manifest(target, manifest(1, []))
    with pytest.raises(CheckpointError, match="names no shards"):
        store.read_manifest(target)


@pytest.mark.parametrize("name", ["/etc/passwd", "../x", "..", "", ".x", "a\0", "a\n"])
def test_a_manifest_has_nobody_look_at_a_file_elsewhere(
    tmp_path: Path, name: str
) -> None:
    target = write(tmp_path, 1)
    path = target / MANIFEST
    tree = json.loads(path.read_text())
    tree["shards"][0]["file"] = name
    path.write_text(json.dumps(tree))
    with pytest.raises(CheckpointError, match=r"(?s)cannot be read.*shards.0.file"):
        store.read_manifest(target)
    assert not is_shard_file(name)


def test_a_full_disk_is_named_with_the_room_left_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    big = {"value|w|0|1": np.zeros((1, 1 << 16), np.float32)}
    with at_most(1 << 16), pytest.raises(CheckpointError) as caught:
        store.write_shard(tmp_path, 0, 1, big, {"version": 1})
    assert "shard-0-of-1.edl: cannot be written" in str(caught.value)
    assert "bytes are free there" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_the_older_manifest_in_place(tmp_path: Path) -> None:
    target = write(tmp_path, 1)
    before = (target / MANIFEST).read_bytes()
    with at_most(10), pytest.raises(CheckpointError, match="cannot be written"):
        store.write_manifest(target, store.read_manifest(target))
    assert (target / MANIFEST).read_bytes() == before


def test_a_path_that_cannot_be_a_folder_is_an_error_of_the_store(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match="cannot be written"):
        store.write_shard(tmp_path / "file" / "x", 0, 1, {}, {"version": 0})


def test_a_flipped_byte_is_found_by_the_checksum(tmp_path: Path) -> None:
    write(tmp_path, 1)
    path = write(tmp_path, 2) / "shard-1-of-2.edl"
    data = bytearray(path.read_bytes())
    data[600] ^= 1
    path.write_bytes(data)
    entry = store.read_manifest(path.parent).shards[1]
    with pytest.raises(CheckpointError, match="damaged; use an older checkpoint"):
        store.read_shard(path.parent, entry)
    with pytest.raises(CheckpointError, match="damaged; use an older checkpoint"):
        store.verify(path.parent)


def test_a_checkpoint_of_a_newer_format_is_refused_with_a_word(tmp_path: Path) -> None:
    target = write(tmp_path, 1)
    (target / MANIFEST).write_text('{"format": 99, "future": 1}')
    with pytest.raises(CheckpointError, match="a newer ElasticDL wrote it"):
        store.read_manifest(target)


def test_a_writer_tells_how_far_it_is_by_bytes(tmp_path: Path) -> None:
    told: list[int] = []
    rows = np.zeros((33 << 20, 1), np.float32)  # 132 MiB
    store.write_shard(
        tmp_path, 0, 1, {"value|w|0|1": rows}, {"version": 0}, progress=told.append
    )
    # Less on a disk that is slow meanwhile.
    assert told == sorted(set(told))
    assert told[0] <= 64 << 20
    assert told[-1] > (132 - 64) << 20


def test_a_name_that_is_taken_stays_with_who_has_it(tmp_path: Path) -> None:
    first = write(tmp_path, 5)
    aside = tmp_path / "pending-x"
    aside.mkdir()
    assert store.publish(aside, tmp_path, 5).name == "version-5.1"
    assert store.read_manifest(first).version == 5
