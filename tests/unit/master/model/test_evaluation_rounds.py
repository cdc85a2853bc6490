"""Evaluation rounds that are given up, undone by a rewind, or final too early."""

import asyncio
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from elasticdl.data.reader import Shard
from elasticdl.errors import DataError
from elasticdl.job.heartbeats import SnapshotDone
from elasticdl.job.spec.job import EvaluationSpec, JobSpec
from elasticdl.job.tasks import ExportTarget, Task, TaskReport, TaskType
from elasticdl.master.happenings import Evaluated
from elasticdl.master.model import callbacks, evaluation
from elasticdl.master.model.callbacks import Action, ScaleLearningRate
from elasticdl.master.model.evaluation_rounds import Rounds
from elasticdl.master.signals import Signals
from elasticdl.master.tasks import model_facts
from elasticdl.master.tasks.ledger import Ledger
from elasticdl.master.tasks.queue_plan import QueuePlan
from elasticdl.master.tasks.side_tasks import SideTasks

EXPORT = TaskType.EXPORT
BEST = ExportTarget.BEST
BEST_MODEL = [{"class": "BestModel", "monitor": "accuracy"}]
PLATEAU = [
    {"class": "ReduceLROnPlateau", "monitor": "accuracy", "factor": 0.5, "patience": 1}
]


class Course:
    """The rounds of one job with `pins` PS, and what a worker does for them."""

    def __init__(
        self,
        ledger: Ledger,
        described: list[dict[str, object]],
        *,
        pins: int = 0,
        every_steps: int = 0,
    ) -> None:
        spec = JobSpec.model_validate(
            {
                "name": "x",
                "model": {"definition": "m.f"},
                "data": {"training": "t.csv", "validation": "v.csv"},
                "export": {"dir": "out"},
                "evaluation": {"everySteps": every_steps},
            }
        )
        self.ledger = ledger
        self.side = SideTasks(ledger.generation)
        self.signals = Signals(ledger.generation)
        self.actions: list[Action] = []
        self.rounds = Rounds(
            spec,
            ledger,
            self.signals,
            self.side,
            pins=pins,
            now=0.0,
        )
        made = callbacks.from_json(json.dumps(described))
        self.rounds.begin([Shard("v.csv", 0, 8)], made, self.actions.append)

    def lease(self) -> Task | None:
        return self.side.lease(0, types=None, deadline=9.0)

    def report(self, task: Task, **report: object) -> None:
        """Report a task, by default of the version that the round has."""
        if self.rounds.current is not None:
            report.setdefault("model_version", self.rounds.current.version)
        report.setdefault("records", task.end - task.start)
        self.side.finish(task.lease_id)
        self.rounds.done(task, TaskReport(**report), now=1.0)
        if task.move:  # as master.calls.leasing records it
            moved = model_facts.ExportFact(
                target=task.target, paths=(), round=task.round
            )
            self.ledger.record(moved)

    def measure(self, accuracy: float, *, version: int) -> Task | None:
        """Evaluate the round that is open; the task that writes the best model."""
        while (task := self.lease()) is not None:
            if task.move:
                self.report(task)
                continue
            if task.type == EXPORT:
                return task
            results = json.dumps({"accuracy": accuracy})
            self.report(task, model_version=version, results_json=results)
        return None

    def evaluate(self, accuracy: float, *, version: int, epochs: int = 0) -> None:
        """Open a round and see it through."""
        self.rounds.open("test", version=version, epochs_done=epochs, now=0.0)
        while (export := self.measure(accuracy, version=version)) is not None:
            self.report(export)

    @property
    def measured(self) -> list[float]:
        return [result.metrics["accuracy"] for result in self.rounds.results]


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    opened = Ledger.open(tmp_path, now=0.0)
    yield opened
    opened.close()


