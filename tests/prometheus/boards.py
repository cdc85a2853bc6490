"""Every query of every panel and rule, and what a Prometheus that saw a job says to it.

Owns what dashboards and rules ask, filled in as Grafana does, and the shape of a good
answer. Used by tests of a job on this machine and of one in a cluster.
"""

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.prometheus.server import RULES, Prometheus

ROOT = Path(__file__).parents[2]
BOARDS = [json.loads(f.read_text()) for f in sorted((ROOT / "dashboards").glob("*"))]
EVERY_PANEL = [
    (board["uid"], panel)
    for board in BOARDS
    for panel in board["panels"]
    if panel["type"] != "row"
]
# No job has both parameter servers and a group.
GROUP = "elasticdl-group"
PANELS = [(uid, panel) for uid, panel in EVERY_PANEL if uid != GROUP]
GROUP_PANELS = [(uid, panel) for uid, panel in EVERY_PANEL if uid == GROUP]


def drawn(panels):
    """Return those that are no tables, whose rows are told apart by their labels."""
    return [(uid, panel) for uid, panel in panels if panel["type"] != "table"]


def queries(panels):
    """Return each query of each panel."""
    return [(uid, panel, one) for uid, panel in panels for one in panel["targets"]]


DRAWN, QUERIES = drawn(PANELS), queries(PANELS)
RULE_GROUPS = yaml.safe_load(RULES.read_text())["groups"]
EACH_RULE = [rule for group in RULE_GROUPS for rule in group["rules"]]


@dataclass
class Seen:
    """What a Prometheus has of one job between two times."""

    prometheus: Prometheus
    namespace: str
    job: str
    started: float
    ended: float

    def filled_in(self, expression):
        """Return an expression as Grafana asks it."""
        every = self.prometheus.every_seconds
        for word, value in {
            "$__rate_interval": f"{4 * every}s",
            "$__interval": f"{every}s",
            "$__range": f"{round(self.ended - self.started)}s",
            "$cluster": ".*",
            "$namespace": self.namespace,
            "$job": self.job,
        }.items():
            expression = expression.replace(word, value)
        # `$1` is of a label_replace.
        assert not re.search(r"\$[A-Za-z_]", expression), expression
        return expression

    def over_time(self, expression):
        return self.prometheus.over_time(
            self.filled_in(expression),
            self.started,
            self.ended,
            step=self.prometheus.every_seconds,
        )

    def value(self, expression):
        """Return the one value that it had at the end."""
        asked = self.filled_in(expression)
        return self.prometheus.value(asked, at=self.ended)


def assert_answered(seen, uid, panel, target):
    """A query of a panel has an answer of the shape that the panel draws."""
    asked = seen.filled_in(target["expr"])
    found = seen.over_time(asked)
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
        assert seen.prometheus.series(asked, at=last)


def assert_no_line_twice(seen, panel):
    """No two lines of a panel have one name."""
    names = set()
    for target in panel["targets"]:
        for labels, _ in seen.over_time(target["expr"]):
            name = re.sub(
                r"{{(\w+)}}", lambda m, of=labels: of[m[1]], target["legendFormat"]
            )
            assert name not in names, name
            names.add(name)


def assert_offered(seen, board):
    """The variables of a dashboard offer the namespace and the job."""
    for variable, value in zip(
        board["templating"]["list"][2:], (seen.namespace, seen.job), strict=True
    ):
        query = seen.filled_in(variable["query"]["query"])
        series, label = re.fullmatch(r"label_values\((.+), (\w+)\)", query).groups()
        offered = seen.prometheus.get(f"label/{label}/values", **{"match[]": series})
        assert value in offered


def assert_rule_answered(seen, rule):
    """A rule can be asked, and what it records is there."""
    found = seen.over_time(rule["expr"])
    if "record" in rule:
        assert found, rule["expr"]
        assert seen.over_time(rule["record"]), f"nothing was recorded: {rule['record']}"


def assert_rules_evaluated(prometheus):
    """Prometheus itself has evaluated all rules, without an error."""
    groups = prometheus.get("rules")["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len(rules) == len(EACH_RULE)
    assert {rule["health"] for rule in rules} == {"ok"}
    assert not [rule for rule in rules if rule.get("lastError")]
