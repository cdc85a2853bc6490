"""A file is replaced whole, or it stays as it was and nothing is left beside it."""

import os
from pathlib import Path

import pytest
from elasticdl.files import write_whole


def test_a_file_gets_its_new_content_and_its_permissions(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("before")
    write_whole(file, "after: ä", durable=True)
    assert file.read_bytes() == "after: ä".encode()
    assert file.stat().st_mode & 0o777 == 0o644
    write_whole(file, b"secret", durable=False, mode=0o600)
    assert file.read_bytes() == b"secret"
    assert file.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [file]


def test_a_file_that_cannot_take_its_place_leaves_nothing_behind(
    tmp_path: Path,
) -> None:
    place = tmp_path / "place"
    (place / "full").mkdir(parents=True)  # a folder has the name
    with pytest.raises(OSError, match="place"):
        write_whole(place, "text", durable=True)
    assert list(tmp_path.iterdir()) == [place]
    with pytest.raises(FileNotFoundError):
        write_whole(tmp_path / "away" / "file", "text", durable=False)


def test_a_reader_sees_a_file_whole_while_it_is_written_again_and_again(
    tmp_path: Path,
) -> None:
    file = tmp_path / "file"
    write_whole(file, "a" * 100_000, durable=False)
    child = os.fork()
    if child == 0:
        for number in range(200):
            write_whole(file, "ab"[number % 2] * 100_000, durable=False)
        os._exit(0)
    ended = 0
    while not ended:
        text = file.read_text()
        assert text in ("a" * 100_000, "b" * 100_000)
        ended, _ = os.waitpid(child, os.WNOHANG)


@pytest.mark.parametrize("durable", [True, False])
def test_a_durable_file_is_synced_before_it_gets_its_name_and_its_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durable: bool
) -> None:
    file = tmp_path / "file"
    seen: list[str] = []
    sync = os.fsync

    def fsync(handle: int) -> None:
        what = Path(f"/proc/self/fd/{handle}").readlink()
        seen.append("folder" if what == tmp_path else f"file, {file.exists()}")
        sync(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    write_whole(file, "text", durable=durable)
    assert seen == (["file, False", "folder"] if durable else [])
