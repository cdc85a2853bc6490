"""Charts of a dashboard's panels."""

from __future__ import annotations

import math
from datetime import UTC

import pytest
from elasticdl.views.figures import units
from elasticdl.views.figures.panels import (
    Moment,
    NamedSeries,
    TimeAxis,
    gauges,
    over_time,
)

AXIS = TimeAxis(start=0.0, end=100.0, step=10.0, zone=UTC)


def test_the_axis_has_the_unit_that_reads_well() -> None:
    line = NamedSeries("PS 0", [(0.0, 3 * 2**20), (10.0, 2**20)], unit="Bps")
    figure = over_time([line], AXIS)
    assert list(figure.data[0].y) == [3.0, 1.0]
    assert figure.layout.yaxis.title.text == "MiB/s"


def test_a_hole_in_a_series_is_not_bridged() -> None:
    line = NamedSeries("x", [(0.0, 1.0), (10.0, math.nan), (50.0, 2.0)])
    assert list(over_time([line], AXIS).data[0].y) == [1.0, None, None, 2.0]


def test_a_series_may_have_the_right_axis() -> None:
    lines = [
        NamedSeries("accuracy", [(0.0, 0.5)]),
        NamedSeries("loss", [(0.0, 2.0)], right=True),
    ]
    figure = over_time(lines, AXIS)
    assert [trace.yaxis for trace in figure.data] == [None, "y2"]
    assert figure.data[1].name == "loss (right)"
    assert figure.layout.yaxis2.side == "right"


def test_series_do_not_share_a_colour_with_one_that_has_its_own() -> None:
    names = ["preempted so far", "running", "away"]
    figure = over_time([NamedSeries(name, [(0.0, 1.0)]) for name in names], AXIS)
    assert len({trace.line.color for trace in figure.data}) == 3


def test_moments_are_marked_with_their_words() -> None:
    line = NamedSeries("x", [(0.0, 1.0)])
    figure = over_time([line], AXIS, moments=[Moment(5.0, "digits: <b>joined")])
    assert figure.data[-1].text == ("digits: &lt;b&gt;joined",)
    assert len(figure.layout.shapes) == 1


def test_gauges_have_the_largest_on_top_and_leave_out_what_is_no_number() -> None:
    (bars,) = gauges([("a", 30.0), ("b", math.nan), ("c", 90.0)], "s").data
    assert list(bars.y) == ["c", "a"]
    assert list(bars.text) == ["1 min 30 s", "30 s"]


@pytest.mark.parametrize(
    ("value", "unit", "said"),
    [
        (0.0021, "s", "2.1 ms"),
        (65.0, "s", "1 min 05 s"),
        (250.0, "ms", "250 ms"),
        (0.646, "percentunit", "64.6 %"),
        (3 * 2**20, "Bps", "3 MiB/s"),
        (12_345.0, "short", "12 345"),
        (0.98765, "none", "0.9877"),
        (-3.0, "short", "-3"),
        (math.nan, "s", "NaN"),
        (math.inf, "short", "∞"),
    ],
)
def test_a_value_is_shown_in_its_unit(value: float, unit: str, said: str) -> None:
    assert units.shown(value, unit) == said
