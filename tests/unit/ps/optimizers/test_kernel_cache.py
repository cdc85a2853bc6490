"""Compiled kernels are read from no folder that somebody else may have filled."""

import os
import stat
from pathlib import Path

import pytest
from elasticdl.ps.main import own_folder

US = os.getuid()


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """Kernels that an image was built with, readable by all."""
    folder = tmp_path / "built"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "kernel.nbi").write_bytes(b"compiled")
    folder.chmod(0o777)
    return folder


def writable_by_others(folder: Path) -> bool:
    return bool(folder.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH))


def test_a_folder_of_our_own_is_made_filled_and_taken_again(tmp_path, built):
    folder = tmp_path / "kernels"
    assert own_folder(folder, filled_from=built, user=US) == folder
    assert (folder / "sub" / "kernel.nbi").read_bytes() == b"compiled"
    assert not writable_by_others(folder)
    (folder / "more.nbi").write_bytes(b"")
    assert own_folder(folder, filled_from=built, user=US) == folder
    assert (folder / "more.nbi").exists()
    # Nothing is left of the making.
    assert sorted(p.name for p in tmp_path.iterdir()) == ["built", "kernels"]


def test_without_kernels_of_an_image_it_begins_empty(tmp_path):
    folder = own_folder(tmp_path / "kernels", filled_from=tmp_path / "none", user=US)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("planted", ["writable by all", "link", "file", "dangling"])
def test_a_folder_that_somebody_else_may_have_made_is_not_taken(
    tmp_path, built, planted
):
    folder, other = tmp_path / "kernels", tmp_path / "other"
    other.mkdir()
    if planted == "writable by all":
        folder.mkdir()
        folder.chmod(0o777)
    elif planted == "link":
        folder.symlink_to(other)
    elif planted == "dangling":
        folder.symlink_to(tmp_path / "nowhere")
    else:
        folder.write_bytes(b"")
    mine = own_folder(folder, filled_from=built, user=US)
    assert mine != folder
    assert mine.resolve() != other
    assert mine.stat().st_uid == os.getuid()
    assert stat.S_IMODE(mine.stat().st_mode) == 0o700


def test_a_folder_of_another_user_is_not_taken(tmp_path, built):
    folder = own_folder(tmp_path / "kernels", filled_from=built, user=US)
    assert own_folder(folder, filled_from=built, user=US + 1) != folder
