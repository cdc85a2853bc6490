"""Small parts: progress, outbox, records, predictions, errands, early tasks."""

import json
import threading
from dataclasses import replace

import numpy as np
import pytest
from elasticdl.data.reader import BadRecord, Records, Shard
from elasticdl.errors import DataError, RpcError, UserCodeError
from elasticdl.job.tasks import (
    LeaseReply,
    ReplicaId,
    Task,
    TaskOutcome,
    TaskReport,
    TaskType,
)
from elasticdl.job.words import WorkerPhase
from elasticdl.running import RunningClock
from elasticdl.worker.progress import WorkerProgress
from elasticdl.worker.tasks.early import EarlyTasks
from elasticdl.worker.tasks.errands import Errands
from elasticdl.worker.tasks.outbox import LaterReport, Outbox
from elasticdl.worker.tasks.records import RecordLoader, permuted
from elasticdl.worker.uses.prediction_files import (
    PredictionFiles,
    format_named,
    merged,
    named_outputs,
    of_records,
)


class Reader:
    metadata = None

    def shards(self):
        return [Shard("mine", 0, 7)]

    def read(self, source, start, end, *, skip_bad):
        bad = (BadRecord(source, start, "cut"),) if skip_bad else ()
        return Records([b"%d" % i for i in range(start, end)], bad)


def test_phase_seconds_start_anew_with_each_step():
    now = [10.0]
    progress = WorkerProgress(lambda: now[0])
    progress.enter(WorkerPhase.TRAIN)
    now[0] = 13.0
    message = progress.report(seconds={}, memory_bytes=1, lease_ids=[5], snapshots=[])
    assert (message.phase, message.phase_seconds) == ("train", 3.0)
    assert progress.stepped(version=4, loss=0.5, seconds=0.2) == 1
    assert progress.steps == 1
    message = progress.report(seconds={}, memory_bytes=1, lease_ids=[], snapshots=[])
    assert (message.step, message.model_version, message.phase_seconds) == (1, 4, 0.0)
    assert message.step_seconds == pytest.approx(0.2)
    now[0] = 20.0
    progress.touch()
    message = progress.report(seconds={}, memory_bytes=1, lease_ids=[], snapshots=[])
    assert message.phase_seconds == 0.0


def test_a_heartbeat_tells_of_a_step_all_or_nothing():
    """Also where one is made while the heartbeat counts those before it."""

    def counted(steps):
        if len(made) == 1:  # while it is told, once
            made.append(progress.stepped(version=9, loss=0.5, seconds=0.1))

    progress = WorkerProgress(lambda: 0.0, counted=counted)
    made = [progress.stepped(version=8, loss=0.7, seconds=0.1)]
    for step, version, loss in ((1, 8, 0.7), (2, 9, 0.5)):
        report = told(progress)
        assert (report.step, report.batches) == (step, step)
        assert (report.model_version, report.loss) == (version, loss)


def told(progress):
    return progress.report(seconds={}, memory_bytes=1, lease_ids=[], snapshots=[])


def test_time_in_which_the_whole_process_was_stopped_is_no_sign_of_a_hang():
    now = [0.0]
    clock = RunningClock(lambda: now[0])
    progress = WorkerProgress(clock)

    def after(seconds):
        for _ in range(seconds):
            now[0] += 1.0
            clock()
        return told(progress).phase_seconds

    progress.enter(WorkerPhase.TRAIN)
    progress.begins(32)
    assert after(3) == pytest.approx(3.0)
    now[0] += 100.0  # frozen, and thawed in the same batch
    assert told(progress).phase_seconds == pytest.approx(6.0)
    assert after(9) == pytest.approx(15.0)  # that batch does hang


def test_a_batch_that_was_frozen_does_not_lengthen_what_such_batches_take():
    now = [0.0]
    progress = WorkerProgress(RunningClock(lambda: now[0]))
    progress.enter(WorkerPhase.TRAIN)
    for frozen in (0.0, 0.0, 0.0, 900.0):
        progress.begins(32)
        now[0] += 1.0 + frozen
        progress.stepped(version=1, loss=0.0, seconds=1.0)
    progress.begins(32)
    assert told(progress).usual_seconds < 2.0  # a hang is found within 20 of them


def test_how_long_a_batch_takes_is_known_of_batches_of_its_kind_alone():
    now = [0.0]
    progress = WorkerProgress(lambda: now[0])

    def batch(kind, seconds):
        progress.begins(kind)
        usual = told(progress).usual_seconds
        now[0] += seconds
        progress.ended()
        return usual

    progress.enter(WorkerPhase.EVALUATE)
    assert batch(32, 14.0) == 0.0  # traced: it may take as long as it likes
    assert batch(32, 2.0) == 14.0  # the next one: at most that long, many times over
    assert batch(32, 2.0) == 2.0
    assert batch(7, 9.0) == 0.0  # the last of a task has another size
    assert batch(32, 2.0) == 2.0
    progress.enter(WorkerPhase.TRAIN)
    assert batch(32, 30.0) == 0.0  # another graph


