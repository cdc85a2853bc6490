"""What strategy allReduce needs of a values file, and how many records a step has."""

from __future__ import annotations

from typing import Any

import pytest
from elasticdl.job.spec.group import step_records
from elasticdl.job.spec.job import JobSpec
from elasticdl.master import live_edits
from pydantic import ValidationError

GROUP = {
    "name": "group",
    "strategy": "allReduce",
    "model": {"definition": "m.f"},
    "data": {"training": "t"},
}


def spec(**changes: Any) -> JobSpec:
    return JobSpec.model_validate({**GROUP, **changes})


REFUSED = [
    ({"ps": {"replicas": 2}}, "ps: got replicas, expected nothing"),
    ({"ps": {"replicas": 1}}, "ps: got replicas, expected nothing"),
    ({"ps": {"env": {"A": "b"}, "mode": "sync"}}, "ps: got env, mode, expected"),
    (
        {"strategy": "parameterServer", "allReduce": {"compression": "float16"}},
        "allReduce: got compression, expected nothing: with strategy `parameterServer`",
    ),
    (
        {"allReduce": {"learningRate": "linear"}},
        "allReduce.learningRate: got linear, expected none",
    ),
    ({"training": {"globalBatchSize": "more"}}, "'elastic'"),
    ({"allReduce": {"compression": "int8"}}, "'none', 'bfloat16' or 'float16'"),
    ({"ps": {"mode": "sync"}}, "ps: got mode, expected nothing"),
    ({"ps": {"threads": 2}}, "ps: got threads, expected nothing"),
    (
        {"ps": {"maxStaleness": 2, "stalenessModulation": True}},
        "ps: got maxStaleness, stalenessModulation, expected nothing",
    ),
    ({"worker": {"pullSteps": 2}}, "worker.pullSteps: got 2, expected 1"),
    (
        {"strategy": "local", "training": {"globalBatchSize": 64}},
        "training.globalBatchSize: got 64, expected nothing: with strategy `local`",
    ),
    (
        {"training": {"globalBatchSize": 2**53 - 1}},
        "training.globalBatchSize: got 9007199254740991, expected at most 16777216",
    ),
    (
        {"training": {"batchSize": 2**23}, "worker": {"replicas": 3}},
        "training.batchSize: got 25165824 records of all workers in a step, expected",
    ),
    ({"training": {"globalBatchSize": 0}}, "greater than or equal to 1"),
]


@pytest.mark.parametrize(("changes", "said"), REFUSED)
def test_what_a_group_cannot_do_is_refused_with_a_sentence(changes, said) -> None:
    with pytest.raises(ValidationError) as refusal:
        spec(**changes)
    assert said in str(refusal.value)


def test_a_step_has_a_batch_of_each_worker_with_which_the_job_begins() -> None:
    three = spec(worker={"replicas": 3}, training={"batchSize": 16})
    assert step_records(three, 0) == 48
    four = spec(worker={"replicas": 4}, training={"batchSize": 16})
    assert step_records(four, 48) == 48  # it was scaled meanwhile


def test_what_is_set_counts_also_for_a_job_that_goes_on() -> None:
    set_to = spec(worker={"replicas": 3}, training={"globalBatchSize": 100})
    assert step_records(set_to, 0) == step_records(set_to, 48) == 100


def test_an_elastic_step_begins_as_a_batch_of_each_worker() -> None:
    elastic = {"batchSize": 16, "globalBatchSize": "elastic"}
    grown = spec(worker={"replicas": 4}, training=elastic)
    assert step_records(grown, 0) == 64
    assert step_records(grown, 32) == 32


def test_other_strategies_have_a_batch_in_a_step() -> None:
    assert step_records(spec(strategy="local"), 500) == 64


def test_a_running_group_is_edited_and_keeps_its_strategy() -> None:
    before = spec(worker={"replicas": 3})
    edit = live_edits.compare(before, spec(worker={"replicas": 5}))
    assert [str(change) for change in edit.accepted] == ["worker.replicas: 3 -> 5"]
    edit = live_edits.compare(before, spec(strategy="local"))
    assert "strategy: allReduce -> local" in [str(change) for change in edit.refused]