def test_a_best_model_that_was_not_written_is_not_the_best(ledger) -> None:
    course = Course(ledger, BEST_MODEL)
    course.rounds.open("test", version=4, epochs_done=0, now=0.0)
    assert course.measure(0.9, version=4).target == BEST
    course.rounds.abort()  # a PS was lost, and the snapshot with it
    assert course.measured == []
    course.rounds.tick(version=6, epochs_done=0, now=0.0)
    export = course.measure(0.8, version=6)
    assert export.target == BEST
    course.report(export)
    assert course.measured == [0.8]
    course.evaluate(0.7, version=8)
    assert course.measured == [0.8, 0.7]


@pytest.mark.parametrize("restarted", [False, True])
def test_the_best_model_of_an_undone_round_stays_the_one_to_beat_and_is_told(
    ledger, tmp_path, restarted
) -> None:
    course = Course(ledger, BEST_MODEL)
    course.evaluate(0.7, version=4)
    course.evaluate(0.9, version=8)
    course.rounds.rewound(version=5, epochs_done=0)
    if restarted:
        asyncio.run(ledger.commit())
        ledger = Ledger.open(tmp_path, now=0.0)
        course = Course(ledger, BEST_MODEL)
    assert course.measured == [0.7]
    assert (course.rounds.kept.best.version, course.rounds.kept.best.metrics) == (
        8,
        {"accuracy": 0.9},
    )
    # `best` has the model of 0.9: one of 0.8 must not be written over it.
    course.evaluate(0.8, version=7)
    assert course.rounds.kept.best.version == 8
    course.evaluate(0.95, version=9)
    assert course.rounds.kept.best.version == 9
    assert course.measured == [0.7, 0.8, 0.95]


def test_an_evaluation_without_a_record_gives_no_figures(ledger) -> None:
    """Metrics of nothing are zeros: a loss of 0 is the best for each callback."""
    course = Course(ledger, BEST_MODEL)
    course.rounds.open("test", version=4, epochs_done=0, now=0.0)
    with pytest.raises(DataError, match="had no records: of the 8"):
        course.report(course.lease(), records=0)
    assert course.measured == []
    assert course.lease() is None


def test_an_evaluation_counts_the_records_that_were_evaluated(ledger) -> None:
    course = Course(ledger, [])
    course.rounds.open("test", version=4, epochs_done=0, now=0.0)
    course.report(course.lease(), records=3)
    course.measure(0.5, version=4)
    assert [result.records for result in course.rounds.results] == [3]


def test_a_round_whose_snapshot_a_ps_gives_up_begins_again(ledger) -> None:
    course = Course(ledger, [], pins=1)
    course.rounds.open("test", version=4, epochs_done=0, now=0.0)
    (request,) = course.rounds.requests(0)
    course.rounds.take(0, SnapshotDone(request.id, version=4))
    assert course.lease() is not None
    course.rounds.take(0, SnapshotDone(request.id, version=4, error="loaded again"))
    assert course.lease() is None
    course.rounds.tick(version=6, epochs_done=0, now=0.0)
    (again,) = course.rounds.requests(0)
    assert again.id != request.id
    course.rounds.take(0, SnapshotDone(again.id, version=6))
    course.measure(0.5, version=6)
    assert [one.version for one in course.rounds.results] == [6]


def test_a_round_that_is_given_up_leaves_the_last_export_alone(ledger) -> None:
    course = Course(ledger, BEST_MODEL)
    course.rounds.open("test", version=4, epochs_done=0, now=0.0)
    assert course.measure(0.9, version=4) is not None
    course.side.add(Task(type=EXPORT, target="final"))
    course.rounds.abort()
    assert course.lease().target == "final"


def test_results_of_an_undone_course_count_no_more(ledger, tmp_path) -> None:
    course = Course(ledger, PLATEAU)
    course.evaluate(0.9, version=10, epochs=1)
    course.evaluate(0.8, version=20, epochs=2)
    assert course.actions[-1].scale == 0.5
    course.rounds.rewound(version=10, epochs_done=1)
    assert course.measured == [0.9]
    assert isinstance(course.actions[-1], ScaleLearningRate)
    assert course.actions[-1].scale == 1.0
    asyncio.run(ledger.commit())
    again = Ledger.open(tmp_path, now=1.0)
    restarted = Course(again, PLATEAU)
    again.close()
    for one in (course, restarted):
        assert one.measured == [0.9]
        # Epoch 2 comes again, and is evaluated again.
        due = one.rounds.schedule.due(version=20, epochs_done=2, now=1.0)
        assert due == evaluation.EPOCH_END
    assert restarted.actions == []


