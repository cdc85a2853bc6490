"""The charts of a job, from its recorded history."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC
from typing import Any

import pytest
from elasticdl.job.decision import Decision
from elasticdl.job.history import History, HistorySample, PsSample
from elasticdl.job.status import EvaluationResult
from elasticdl.views.figures import job, learning, ps, work, workers
from elasticdl.views.figures.look import Chart

from tests.recorded import PREEMPTED_AT, STARTED, recorded_history


@pytest.fixture(scope="module")
def history() -> History:
    return recorded_history()


def all_charts(history: History) -> list[Chart]:
    last = history.samples[-1].goodput_seconds if history.samples else {}
    sections = job.sections(
        history, goodput_seconds=last, evaluations=history.evaluations, zone=UTC
    )
    return [chart for section in sections for chart in section.charts]


def traces(chart: Chart) -> dict[str, Any]:
    return {trace.name: trace for trace in chart.figure.data}


def numbers(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def sample(second: float, **fields: Any) -> HistorySample:
    counts = {
        "workers_wanted": 1, "workers_min": 1, "workers_max": 1,
        "workers_running": 1, "workers_pending": 0,
    }  # fmt: skip
    given = {"time": STARTED + second, "state": "running", **counts, **fields}
    return HistorySample.model_validate(given)


def test_every_chart_has_data_axes_and_a_key_of_its_own(history: History) -> None:
    charts = all_charts(history)
    assert len({chart.key for chart in charts}) == len(charts) >= 17
    for chart in charts:
        assert chart.figure is not None, chart.key
        for trace in chart.figure.data:
            values = trace.x if trace.type == "bar" else trace.y
            assert numbers(values), f"{chart.key}: {trace.name}"
        layout = chart.figure.layout
        assert layout.yaxis.title.text or layout.xaxis.title.text, chart.key
        assert chart.text.endswith("."), chart.text


def test_a_job_without_history_has_no_chart_and_each_says_why() -> None:
    for chart in all_charts(History()):
        assert chart.figure is None
        assert chart.text.endswith(".")


def test_a_job_that_has_just_begun_is_drawn_as_far_as_it_is() -> None:
    charts = {chart.key: chart for chart in all_charts(recorded_history(until=1))}
    assert charts["workers"].figure is not None
    assert charts["loss"].figure is None


def test_workers_are_marked_where_and_why_they_were_lost(history: History) -> None:
    found = traces(workers.counts(history, UTC))
    lost = found["preempted"]
    assert len(lost.x) == 3
    assert all("preempted" in text for text in lost.text)
    assert found["running"].y[PREEMPTED_AT - 1] == 4
    assert found["running"].y[PREEMPTED_AT] == 1
    assert len(found["came, or came back"].x) == 7
    assert len(found["master, rewind, edit"].x) == 1
    assert set(found["maximum"].y) == {6.0}


def test_worker_seconds_add_up_to_all_that_were_spent(history: History) -> None:
    seconds = history.samples[-1].goodput_seconds
    (bars,) = work.goodput_sum(seconds).figure.data
    assert sum(bars.x) * 60 == pytest.approx(sum(seconds.values()))
    assert bars.y[0] == "training"


def test_what_workers_did_adds_up_to_the_workers_wanted(history: History) -> None:
    stack = work.goodput(history, UTC).figure.data
    at_200 = sum(trace.y[200] for trace in stack)
    assert at_200 == pytest.approx(4.0, abs=0.01)


def test_a_loss_that_is_not_finite_is_a_gap_with_a_mark() -> None:
    losses = [1.0, math.nan, math.inf, 0.5]
    history = History([sample(n, loss=value) for n, value in enumerate(losses)])
    chart = learning.loss(history, UTC)
    found = traces(chart)
    assert list(found["loss"].y) == [1.0, None, None, 0.5]
    assert len(found["not finite"].x) == 2
    assert "2 samples were not finite" in chart.text
    assert ":NaN" not in chart.json
    assert ",NaN" not in chart.json


def test_only_losses_that_are_not_finite_can_be_drawn_too() -> None:
    history = History([sample(n, loss=math.nan) for n in range(3)])
    assert len(traces(learning.loss(history, UTC))["not finite"].x) == 3


def test_a_metric_that_is_not_finite_is_a_gap() -> None:
    results = [
        EvaluationResult(
            version=n, metrics={"auc": value}, records=5, seconds=1, time=STARTED + n
        )
        for n, value in enumerate((0.5, math.nan))
    ]
    (chart,) = learning.evaluations(results, UTC)
    assert list(chart.figure.data[0].y) == [0.5, None]


def test_the_straggler_is_named_and_nobody_else(history: History) -> None:
    chart = workers.stragglers(history)
    assert "Stragglers: worker-5." in chart.text
    assert chart.figure.data[0].y[0] == "worker-5"
    assert "worker-5 (straggler)" in traces(workers.step_times(history, UTC))


def test_of_many_workers_the_slowest_are_drawn_beside_the_median() -> None:
    many = {
        str(index): {"state": "running", "step_seconds": 0.1 + index / 1000}
        for index in range(200)
    }
    history = History([sample(n, workers=many) for n in range(3)])
    found = traces(workers.step_times(history, UTC))
    assert len(found) == 11
    assert {"median of all", "worker-199 (straggler)"} <= set(found)


def test_samples_that_leave_workers_out_do_not_cut_the_lines() -> None:
    one = {"0": {"state": "running", "step_seconds": 0.1}}
    history = History([sample(n, workers=one if n % 2 else {}) for n in range(6)])
    found = traces(workers.step_times(history, UTC))
    assert list(found["worker-0"].y) == [100.0, 100.0, 100.0]


def test_the_hot_shard_is_named(history: History) -> None:
    charts = {chart.key: chart for chart in ps.charts(history, UTC)}
    assert "Hot: ps-0." in charts["ps-hot"].text
    assert "limit 1.0 GiB" in charts["ps-memory"].text


def test_a_ps_that_was_restarted_counts_from_zero_again() -> None:
    def at(second: int, received: int) -> HistorySample:
        one = PsSample(state="running", received_bytes=received)
        return sample(second, ps={"0": one})

    history = History([at(0, 1000), at(1, 2000), at(2, 500), at(3, 1500)])
    charts = {chart.key: chart for chart in ps.charts(history, UTC)}
    (trace,) = charts["ps-bytes"].figure.data
    assert numbers(trace.y) == [1000, 500, 1000]


def test_seconds_that_a_new_master_has_not_heard_of_are_no_jump_later() -> None:
    spent = [10.0, 20.0, 5.0, 5.0, 50.0]
    history = History(
        [sample(n, goodput_seconds={"train": value}) for n, value in enumerate(spent)]
    )
    (trace,) = work.goodput(history, UTC).figure.data
    assert list(trace.y) == [0.0, 10.0, 10.0, 10.0, 10.0]


def test_a_long_history_is_thinned() -> None:
    history = History([sample(n, records_per_second=5.0) for n in range(20_000)])
    charts = {chart.key: chart for chart in all_charts(history)}
    assert len(charts["speed"].figure.data[0].x) == job.MOST_SAMPLES


def test_names_and_words_are_no_markup_in_a_chart() -> None:
    hostile = "<a href='javascript:alert(1)'>x</a>"
    decision = Decision(time=STARTED, kind="ended", replica=hostile, text=hostile)
    result = EvaluationResult(
        version=1, metrics={hostile: 1.0}, records=1, seconds=1, time=STARTED
    )
    history = History([sample(0)], [decision], [result])
    for chart in all_charts(history):
        if chart.figure is not None:
            assert "<a" not in chart.json.replace("\\u003c", "<"), chart.key
