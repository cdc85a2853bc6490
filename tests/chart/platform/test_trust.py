"""docs/trust.md: each line of the threat model names tests that exist."""

import re

import pytest

from tests.chart.rendering import ROOT

PAGE = (ROOT / "docs" / "trust.md").read_text()
ROWS = [line.strip("|").split("|") for line in PAGE.splitlines() if "| `test_" in line]
DEFINED = {
    name
    for file in (ROOT / "tests").rglob("test_*.py")
    for name in re.findall(r"(?m)^(?:async )?def (test_\w+)", file.read_text())
}


def named_tests(row):
    return re.findall(r"`(test_\w+)`", row[-1])


@pytest.mark.parametrize("row", ROWS, ids=lambda row: named_tests(row)[0])
def test_a_line_of_the_threat_model_names_tests_that_exist(row):
    assert len(row) == 4
    assert row[1].strip() or row[2].strip(), "it grants nothing and denies nothing"
    assert set(named_tests(row)) <= DEFINED


def test_every_line_of_the_table_is_one_of_those():
    table = [line for line in PAGE.splitlines() if line.startswith("| ")]
    assert len(ROWS) == len(table) - 1  # the heading


def test_all_who_take_part_are_in_the_table():
    said = " ".join(row[0] for row in ROWS)
    for who in (
        "platform admin", "commits or submits values", "by commits", "model code",
        "a PS", "a master's account", "exporter", "another job", "another namespace",
    ):  # fmt: skip
        assert who in said


def test_security_md_says_the_boundary_in_five_sentences_and_points_here():
    text = (ROOT / "SECURITY.md").read_text()
    sentences = re.findall(r"(?m)^\d\. ", text)
    assert len(sentences) == 5
    assert "(docs/trust.md)" in text
