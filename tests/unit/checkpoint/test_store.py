"""Claims about checkpoints on disk: complete or skipped, never half."""

from __future__ import annotations

import logging
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from elasticdl.checkpoint import store
from elasticdl.checkpoint.layout import MANIFEST, Manifest, ShardFile, version_dir
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


def test_the_highest_version_counts_not_the_last_written(tmp_path: Path) -> None:
    for version in (9, 100, 20):
        write(tmp_path, version)
    found = store.newest(tmp_path)
    assert found is not None
    assert found[0].name == "version-100"
    assert found[1].version == 100


def test_a_folder_without_manifest_is_torn_and_skipped_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, 1)
    (write(tmp_path, 2) / MANIFEST).unlink()
    with caplog.at_level(logging.WARNING):
        found = store.newest(tmp_path)
    assert found is not None
    assert found[1].version == 1
    assert "version-2" in caplog.text
    assert "never completed" in caplog.text


def test_a_lost_or_cut_shard_makes_the_checkpoint_torn(tmp_path: Path) -> None:
    write(tmp_path, 1)
    lost, cut = write(tmp_path, 2), write(tmp_path, 3)
    (lost / "shard-1-of-2.edl").unlink()
    with (cut / "shard-0-of-2.edl").open("r+b") as file:
        file.truncate(700)
    with pytest.raises(CheckpointError, match="No such file"):
        store.read_manifest(lost)
    with pytest.raises(CheckpointError, match=r"got 700 bytes, expected \d+"):
        store.read_manifest(cut)
    found = store.newest(tmp_path)
    assert found is not None
    assert found[1].version == 1


def test_a_flipped_byte_is_found_by_the_checksum(tmp_path: Path) -> None:
    write(tmp_path, 1)
    path = write(tmp_path, 2) / "shard-1-of-2.edl"
    data = bytearray(path.read_bytes())
    data[600] ^= 1
    path.write_bytes(data)
    entry = store.read_manifest(path.parent).shards[1]
    with pytest.raises(CheckpointError, match="damaged; use an older checkpoint"):
        store.read_shard(path.parent, entry)
    shallow, deep = store.newest(tmp_path), store.newest(tmp_path, deep=True)
    assert shallow is not None
    assert deep is not None
    assert (shallow[1].version, deep[1].version) == (2, 1)


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


def test_an_absent_or_empty_folder_has_no_checkpoint(tmp_path: Path) -> None:
    assert store.newest(tmp_path) is None
    assert store.newest(tmp_path / "absent") is None


def test_a_users_path_may_be_a_checkpoint_a_folder_of_them_or_a_job(
    tmp_path: Path,
) -> None:
    target = write(tmp_path / "checkpoints", 5)
    for path in (target, tmp_path / "checkpoints", tmp_path):
        assert store.resolve(path)[0] == target


def test_a_users_path_without_checkpoint_is_refused_with_what_is_there(
    tmp_path: Path,
) -> None:
    with pytest.raises(CheckpointError, match="got no such folder"):
        store.resolve(tmp_path / "absent")
    with pytest.raises(CheckpointError, match="got an empty folder"):
        store.resolve(tmp_path)
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(CheckpointError, match="got a file"):
        store.resolve(file)
    for number in range(9):
        (tmp_path / f"x{number}").touch()
    with pytest.raises(CheckpointError, match=r"a folder with file, x0.*, \.\.\."):
        store.resolve(tmp_path)
    (tmp_path / "version-3").mkdir()
    with pytest.raises(CheckpointError, match="never completed"):
        store.resolve(tmp_path / "version-3")


def test_d7_keep_zero_keeps_every_checkpoint(tmp_path: Path) -> None:
    for version in range(4):
        write(tmp_path, version)
    assert store.delete_old(tmp_path, 0) == []
    assert len(list(tmp_path.iterdir())) == 4


@pytest.mark.parametrize("keep", [1, 2, 5])
def test_d7_the_newest_complete_checkpoint_is_never_deleted(
    tmp_path: Path, keep: int
) -> None:
    for version in (3, 10, 20):
        write(tmp_path, version)
    deleted = store.delete_old(tmp_path, keep)
    left = sorted(path.name for path in tmp_path.iterdir())
    assert len(left) == min(3, keep)
    assert "version-20" in left
    assert len(deleted) == 3 - len(left)


def test_d7_the_one_just_written_stays_even_if_others_are_newer(tmp_path: Path) -> None:
    old = write(tmp_path, 3)
    write(tmp_path, 10)
    assert store.delete_old(tmp_path, 1, protect=[old]) == []
    assert store.newest(old.parent) is not None


def test_torn_folders_go_once_a_newer_one_is_complete_but_not_before(
    tmp_path: Path,
) -> None:
    (write(tmp_path, 4) / MANIFEST).unlink()
    assert store.delete_old(tmp_path, 1) == []
    write(tmp_path, 5)
    (write(tmp_path, 6) / MANIFEST).unlink()
    assert [path.name for path in store.delete_old(tmp_path, 1)] == ["version-4"]
    assert (tmp_path / "version-6").is_dir()


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


def test_writing_a_shard_anew_makes_the_checkpoint_incomplete(tmp_path: Path) -> None:
    target = write(tmp_path, 1)
    store.write_shard(target, 0, 2, {}, {"version": 1})
    assert store.newest(tmp_path) is None


def test_writing_the_same_shard_twice_leaves_the_checkpoint_complete(
    tmp_path: Path,
) -> None:
    write(tmp_path, 1)
    shard = store.read_shard(
        tmp_path / "version-1", store.read_manifest(tmp_path / "version-1").shards[0]
    )
    store.write_shard(tmp_path / "version-1", 0, 2, shard.tensors, shard.meta)
    assert store.newest(tmp_path) is not None