def test_while_the_next_batch_is_waited_for_no_length_is_expected():
    progress = WorkerProgress(lambda: 0.0)
    progress.enter(WorkerPhase.TRAIN)
    for _ in range(3):
        progress.begins(32)
        progress.stepped(version=1, loss=0.5, seconds=0.1)
        assert told(progress).usual_seconds == 0.0


def test_bytes_are_a_sign_of_life_of_all_but_a_batch():
    now = [0.0]
    progress = WorkerProgress(lambda: now[0])
    progress.enter(WorkerPhase.EXPORT)
    now[0] = 100.0
    progress.moved(1000)  # a line in the log
    assert told(progress).phase_seconds == 100.0
    progress.moved(2 << 20)
    assert told(progress).phase_seconds == 0.0
    progress.enter(WorkerPhase.TRAIN)
    progress.begins(32)
    now[0] = 200.0
    progress.moved(9 << 20)  # the next task's records
    assert told(progress).phase_seconds == 100.0


def test_a_read_that_goes_on_is_no_sign_of_life_but_the_next_one_is():
    now = [0.0]
    progress = WorkerProgress(lambda: now[0])
    progress.waits_to_read(5)
    now[0] = 100.0
    progress.waits_to_read(5)
    assert told(progress).phase_seconds == 100.0
    progress.waits_to_read(6)
    assert told(progress).phase_seconds == 0.0


def test_a_report_stays_in_the_outbox_until_it_is_acknowledged():
    box = Outbox()
    first, second = TaskReport(lease_id=1), TaskReport(lease_id=2)
    box.add(first)
    taken = box.take()
    box.add(second)
    assert (len(box), box.waiting, box.lease_ids) == (2, 1, [1, 2])
    box.put_back(taken)
    assert [r.lease_id for r in box.take()] == [1, 2]
    box.acknowledge([first, second])
    assert len(box) == 0


def test_a_report_that_is_written_later_is_known_by_its_lease_and_written_once():
    box, written = Outbox(), []

    def write():
        written.append(TaskReport(lease_id=7))
        return written[-1]

    box.add(LaterReport(7, write))
    assert (box.lease_ids, written) == ([7], [])
    taken = box.take()
    box.put_back(taken)
    assert box.take() == taken == written
    box.acknowledge(taken)
    assert (len(box), len(written)) == (0, 1)


def test_records_are_permuted_the_same_on_every_worker():
    loader = RecordLoader(lambda _: Reader(), skip_bad=True, shuffle_records=True)
    task = Task(type=TaskType.TRAINING, source="a", start=0, end=9, seed=3)
    loaded = loader.load(task)
    assert loaded.records == permuted([b"%d" % i for i in range(9)], 3)
    assert sorted(loaded.records) == [b"%d" % i for i in range(9)]
    assert loaded.records != sorted(loaded.records)
    assert loaded.bad[0].reason == "cut"
    evaluation = replace(task, type=TaskType.EVALUATION)
    assert loader.load(evaluation).records == [b"%d" % i for i in range(9)]
    export = replace(task, type=TaskType.EXPORT)
    assert loader.load(export).records == []


@pytest.mark.parametrize("shuffles", [False, True])
def test_a_record_that_does_not_parse_is_named_by_its_own_number(shuffles):
    loader = RecordLoader(lambda _: Reader(), skip_bad=False, shuffle_records=shuffles)
    task = Task(type=TaskType.TRAINING, source="a", start=20, end=29, seed=3)
    loaded = loader.load(task)
    found = [loaded.bad_record(i, "no").record for i in range(len(loaded.records))]
    assert [b"%d" % number for number in found] == loaded.records


@pytest.mark.parametrize("name", ["jsonl", "parquet"])
def test_a_task_done_twice_leaves_one_file_with_each_record_once(tmp_path, name):
    files = PredictionFiles(tmp_path, format_named(name))
    outputs = [
        np.arange(6, dtype=np.float32).reshape(3, 2),
        np.ones((1, 2), np.float32),
    ]
    files.write(3, {"prediction": [0]})
    path = files.write(3, merged(outputs))
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    if name == "jsonl":
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        assert rows[0] == {"prediction": [0.0, 1.0]}
    else:
        import pyarrow.parquet as pq

        rows = pq.read_table(path).to_pylist()
    assert len(rows) == 4


