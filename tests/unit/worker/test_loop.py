"""The worker's loop: what it says of itself, and what it hands back."""

import threading
import time
from dataclasses import replace

import pytest
from elasticdl.errors import NotInitializedError
from elasticdl.job.tasks import (
    LeaseReply,
    ReplicaId,
    Task,
    TaskOutcome,
    TaskReport,
    TaskType,
)
from elasticdl.metrics.goodput import GoodputLedger
from elasticdl.worker.loop import LoopParts, WorkerLoop
from elasticdl.worker.progress import WorkerProgress
from elasticdl.worker.tasks.records import LoadedTask
from elasticdl.worker.tasks.reports import returned
from elasticdl.worker.tasks.stream import TaskStream
from elasticdl.worker.trainer import LeavingError

SECONDS = 20.0
TASK = Task(task_id=1, lease_id=101, type=TaskType.EVALUATION, source="a")


class Master:
    """Has one task, and is through when that is reported."""

    def __init__(self):
        self.tasks = [TASK]
        self.reported = False
        self.outcomes = {}

    def lease(self, request):
        self.outcomes |= {one.lease_id: one.outcome for one in request.reports}
        self.reported = self.reported or bool(request.reports)
        tasks, self.tasks = (self.tasks, []) if request.want else ([], self.tasks)
        return LeaseReply(tasks=tasks, finished=self.reported)


class Nothing:
    """Neither trains nor waits."""

    trained = acknowledged = 0

    def between_steps(self):
        pass

    def settle(self):
        pass

    def hand_back(self, *, keep=None):
        pass


@pytest.fixture
def parts():
    begun, go = threading.Event(), threading.Event()

    def load(task):
        begun.set()
        assert go.wait(SECONDS)
        return LoadedTask(task, [b"x"])

    stream = TaskStream(
        Master().lease,
        ReplicaId(),
        load=load,
        describe=lambda what, error: f"{what}: {error}",
        on_fenced=lambda _: None,
    )
    nothing = Nothing()
    made = LoopParts(
        stream=stream,
        trainer=nothing,
        training=nothing,
        handlers={
            TaskType.EVALUATION: lambda loaded: TaskReport(
                task_id=loaded.task.task_id,
                lease_id=loaded.task.lease_id,
                outcome=TaskOutcome.DONE,
            )
        },
        on_rewind=lambda: None,
        describe=lambda what, error: f"{what}: {error}",
        leaving=threading.Event(),
        goodput=GoodputLedger(time.monotonic),
        progress=WorkerProgress(time.monotonic),
    )
    yield made, begun, go
    go.set()
    stream.close(SECONDS)


def told(parts):
    return parts.progress.report(seconds={}, memory_bytes=0, lease_ids=[], snapshots=[])


def until(condition):
    """Wait for what another thread does, without a word when it is done."""
    tick = threading.Event()
    for _ in range(int(SECONDS / 0.01)):
        if condition():
            return
        tick.wait(0.01)
    pytest.fail("it did not come about")


def test_a_worker_whose_task_is_being_read_waits_for_data_and_is_not_idle(parts):
    made, begun, go = parts
    made.stream.start()
    thread = threading.Thread(target=WorkerLoop(made).run)
    thread.start()
    assert begun.wait(SECONDS)
    until(lambda: made.goodput.current == "waitData")
    message = told(made)
    assert message.phase == "read"
    assert message.usual_seconds == 0.0  # nobody knows how long a read takes
    go.set()
    thread.join(SECONDS)
    assert not thread.is_alive()


class OnTheirWay(Nothing):
    """A task is trained whose last gradient no PS has acknowledged yet."""

    task = Task(task_id=2, lease_id=102, type=TaskType.TRAINING, source="a")

    def __init__(self, stream):
        self.stream, self.runs = stream, True

    def settle(self):
        if self.runs:
            self.runs = False
            self.stream.report(
                TaskReport(
                    task_id=2, lease_id=self.task.lease_id, outcome=TaskOutcome.DONE
                )
            )

    def hand_back(self, *, keep=None):
        if self.runs:
            self.runs = False
            self.stream.report(returned(self.task))


@pytest.mark.parametrize(
    "error", [NotInitializedError("no such snapshot"), LeavingError("told to leave")]
)
def test_an_evaluation_that_cannot_be_served_takes_no_trained_task_back(parts, error):
    def not_served(_loaded):
        raise error

    master = Master()
    stream = TaskStream(
        master.lease,
        ReplicaId(),
        load=lambda task: LoadedTask(task, [b"x"]),
        describe=lambda what, error: f"{what}: {error}",
        on_fenced=lambda _: None,
    )
    stream.start()
    WorkerLoop(
        replace(
            parts[0],
            stream=stream,
            training=OnTheirWay(stream),
            handlers={TaskType.EVALUATION: not_served},
        )
    ).run()
    assert stream.close(SECONDS)
    assert master.outcomes == {101: TaskOutcome.RETURNED, 102: TaskOutcome.DONE}
