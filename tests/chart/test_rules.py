"""Alerts and recording rules: promtool's checks, and what the chart makes of them."""

import re
import subprocess

import helm_python as helm
import pytest
import yaml
from elasticdl.job.chart.monitoring import ThresholdsValues
from elasticdl.job.spec.alerts import AlertsSpec
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
            re.search(r'="(loud|strict)\b', sample["labels"]) is not None
            for test in alerts
            for sample in test["exp_samples"]
        }
        assert fired == {True}, f"{name}: only the job `loud` is to be heard"
        silent = [test for test in alerts if not test["exp_samples"]]
        assert silent or "strict" in str(alerts), f"{name}: it fires from the start"
        series = " ".join(entry["series"] for entry in case["input_series"])
        assert re.search(r'="calm"', series), f"{name}: no job that is to be silent"


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
    of_cluster = rule["alert"].startswith(("ElasticDLExporter", "ElasticDLController"))
    assert of_cluster or "$labels.training_job" in rule["annotations"]["summary"]
    assert "$value" in rule["annotations"]["description"]
    page, anchor = rule["annotations"]["runbook_url"].split("#")
    assert page.endswith("/docs/monitoring.md")
    assert anchor == rule["alert"].lower()


@pytest.mark.parametrize("name", NAMES)
def test_each_alert_has_a_runbook_with_a_command_to_look_with(name):
    section = re.split(r"^#{2,3} ", PAGE.split(f"\n### {name}\n")[1], flags=re.M)[0]
    assert "elasticdl " in section
    for part in ("**What it means.**", "**Look.**", "**Without the CLI.**", "**Do.**"):
        assert part in section
    assert "`kubectl " in section
    assert section.count("```promql\n") == 1


def test_prometheus_understands_what_the_runbooks_ask_and_the_metrics_exist(tmp_path):
    asked = re.findall(r"^```promql\n(.*?)^```", PAGE, flags=re.M | re.S)
    assert len(asked) == len(NAMES)
    names = re.findall(r"elasticdl_\w+", " ".join(asked))
    assert set(names) <= declared_series()
    rules = [{"record": f"asked:{n}", "expr": one} for n, one in enumerate(asked)]
    file = tmp_path / "asked.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "asked", "rules": rules}]}))
    code, said = promtool("check", "rules", str(file))
    assert code == 0, said


def test_no_runbook_is_left_of_an_alert_that_is_gone():
    assert re.findall(r"^### (ElasticDL\w+)$", PAGE, flags=re.M) == NAMES


def declared_series():
    declared = {one.name for role in ROLES.values() for one in role().declared}
    declared |= {
        f"{one.name}_{part}"
        for role in ROLES.values()
        for one in role().declared
        if one.kind in ("histogram", "summary")
        for part in ("bucket", "sum", "count")
    }
    return declared


def test_rules_ask_for_metrics_that_exist():
    declared = declared_series()
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


def test_each_rule_keeps_the_label_of_the_cluster():
    """Where several share a store, jobs of one name must not be added up."""
    for group in GROUPS:
        for rule in group["rules"]:
            groupings = re.findall(r"\b(?:by|on) \(([^)]*)\)", rule["expr"])
            for labels in groupings:
                assert labels.startswith("cluster"), (rule, labels)
            assert "ignoring" not in rule["expr"]
            assert "without" not in rule["expr"]


def test_a_platform_sets_each_alert_as_it_likes():
    spec = rule_object(
        alertLabels={"team": "ml", "severity": "ticket"},
        runbookUrl="https://wiki.example/jobs",
        alerts={
            "ElasticDLHotShard": {"enabled": False},
            "ElasticDLNoStep": {"severity": "page", "labels": {"team": "night"}},
        },
    )["spec"]
    made = {r["alert"]: r for g in spec["groups"] for r in g["rules"] if "alert" in r}
    assert set(made) == {*NAMES} - {"ElasticDLHotShard"}
    assert made["ElasticDLNoStep"]["labels"] == {"severity": "page", "team": "night"}
    others = {"severity": "ticket", "team": "ml"}
    assert made["ElasticDLPsMemory"]["labels"] == others
    for name, rule in made.items():
        url = f"https://wiki.example/jobs#{name.lower()}"
        assert rule["annotations"]["runbook_url"] == url


def test_an_alert_that_there_is_not_is_refused():
    with pytest.raises(
        helm.HelmError, match=r"`monitoring\.rules\.alerts\.NoStep`: there"
    ):
        rule_object(alerts={"NoStep": {"enabled": False}})


def test_what_a_job_may_say_itself_goes_before_the_platforms_number():
    preferred = set(re.findall(r'threshold="(\w+)"', TEXT))
    assert preferred == {info.alias for info in AlertsSpec.model_fields.values()}
    assert preferred <= set(BY_DEFAULT)


def test_each_threshold_reaches_its_rule():
    for key, value in BY_DEFAULT.items():
        other = 1_234_567 if key.endswith("Seconds") else value / 2 if value < 1 else 9
        spec = rule_object(thresholds={key: other})["spec"]
        expected = MARK.sub("", with_thresholds(TEXT, **{key: other}))
        assert spec == yaml.safe_load(expected), key
        assert spec["groups"] != GROUPS


def test_rules_with_the_longest_times_are_taken_by_promtool(tmp_path):
    """One that Prometheus cannot read takes all rules of the file along."""
    longest = {key: 10**9 for key in BY_DEFAULT if key.endswith("Seconds")}
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump(rule_object(thresholds=longest)["spec"]))
    code, said = promtool("check", "rules", str(file))
    assert code == 0, said
    for key in longest:
        with pytest.raises(helm.HelmError, match=key):
            rule_object(thresholds={key: 10**9 + 1})


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
