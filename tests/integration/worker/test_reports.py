"""What a worker says of a task: what it read, what its feed made, what was bad."""

import json
import threading
import time
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from elasticdl.data.reader import Metadata
from elasticdl.job.tasks import SkippedRecord, Task, TaskOutcome, TaskType
from elasticdl.metrics.goodput import GoodputLedger
from elasticdl.metrics.registry import WorkerMetrics
from elasticdl.model.feed.unparsed import BadInput
from elasticdl.model.feeding import Batch, Feeder
from elasticdl.worker.group_maker import ValuesInModel
from elasticdl.worker.progress import WorkerProgress
from elasticdl.worker.shows import Shows
from elasticdl.worker.tasks.outbox import LaterReport
from elasticdl.worker.tasks.records import LoadedTask
from elasticdl.worker.trainer import BatchDone, NanLossError
from elasticdl.worker.training import Training
from elasticdl.worker.uses.evaluator import Evaluator
from elasticdl.worker.uses.model_values import ModelValues
from elasticdl.worker.uses.prediction_files import JsonLines, PredictionFiles
from elasticdl.worker.uses.predictor import FileSink, Predictor


class Filter:
    """A feed that makes no row of odd records and cannot parse the number 6."""

    def __init__(self) -> None:
        self.bad = []

    def batches(self, records):
        self.bad = [
            BadInput(place, "six") for place, one in enumerate(records) if one == b"6"
        ]
        rows = [one for one in records if int(one) % 2 == 0 and one != b"6"]
        for start in range(0, len(rows), 2):
            part = rows[start : start + 2]
            yield Batch(part, None, len(part))


class Steps:
    """A trainer that skips a batch with the number 8 and may break at a step."""

    def __init__(self, breaks_at: int = -1) -> None:
        self.trained = self.acknowledged = 0
        self._breaks_at = breaks_at

    def train_batch(self, features, _labels, _at) -> BatchDone:
        if self.trained == self._breaks_at:
            raise ConnectionError("the push was applied, its answer was lost")
        self.trained += 1
        self.acknowledged = self.trained
        return BatchDone(loss=0.5, version=self.trained, skipped=b"8" in features)

    def flush(self) -> None:
        """Nothing is under way."""


class Stream:
    """Takes the reports."""

    def __init__(self) -> None:
        self.reports = []

    def ready(self):
        return []

    def report(self, report, *, can_wait=False) -> None:
        del can_wait
        later = isinstance(report, LaterReport)
        self.reports.append(report.write() if later else report)

    def is_lost(self, _lease_id) -> bool:
        return False


def training(trainer, *, in_order=False):
    stream = Stream()
    clock = time.monotonic
    parts = WorkerProgress(clock), GoodputLedger(clock), WorkerMetrics()
    shows = Shows(*parts, log_loss_steps=1000)
    made = Training(
        trainer,
        Filter(),
        stream,
        stream,
        leaving=threading.Event(),
        shows=shows,
        in_order=in_order,
    )
    return made, stream.reports


def task(end=12):
    return Task(
        task_id=3, lease_id=9, type=TaskType.TRAINING, source="a", start=0, end=end
    )


def records(*numbers):
    return [str(number).encode() for number in numbers]


def test_a_report_tells_rows_bad_records_and_skipped_rows_apart():
    made, reports = training(Steps())
    made.run(LoadedTask(task(), records(*range(12))))
    (report,) = reports
    assert report.outcome == TaskOutcome.DONE
    # Of 0 to 11: 0, 2, 4 and 10 in steps, 8 skipped with 4; 6 is bad, six have no row.
    assert report.records == 12
    assert (report.rows, report.skipped_rows) == (3, 2)
    assert len(report.bad_records) == 1


def test_a_report_tells_when_the_reader_gave_fewer_records():
    bad = (SkippedRecord(source="a", record=2, reason="torn"),)
    made, reports = training(Steps())
    made.run(LoadedTask(task(), records(0, 1, 4, 5), bad))
    assert reports[0].records == 5  # of 12


def test_records_that_a_file_does_not_count_are_trained_and_move_no_position():
    positions = []

    class Watched(Steps):
        def train_batch(self, features, labels, at):
            positions.append(at.records_done)
            return super().train_batch(features, labels, at)

    made, reports = training(Watched(), in_order=True)
    made.run(LoadedTask(task(2), records(0, 2, 4, 10), unplanned=2))
    # Its range has two records; all four are rows, and no place in the range is told,
    # as what stands at a place is not what the plan has there.
    assert (reports[0].records, reports[0].rows) == (2, 4)
    assert positions == [0, 0]


def test_a_task_whose_first_push_may_have_been_applied_is_not_untouched():
    made, reports = training(Steps(breaks_at=0))
    try:
        made.run(LoadedTask(task(), records(*range(12))))
    except ConnectionError:
        made.hand_back()
    (report,) = reports
    assert report.outcome == TaskOutcome.RETURNED
    assert report.records > 0


class Late(Steps):
    """Finds while the third batch is trained that the second one's loss is NaN.

    As where the PS refused it and it is computed again.
    """

    _second: Any

    def train_batch(self, features, _labels, at) -> BatchDone:
        self.acknowledged = -1
        if self.trained == 2:
            raise NanLossError("loss is nan", self._second)
        self._second = at
        return super().train_batch(features, _labels, at)


def test_a_nan_loss_of_a_batch_that_is_computed_again_is_told_with_its_own_records():
    made, _ = training(Late(), in_order=True)
    with pytest.raises(NanLossError, match="a: records 2 to 3; expected"):
        made.run(LoadedTask(task(), records(0, 2, 4, 10, 12, 14)))


# Evaluation and prediction.

FIRST = 40  # of the task's records
FED = Task(task_id=3, lease_id=5, source="data/file", start=FIRST, end=FIRST + 8)
# A record of three numbers has not the seven that the feed wants.
SHORT = np.zeros(3, np.float32).tobytes()


@pytest.fixture
def rows():
    rng = np.random.default_rng(1)
    numbers = np.c_[rng.normal(size=(8, 6)), rng.integers(0, 3, 8)].astype(np.float32)
    return [row.tobytes() for row in numbers]


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
def test_a_record_that_the_feed_leaves_out_is_listed(use, rows, mode):
    report = use(mode)(LoadedTask(FED, [*rows[:2], SHORT, *rows[3:]]))
    assert report.records == 7
    (bad,) = report.bad_records
    assert (bad.source, bad.record) == ("data/file", FIRST + 2)
    assert bad.reason


def test_predictions_keep_their_numbers_beside_one_that_is_left_out(
    use, rows, tmp_path
):
    use("prediction")(LoadedTask(FED, [*rows[:2], SHORT, *rows[3:]]))
    numbers = [row["record"] for row in written(tmp_path)]
    assert numbers == [n for n in range(FIRST, FIRST + 8) if n != FIRST + 2]


def test_a_task_of_which_all_records_are_left_out_lists_them(use, tmp_path):
    report = use("prediction")(LoadedTask(FED, [SHORT] * 8))
    assert len(report.bad_records) == 8
    assert written(tmp_path) == []


def test_rows_of_a_ragged_output_are_lists(tmp_path):
    words = tf.ragged.constant([[1, 2], [], [3]])
    sink = FileSink(PredictionFiles(tmp_path / "predictions", JsonLines()))
    sink.batch(words.numpy())
    sink.task_done(FED, None)
    assert [row["prediction"] for row in written(tmp_path)] == [[1, 2], [], [3]]
