"""From the specification to shards, with and without preparation."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from elasticdl.data.reader import Shard
from elasticdl.errors import DataError
from elasticdl.job.spec.job import JobSpec
from elasticdl.master.tasks.data_plan import (
    DataStage,
    SearchStage,
    count,
    kinds,
    plan_of,
)

FOUND = {"training": (Shard("a", 0, 10),)}


def spec(**fields: object) -> JobSpec:
    return JobSpec.model_validate(
        {
            "name": "j",
            "model": {"definition": "m.f"},
            "data": {"training": "t"},
            **fields,
        }
    )


def stage(*, prepared: bool = False, **fields: object) -> DataStage:
    return DataStage(spec(**fields), known=None, prepared=prepared)


def test_each_type_of_job_reads_its_own_data() -> None:
    both = spec(data={"training": "t", "validation": "v"})
    assert kinds(both) == ["training", "validation"]
    assert both.data.path_of("validation") == "v"
    assert kinds(spec()) == ["training"]
    predict = spec(
        type="predict", data={"prediction": "p"}, checkpoint={"initFrom": "c"}
    )
    assert kinds(predict) == ["prediction"]


def test_a_built_in_format_waits_only_for_the_word_that_no_reader_is_its_own() -> None:
    data = stage()
    data.counted(FOUND)
    assert data.stage is SearchStage.UNKNOWN
    data.model_known(custom_reader=False)
    assert data.stage is SearchStage.READY
    assert data.shards == FOUND


def test_a_reader_of_the_module_comes_before_the_built_in_one() -> None:
    data = stage()
    data.model_known(custom_reader=True)
    data.counted(FOUND)
    assert data.stage is SearchStage.ASK
    data.asked("training", [Shard("table", 0, 3)])
    assert data.stage is SearchStage.READY
    assert data.shards == {"training": (Shard("table", 0, 3),)}


def test_a_reader_without_records_fails_the_job() -> None:
    data = stage()
    data.counted(FOUND)
    data.model_known(custom_reader=True)
    data.asked("training", [Shard("table", 3, 3)])
    assert data.stage is SearchStage.FAILED
    assert "no training records" in data.error


def test_missing_data_without_preparation_fails_with_the_readers_error() -> None:
    data = stage()
    data.counted(DataError("t: nothing there"))
    assert data.stage is SearchStage.UNKNOWN
    data.model_known(custom_reader=False)
    assert data.stage is SearchStage.FAILED
    assert data.error == "t: nothing there"


def test_missing_data_is_prepared_once() -> None:
    made = {"training": "t", "prepare": {"dataset": "digits"}}
    data = stage(data=made)
    assert data.may_prepare
    data.counted(DataError("gone"))
    assert data.stage is SearchStage.PREPARE
    data.prepared()
    assert data.stage is SearchStage.CHECKING
    assert not data.may_prepare
    data.counted(DataError("still gone"))
    data.model_known(custom_reader=False)
    assert data.stage is SearchStage.FAILED
    assert data.error == "still gone"


def test_a_restarted_master_knows_the_shards() -> None:
    data = DataStage(spec(), known=FOUND, prepared=True)
    assert data.stage is SearchStage.READY
    data.counted(DataError("a late answer"))
    assert data.stage is SearchStage.READY


def test_the_plan_takes_the_least_bound_on_steps() -> None:
    plan = plan_of(spec(training={"maxSteps": 50}), FOUND, max_steps=20)
    assert plan is not None
    assert plan.max_steps == 20
    plan = plan_of(spec(training={"maxSteps": 50}), FOUND, max_steps=0)
    assert plan is not None
    assert plan.max_steps == 50


def test_prediction_goes_through_the_data_once_in_order() -> None:
    predict = spec(
        type="predict",
        data={"prediction": "p"},
        checkpoint={"initFrom": "c"},
        training={"epochs": 9, "maxSteps": 3},
    )
    plan = plan_of(predict, {"prediction": FOUND["training"]}, max_steps=5)
    assert plan is not None
    assert (plan.epochs, plan.max_steps, plan.shuffle) == (1, 0, False)


def test_an_evaluation_is_no_plan() -> None:
    evaluate = spec(
        type="evaluate", data={"validation": "v"}, checkpoint={"initFrom": "c"}
    )
    assert plan_of(evaluate, {}, max_steps=0) is None


def test_validation_in_another_unit_of_time_than_training_is_told(tmp_path) -> None:
    for name, unit in (("t", "ms"), ("v", "us"), ("w", "ms")):
        table = pa.table({"when": pa.array([10**15], pa.timestamp(unit))})
        pq.write_table(table, tmp_path / f"{name}.parquet")
    data = {"root": str(tmp_path), "training": "t.parquet"}
    with pytest.raises(DataError, match=r"in ms in t\.parquet, in us in v\.parquet"):
        count(spec(data={**data, "validation": "v.parquet"}))
    assert len(count(spec(data={**data, "validation": "w.parquet"}))) == 2
