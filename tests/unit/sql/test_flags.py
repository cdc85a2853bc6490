"""Claims about flags and fields in a statement: they are as on a command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from elasticdl.errors import SpecError
from elasticdl.job.classic_flags.convert import values_from_flags
from elasticdl.job.classic_flags.table import FLAGS, Flag, GivenFlag
from elasticdl.job.spec.kinds import JobType
from elasticdl.sql import planning
from elasticdl.sql.attributes import PARTS, Settings, written
from elasticdl.sql.problems import StatementError
from elasticdl.sql.running.session import Session

from tests.unit.sql.ready import train

_BY_KIND = {
    "whole": "300",
    "epochs": "3",
    "seconds": "2.5",
    "truth": "true",
    "text": "some",
    "level": "DEBUG",
    "parameters": "hidden_units=[3]",
    "strategy": "AllreduceStrategy",
    "resources": "cpu=1,memory=8Gi",
    "worker_priority": "high=0.5",
    "volumes": "claim_name=c,mount_path=/data",
    "environment": "A=1,B=2",
}
_BY_NAME = {
    "records_per_task": "256",
    "image_pull_policy": "Always",
    "port": "5000",
    "training_data": "some",
}
_STATEMENTS = {
    JobType.TRAIN: "SELECT * FROM t TO TRAIN DNNClassifier WITH {} LABEL y INTO m",
    JobType.PREDICT: "SELECT * FROM t TO PREDICT WITH {} USING m",
}
_BATCH = {JobType.TRAIN: "train.batch_size", JobType.PREDICT: "predict.batch_size"}
_EVERY = [(verb, flag) for verb in _STATEMENTS for flag in FLAGS]


def _read(verb: JobType, said: str) -> Settings:
    text = _STATEMENTS[verb].format(said)
    (statement,) = planning.read_statements(text, "duckdb")
    return planning.settings_of(statement)


def _told(verb: JobType, said: str) -> str:
    with pytest.raises(StatementError) as caught:
        _read(verb, said)
    (problem,) = caught.value.problems
    return problem.message


def _value(flag: Flag) -> str:
    return _BY_NAME.get(flag.name, flag.always or _BY_KIND[flag.parse.__name__])


def _on_a_command_line(verb: JobType, flag: Flag, value: str) -> dict[str, Any]:
    """Return the fields that a classic command line sets."""
    data = {JobType.TRAIN: "training_data", JobType.PREDICT: "prediction_data"}
    given = {
        "model_def": "a.b",
        data[verb]: "rows",
        "minibatch_size": "128",
        "job_name": "name",
        "checkpoint_dir_for_init": "c",
        flag.name: value,
    }
    flags = [GivenFlag(name, text) for name, text in given.items()]
    job = values_from_flags(flags, verb).values.job
    return job.model_dump(by_alias=True, mode="json")


def _at(tree: Any, dotted: tuple[str, ...]) -> Any:
    for key in dotted:
        tree = tree[key]
    return tree


@pytest.mark.parametrize(
    ("verb", "flag"), _EVERY, ids=[f"{verb}-{flag.name}" for verb, flag in _EVERY]
)
@pytest.mark.parametrize("family", ["engine", "runtime"])
def test_a_flag_means_what_it_does_on_a_command_line_or_is_refused(
    family: str, verb: JobType, flag: Flag
) -> None:
    if verb not in flag.verbs and any(
        verb in one.verbs for one in FLAGS if one.name == flag.name
    ):
        return  # It is there once more, for this verb.
    value = _value(flag)
    said = f"{_BATCH[verb]} = 128, {family}.{flag.name} = '{value}'"
    if flag.name == "minibatch_size":
        said = f"{family}.minibatch_size = {value}"
    if verb not in flag.verbs:
        assert "alone; take it out" in _told(verb, said)
        return
    part = flag.field.removeprefix("model.")
    if written(flag.field):
        assert "what the statement makes" in _told(verb, said)
    elif part in PARTS:
        assert "take it out" in _told(verb, said)
    elif flag.refusal:
        try:
            _on_a_command_line(verb, flag, value)
        except SpecError:
            assert flag.refusal in _told(verb, said)
        else:
            assert _read(verb, said) == _read(verb, f"{_BATCH[verb]} = 128")
    elif part == "params" and verb != JobType.TRAIN:
        assert "as in the model's training" in _told(verb, said)
    else:
        _compare(_read(verb, said), _on_a_command_line(verb, flag, value), flag)


def _compare(found: Settings, job: dict[str, Any], flag: Flag) -> None:
    if flag.name == "model_params":
        assert found.model_params == (("hidden_units", (3,)),)
        return
    assert (
        found.epochs == job["training"].get("epochs", 10) or flag.name != "num_epochs"
    )
    assert found.batch_size == job["training"]["batchSize"]
    if flag.field not in ("training.epochs", "training.batchSize"):
        assert tuple(flag.field.split(".")) in dict(found.fields)
    for path, value in found.fields:
        shown = _at(job, path)
        if isinstance(value, dict):
            shown = {key: shown[key] for key in value}
        if isinstance(value, list):
            shown = [
                {k: v for k, v in one.items() if k in given}
                for one, given in zip(shown, value, strict=True)
            ]
        assert shown == value, path


@pytest.mark.parametrize("verb", _STATEMENTS)
@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("engine.log_levl = 'DEBUG'", "did you mean `log_level`?"),
        ("runtime.num_worker = 2", "did you mean `num_workers`?"),
        ("engine.Log_Level = debug", "did you mean `log_level`?"),
        ("engine.records_per_task = 300, {} = 128", "a multiple of the size"),
        ("engine.records_per_task = 64, {} = 128", "a multiple of the size"),
        ("engine.num_ps_pods = 0, job.strategy = parameterServer", "1 or more"),
        ("engine.restart_policy = 'Always'", "the master replaces replicas"),
        ("engine.log_level = 'loud'", "expected one of"),
    ],
)
def test_a_flag_that_would_not_do_is_told(verb: JobType, said: str, told: str) -> None:
    assert told in _told(verb, said.format(_BATCH[verb]))


def test_flags_that_need_each_other_are_settled_together() -> None:
    def fields(said: str, verb: JobType = JobType.TRAIN) -> dict[str, Any]:
        found = _read(verb, said).fields
        return {".".join(path): value for path, value in found}

    assert fields("engine.num_ps_pods = 0") == {"strategy": "local"}
    assert fields("engine.num_ps_pods = 0, engine.num_workers = 2") == {
        "strategy": "allReduce",
        "worker.replicas": 2,
    }
    assert fields("engine.worker_image = 'i'") == {"worker.image": "i", "ps.image": "i"}
    assert fields("engine.records_per_task = 256, engine.minibatch_size = 64") == {
        "training.batchesPerTask": 4
    }
    assert "needs predict.batch_size" in _told(
        JobType.PREDICT, "engine.records_per_task = 256"
    )
    assert "have no end" in _told(JobType.TRAIN, "engine.num_epochs = 0")
    assert fields("engine.num_epochs = 0, engine.max_step = 9") == {
        "training.maxSteps": 9
    }


def test_arguments_of_a_model_are_checked_as_flags_too() -> None:
    told = _told(JobType.TRAIN, "engine.model_params = 'hiden_units=[3]'")
    assert "did you mean `hidden_units`?" in told


_SELDOM = (
    "SELECT i AS x, CASE WHEN i % 9 = 0 THEN 'ill' ELSE 'well' END AS y, i / 7 AS z "
    "FROM range(900) t(i) TO TRAIN {} WITH {} LABEL {} INTO m"
)


@pytest.mark.parametrize("key", ["classWeight.0", 'classWeight."0"'])
def test_a_seldom_class_can_weigh_more(
    session: Session, tmp_path: Path, key: str
) -> None:
    """No spelling of a class's number was taken but in quotes."""
    said = f"job.training.{key} = 8, train.epoch = 1"
    made = train(session, _SELDOM.format("DNNClassifier", said, "y"), tmp_path)
    assert made.values.job.training.class_weight == {0: 8.0}


@pytest.mark.parametrize(
    ("model", "label", "told"),
    [
        ("DNNClassifier", "y", r"`y` has no class 2; it has 0 \(ill\), 1 \(well\)"),
        ("DNNRegressor", "z", "`z` is a number, which has no classes"),
    ],
)
def test_a_weight_of_no_class_is_refused(
    session: Session, tmp_path: Path, model: str, label: str, told: str
) -> None:
    """It did nothing, and among numbers it weighed some by chance."""
    text = _SELDOM.format(model, "job.training.classWeight.2 = 8", label)
    with pytest.raises(StatementError, match=told) as caught:
        train(session, text, tmp_path)
    (problem,) = caught.value.problems
    begin, length = problem.at.offset, problem.at.length
    assert text[begin : begin + length] == "job.training.classWeight.2"
