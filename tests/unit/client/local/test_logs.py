"""Reading logs."""

from __future__ import annotations

from pathlib import Path

import pytest
from elasticdl.client.local.logs import read_log
from hypothesis import given
from hypothesis import strategies as st


def test_all_lines(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text("a\n\nb\nunfinished")
    assert list(read_log(log)) == ["a", "", "b", "unfinished"]


@given(st.lists(st.text("ab\u00e9", max_size=5), max_size=30), st.integers(0, 35))
def test_tail_gives_the_last_lines(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], tail: int
) -> None:
    log = tmp_path_factory.mktemp("log") / "x.log"
    log.write_text("".join(f"{line}\n" for line in lines))
    expected = lines[-tail:] if tail else []
    assert list(read_log(log, tail=tail)) == expected


def test_tail_of_a_long_log_reads_blocks_backwards(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    lines = [f"{number:0100}" for number in range(3000)]
    log.write_text("\n".join(lines))  # without a newline at the end
    assert list(read_log(log, tail=2500)) == lines[-2500:]


def test_following_gives_what_is_added_until_the_job_ends(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text("first\n")
    additions = iter(["second\n", "th", "ird\n"])

    def more() -> bool:
        added = next(additions, None)
        with log.open("a") as file:
            file.write(added or "last words\n")
        return added is not None

    lines = list(read_log(log, more=more))
    assert lines == ["first", "second", "third", "last words"]
