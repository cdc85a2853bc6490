"""Files that are written past the page cache are the same as any others."""

import errno
import os
import zlib

import numpy as np
import pytest
from elasticdl.checkpoint import files
from elasticdl.errors import CheckpointError

BLOCK = 4 << 20
SIZES = {
    "empty": [0],
    "small": [3, 5],
    "one block": [BLOCK],
    "a byte less and more": [BLOCK - 1, BLOCK + 1, 1],
    "odd parts": [1, BLOCK, 3, 2 * BLOCK + 5, 0, 7],
}
GENERATOR = np.random.default_rng(1)


def parts(sizes):
    return [memoryview(GENERATOR.bytes(size)) for size in sizes]


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_a_file_holds_its_buffers_and_their_checksum(tmp_path, sizes):
    path, buffers = tmp_path / "folder" / "file", parts(sizes)
    written = files.write_whole(path, buffers)
    whole = b"".join(buffers)
    assert path.read_bytes() == whole
    assert (written.bytes, written.crc32) == (len(whole), zlib.crc32(whole))
    assert files.checksum(memoryview(whole)) == written.crc32
    assert [path] == list(path.parent.iterdir())


def test_arrays_of_any_kind_are_written(tmp_path):
    arrays: list[np.ndarray] = [
        np.arange(BLOCK // 4 + 1, dtype=np.float32),
        np.ones((3, 5), np.int64),
    ]
    files.write_whole(tmp_path / "file", [memoryview(a).cast("B") for a in arrays])
    assert (tmp_path / "file").read_bytes() == b"".join(a.tobytes() for a in arrays)


@pytest.fixture
def writes(monkeypatch):
    """Answer writes as a file system may; note whether they went past the cache."""
    real, seen = os.write, []
    behave = {"short": False, "refuse": False}

    def write(handle, data):
        direct = bool(files.fcntl.fcntl(handle, files.fcntl.F_GETFL) & os.O_DIRECT)
        seen.append(direct)
        if direct and (behave["refuse"] or len(data) % 512):
            raise OSError(errno.EINVAL, "Invalid argument")
        return real(handle, data[:700] if behave["short"] and len(seen) == 1 else data)

    monkeypatch.setattr(os, "write", write)
    behave["seen"] = seen
    return behave


@pytest.mark.skipif(
    not hasattr(os, "O_DIRECT"), reason="writes of that kind are Linux'"
)
@pytest.mark.parametrize("trouble", ["short", "refuse"])
def test_a_file_system_that_refuses_such_writes_gets_plain_ones(
    tmp_path, writes, trouble
):
    writes[trouble] = True
    buffers = parts([2 * BLOCK + 9])
    files.write_whole(tmp_path / "file", buffers)
    assert (tmp_path / "file").read_bytes() == buffers[0]
    assert writes["seen"][-1] is False


@pytest.mark.parametrize(("slow", "told"), [(False, [1, 3, 7]), (True, [1, 2, 3, 4])])
def test_a_slow_disk_tells_its_progress_after_fewer_bytes(
    tmp_path, monkeypatch, slow, told
):
    """Else whoever waits a minute for it takes a disk of 1 MB/s for one that stands."""
    monkeypatch.setattr(files, "_SYNC_SECONDS", 0.0 if slow else 1e9)
    seen = []
    buffers = parts([BLOCK] * (4 if slow else 8))
    files.write_whole(tmp_path / "file", buffers, progress=seen.append)
    assert [written // BLOCK for written in seen] == told


def test_a_write_that_fails_leaves_nothing(tmp_path, monkeypatch):
    def full(_handle, _data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(CheckpointError, match="No space left on device; "):
        files.write_whole(tmp_path / "file", parts([BLOCK + 1]))
    assert list(tmp_path.iterdir()) == []


def test_the_name_of_a_file_is_on_the_disk_before_it_counts_as_written(
    tmp_path, monkeypatch
):
    """A power cut forgets a rename until the folder is synced, after it."""
    real, path, synced = os.fsync, tmp_path / "folder" / "file", []

    def fsync(handle):
        whole = path.read_bytes() if path.exists() else b""
        synced.append((os.fstat(handle).st_ino, whole))
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    files.write_whole(path, [memoryview(b"all of it")])
    assert synced == [
        (path.stat().st_ino, b""),
        (path.parent.stat().st_ino, b"all of it"),
    ]