def test_a_round_that_another_version_goes_on_with_begins_again(ledger) -> None:
    """A group's next leader first trains what the one before it had leased."""
    course = Course(ledger, BEST_MODEL)
    shards = [Shard("v.csv", 0, 8), Shard("w.csv", 0, 8)]
    course.rounds.begin(shards, course.rounds.callbacks, course.actions.append)
    course.rounds.open("test", version=4, epochs_done=0, now=0.0)
    course.report(course.lease(), model_version=5)
    course.report(course.lease(), model_version=6)
    assert course.rounds.current is None
    assert course.lease() is None
    course.rounds.tick(version=6, epochs_done=0, now=1.0)
    export = course.measure(0.9, version=7)
    course.report(export, model_version=8)
    assert course.rounds.count == 0
    course.rounds.tick(version=8, epochs_done=0, now=1.0)
    course.report(course.measure(0.8, version=8), model_version=8)
    assert [result.version for result in course.rounds.results] == [8]
    assert course.measured == [0.8]


def test_a_round_that_began_before_the_first_step_begins_again_after_it(ledger) -> None:
    course = Course(ledger, BEST_MODEL)
    shards = [Shard("v.csv", 0, 8), Shard("w.csv", 0, 8)]
    course.rounds.begin(shards, course.rounds.callbacks, course.actions.append)
    course.rounds.open("test", version=0, epochs_done=0, now=0.0)
    course.report(course.lease(), model_version=0)
    course.report(course.lease(), model_version=3)
    assert course.rounds.current is None


def test_the_last_evaluation_is_of_all_that_was_trained(ledger) -> None:
    ledger.open_plan(
        QueuePlan((Shard("t.csv", 0, 16),), batch_size=8, batches_per_task=1)
    )
    course = Course(ledger, [])

    def train_a_task() -> None:
        leased = ledger.lease(0, now=0.0, lease_seconds=9.0)
        ledger.finish(leased.lease_id, records=8, steps=1, now=0.0)

    train_a_task()
    course.rounds.open(evaluation.FINAL, version=1, epochs_done=0, now=0.0)
    course.measure(0.9, version=1)
    assert course.rounds.is_up_to_date
    train_a_task()  # the job goes on, with more epochs
    assert not course.rounds.is_up_to_date


@pytest.mark.parametrize(("pins", "again"), [(0, False), (2, True)])
def test_the_last_version_is_not_evaluated_twice_where_it_says_what_was_measured(
    ledger, pins, again
) -> None:
    """A group's records are reported a step later; PS count versions apart."""
    ledger.open_plan(
        QueuePlan((Shard("t.csv", 0, 8),), batch_size=8, batches_per_task=1)
    )
    course = Course(ledger, [], pins=pins)
    leased = ledger.lease(0, now=0.0, lease_seconds=9.0)
    course.evaluate(0.9, version=1)
    ledger.finish(leased.lease_id, records=8, steps=1, now=0.0)
    assert course.rounds.has_measured(1) is not again
    assert not course.rounds.has_measured(2)


def evaluated(course: Course) -> list[Evaluated]:
    said = course.signals.diary.take()
    return [one for one in said if isinstance(one, Evaluated)]


def test_no_more_results_are_kept_than_a_restarted_master_reads_back(
    ledger, monkeypatch
) -> None:
    monkeypatch.setattr(model_facts.EvaluationFact, "KEPT", 5)
    course = Course(ledger, [])
    for number in range(8):
        course.evaluate(float(number), version=number)
        (said,) = evaluated(course)
        assert said.result == course.rounds.last
    assert course.measured == [3.0, 4.0, 5.0, 6.0, 7.0]
    again = Course(ledger, [])
    assert again.measured == course.measured
    assert again.rounds.count == course.rounds.count == 8
    last = course.rounds.results[-1:]
    again.rounds.say_since(last[0].time - 0.1)
    assert [said.result for said in evaluated(again)][-1:] == last
    again.rounds.rewound(version=5, epochs_done=0)
    assert again.measured == [3.0, 4.0, 5.0]


