"""The chart as a package: its versions, its files, and Helm's own check of it."""

import tarfile

import helm_python as helm
import pytest
import yaml
from elasticdl import __version__
from elasticdl.job.chart.monitoring import MonitoringValues
from elasticdl.job.chart.values import (
    JOB_ONLY,
    PLATFORM_ONLY,
    ChartValues,
    ClaimValues,
)
from elasticdl.job.spec.job import JobSpec
from elasticdl.job.spec.training import AllReduceSpec
from elasticdl.job.values.fields import aliases

from docs.generate.chart import values_yaml
from tests.chart.rendering import CHART, EXAMPLES, IN_CI, ROOT, chart, values_of


@pytest.mark.parametrize(
    "file", [None, *EXAMPLES], ids=lambda file: getattr(file, "stem", "none")
)
def test_helm_has_nothing_to_say_about_the_chart(file):
    report = helm.lint(CHART, values_of(file) if file else {}, strict=True)
    advice = [message["error"] for message in report["messages"]]
    assert report["errors"] == []
    assert advice in ([], ["icon is recommended"])


def test_the_chart_has_the_packages_version():
    about = chart().metadata
    assert about["appVersion"] == __version__
    semantic = __version__.replace(".dev", "-dev.")  # 1.0.0.dev0 is no semantic version
    assert about["version"] == semantic
    assert about["kubeVersion"] == ">=1.29.0-0"


def test_the_package_has_what_templates_read_and_nothing_of_the_tests(tmp_path):
    archive = helm.package(CHART, destination=tmp_path)
    with tarfile.open(archive) as package:
        names = {name.removeprefix("elasticdl/") for name in package.getnames()}
    assert {"files/defaults.yaml", "values.schema.json", "README.md"} <= names
    assert not [name for name in names if name.startswith("ci/")]


def test_every_section_says_for_which_kind_of_release_it_is():
    both = {
        "serviceAccounts", "networkPolicy", "priorityClasses", "global", "images",
        "openshift", "commonLabels", "commonAnnotations", "jobs",
    }  # fmt: skip
    known = {info.alias or name: info for name, info in aliases(ChartValues).items()}
    parts = {
        f"monitoring.{info.alias or name}": info
        for name, info in aliases(MonitoringValues).items()
    }
    known.pop("monitoring")  # each of its parts says it
    known |= parts
    assert set(known) == {*JOB_ONLY, *PLATFORM_ONLY, *both}
    for key in JOB_ONLY:
        assert known[key].description.startswith("Job: ")
    for key in PLATFORM_ONLY:
        assert known[key].description.startswith("Platform: ")


def test_the_default_values_are_a_platforms():
    values = yaml.safe_load(values_yaml())
    assert values["kind"] == "platform"
    assert "job" not in values  # the job's defaults are the specification's


def test_what_helm_shows_has_each_field_of_a_job_with_its_default():
    shown = values_yaml().split("docs/spec.md says what each one is.\n")[1]
    lines = shown.split("\n\n")[0].splitlines()
    job = yaml.safe_load("\n".join(line.removeprefix("# ") for line in lines))["job"]
    # Refused beside strategy parameterServer, whatever it says.
    assert AllReduceSpec.model_validate(job.pop("allReduce")) == AllReduceSpec()
    spec = JobSpec.model_validate({**job, "data": {**job["data"], "training": "x"}})
    assert spec.model_fields_set == JobSpec.model_fields.keys() - {"all_reduce"}
    asked_for = {"name": job["name"], "model": job["model"], "data": {"training": "x"}}
    assert spec == JobSpec.model_validate(asked_for)


def test_what_helm_shows_says_what_each_key_of_a_claim_is():
    section = values_yaml().split("\nclaims:\n")[1].split("\n\n")[0]
    for key, info in aliases(ClaimValues).items():
        meaning, found = section.split(f" {key}: ")[0], f" {key}: " in section
        assert found
        assert info.description.split()[-1] in meaning.splitlines()[-2], key


def test_chart_testing_finds_its_files():
    settings = yaml.safe_load((ROOT / "ct.yaml").read_text())
    for key in ("chart-yaml-schema", "lint-conf"):
        assert (ROOT / settings[key]).exists()
    assert [file.stem for file in IN_CI] == ["job-values", "platform-values"]
