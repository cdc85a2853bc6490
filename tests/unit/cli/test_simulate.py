"""`elasticdl simulate`: one table, one page, and what is wrong with its arguments."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from elasticdl.cli.main import main
from elasticdl.errors import ExitCode

from tests.reading import Reading

TRACE = "nodes: [{cpu: 4}]\njobs: [{name: one, work: 10, workers: {max: 2}}]\n"


@pytest.fixture
def trace(tmp_path: Path) -> str:
    file = tmp_path / "mine.yaml"
    file.write_text(TRACE)
    return str(file)


def test_each_policy_is_a_row(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", trace]) == ExitCode.OK
    said = capsys.readouterr().out
    for words in ("mine", "gang", "fixed", "edl", "elastic", "AT MOST", "6.0 s"):
        assert words in said, words


def test_figures_are_there_for_programs(
    trace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", trace, "--policy", "fixed", "--json"]) == ExitCode.OK
    (made,) = json.loads(capsys.readouterr().out)
    assert made["policy"] == "fixed"
    assert made["makespan"] == pytest.approx(16.0)


def test_the_page_has_the_courses_of_each_policy(trace: str, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    line = ["simulate", trace, "--policy", "gang,elastic", "--report", str(file)]
    assert main(line) == ExitCode.OK
    page = Reading(file.read_text())
    for words in ("Simulated: mine", "Sizes under gang", "Sizes under elastic"):
        assert words in page.text, words


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "expected a file or the name of a shipped trace: 20-jobs"),
        (["two-jobs", "--policy", "elastik"], "did you mean `elastic`?"),
        (["two-job"], "did you mean `two-jobs`?"),
        (["two-jobs", "--policy", ","], "--policy: got ',', expected"),
        (["x", "--import", "pollux", "--nodes", "9999999x4"], "9999999 nodes"),
        (["two-jobs", "--save", "x"], "expected --import beside it"),
        (
            ["x", "--import", "pollux", "--nodes", "4"],
            "expected nodes and GPUs of each",
        ),
    ],
)
def test_what_cannot_be_simulated_is_told(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", *words]) == ExitCode.SPEC
    assert says in capsys.readouterr().err