@pytest.mark.parametrize("pins", [0, 1], ids=["in the worker", "on PS"])
def test_a_job_that_goes_on_evaluates_no_version_again_that_callbacks_have_seen(
    ledger, pins
) -> None:
    stops = [{"class": "EarlyStopping", "monitor": "accuracy", "patience": 2}]
    course = Course(ledger, stops, every_steps=100)
    course.evaluate(0.9, version=100)
    course.evaluate(0.8, version=205)  # a first one that is no better
    again = Course(ledger, stops, pins=pins, every_steps=100)
    again.rounds.rewound(version=205, epochs_done=0)  # to the checkpoint of the stop
    opened = []
    for version in (205, 299, 300):
        again.rounds.tick(version=version, epochs_done=0, now=1.0)
        opened.append(again.rounds.current and again.rounds.current.why)
    assert opened == [None, None, evaluation.STEPS]


def test_nobody_trains_while_workers_evaluate_what_they_have_themselves(ledger) -> None:
    course = Course(ledger, BEST_MODEL)
    assert not course.rounds.stops_training
    course.rounds.open("test", version=4, epochs_done=0, now=0.0)
    export = course.measure(0.9, version=4)
    assert course.rounds.stops_training  # the best model is still to be written
    course.report(export)
    assert not course.rounds.stops_training


def leased(course: Course, ledger: Ledger, *, version: int) -> list[int]:
    """Lease ahead as far as the rounds let a worker; return the leases."""
    mine = []
    while not course.rounds.come_first(version):
        given = ledger.lease(0, now=0.0, lease_seconds=9.0)
        assert given is not None
        mine.append(given.lease_id)
    return mine


def trained(ledger: Ledger, lease_id: int) -> None:
    assert ledger.finish(lease_id, records=8, steps=2, made=None, now=0.0)


def test_no_task_is_leased_ahead_of_the_end_of_an_epoch_that_is_measured(
    ledger,
) -> None:
    """Workers that hold a second of tasks measured an epoch of less three later."""
    ledger.open_plan(QueuePlan((Shard("t.csv", 0, 40),), 4, 2, epochs=3))
    course = Course(ledger, [])
    first = leased(course, ledger, version=0)
    assert len(first) == 5
    ledger.give_back(first[4], cause="handed back", now=0.0, untouched=True)
    assert not course.rounds.come_first(0)  # of this epoch it is
    trained(ledger, leased(course, ledger, version=0)[0])
    for lease_id in first[:4]:
        assert course.rounds.come_first(8)
        trained(ledger, lease_id)
    course.rounds.tick(version=10, epochs_done=1, now=1.0)
    assert course.rounds.current is not None
    assert course.rounds.come_first(10)
    course.measure(0.5, version=10)
    assert len(leased(course, ledger, version=10)) == 5


@pytest.mark.parametrize("given_up", [False, True])
def test_a_lease_that_waits_for_the_end_of_a_round_does_not_wait_longer(
    ledger, given_up
) -> None:
    """It waited out its second: a quarter of the time of a job of short epochs."""

    async def story() -> None:
        course = Course(ledger, [])
        course.rounds.open("test", version=4, epochs_done=0, now=0.0)
        measured = course.lease()
        course.report(measured, model_version=4)
        summary = course.lease()
        lease = asyncio.create_task(course.signals.wait_for_work(3600))
        await asyncio.sleep(0)
        if given_up:
            course.rounds.abort()
        else:
            course.report(summary, results_json='{"accuracy": 0.5}')
        await asyncio.wait_for(lease, 60)

    asyncio.run(story())


