"""`job.log.file`: the roles' lines in one file, and a job that goes on without it."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from elasticdl.job.context import set_up_logging
from elasticdl.job.log_file import LogFile

log = logging.getLogger("elasticdl.tested")


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("elasticdl")
    before = root.handlers[:], root.level, ours.level
    root.handlers[:] = []  # those of pytest stay open
    yield
    for handler in root.handlers:
        handler.close()
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    ours.setLevel(before[2])


def test_all_roles_append_their_lines_to_the_file_of_the_specification(
    tmp_path, capsys
) -> None:
    file = tmp_path / "logs" / "all.log"
    set_up_logging("worker-0", "info", str(file))
    log.info("one")
    log.debug("too low")
    set_up_logging("ps-1", "debug", str(file))
    log.debug("two\nwith more")
    lines = file.read_text().splitlines()
    assert [line.split(" ", 2)[2] for line in lines[:2]] == [
        "INFO worker-0 test_log_file: one",
        "DEBUG ps-1 test_log_file: two",
    ]
    assert lines[2:] == ["with more"]
    assert capsys.readouterr().err == file.read_text()


def test_a_log_file_that_cannot_be_opened_is_told_of_and_nothing_ends(
    tmp_path, capsys
) -> None:
    (tmp_path / "file").touch()
    set_up_logging("worker-0", "info", str(tmp_path / "file" / "log"))
    log.info("goes on")
    told, went_on = capsys.readouterr().err.splitlines()
    assert "cannot be written (File exists)" in told
    assert "job.log.file" in told
    assert went_on.endswith("goes on")


def test_a_log_file_on_a_full_disk_is_told_of_once(capsys, tmp_path) -> None:
    handler = LogFile(tmp_path / "log")
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, handler._fd)
    os.close(full)
    record = logging.LogRecord("elasticdl", logging.INFO, "", 0, "x", None, None)
    handler.emit(record)
    handler.emit(record)
    handler.close()
    (told,) = capsys.readouterr().err.splitlines()
    assert "No space left" in told


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_log_file_that_somebody_else_put_there_is_not_written(
    kind: str, tmp_path: Path
) -> None:
    place, other = tmp_path / "log", tmp_path / "journal"
    other.write_text("of another job")
    if kind == "link":
        place.symlink_to(other)
    else:
        os.mkfifo(place)
    with pytest.raises(OSError, match=r"symbolic|No such device"):
        LogFile(place)
    assert other.read_text() == "of another job"
