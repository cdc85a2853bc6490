"""The task stream: look-ahead, reports until acknowledged, a master that goes away."""

import errno
import threading
import time
from dataclasses import replace

import pytest
from elasticdl.errors import BadRecordError, DataError, FencedError, RpcError
from elasticdl.job.tasks import (
    LeaseReply,
    ReplicaId,
    ReportResult,
    Task,
    TaskOutcome,
    TaskReport,
    TaskType,
)
from elasticdl.worker.tasks import stream as task_stream
from elasticdl.worker.tasks.records import LoadedTask
from elasticdl.worker.tasks.reports import failure
from elasticdl.worker.tasks.stream import TaskStream

SECONDS = 20.0


class Master:
    """Answers leases from a list, as the RPC would; a test may cut the line."""

    steps_wait = False

    def __init__(self, tasks, *, away=0, fence=False, call_seconds=0.0):
        self.call_seconds = call_seconds
        self.tasks = list(tasks)
        self.away = away
        self.fence = fence
        self.changed = threading.Condition()
        self.reports = []
        self.calls = []
        self.leased = 0

    def lease(self, request):
        with self.changed:
            self.calls.append(request)
            if self.fence:
                raise FencedError("old generation")
            if self.away:
                self.away -= 1
                raise RpcError("connection refused")
            self.reports.extend(request.reports)
            self.changed.notify_all()
            results = [
                ReportResult(lease_id=r.lease_id, accepted=True)
                for r in request.reports
            ]
            if request.want and not self.tasks:
                done = len(self.reports) >= self.leased
                if not done:
                    self.changed.wait(min(request.wait_seconds, 0.02))
                return LeaseReply(results=results, finished=done)
            taken = [
                self.tasks.pop(0) for _ in range(min(request.want, len(self.tasks)))
            ]
            self.leased += len(taken)
            return LeaseReply(
                tasks=taken,
                results=results,
                call_seconds=self.call_seconds,
                steps_wait=self.steps_wait,
            )

    def wait_for_reports(self, count):
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.reports) >= count, SECONDS)
            return self.reports


def task(number, **fields):
    return Task(
        task_id=number,
        lease_id=100 + number,
        type=TaskType.TRAINING,
        source="a",
        **fields,
    )


def take(stream):
    """Return the next task, None when none will come.

    `next` returns as well when a task begins to be read, for its caller to say so.
    """
    while (loaded := stream.next(SECONDS, reading=stream.reading)) is None:
        if stream.ended:
            return None
    return loaded


def done(loaded):
    return TaskReport(
        task_id=loaded.task.task_id,
        lease_id=loaded.task.lease_id,
        outcome=TaskOutcome.DONE,
    )


@pytest.fixture
def stream():
    made = []

    def make(
        master,
        load=lambda t: LoadedTask(t, [b"x"]),
        on_fenced=lambda _: None,
        goes_on=None,
        **settings,
    ):
        made.append(
            TaskStream(
                master.lease,
                ReplicaId(),
                **settings,
                load=load,
                describe=lambda what, error: f"{what} raised {error}",
                on_fenced=on_fenced,
            )
        )
        if goes_on is not None:
            made[-1].take_over(goes_on)
        made[-1].start()
        return made[-1]

    yield make
    for one in made:
        one.close(0.1)


def test_tasks_come_in_order_and_each_report_arrives_once(stream):
    master = Master([task(i) for i in range(5)])
    one = stream(master)
    seen = []
    while (loaded := take(one)) is not None:
        seen.append(loaded.task.task_id)
        one.report(done(loaded))
    assert one.ended
    assert seen == [0, 1, 2, 3, 4]
    assert one.close(SECONDS)
    assert sorted(r.task_id for r in master.reports) == seen
    assert one.held == []


def _telling(loaded: threading.Semaphore):
    def load(one):
        loaded.release()
        return LoadedTask(one, [])

    return load