def test_no_task_is_leased_ahead_of_a_round_by_steps(ledger) -> None:
    ledger.open_plan(QueuePlan((Shard("t.csv", 0, 400),), 4, 2))
    course = Course(ledger, [], every_steps=7)
    for lease_id in leased(course, ledger, version=0):
        trained(ledger, lease_id)
    course.rounds.tick(version=8, epochs_done=0, now=1.0)
    course.measure(0.5, version=8)
    assert course.rounds.last.version == 8
    assert len(leased(course, ledger, version=8)) == 3  # 14 is due


def test_tasks_are_leased_ahead_where_a_snapshot_is_measured_or_nothing(ledger) -> None:
    ledger.open_plan(QueuePlan((Shard("t.csv", 0, 40),), 4, 2, epochs=3))
    course = Course(ledger, [], pins=1, every_steps=1)
    assert not course.rounds.come_first(100)
    course = Course(ledger, [], every_steps=1)
    course.rounds.begin([], callbacks.from_json("[]"), course.actions.append)
    assert not course.rounds.come_first(100)


def test_training_goes_on_beside_a_round_on_a_snapshot(ledger) -> None:
    course = Course(ledger, [], pins=1)
    course.rounds.open("test", version=4, epochs_done=0, now=0.0)
    assert not course.rounds.stops_training


@pytest.mark.parametrize("interval", [0.001, 2.0])
def test_a_round_that_takes_longer_than_its_interval_leaves_time_to_train(
    ledger, interval
) -> None:
    course = Course(ledger, [])
    course.rounds.schedule.take_spec(EvaluationSpec(every_seconds=interval))
    tick = partial(course.rounds.tick, epochs_done=0)
    tick(version=4, now=interval)
    assert course.rounds.current is not None
    tick(version=4, now=10.0)  # it is still under way
    course.measure(0.5, version=4)
    assert course.rounds.current is None
    tick(version=4, now=10.0 + interval)
    assert course.rounds.current is None  # nothing was trained meanwhile
    tick(version=5, now=10.0 + interval / 2)
    assert course.rounds.current is None
    tick(version=5, now=10.0 + interval)
    assert course.rounds.current is not None


@pytest.mark.parametrize("pins", [0, 1], ids=["in the worker", "on PS"])
def test_a_version_is_measured_once_however_many_epochs_ended_before_it(
    ledger, pins
) -> None:
    course = Course(ledger, [{"class": "EarlyStopping", "monitor": "accuracy"}])
    course.rounds.tick(version=20, epochs_done=1, now=1.0)
    # The worker still had tasks of two epochs, which it reports only now.
    course.measure(0.5, version=64)
    again = Course(ledger, [], pins=pins)
    for rounds in (course.rounds, again.rounds):
        rounds.tick(version=64, epochs_done=3, now=2.0)
        rounds.tick(version=65, epochs_done=3, now=3.0)
        assert rounds.current is None
        rounds.tick(version=80, epochs_done=4, now=4.0)
        assert rounds.current is not None
    assert course.actions == []


def restarted(
    ledger: Ledger, folder: Path, described: list[dict[str, object]]
) -> Course:
    asyncio.run(ledger.commit())
    return Course(Ledger.open(folder, now=0.0), described)


@pytest.mark.parametrize("rewinds", [False, True])
def test_a_master_after_another_knows_which_epochs_ends_were_measured(
    ledger, tmp_path, rewinds
) -> None:
    """Else callbacks count an epoch once more, measured in the middle of the next."""
    course = Course(ledger, [])
    course.rounds.tick(version=14, epochs_done=2, now=1.0)
    course.measure(0.4, version=14)
    course.rounds.open("steps", version=20, epochs_done=2, now=2.0)
    course.measure(0.5, version=21)  # the third epoch's last step, as it is told next
    course.rounds.tick(version=21, epochs_done=3, now=3.0)
    assert course.rounds.current is None
    if rewinds:
        course.rounds.rewound(version=18, epochs_done=2)
    following = restarted(ledger, tmp_path, [])
    following.rounds.tick(version=27, epochs_done=3, now=4.0)
    # What a rewind undid is measured when it has been repeated.
    assert (following.rounds.current is not None) == rewinds


