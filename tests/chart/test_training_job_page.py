"""docs/trainingjob.md: its examples are taken, its table has every reason."""

import re

import yaml
from elasticdl.job.values.training_job import read_manifest
from elasticdl.master.live_edits import LIVE
from elasticdl.training_jobs.verdicts import Reason

from tests.chart.rendering import ROOT

PAGE = (ROOT / "docs" / "trainingjob.md").read_text()


def test_the_example_is_a_job():
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE, re.S)
    (manifest,) = (
        one for one in map(yaml.safe_load, blocks) if one["kind"] == "TrainingJob"
    )
    values, problems = read_manifest(manifest)
    assert problems == []
    assert values.job.name == "digits"


def test_every_reason_of_a_refusal_is_explained():
    listed = set(re.findall(r"^\| `(\w+)` \|", PAGE, re.M))
    assert listed == set(map(str, Reason)) - {str(Reason.NOT_APPLIED)}


def test_what_may_change_while_a_job_runs_is_said_whole():
    text = PAGE.partition("**What may change while a job runs**")[2]
    told = set(re.findall(r"`([\w.]+)`", text.partition(")")[0]))
    short = {path.removeprefix("worker.") for path in LIVE}
    assert {word.removeprefix("worker.") for word in told} == short
