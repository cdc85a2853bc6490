"""Evaluation and prediction of records, those that the feed cannot parse too."""

import json
import time

import numpy as np
import pytest
from elasticdl.data.reader import Metadata
from elasticdl.job.tasks import Task
from elasticdl.model.feeding import Feeder
from elasticdl.worker.group_maker import ValuesInModel
from elasticdl.worker.progress import WorkerProgress
from elasticdl.worker.tasks.records import LoadedTask
from elasticdl.worker.uses.evaluator import Evaluator
from elasticdl.worker.uses.model_values import ModelValues
from elasticdl.worker.uses.prediction_files import JsonLines, PredictionFiles
from elasticdl.worker.uses.predictor import FileSink, Predictor

FIRST = 40  # of the task's records
TASK = Task(task_id=3, lease_id=5, source="data/file", start=FIRST, end=FIRST + 8)
# A record of three numbers has not the seven that the feed wants.
SHORT = np.zeros(3, np.float32).tobytes()


@pytest.fixture
def records():
    rng = np.random.default_rng(1)
    rows = np.c_[rng.normal(size=(8, 6)), rng.integers(0, 3, 8)].astype(np.float32)
    return [row.tobytes() for row in rows]


@pytest.fixture
def use(definition, tmp_path):
    """Makes an evaluator, or a predictor that writes files, of one model."""

    def make(mode):
        module = definition()
        feeder = Feeder(
            module, mode=mode, batch_size=4, metadata=Metadata(), skip_bad=True
        )
        source = ValuesInModel(module)
        parts = {
            "trainer": source,
            "borrowed": ModelValues(module.model, source),
            "progress": WorkerProgress(time.monotonic),
        }
        if mode == "evaluation":
            return Evaluator(module, feeder, **parts).evaluate
        sink = FileSink(PredictionFiles(tmp_path / "predictions", JsonLines()))
        return Predictor(module, feeder, sink, **parts).predict

    return make


def written(tmp_path):
    files = sorted((tmp_path / "predictions").glob("*"))
    return [
        json.loads(line) for file in files for line in file.read_text().splitlines()
    ]


@pytest.mark.parametrize("mode", ["evaluation", "prediction"])
def test_a_record_that_the_feed_leaves_out_is_listed(use, records, mode):
    report = use(mode)(LoadedTask(TASK, [*records[:2], SHORT, *records[3:]]))
    assert report.records == 7
    (bad,) = report.bad_records
    assert (bad.source, bad.record) == ("data/file", FIRST + 2)
    assert bad.reason


def test_predictions_keep_their_numbers_beside_one_that_is_left_out(
    use, records, tmp_path
):
    use("prediction")(LoadedTask(TASK, [*records[:2], SHORT, *records[3:]]))
    numbers = [row["record"] for row in written(tmp_path)]
    assert numbers == [n for n in range(FIRST, FIRST + 8) if n != FIRST + 2]


def test_a_task_of_which_all_records_are_left_out_lists_them(use, tmp_path):
    report = use("prediction")(LoadedTask(TASK, [SHORT] * 8))
    assert len(report.bad_records) == 8
    assert written(tmp_path) == []
