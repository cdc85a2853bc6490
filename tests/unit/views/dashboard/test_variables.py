"""What is filled into a dashboard's queries."""

from __future__ import annotations

import pytest
from elasticdl.errors import SpecError
from elasticdl.views.dashboard.variables import (
    ALL,
    Window,
    filled,
    legend,
    moment,
)

NOW = 1_790_003_600.0


def window(begin: str = "now-1h", scrape_seconds: float = 15.0) -> Window:
    return Window.of(begin, "now", now=NOW, scrape_seconds=scrape_seconds)


def fill(expression: str, **chosen: list[str]) -> str:
    return filled(expression, chosen, window())


def test_a_value_is_filled_in_however_the_variable_is_written() -> None:
    for form in ("$job", "${job}", "${job:regex}"):
        assert fill(f'up{{training_job="{form}"}}', job=["digits"]) == (
            'up{training_job="digits"}'
        )


def test_a_name_is_taken_whole_and_an_unknown_one_is_left() -> None:
    assert fill('x{a="$jobs",b="$job"}', job=["d"]) == 'x{a="$jobs",b="d"}'


def test_a_value_cannot_leave_its_string() -> None:
    assert fill('up{job="$job"}', job=['"} or vector(1) #']) == (
        'up{job="\\"} or vector(1) #"}'
    )


def test_in_a_pattern_a_value_means_itself() -> None:
    assert fill('up{job=~"$job"}', job=["a.b"]) == 'up{job=~"a\\\\.b"}'
    assert fill('up{job=~"$job"}', job=["a", "b"]) == 'up{job=~"a|b"}'
    assert fill('up{job=~"$job"}', job=[ALL]) == 'up{job=~".*"}'


def test_intervals_follow_the_window_and_the_scrapes() -> None:
    assert fill("rate(x[$__rate_interval])") == "rate(x[60000ms])"
    assert fill("x[$__range] $__interval") == "x[3605s] 15000ms"
    day = filled("[$__rate_interval]", {}, window("now-24h", scrape_seconds=5))
    assert day == "[245000ms]"


def test_moments_are_relative_or_milliseconds() -> None:
    assert moment("now", now=NOW) == NOW
    assert moment("now-2d", now=NOW) == NOW - 172_800
    assert moment("1790000000500", now=NOW) == 1_790_000_000.5
    with pytest.raises(SpecError, match="got the time 'yesterday', expected now"):
        moment("yesterday", now=NOW)


def test_a_window_ends_after_it_begins() -> None:
    with pytest.raises(SpecError, match="expected an end"):
        Window.of("now", "now-1h", now=NOW, scrape_seconds=15)


def test_points_stay_where_they_are_when_time_goes_on() -> None:
    later = Window.of("now-1h", "now", now=NOW + 3, scrape_seconds=15)
    assert later.start in (window().start, window().start + 15)


def test_a_series_is_named_by_its_form_or_by_its_labels() -> None:
    labels = {"__name__": "up", "job": "d", "cause": "train"}
    assert legend("{{ cause }} of {{job}}", labels) == "train of d"
    assert legend("", labels) == "job=d, cause=train"
