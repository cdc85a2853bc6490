"""Every query of every panel and every rule, asked of a Prometheus that saw a job."""

import subprocess

import numpy as np
import pytest

from tests.integration.monitoring.conftest import NAME
from tests.prometheus.boards import (
    BOARDS,
    DRAWN,
    EACH_RULE,
    QUERIES,
    assert_answered,
    assert_no_line_twice,
    assert_offered,
    assert_rule_answered,
    assert_rules_evaluated,
)
from tests.prometheus.tools import program

# One job goes through all that is asked about; it takes a minute and a half alone.
pytestmark = pytest.mark.timeout(400)

# worker.heartbeatSeconds, and how often the tests' Prometheus asks.
HEARTBEAT_SECONDS = SCRAPE_SECONDS = 1.0


def name_of(part):
    if isinstance(part, dict):
        return part.get("title") or part.get("refId") or part.get("alert", "record")
    return part


@pytest.mark.parametrize(("uid", "panel", "target"), QUERIES, ids=name_of)
def test_each_query_of_each_panel_has_an_answer_of_the_right_shape(
    watched, uid, panel, target
):
    assert_answered(watched, uid, panel, target)


@pytest.mark.parametrize(("uid", "panel"), DRAWN, ids=name_of)
def test_no_panel_draws_two_lines_of_one_name(watched, uid, panel):
    assert_no_line_twice(watched, panel)


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board["uid"])
def test_annotations_stand_where_membership_changed(watched, board):
    (annotation,) = board["annotations"]["list"]
    times = {}
    for labels, points in watched.over_time(annotation["expr"]):
        assert labels["training_job"] == NAME
        times[labels["cause"]] = sorted({value / 1000 for _, value in points})
        assert watched.started - 1 <= times[labels["cause"]][0]
        assert times[labels["cause"]][-1] <= watched.ended
    assert {"killed", "preempted"} <= set(times)
    (killed,) = (r for r in watched.report.relaunches if r.reason == "killed")
    assert times["killed"] == [pytest.approx(killed.time, abs=0.01)]


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board["uid"])
def test_variables_offer_the_job(watched, board):
    assert_offered(watched, board)


@pytest.mark.parametrize("rule", EACH_RULE, ids=lambda r: r.get("alert") or r["record"])
def test_each_rule_can_be_asked_and_what_is_recorded_is_there(watched, rule):
    assert_rule_answered(watched, rule)


def test_prometheus_has_evaluated_all_rules_without_an_error(watched):
    assert_rules_evaluated(watched.prometheus)


def test_every_alert_that_fired_says_so_in_whole_sentences(watched):
    assert "ElasticDLMasterRestarted" in watched.fired
    for alert in watched.fired.values():
        for text in alert["annotations"].values():
            assert "error" not in text
            assert "<no value>" not in text
        assert NAME in alert["annotations"]["summary"]


@pytest.mark.parametrize("role", ["master", "ps", "worker", "exporter", "controller"])
def test_promtool_has_nothing_to_say_about_the_metrics_of(watched, role):
    text = watched.shown[role]
    done = subprocess.run(
        [program("promtool"), "check", "metrics"],
        input=text, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_figures_are_those_of_the_jobs_own_report(watched):
    report = watched.report
    for metric, expected in {
        "elasticdl_job_records_done": report.records,
        "elasticdl_job_steps_done": report.steps,
        "elasticdl_job_model_version": report.version,
        "elasticdl_job_replayed_records_total": report.replayed_records,
        "elasticdl_relaunches_total": len(report.relaunches),
        "elasticdl_master_restarts_total": report.master_restarts,
        "elasticdl_rewinds_total": report.rewinds,
        "elasticdl_lost_updates_total": report.lost_updates,
    }.items():
        assert watched.value(f"sum({metric})") == expected, metric
    preempted = [r for r in report.relaunches if r.reason == "preempted"]
    assert watched.value("sum(elasticdl_preemptions_total)") == len(preempted)
    accuracy = watched.value('elasticdl_evaluation_metric{metric="accuracy"}')
    shown = watched.at_rest.last_evaluation.metrics["accuracy"]
    assert accuracy == pytest.approx(shown)


def scraped(watched, metric):
    """Return the times of all scrapes of a metric, and its sum in each."""
    sums = {}
    span = round(watched.ended - watched.started)
    found = watched.prometheus.get(
        "query", query=f"{metric}[{span}s]", time=watched.ended
    )
    for one in found["result"]:
        for at, amount in one["values"]:
            sums[at] = sums.get(at, 0.0) + float(amount)
    times = sorted(sums)
    return times, [sums[at] for at in times]


def test_goodput_sums_to_worker_seconds_within_one_percent(watched):
    """The master's sums, and what each worker counts of its own life.

    The last moments of one that ended are known to a heartbeat, and to a scrape.
    """
    of_workers = sum(
        seconds
        for _, seconds in watched.prometheus.series(
            "sum by (index) (last_over_time(elasticdl_worker_goodput_seconds_total"
            f"[{round(watched.ended - watched.started)}s]))",
            at=watched.ended,
        )
    )
    of_job = watched.value(
        'sum(elasticdl_goodput_seconds_total{cause!~"pending|preempted"})'
    )
    ended = sum(r.replica.startswith("worker") for r in watched.report.relaunches)
    ended += 1  # the one that scaling took away
    unknown = ended * (HEARTBEAT_SECONDS + SCRAPE_SECONDS)
    assert abs(of_job - of_workers) <= 0.01 * of_workers + unknown
    told = sum(watched.at_rest.goodput_seconds.values())
    # The status was made between two scrapes. All seconds of a heartbeat come at once,
    # so nothing closer is known. A scrape's time is that of its beginning: the one
    # before may have been answered after the status.
    times, sums = scraped(watched, "elasticdl_goodput_seconds_total")
    after = int(np.searchsorted(times, watched.at_rest.time))
    assert 2 <= after < len(times)
    assert sums[after - 2] <= told + 1e-6
    assert told <= sums[after] + 1e-6
