"""Numbers as people read them."""

from __future__ import annotations

from pathlib import Path

import pytest
from elasticdl.views import formatting as text


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (-1, "0.0 s"),
        (0.42, "0.4 s"),
        (9.96, "10 s"),
        (41.4, "41 s"),
        (125, "2 min 05 s"),
        (3780, "1 h 03 min"),
        (187_200, "2 d 04 h"),
    ],
)
def test_durations(seconds: float, expected: str) -> None:
    assert text.duration(seconds) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0.2, "1 s left"),
        (41.4, "41 s left"),
        (59.6, "1 min left"),
        (91, "2 min left"),
        (3569, "59 min left"),
        (3590, "1 h 00 min left"),
        (187_200, "2 d 04 h left"),
    ],
)
def test_what_is_left_is_no_more_exact_than_an_estimate(
    seconds: float, expected: str
) -> None:
    assert text.left(seconds) == expected


def test_counts_and_rates() -> None:
    assert text.count(28740) == "28 740"
    assert text.rate(1234.5) == "1 234"
    assert text.rate(41.23) == "41.2"
    assert text.plural(1, "relaunch") == "1 relaunch"
    assert text.plural(2, "relaunch") == "2 relaunches"
    assert text.plural(25, "finished epoch") == "25 finished epochs"
    assert text.plural(2, "skipped batch") == "2 skipped batches"
    assert text.plural(1200, "worker") == "1 200 workers"


def test_a_hundred_percent_is_all_of_it() -> None:
    assert text.percent(999, 1000) == "99 %"
    assert text.percent(1000, 1000) == "100 %"
    assert text.percent(0, 0) == "0 %"


def test_metrics_and_sizes() -> None:
    assert text.metrics({"loss": 0.05, "accuracy": 0.98123}) == (
        "accuracy 0.9812, loss 0.05"
    )
    assert text.size(512) == "512 B"
    assert text.size(612 << 20) == "612 MiB"
    assert text.size(3 << 30) == "3.0 GiB"


def test_the_line_that_says_most() -> None:
    trace = "Traceback (most recent call last):\n  File x\nValueError: no\n"
    assert text.first_line(trace) == "ValueError: no"
    assert text.first_line("\nfirst\nsecond") == "first"
    assert text.first_line("") == ""


def test_a_message_is_told_without_its_trace() -> None:
    trace = "    Traceback (most recent call last):\n      File x\n    KeyError: 3"
    assert text.without_trace(f"net.py:7: no layer\n{trace}") == "net.py:7: no layer"
    assert text.first_line(f"net.py:7: no layer\n{trace}") == "net.py:7: no layer"
    mistakes = "2 mistakes\n  a: 1\n  b: 2"
    assert text.without_trace(mistakes) == mistakes


def test_a_path_is_shown_as_one_would_type_it(tmp_path: Path) -> None:
    assert text.path(tmp_path / "jobs" / "a", here=tmp_path) == "jobs/a"
    assert text.path(Path.home() / "jobs", here=tmp_path) == "~/jobs"
    assert text.path("/elsewhere/x", here=tmp_path) == "/elsewhere/x"
    assert text.path("outputs/digits", here=tmp_path) == "outputs/digits"
    assert text.path("", here=tmp_path) == ""