def test_the_next_task_is_read_while_the_first_is_trained(stream):
    read = threading.Semaphore(0)
    master = Master([task(0), task(1), task(2)])
    one = stream(master, load=_telling(read))
    assert take(one).task.task_id == 0
    assert read.acquire(timeout=SECONDS)
    assert read.acquire(timeout=SECONDS)
    assert not read.acquire(timeout=0.05), "two ahead would be hoarding"
    assert one.held == [100, 101]


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def test_steps_wait_from_the_task_on_with_which_the_master_says_so(stream):
    master = Master([task(0), task(1)])
    master.steps_wait = True
    one = stream(master)
    first = take(one)
    assert one.steps_wait
    # Also while the master is away: nobody knows that the evaluation is over.
    master.away = 3
    one.report(done(first))
    second = take(one)
    assert one.steps_wait
    one.report(done(second))
    assert take(one) is None
    assert not one.steps_wait


def test_who_waits_within_an_evaluation_hears_at_once_that_it_is_over(stream):
    master = Master([beside(50, TaskType.EVALUATION)])
    master.leased = 1  # not all of the job: it goes on
    master.steps_wait = True
    one = stream(master)
    loaded = take(one)
    one.report(done(loaded))
    assert one.next(SECONDS, in_round=True) is None
    assert not one.steps_wait
    assert not one.ended


def test_an_older_answer_does_not_say_that_steps_go_on(stream):
    """It was on its way when the evaluation began that another one tells of."""
    one = stream(Master([task(0)]))
    take(one)
    with one._changed:
        one._calls = 7
        one._take_word(7, True)
        one._take_word(6, False)
        assert one.steps_wait
        one._calls = 8
        one._take_word(8, False)
        assert not one.steps_wait


def test_short_tasks_are_leased_and_reported_several_in_a_call(stream):
    master, clock = Master([task(i) for i in range(200)]), Clock()
    one = stream(master, far_ahead=True, clock=clock)
    while (loaded := take(one)) is not None:
        clock.now += 0.01
        one.report(done(loaded), can_wait=True)
    assert one.close(SECONDS)
    assert sorted(r.task_id for r in master.reports) == list(range(200))
    assert len([call for call in master.calls if call.reports]) < 100
    assert max(call.want for call in master.calls) > 4


def test_tasks_of_a_second_go_several_to_a_call_when_the_master_has_many_workers(
    stream,
):
    master, clock = Master([task(i) for i in range(60)], call_seconds=4.0), Clock()
    one = stream(master, far_ahead=True, clock=clock)
    while (loaded := take(one)) is not None:
        clock.now += 1.0
        one.report(done(loaded), can_wait=True)
    assert one.close(SECONDS)
    assert sorted(r.task_id for r in master.reports) == list(range(60))
    assert max(call.want for call in master.calls) == 4
    assert len([call for call in master.calls if call.reports]) <= 30


def test_a_report_does_not_wait_when_there_is_nothing_left_to_train(stream):
    master, clock = Master([task(0), task(1)]), Clock()
    one = stream(master, far_ahead=True, clock=clock)
    first, second = take(one), take(one)
    # The clock stands still: by time alone these would wait for ever.
    one.report(done(first), can_wait=True)
    one.report(done(second), can_wait=True)
    assert len(master.wait_for_reports(2)) == 2


def test_a_failure_takes_the_reports_that_wait_with_it_at_once(stream):
    master, clock = Master([task(i) for i in range(50)]), Clock()
    one = stream(master, far_ahead=True, clock=clock)
    for _ in range(20):
        loaded = take(one)
        clock.now += 0.01
        one.report(done(loaded), can_wait=True)
    held, broken = take(one), take(one)
    one.report(done(held), can_wait=True)
    one.report(failure(broken.task, "it raised"))
    assert any(r.outcome == TaskOutcome.FAILED for r in master.wait_for_reports(22))


