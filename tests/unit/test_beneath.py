"""What lies below a trusted folder is reached through no link; files alone are read."""

import contextlib
import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from elasticdl.beneath import opened, read_text, reader


def test_a_file_is_read_below_a_root_that_is_a_link(tmp_path: Path) -> None:
    (tmp_path / "there" / "a").mkdir(parents=True)
    (tmp_path / "there" / "a" / "file").write_text("ä")
    (tmp_path / "root").symlink_to(tmp_path / "there")
    root = tmp_path / "root"
    assert read_text(root / "a" / "file", root=root) == "ä"


@pytest.mark.parametrize("link", ["a", "a/b", "a/b/file"])
def test_no_link_is_followed_at_any_step(tmp_path: Path, link: str) -> None:
    root, other = tmp_path / "root", tmp_path / "other"
    for place in (root, other):
        (place / "a" / "b").mkdir(parents=True)
        (place / "a" / "b" / "file").write_text("x")
    (root / link).rename(tmp_path / "aside")
    (root / link).symlink_to(other / link)
    with pytest.raises(OSError, match=f"is a link.*{link}"):
        reader(root / "a" / "b" / "file", root=root)


def test_a_folder_that_is_moved_away_is_still_the_one_that_was_opened(
    tmp_path: Path,
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "other").mkdir()
    with opened(tmp_path / "a", root=tmp_path) as folder:
        (tmp_path / "a").rename(tmp_path / "aside")
        (tmp_path / "a").symlink_to(tmp_path / "other")
        with folder.replacing("file") as handle:
            os.write(handle, b"x")
        assert folder.names() == ["file"]
    assert (tmp_path / "aside" / "file").read_bytes() == b"x"
    assert list((tmp_path / "other").iterdir()) == []


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/etc/passwd", "a\0b"])
def test_a_name_is_one_step_down(tmp_path: Path, name: str) -> None:
    (tmp_path / "a").mkdir()
    with opened(tmp_path, root=tmp_path) as folder:
        for act in (folder.open, folder.stat, folder.unlink, folder.below):
            with pytest.raises(OSError, match="no name"):
                act(name)


def test_what_is_no_file_is_neither_waited_for_nor_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(OSError, match="is no file"):
            reader(tmp_path / name, root=tmp_path)
    with pytest.raises(OSError, match="is no file"):
        reader(Path("/dev/zero"), root=Path("/dev"))


def test_a_folder_that_is_there_is_not_made_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS refuses that with other errors where the folder above is not writable."""
    (tmp_path / "a" / "b").mkdir(parents=True)

    def refused(*_args: object, **_named: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "mkdir", refused)
    with opened(tmp_path / "a" / "b", root=tmp_path, make=True) as folder:
        assert folder.names() == []
    with pytest.raises(PermissionError):
        opened(tmp_path / "a" / "c", root=tmp_path, make=True)


def test_a_link_itself_can_be_replaced_and_removed(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("other")
    (tmp_path / "a").symlink_to(other)
    (tmp_path / "b").symlink_to(other)
    with opened(tmp_path, root=tmp_path) as folder:
        with folder.replacing("a") as handle:
            os.write(handle, b"x")
        folder.unlink("b")
        (tmp_path / "c").symlink_to(tmp_path)
        with pytest.raises(OSError, match="symbolic link"):
            folder.remove_tree("c")
    assert (tmp_path / "a").read_text() == "x"
    assert other.read_text() == "other"
    assert not (tmp_path / "b").is_symlink()


@contextlib.contextmanager
def nested(path: Path, depth: int, name: str = "d") -> Iterator[None]:
    """Make folders in one another that Python cannot remove; they go at the end."""
    path.mkdir()
    handle = os.open(path, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=handle)
        inner = os.open(name, os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = inner
    os.close(handle)
    try:
        yield
    finally:
        subprocess.run(["rm", "-rf", str(path.parent)], check=True)


def test_folders_that_are_nested_too_deeply_are_an_error_of_storage(
    tmp_path: Path,
) -> None:
    with (
        nested(tmp_path / "deep", 1500),
        opened(tmp_path, root=tmp_path) as folder,
        pytest.raises(OSError, match="nested too deeply"),
    ):
        folder.remove_tree("deep")