def test_a_model_is_the_best_one_when_it_is_in_its_place_whoever_is_lost(
    ledger, tmp_path
) -> None:
    course = Course(ledger, BEST_MODEL)
    course.evaluate(0.7, version=4)
    course.rounds.open("test", version=8, epochs_done=0, now=0.0)
    course.report(course.measure(0.9, version=8))
    # It is kept, and will be moved; `best` has the one before it.
    assert course.measured == [0.7, 0.9]
    assert course.rounds.kept.best.version == 4
    move = course.lease()
    assert (move.target, move.move, move.round) == (
        BEST,
        True,
        course.rounds.kept.moving,
    )
    # No round begins meanwhile, whose model could come before this one.
    course.rounds.tick(version=12, epochs_done=9, now=5.0)
    assert course.rounds.current is None
    course.rounds.rewound(version=5, epochs_done=0)
    assert course.rounds.kept.moving == move.round
    course = restarted(ledger, tmp_path, BEST_MODEL)
    again = course.lease()
    assert (again.target, again.move, again.round) == (BEST, True, move.round)
    course.report(again)
    assert course.rounds.kept.best.version == 8
    assert not course.rounds.kept.moving


def test_a_model_that_was_written_aside_for_a_lost_round_is_not_the_best(
    ledger,
) -> None:
    course = Course(ledger, BEST_MODEL)
    course.evaluate(0.7, version=4)
    course.rounds.open("test", version=8, epochs_done=0, now=0.0)
    written = course.measure(0.9, version=8)
    assert (written.move, written.beside) == (
        False,
        course.rounds.kept.newest(BEST).number,
    )
    course.rounds.abort()
    course.report(written)  # too late
    assert course.lease() is None
    assert course.rounds.kept.best.version == 4


RESTORING = [
    {
        "class": "EarlyStopping", "monitor": "accuracy", "patience": 5,
        "restore_best_weights": True,
    }
]  # fmt: skip


def test_the_final_model_is_the_best_one_where_early_stopping_restores_it(
    ledger, tmp_path
) -> None:
    course = Course(ledger, RESTORING)
    assert course.rounds.kept.to_restore() is None
    for version, accuracy in ((4, 0.7), (8, 0.9), (12, 0.8)):
        course.evaluate(accuracy, version=version)
    for kept in (
        course.rounds.kept,
        restarted(ledger, tmp_path, RESTORING).rounds.kept,
    ):
        assert kept.restored.version == 8
        task = kept.to_restore()
        assert (task.target, task.move) == (ExportTarget.FINAL, True)
        assert task.round == kept.newest(ExportTarget.RESTORED).number
        assert (kept.best, kept.moving) == (None, 0)


def test_a_round_whose_model_is_kept_twice_is_over_when_both_are_written(
    ledger,
) -> None:
    course = Course(ledger, [*BEST_MODEL, *RESTORING])
    course.rounds.open("test", version=8, epochs_done=0, now=0.0)
    first = course.measure(0.9, version=8)
    course.report(first)
    assert course.measured == []
    second = course.measure(0.9, version=8)
    assert {first.target, second.target} == {BEST, ExportTarget.RESTORED}
    course.report(second)
    assert course.measured == [0.9]


def test_a_journal_of_models_that_were_written_at_once_says_which_one_is_the_best(
    ledger, tmp_path
) -> None:
    fact = model_facts.EvaluationFact(
        version=4, metrics={"accuracy": 0.7}, records=8, seconds=1.0, time=1.0,
        why="test", number=1_000_001, kept=True,
    )  # fmt: skip
    ledger.record(fact)
    course = restarted(ledger, tmp_path, BEST_MODEL)
    assert course.rounds.kept.best.version == 4
    assert course.lease() is None
    course.evaluate(0.6, version=8)
    assert course.rounds.kept.best.version == 4