def test_an_unreachable_master_never_means_that_there_is_no_more_work(stream):
    # The earlier system turned any error of the call into "no more tasks" (D4).
    master = Master([task(0)], away=3)
    one = stream(master)
    loaded = take(one)
    assert loaded is not None
    assert not one.ended
    with master.changed:
        master.away = 2
    one.report(done(loaded))
    assert master.wait_for_reports(1)[0].task_id == 0


def test_a_report_goes_out_while_the_stream_waits_for_work(stream):
    master = Master([task(0), task(1)])
    one = stream(master)
    first, second = take(one), take(one)
    one.report(done(first))
    master.wait_for_reports(1)
    one.report(done(second))
    assert [r.task_id for r in master.wait_for_reports(2)] == [0, 1]


class Torn(Master):
    """Loses the call with a report, once that for work has been answered meanwhile."""

    def __init__(self, tasks):
        super().__init__(tasks)
        self.asked, self.reporting, self.answered = (threading.Event() for _ in "123")

    def lease(self, request):
        if request.want and not self.tasks and not self.answered.is_set():
            self.asked.set()
            assert self.reporting.wait(SECONDS)
            self.answered.set()
            return LeaseReply(finished=True)
        if request.reports and not self.reporting.is_set():
            self.reporting.set()
            assert self.answered.wait(SECONDS)
            time.sleep(0.2)  # the other thread sleeps by then
            raise RpcError("connection reset")
        return super().lease(request)


def test_a_report_whose_call_is_lost_is_sent_though_no_work_is_asked_for(stream):
    master = Torn([task(0)])
    one = stream(master)
    loaded = take(one)
    assert master.asked.wait(SECONDS)
    one.report(done(loaded))
    assert master.wait_for_reports(1)[0].task_id == 0


def test_a_bad_record_fails_the_job_naming_file_and_record(stream):
    def load(_):
        raise BadRecordError("digits.rec", 17, "CRC does not fit")

    master = Master([task(0)])
    stream(master, load=load)
    report = master.wait_for_reports(1)[0]
    assert report.outcome == TaskOutcome.FAILED
    assert report.fatal
    assert "digits.rec: record 17" in report.error


def test_an_exception_of_a_custom_reader_is_reported_with_its_trace(stream):
    def load(_):
        raise KeyError("column")

    master = Master([task(0)])
    stream(master, load=load)
    report = master.wait_for_reports(1)[0]
    assert "KeyError: 'column'" in report.error
    assert not report.fatal


def test_draining_hands_back_what_was_not_begun(stream):
    ready = threading.Semaphore(0)
    master = Master([task(0), task(1)])
    one = stream(master, load=_telling(ready))
    running = take(one)
    assert ready.acquire(timeout=SECONDS)
    assert ready.acquire(timeout=SECONDS)
    one.drain()
    one.report(failure(running.task, "broken"))
    assert one.next(SECONDS) is None
    assert one.close(SECONDS)
    outcomes = {r.task_id: r.outcome for r in master.reports}
    assert outcomes == {0: TaskOutcome.FAILED, 1: TaskOutcome.RETURNED}


def test_a_task_that_others_go_on_with_is_not_handed_back(stream):
    """They know how far it is: handed back, it would be begun anew."""
    ready = threading.Semaphore(0)
    master = Master([task(0), task(1)])
    begun = {101}
    one = stream(master, load=_telling(ready), goes_on=lambda lease: lease in begun)
    running = take(one)
    assert ready.acquire(timeout=SECONDS)
    assert ready.acquire(timeout=SECONDS)
    one.drain()
    one.report(failure(running.task, "broken"))
    assert one.close(SECONDS)
    assert {r.task_id: r.outcome for r in master.reports} == {0: TaskOutcome.FAILED}
    assert one.held == []


