"""Claims about checkpoints on disk: which there are, and which is taken."""

from __future__ import annotations

import errno
import logging
from pathlib import Path
from typing import IO

import numpy as np
import pytest
from elasticdl.beneath import Folder
from elasticdl.checkpoint import shelf, store
from elasticdl.checkpoint.layout import MANIFEST, Manifest, ShardFile
from elasticdl.errors import CheckpointError


def write(
    directory: Path, version: int, shards: int = 2, seed: int = 0, **identity: object
) -> Path:
    """Write a complete checkpoint of some shards with one tensor each."""
    aside = directory / f"pending-{version}"
    rng = np.random.default_rng(seed + version)
    entries = [
        store.write_shard(
            aside,
            index,
            shards,
            {"value|w|0|100": rng.standard_normal((100, 3)).astype(np.float32)},
            {"version": version},
        )
        for index in range(shards)
    ]
    store.write_manifest(aside, manifest(version, entries, **identity))
    return store.publish(aside, directory, version)


def manifest(version: int, shards: list[ShardFile], **identity: object) -> Manifest:
    tree = {"job": "j", "strategy": "parameterServer", "version": version, **identity}
    return Manifest.model_validate({**tree, "shards": shards})


def of_j(manifest: Manifest) -> bool:
    return manifest.job == "j"


def test_the_highest_version_counts_not_the_last_written(tmp_path: Path) -> None:
    for version in (9, 100, 20):
        write(tmp_path, version)
    found = shelf.newest(tmp_path)
    assert found is not None
    assert found[0].name == "version-100"
    assert found[1].version == 100


def test_a_folder_without_manifest_is_torn_and_skipped_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, 1)
    (write(tmp_path, 2) / MANIFEST).unlink()
    with caplog.at_level(logging.WARNING):
        found = shelf.newest(tmp_path)
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
    found = shelf.newest(tmp_path)
    assert found is not None
    assert found[1].version == 1


def test_an_absent_or_empty_folder_has_no_checkpoint(tmp_path: Path) -> None:
    assert shelf.newest(tmp_path) is None
    assert shelf.newest(tmp_path / "absent") is None


def test_a_users_path_may_be_a_checkpoint_a_folder_of_them_or_a_job(
    tmp_path: Path,
) -> None:
    target = write(tmp_path / "checkpoints", 5)
    for path in (target, tmp_path / "checkpoints", tmp_path):
        assert shelf.resolve(path)[0] == target


def test_a_users_path_without_checkpoint_is_refused_with_what_is_there(
    tmp_path: Path,
) -> None:
    with pytest.raises(CheckpointError, match="got no such folder"):
        shelf.resolve(tmp_path / "absent")
    with pytest.raises(CheckpointError, match="got an empty folder"):
        shelf.resolve(tmp_path)
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(CheckpointError, match="got a file"):
        shelf.resolve(file)
    for number in range(9):
        (tmp_path / f"x{number}").touch()
    with pytest.raises(CheckpointError, match=r"a folder with file, x0.*, \.\.\."):
        shelf.resolve(tmp_path)
    (tmp_path / "version-3").mkdir()
    with pytest.raises(CheckpointError, match="never completed"):
        shelf.resolve(tmp_path / "version-3")


def test_d7_keep_zero_keeps_every_checkpoint(tmp_path: Path) -> None:
    for version in range(4):
        write(tmp_path, version)
    assert shelf.delete_old(tmp_path, 0, mine=of_j) == []
    assert len(list(tmp_path.iterdir())) == 4


@pytest.mark.parametrize("keep", [1, 2, 5])
def test_d7_the_newest_complete_checkpoint_is_never_deleted(
    tmp_path: Path, keep: int
) -> None:
    for version in (3, 10, 20):
        write(tmp_path, version)
    deleted = shelf.delete_old(tmp_path, keep, mine=of_j)
    left = sorted(path.name for path in tmp_path.iterdir())
    assert len(left) == min(3, keep)
    assert "version-20" in left
    assert len(deleted) == 3 - len(left)


def test_d7_the_one_just_written_stays_even_if_others_are_newer(tmp_path: Path) -> None:
    old = write(tmp_path, 3)
    write(tmp_path, 10)
    assert shelf.delete_old(tmp_path, 1, mine=of_j, protect=[old]) == []
    assert shelf.newest(old.parent) is not None


def test_torn_folders_go_once_a_newer_one_is_complete_but_not_before(
    tmp_path: Path,
) -> None:
    (write(tmp_path, 4) / MANIFEST).unlink()
    assert shelf.delete_old(tmp_path, 1, mine=of_j) == []
    write(tmp_path, 5)
    (write(tmp_path, 6) / MANIFEST).unlink()
    assert [path.name for path in shelf.delete_old(tmp_path, 1, mine=of_j)] == [
        "version-4"
    ]
    assert (tmp_path / "version-6").is_dir()


