"""Alerts and recording rules: promtool's checks, and what the chart makes of them."""

import re
import subprocess

import pytest
import yaml
from elasticdl.job.chart_monitoring import ThresholdsValues
from elasticdl.metrics.registry import ROLES

from tests.chart.rendering import ROOT, objects
from tests.prometheus.server import RULES, with_thresholds
from tests.prometheus.tools import program

TESTS = ROOT / "tests" / "chart" / "rules" / "alerts.yaml"
PAGE = (ROOT / "docs" / "monitoring.md").read_text()
TEXT = RULES.read_text()
SET_UP = ("metrics.md", "monitoring.md", "report.md")
MARK = re.compile(r" # threshold: \w+")
GROUPS = yaml.safe_load(MARK.sub("", TEXT))["groups"]
ALERTS = [rule for group in GROUPS for rule in group["rules"] if "alert" in rule]
NAMES = [rule["alert"] for rule in ALERTS]
BY_DEFAULT = ThresholdsValues().model_dump(by_alias=True)


def promtool(*arguments):
    done = subprocess.run(
        [program("promtool"), *arguments], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


def rule_object(**settings):
    monitoring = {"rules": {"enabled": True, **settings}}
    return objects({"monitoring": monitoring})["PrometheusRule", "elasticdl"]


def test_promtool_has_nothing_to_say_about_the_rules():
    code, said = promtool("check", "rules", "--lint=all", "--lint-fatal", str(RULES))
    assert code == 0, said


def test_each_alert_fires_when_it_should_and_is_silent_when_not():
    code, said = promtool("test", "rules", str(TESTS))
    assert code == 0, said


def test_each_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not():
    cases = {case["name"]: case for case in yaml.safe_load(TESTS.read_text())["tests"]}
    assert sorted(cases) == sorted(NAMES)
    for name, case in cases.items():
        alerts = [t for t in case["promql_expr_test"] if name in t["expr"]]
        fired = {
            f'training_job="{job}"' in sample["labels"]
            for test in alerts
            for sample in test["exp_samples"]
            for job in ("loud",)
        }
        assert fired == {True}, f"{name}: only the job `loud` is to be heard"
        series = " ".join(entry["series"] for entry in case["input_series"])
        assert 'training_job="calm"' in series, f"{name}: no job that is to be silent"


def test_a_case_that_is_wrong_is_noticed(tmp_path):
    (tmp_path / "rules.yaml").write_text(with_thresholds(TEXT, noStepSeconds=6000))
    text = TESTS.read_text()
    there = "../../../charts/elasticdl/files/rules/elasticdl.yaml"
    assert there in text
    (tmp_path / "alerts.yaml").write_text(text.replace(there, "rules.yaml"))
    code, said = promtool("test", "rules", str(tmp_path / "alerts.yaml"))
    assert code != 0
    assert "ElasticDLNoStep" in said


@pytest.mark.parametrize("rule", ALERTS, ids=NAMES)
def test_each_alert_says_how_bad_it_is_what_it_means_and_where_to_read_on(rule):
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    assert "$labels.training_job" in rule["annotations"]["summary"]
    assert "$value" in rule["annotations"]["description"]
    page, anchor = rule["annotations"]["runbook_url"].split("#")
    assert page.endswith("/docs/monitoring.md")
    assert anchor == rule["alert"].lower()


@pytest.mark.parametrize("name", NAMES)
def test_each_alert_has_a_runbook_with_a_command_to_look_with(name):
    section = re.split(r"^#{2,3} ", PAGE.split(f"\n### {name}\n")[1], flags=re.M)[0]
    assert "elasticdl " in section
    for part in ("**What it means.**", "**Look.**", "**Do.**"):
        assert part in section


def test_no_runbook_is_left_of_an_alert_that_is_gone():
    assert re.findall(r"^### (ElasticDL\w+)$", PAGE, flags=re.M) == NAMES


def test_rules_ask_for_metrics_that_exist():
    declared = {one.name for role in ROLES.values() for one in role().declared}
    declared |= {
        f"{one.name}_{part}"
        for role in ROLES.values()
        for one in role().declared
        if one.kind == "histogram"
        for part in ("bucket", "sum", "count")
    }
    recorded = {rule.get("record") for group in GROUPS for rule in group["rules"]}
    for group in GROUPS:
        for rule in group["rules"]:
            names = set(re.findall(r"(?<![:\w])elasticdl_\w+", rule["expr"]))
            assert names <= declared, names - declared
            derived = set(re.findall(r"\w+:elasticdl_\w+:\w+", rule["expr"]))
            assert derived <= recorded, derived - recorded


def test_the_rules_hold_the_thresholds_of_the_values_and_no_others():
    marked = {
        key: float(number.rstrip("s"))
        for number, key in re.findall(r"(\S+) # threshold: (\w+)", TEXT)
    }
    assert marked == BY_DEFAULT


def test_no_rule_is_installed_unless_it_is_wanted():
    assert "PrometheusRule" not in {kind for kind, _ in objects()}


def test_the_chart_wraps_the_rules_as_they_are():
    made = rule_object(labels={"release": "prometheus"})
    assert made["apiVersion"] == "monitoring.coreos.com/v1"
    assert made["metadata"]["labels"]["release"] == "prometheus"
    assert made["spec"] == {"groups": GROUPS}


def test_each_threshold_reaches_its_rule():
    for key, value in BY_DEFAULT.items():
        other = 1_234_567 if key.endswith("Seconds") else value / 2 if value < 1 else 9
        spec = rule_object(thresholds={key: other})["spec"]
        expected = MARK.sub("", with_thresholds(TEXT, **{key: other}))
        assert spec == yaml.safe_load(expected), key
        assert spec["groups"] != GROUPS


def test_rules_with_other_thresholds_are_taken_by_promtool(tmp_path):
    halves = {key: int(value) * 10 or 0.5 for key, value in BY_DEFAULT.items()}
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump(rule_object(thresholds=halves)["spec"]))
    code, said = promtool("check", "rules", str(file))
    assert code == 0, said


def test_prometheus_takes_each_configuration_of_the_docs(tmp_path):
    pages = "".join((ROOT / "docs" / name).read_text() for name in SET_UP)
    blocks = re.findall(r"^```yaml\n(scrape_configs:.*?)^```", pages, flags=re.M | re.S)
    assert blocks
    for block in blocks:
        for scrape in yaml.safe_load(block)["scrape_configs"]:
            assert "honor_labels" not in scrape
        if "kubernetes_sd_configs" in block:
            continue  # Debian's build knows nothing of Kubernetes
        file = tmp_path / "prometheus.yaml"
        file.write_text(block)
        code, said = promtool("check", "config", "--syntax-only", str(file))
        assert code == 0, said