def test_outputs_of_any_structure_become_columns():
    one = np.zeros((2, 1))
    assert merged([one]) == {"prediction": [0.0, 0.0]}
    assert list(named_outputs([one, None, one])) == ["prediction_0", "prediction_2"]
    assert list(named_outputs({"a": one})) == ["a"]
    nested = {"h": {"a": one, "b": [one, one]}, "g": one}
    columns = merged([nested, nested])
    assert list(columns) == ["h/a", "h/b/0", "h/b/1", "g"]
    assert all(column == [0.0] * 4 for column in columns.values())
    assert list(merged([[[one, one], one]])) == [
        "prediction_0/0",
        "prediction_0/1",
        "prediction_1",
    ]


def test_a_batch_that_is_padded_to_one_step_has_lists_as_the_others_have():
    batches = [np.ones((1, 3)), np.ones((1, 1))]
    columns = merged(batches, of_any_length={"prediction"})
    assert columns == {"prediction": [[1.0, 1.0, 1.0], [1.0]]}
    assert merged(batches) == columns  # of a task, though nothing is known before


def test_predictions_that_nobody_could_tell_apart_are_refused():
    two = merged([np.zeros((2, 1))])
    assert of_records(two, "a.csv", [4, 7])["record"] == [4, 7]
    assert of_records(two, "a.csv", None) == two
    with pytest.raises(UserCodeError, match="2 rows for 3 records"):
        of_records(two, "a.csv", [4, 7, 9])
    with pytest.raises(UserCodeError, match="different numbers of rows"):
        of_records({"a": [1, 2], "b": [1]}, "a.csv", None)
    with pytest.raises(UserCodeError, match="is one number for a batch"):
        merged([{"a": np.zeros(2), "b": np.zeros(())}])
    with pytest.raises(UserCodeError, match="would be the column `a/b`"):
        merged([{"a": {"b": np.zeros(2)}, "a/b": np.zeros(2)}])
    with pytest.raises(UserCodeError, match="an output `record`"):
        of_records(merged([{"record": np.zeros(2)}]), "a.csv", [4, 7])


def test_a_folder_that_cannot_be_written_is_a_clear_error(tmp_path):
    (tmp_path / "file").write_text("in the way")
    files = PredictionFiles(tmp_path / "file", format_named("jsonl"))
    with pytest.raises(DataError, match="predictionOutput"):
        files.write(1, {"a": [1]})


class EarlyMaster:
    def __init__(self, *replies):
        self.replies = list(replies)
        self.requests = []

    def lease(self, request):
        self.requests.append(request)
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply


def early(master, errands, *, clock=lambda: 0.0):
    return EarlyTasks(
        master.lease,
        ReplicaId(),
        errands,
        leaving=threading.Event(),
        progress=WorkerProgress(clock),
    )


def one_task(kind, **fields):
    task = Task(task_id=-1, lease_id=-2, type=kind, **fields)
    return LeaseReply(tasks=[task])


def test_data_is_prepared_and_reported_before_the_model_is_built():
    ran = []
    master = EarlyMaster(
        RpcError("not up yet"),
        one_task(TaskType.PREPARE),
        one_task(TaskType.SHARDS, target="training"),
        LeaseReply(),
    )
    errands = Errands(lambda: ran.append("prepared"), lambda kind: Reader())
    assert early(master, errands).run(0.0)
    assert ran == ["prepared"]
    reports = [r for request in master.requests for r in request.reports]
    assert [r.outcome for r in reports] == [TaskOutcome.DONE, TaskOutcome.DONE]
    assert reports[1].shards[0].source == "mine"
    assert reports[1].shards[0].end == 7


def test_who_waits_for_the_masters_answer_does_not_hang():
    """It may wait for its journal's disk for half an hour."""
    now = [0.0]

    def lease(request):
        told.append(message(one._progress).phase_seconds)
        now[0] += 15.0
        return master.lease(request)

    def message(progress):
        return progress.report(seconds={}, memory_bytes=1, lease_ids=[], snapshots=[])

    told, master = [], EarlyMaster(*[RpcError("away")] * 4, LeaseReply())
    one = early(master, None, clock=lambda: now[0])
    one._lease = lease
    assert one.run(0.0)
    assert told == [0.0] * 5


def test_data_that_cannot_be_prepared_fails_the_job():
    def prepare():
        raise DataError("no network")

    master = EarlyMaster(one_task(TaskType.PREPARE), LeaseReply(finished=True))
    assert not early(master, Errands(prepare, lambda kind: Reader())).run(0.0)
    report = master.requests[-1].reports[0]
    assert report.fatal
    assert report.error == "no network"
