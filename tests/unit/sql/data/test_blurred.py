"""Claims about numbers that are learned from as something else than amounts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from elasticdl.sql.data.source import open_source
from elasticdl.sql.registry import Registry
from elasticdl.sql.running.session import Session
from elasticdl.sql.running.statements import run


def said_of(tmp_path: Path, select: str, word: str = "float32") -> list[str]:
    def run_job(*_: object) -> Any:
        raise AssertionError("no job is run here")

    said: list[str] = []
    source = open_source("")
    dry = tmp_path / "dry"
    session = Session(source, Registry(tmp_path), run_job, said.append, dry_run=dry)
    list(run(session, f"SELECT {select} FROM range(500) s(i) LABEL y INTO m"))
    source.close()
    return [line for line in said if word in line]


@pytest.mark.parametrize(
    ("number", "few"),
    [("1700000000000 + i", 1), ("-(1e11 + i * 100)", 7), ("33554432.0 + i / 8", 17)],
)
def test_numbers_that_lose_what_they_differ_by_are_told(
    tmp_path: Path, number: str, few: int
) -> None:
    """The column was learned from as if all of its values were one."""
    (line,) = said_of(tmp_path, f"{number} AS t, i % 2 AS y")
    assert line.startswith(f"t: of 500 different numbers float32 tells {few} apart; ")


def test_so_are_those_of_a_label(tmp_path: Path) -> None:
    (line,) = said_of(tmp_path, "i AS x, 1700000000000 + i AS y")
    assert line.startswith("y: of 500 ")
    assert line.endswith("as y - 1700000000000 in the SELECT")


@pytest.mark.parametrize(
    "number", ["i", "1e30", "0 * i", "1700000000 + i * 86400", "i / 1e9", "NULL::INT"]
)
def test_others_are_passed_over(tmp_path: Path, number: str) -> None:
    assert not said_of(tmp_path, f"{number} AS t, i % 2 AS y")


@pytest.mark.parametrize("column", ["t", "VOCABULARIZE(t)"])
def test_categories_are_exact(tmp_path: Path, column: str) -> None:
    select = "SELECT 1700000000000 + i AS t, i % 2 AS y FROM range(500) s(i)"
    text = f"{select} TO TRAIN DNNClassifier COLUMN {column} LABEL y INTO m"
    said: list[str] = []
    source = open_source("")
    session = Session(
        source,
        Registry(tmp_path),
        lambda _: pytest.fail("no job is run here"),
        said.append,
        dry_run=tmp_path / "dry",
    )
    list(run(session, text))
    source.close()
    assert any("float32" in line for line in said) == (column == "t")


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("CAST(i AS VARCHAR)", "t"),
        ("CASE WHEN i % 9 = 0 THEN '' ELSE '-' || i END", "nullif(t, '')"),
        ("CASE i % 9 WHEN 0 THEN 'NA' WHEN 1 THEN NULL ELSE i || ',5' END",
         "replace(nullif(t, 'NA'), ',', '.')"),
    ],
)  # fmt: skip
def test_texts_that_are_numbers_are_told_with_what_makes_amounts_of_them(
    tmp_path: Path, text: str, amount: str
) -> None:
    """All columns of a table that SQLite imported are text: ages became words."""
    (line,) = said_of(tmp_path, f"{text} AS t, i % 2 AS y", "amounts")
    assert line.startswith("t: text, ")
    assert line.endswith(
        f"; if they are amounts: CAST({amount} AS DOUBLE) in the SELECT"
    )


@pytest.mark.parametrize(
    "text",
    ["'0' || i", "i || '.1.2.3'", "'city ' || i", "CAST(i % 20 AS VARCHAR)",
     "CASE WHEN i % 9 < 2 THEN 'c' || i % 9 ELSE '' || i END"],
)  # fmt: skip
def test_codes_and_words_are_texts(tmp_path: Path, text: str) -> None:
    assert not said_of(tmp_path, f"{text} AS t, i % 2 AS y", "amounts")