def test_writing_a_shard_anew_makes_the_checkpoint_incomplete(tmp_path: Path) -> None:
    target = write(tmp_path, 1)
    store.write_shard(target, 0, 2, {}, {"version": 1})
    assert shelf.newest(tmp_path) is None


def test_writing_the_same_shard_twice_leaves_the_checkpoint_complete(
    tmp_path: Path,
) -> None:
    write(tmp_path, 1)
    shard = store.read_shard(
        tmp_path / "version-1", store.read_manifest(tmp_path / "version-1").shards[0]
    )
    store.write_shard(tmp_path / "version-1", 0, 2, shard.tensors, shard.meta)
    assert shelf.newest(tmp_path) is not None


def test_of_two_courses_of_a_run_the_later_one_counts_not_the_higher_version(
    tmp_path: Path,
) -> None:
    write(tmp_path, 200, run="r", rewind=0)
    write(tmp_path, 150, run="r", rewind=1)
    assert shelf.resolve(tmp_path)[1].version == 150


def test_a_folder_with_checkpoints_of_two_runs_is_refused_by_name(
    tmp_path: Path,
) -> None:
    write(tmp_path, 5, run="r")
    write(tmp_path, 9, run="s")
    with pytest.raises(CheckpointError, match="holds checkpoints of 2 runs"):
        shelf.resolve(tmp_path)
    assert shelf.resolve(tmp_path / "version-5")[1].run == "r"


def test_a_link_among_checkpoints_is_not_passed_over_for_an_older_one(
    tmp_path: Path,
) -> None:
    folder, moved = tmp_path / "checkpoints", tmp_path / "moved"
    write(folder, 5)
    write(folder, 9).rename(moved)
    (folder / "version-9").symlink_to(moved)
    with pytest.raises(CheckpointError, match="version-9: is a link"):
        shelf.resolve(folder)
    assert shelf.resolve(folder / "version-9")[1].version == 9
    assert shelf.resolve(folder / "version-5")[1].version == 5


def test_what_a_run_wrote_before_runs_had_ids_belongs_to_it(tmp_path: Path) -> None:
    write(tmp_path, 5)
    write(tmp_path, 9, run="s")
    assert shelf.resolve(tmp_path)[1].version == 9
    write(tmp_path, 7, job="k")
    with pytest.raises(CheckpointError, match="2 runs"):
        shelf.resolve(tmp_path)


def test_a_folder_is_never_reused_for_another_course(tmp_path: Path) -> None:
    first = write(tmp_path, 5, run="r", rewind=0)
    second = write(tmp_path, 5, seed=1, run="r", rewind=1)
    assert (first.name, second.name) == ("version-5", "version-5.1")
    assert store.read_manifest(first).rewind == 0
    assert shelf.resolve(tmp_path) == (second, store.read_manifest(second))


def test_what_was_abandoned_is_taken_by_nobody_and_goes_with_the_next_old_ones(
    tmp_path: Path,
) -> None:
    write(tmp_path, 3)
    gone = shelf.abandon(write(tmp_path, 9))
    assert gone is not None
    assert shelf.resolve(tmp_path)[1].version == 3
    write(tmp_path, 4)
    assert gone in shelf.delete_old(tmp_path, 3, mine=of_j)
    assert not gone.exists()


def test_the_checkpoints_of_others_are_not_deleted_with_ones_own(
    tmp_path: Path,
) -> None:
    other = write(tmp_path, 2, job="k")
    for version in (3, 4):
        write(tmp_path, version)
    assert [p.name for p in shelf.delete_old(tmp_path, 1, mine=of_j)] == ["version-3"]
    assert other.is_dir()


def test_what_another_run_is_writing_is_not_swept_away(tmp_path: Path) -> None:
    for name in ("pending-r-ckpt-1.1", "pending-r-ckpt-1.2", "pending-s-ckpt-1.1"):
        (tmp_path / name).mkdir()
    shelf.sweep(tmp_path, prefix="r-", keep=tmp_path / "pending-r-ckpt-1.2")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "pending-r-ckpt-1.2",
        "pending-s-ckpt-1.1",
    ]


def test_a_newest_checkpoint_whose_storage_is_away_is_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, 1)
    newest = write(tmp_path, 2)
    read = Folder.reader

    def away(folder: Folder, name: str) -> IO[bytes]:
        if folder.path == newest:
            raise OSError(errno.EIO, "Input/output error")
        return read(folder, name)

    monkeypatch.setattr(Folder, "reader", away)
    with pytest.raises(CheckpointError, match="version-2"):
        shelf.newest(tmp_path)
