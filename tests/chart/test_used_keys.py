"""Every key that may be written into a values file is read by somebody."""

import re

import pytest
from elasticdl.job.chart.values import ChartValues
from elasticdl.job.spec.job import JobSpec
from elasticdl.job.values.fields import documented
from pydantic.alias_generators import to_snake

from tests.chart.rendering import ROOT

TEMPLATES = "\n".join(
    file.read_text()
    for file in sorted((ROOT / "charts" / "elasticdl" / "templates").rglob("*.*"))
)
# Where keys are declared, compared with each other and mapped to flags: no use of one.
DECLARED = [
    ROOT / "python" / "elasticdl" / "job" / room
    for room in ("chart", "classic_flags", "spec")
]
CODE = "\n".join(
    file.read_text()
    for file in sorted((ROOT / "python" / "elasticdl").rglob("*.py"))
    if file.parent not in DECLARED
)
RULES = (
    ROOT / "charts" / "elasticdl" / "files" / "rules" / "elasticdl.yaml"
).read_text()
# Read by no template, by its own description.
FOR_PARENTS = {"global"}


def test_the_rooms_that_declare_keys_are_there():
    assert all((room / "__init__.py").exists() for room in DECLARED)


def last(path):
    return path.rpartition(".")[2]


def in_templates(key):
    return re.search(rf"(\.|\"){re.escape(key)}\b", TEMPLATES)


@pytest.mark.parametrize("key", sorted({last(d.path) for d in documented(JobSpec, "")}))
def test_a_field_of_a_job_is_read_by_a_process_or_by_a_template(key):
    in_code = re.search(rf"\.{to_snake(key)}\b", CODE)
    # Numbers of alerts are shown by name, and read by rules.
    assert in_code or in_templates(key) or f'"{key}"' in RULES


@pytest.mark.parametrize(
    "key", sorted({last(d.path) for d in documented(ChartValues, "")} - FOR_PARENTS)
)
def test_a_key_of_the_chart_is_read_by_a_template(key):
    assert in_templates(key) or f"# threshold: {key}" in RULES