def test_a_lost_lease_is_dropped_without_a_report(stream):
    master = Master([task(0)])
    one = stream(master)
    loaded = take(one)
    one.forget(loaded.task.lease_id)
    assert one.held == []


def test_a_fenced_worker_stops_at_once(stream):
    told = threading.Event()
    stream(Master([], fence=True), on_fenced=lambda _: told.set())
    assert told.wait(SECONDS)


def refusing(number):
    """Return a load that storage refuses with an errno, as readers tell it."""

    def load(task):
        try:
            raise OSError(number, "storage")
        except OSError as error:
            raise DataError(f"{task.source}: cannot be read") from error

    return load


@pytest.mark.parametrize("number", [errno.ESTALE, errno.EIO, errno.ETIMEDOUT])
def test_a_task_that_storage_does_not_give_is_handed_back_and_is_no_failure(
    stream, monkeypatch, number
):
    monkeypatch.setattr(task_stream, "STORAGE_SECONDS", 0.01)
    master = Master([task(1)])
    stream(master, load=refusing(number))
    (report,) = master.wait_for_reports(1)
    assert report.outcome == TaskOutcome.RETURNED
    assert report.error == "a: cannot be read"


def test_a_file_that_is_missing_is_a_failure_at_once(stream):
    master = Master([task(1)])
    stream(master, load=refusing(errno.ENOENT))
    (report,) = master.wait_for_reports(1)
    assert report.outcome == TaskOutcome.FAILED


def test_a_sync_worker_leases_no_training_task_while_it_evaluates(stream):
    """It would begin that task without being counted again for a version."""
    evaluation = task(1)
    evaluation = replace(evaluation, type=TaskType.EVALUATION)
    one = stream(Master([evaluation, task(2)]))
    evaluates = take(one)
    assert evaluates.task.type == TaskType.EVALUATION
    assert one.next(0.2) is None
    one.report(done(evaluates))
    assert take(one).task.task_id == 2


def test_an_async_worker_reads_training_tasks_ahead_while_it_evaluates(stream):
    evaluation = task(1)
    evaluation = replace(evaluation, type=TaskType.EVALUATION)
    one = stream(Master([evaluation, task(2)]), far_ahead=True)
    assert take(one).task.type == TaskType.EVALUATION
    assert take(one).task.task_id == 2


def beside(number, kind):
    return replace(task(number), type=kind)


def test_an_evaluation_does_not_wait_for_a_second_of_training_tasks(stream):
    """Each part of a round came behind what was ready: its tasks, and their sum."""
    read = {51: threading.Event(), 60: threading.Event()}

    def load(leased):
        if leased.task_id in read:
            read[leased.task_id].set()
        return LoadedTask(leased, [b"x"])

    evaluation = beside(50, TaskType.EVALUATION)
    master = Master([*(task(i) for i in range(40)), evaluation, task(60)])
    clock = Clock()
    one = stream(master, load=load, far_ahead=True, clock=clock)
    for _ in range(2):  # of the pace of which all others are held ready
        loaded = take(one)
        clock.now += 0.01
        one.report(done(loaded), can_wait=True)
    assert read[60].wait(SECONDS)
    loaded = take(one)
    assert loaded.task == evaluation
    with master.changed:
        master.tasks.append(beside(51, TaskType.SUMMARIZE))
    one.report(done(loaded))
    assert read[51].wait(SECONDS)
    assert len(one.ready()) > 30


def test_a_worker_that_measures_its_own_model_trains_first_what_it_had(stream):
    """Else these steps would come between two tasks of one evaluation."""
    master, clock = Master([task(i) for i in range(3)]), Clock()
    one = stream(master, far_ahead=True, clock=clock)
    master.steps_wait = True
    master.tasks.append(beside(50, TaskType.EVALUATION))
    seen = []
    while (loaded := take(one)) is not None:
        seen.append(loaded.task.task_id)
        one.report(done(loaded), can_wait=True)
    assert seen == [0, 1, 2, 50]
