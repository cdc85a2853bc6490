"""Every query of every panel and every rule, asked of a Prometheus that saw a job."""

import json
import math
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
import yaml

from tests.integration.monitoring.conftest import NAME
from tests.prometheus.server import RULES
from tests.prometheus.tools import program

# worker.heartbeatSeconds, and how often the tests' Prometheus asks.
HEARTBEAT_SECONDS = SCRAPE_SECONDS = 1.0
ROOT = Path(__file__).parents[3]
BOARDS = [json.loads(f.read_text()) for f in sorted((ROOT / "dashboards").glob("*"))]
PANELS = [
    (board["uid"], panel)
    for board in BOARDS
    for panel in board["panels"]
    if panel["type"] != "row"
]
# Rows of a table are told apart by their labels.
DRAWN = [(uid, panel) for uid, panel in PANELS if panel["type"] != "table"]
QUERIES = [(uid, panel, one) for uid, panel in PANELS for one in panel["targets"]]
RULE_GROUPS = yaml.safe_load(RULES.read_text())["groups"]
EACH_RULE = [rule for group in RULE_GROUPS for rule in group["rules"]]


def filled_in(expression, watched):
    """Return an expression as Grafana asks it, for scrapes of each second."""
    for word, value in {
        "$__rate_interval": "4s",
        "$__interval": "1s",
        "$__range": f"{round(watched.ended - watched.started)}s",
        "$namespace": "local",
        "$job": NAME,
    }.items():
        expression = expression.replace(word, value)
    assert "$" not in expression
    return expression


def name_of(part):
    if isinstance(part, dict):
        return part.get("title") or part.get("refId") or part.get("alert", "record")
    return part


@pytest.mark.parametrize(("uid", "panel", "target"), QUERIES, ids=name_of)
def test_each_query_of_each_panel_has_an_answer_of_the_right_shape(
    watched, uid, panel, target
):
    asked = filled_in(target["expr"], watched)
    found = watched.prometheus.over_time(asked, watched.started, watched.ended)
    assert found, f"{uid}, {panel['title']}: nothing for {asked}"
    values = [value for _, points in found for _, value in points]
    assert all(math.isfinite(value) for value in values), asked
    for labels, points in found:
        assert set(re.findall(r"{{(\w+)}}", target.get("legendFormat", ""))) <= set(
            labels
        )
        if target.get("format") == "table":
            assert "__name__" not in labels
        assert points
    if panel["type"] == "timeseries":
        assert target["range"]
        assert max(len(points) for _, points in found) > 1, "no line, only a point"
    else:
        assert target["instant"]
        last = max(at for _, points in found for at, _ in points)
        assert watched.prometheus.series(asked, at=last)


@pytest.mark.parametrize(("uid", "panel"), DRAWN, ids=name_of)
def test_no_panel_draws_two_lines_of_one_name(watched, uid, panel):
    names = set()
    for target in panel["targets"]:
        asked = filled_in(target["expr"], watched)
        for labels, _ in watched.prometheus.over_time(
            asked, watched.started, watched.ended
        ):
            name = re.sub(
                r"{{(\w+)}}", lambda m, of=labels: of[m[1]], target["legendFormat"]
            )
            assert name not in names, name
            names.add(name)


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board["uid"])
def test_annotations_stand_where_membership_changed(watched, board):
    (annotation,) = board["annotations"]["list"]
    asked = filled_in(annotation["expr"], watched)
    found = watched.prometheus.over_time(asked, watched.started, watched.ended)
    times = {}
    for labels, points in found:
        assert labels["training_job"] == NAME
        times[labels["cause"]] = sorted({value / 1000 for _, value in points})
        assert watched.started - 1 <= times[labels["cause"]][0]
        assert times[labels["cause"]][-1] <= watched.ended
    assert {"killed", "preempted"} <= set(times)
    (killed,) = (r for r in watched.report.relaunches if r.reason == "killed")
    assert times["killed"] == [pytest.approx(killed.time, abs=0.01)]


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board["uid"])
def test_variables_offer_the_job(watched, board):
    for variable, value in zip(
        board["templating"]["list"][1:], ("local", NAME), strict=True
    ):
        query = filled_in(variable["query"]["query"], watched)
        series, label = re.fullmatch(r"label_values\((.+), (\w+)\)", query).groups()
        offered = watched.prometheus.get(f"label/{label}/values", **{"match[]": series})
        assert value in offered


@pytest.mark.parametrize("rule", EACH_RULE, ids=lambda r: r.get("alert") or r["record"])
def test_each_rule_can_be_asked_and_what_is_recorded_is_there(watched, rule):
    found = watched.prometheus.over_time(rule["expr"], watched.started, watched.ended)
    if "record" in rule:
        assert found, rule["expr"]
        recorded = watched.prometheus.over_time(
            rule["record"], watched.started, watched.ended
        )
        assert recorded, "nothing was recorded"


def test_prometheus_has_evaluated_all_rules_without_an_error(watched):
    rules = [
        rule
        for group in watched.prometheus.get("rules")["groups"]
        for rule in group["rules"]
    ]
    assert len(rules) == len(EACH_RULE)
    assert {rule["health"] for rule in rules} == {"ok"}
    assert not [rule for rule in rules if rule.get("lastError")]


def test_every_alert_that_fired_says_so_in_whole_sentences(watched):
    assert "ElasticDLMasterRestarted" in watched.fired
    for alert in watched.fired.values():
        for text in alert["annotations"].values():
            assert "error" not in text
            assert "<no value>" not in text
        assert NAME in alert["annotations"]["summary"]


@pytest.mark.parametrize("role", ["master", "ps", "worker", "exporter"])
def test_promtool_has_nothing_to_say_about_the_metrics_of(watched, role):
    text = watched.shown[role]
    done = subprocess.run(
        [program("promtool"), "check", "metrics"],
        input=text, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def value(watched, expression):
    return watched.prometheus.value(filled_in(expression, watched), at=watched.ended)


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
        assert value(watched, f"sum({metric})") == expected, metric
    preempted = [r for r in report.relaunches if r.reason == "preempted"]
    assert value(watched, "sum(elasticdl_preemptions_total)") == len(preempted)
    accuracy = value(watched, 'elasticdl_evaluation_metric{metric="accuracy"}')
    shown = watched.at_rest.last_evaluation.metrics["accuracy"]
    assert accuracy == pytest.approx(shown)


def at_time(watched, expression, when):
    """Return a sum between two scrapes, as if it had been asked just then."""
    points = {}
    for _, samples in watched.prometheus.over_time(
        expression, watched.started, watched.ended + 1, step=0.25
    ):
        for at, amount in samples:
            points[at] = points.get(at, 0.0) + amount
    times = sorted(points)
    return float(np.interp(when, times, [points[t] for t in times]))


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
    of_job = value(
        watched,
        'sum(elasticdl_goodput_seconds_total{cause!~"pending|preempted"})',
    )
    ended = sum(r.replica.startswith("worker") for r in watched.report.relaunches)
    ended += 1  # the one that scaling took away
    unknown = ended * (HEARTBEAT_SECONDS + SCRAPE_SECONDS)
    assert abs(of_job - of_workers) <= 0.01 * of_workers + unknown
    told = sum(watched.at_rest.goodput_seconds.values())
    drawn = at_time(
        watched, "sum(elasticdl_goodput_seconds_total)", watched.at_rest.time
    )
    assert drawn == pytest.approx(told, rel=0.01)
