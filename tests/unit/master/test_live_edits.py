"""Which edits of a running job's file are taken."""

import json

import pytest
from elasticdl.job.spec.job import JobSpec
from elasticdl.master.live_edits import compare


def spec(**fields: object) -> JobSpec:
    return JobSpec.model_validate(
        {
            "name": "j",
            "model": {"definition": "m.f"},
            "data": {"training": "t"},
            **fields,
        }
    )


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"paused": True}, "paused"),
        ({"worker": {"replicas": 5}}, "worker.replicas"),
        ({"worker": {"max": 9}}, "worker.max"),
        ({"worker": {"min": 1}}, "worker.min"),
        ({"log": {"level": "debug"}}, "log.level"),
        ({"evaluation": {"everySteps": 7}}, "evaluation.everySteps"),
        ({"evaluation": {"atEpochEnd": False}}, "evaluation.atEpochEnd"),
    ],
)
def test_what_may_change_while_a_job_runs(fields: dict[str, object], path: str) -> None:
    edit = compare(spec(), spec(**fields))
    assert [change.path for change in edit.accepted] == [path]
    assert not edit.refused
    assert edit.spec == spec(**fields)


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"training": {"batchSize": 7}}, "training.batchSize"),
        ({"worker": {"priority": "high"}}, "worker.priority"),
        ({"ps": {"replicas": 2}}, "ps.replicas"),
        ({"env": {"A": "1"}}, "env.A"),
        ({"log": {"file": "x"}}, "log.file"),
    ],
)
def test_everything_else_is_refused_and_stays(
    fields: dict[str, object], path: str
) -> None:
    edit = compare(spec(), spec(**fields))
    assert [change.path for change in edit.refused] == [path]
    assert not edit.accepted
    assert edit.spec == spec()


def test_a_number_that_equals_none_is_no_edit_of_it() -> None:
    def with_nan(**fields: object) -> JobSpec:
        text = '{"definition": "m.f", "params": {"missing": NaN, "of": [[NaN]]}}'
        return spec(model=json.loads(text), **fields)

    edit = compare(with_nan(), with_nan(worker={"replicas": 5}))
    assert [change.path for change in edit.accepted] == ["worker.replicas"]
    assert not edit.refused


def test_an_edit_of_both_kinds_takes_what_may_change() -> None:
    new = spec(worker={"replicas": 3}, training={"batchSize": 7})
    edit = compare(spec(), new)
    assert edit.spec == spec(worker={"replicas": 3})
    assert str(edit.accepted[0]) == "worker.replicas: 1 -> 3"
    assert str(edit.refused[0]) == "training.batchSize: 64 -> 7"


def test_a_value_that_an_edit_takes_out_is_told_as_none() -> None:
    group = {"strategy": "allReduce"}
    old = spec(**group, training={"globalBatchSize": 128})
    edit = compare(old, spec(**group))
    assert str(edit.refused[0]) == "training.globalBatchSize: 128 -> none"


def test_a_live_change_that_fits_only_a_refused_one_is_refused_with_it() -> None:
    """Strategy local has one worker: three of them come with the other strategy."""
    old = spec(strategy="local")
    new = spec(strategy="parameterServer", worker={"replicas": 3}, paused=True)
    edit = compare(old, new)
    assert [str(change) for change in edit.accepted] == ["paused: False -> True"]
    assert [change.path for change in edit.refused] == ["strategy", "worker.replicas"]
    assert edit.spec == spec(strategy="local", paused=True)
