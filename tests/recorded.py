"""A recorded job: four workers, three of them preempted, and back; two PS, one hot.

Owns the documents that such a job leaves, made from a seed. Used by tests of what
shows them. Its seconds are those of a job on a small machine.
"""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

from elasticdl.client import JobView
from elasticdl.job.folder import Condition
from elasticdl.job.history import (
    Decision,
    History,
    HistorySample,
    PsSample,
    WorkerSample,
    line,
)
from elasticdl.job.status import (
    EvaluationResult,
    JobReport,
    JobStatus,
    Progress,
    Relaunch,
)
from elasticdl.job.words import JobState
from elasticdl.master.members.goodput import share

STARTED = 1_790_000_000.0
SECONDS = 300
WANTED = 4
TASKS = 420
PREEMPTED_AT = 90
BACK_AT = (140, 165, 190)  # when there is room for one more
CHECKPOINT_SECONDS = 40
GIB = 2**30


def recorded_history(*, seed: int = 1, until: int = SECONDS) -> History:
    """Return the history up to that second of the job."""
    return _Recording(random.Random(seed)).run(until)


def write_history(history: History, file: Path) -> None:
    """Write it as a master does."""
    documents: list[Any] = [*history.samples, *history.decisions, *history.evaluations]
    documents.sort(key=lambda one: one.time)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(line(one) + "\n" for one in documents), encoding="utf-8")


class _Recording:
    """Plays the job, a second at a time."""

    def __init__(self, random_numbers: random.Random) -> None:
        self.random = random_numbers
        self.workers = dict.fromkeys(range(WANTED), "launched")
        self.started = dict.fromkeys(range(WANTED), 0)
        self.waiting = 0
        self.next_index = WANTED
        self.tasks = 0.0
        self.steps = 0
        self.preemptions = 0
        self.replayed = 0
        self.goodput: dict[str, float] = {}
        self.moved = [[0, 0, 0, 0.0], [0, 0, 0, 0.0]]
        self.checkpoint: tuple[int, int] | None = None
        self.samples: list[HistorySample] = []
        self.decisions: list[Decision] = []
        self.evaluations: list[EvaluationResult] = []

    def run(self, until: int) -> History:
        for second in range(until + 1):
            self.happen(second)
            self.work(second)
            self.samples.append(self.sample(second))
        return History(self.samples, self.decisions, self.evaluations)

    def decide(self, second: int, kind: str, **fields: object) -> None:
        self.decisions.append(
            Decision.model_validate({"time": STARTED + second, "kind": kind, **fields})
        )

    def happen(self, second: int) -> None:
        if second == PREEMPTED_AT:
            for index in (1, 2, 3):
                self.preempt(index, second)
        if second in BACK_AT:
            self.waiting -= 1
            index = self.next_index
            self.next_index += 1
            self.workers[index] = "launched"
            self.started[index] = second
        if second == 240:
            self.decide(second, "master", text="master generation 2 goes on")
        if second and second % CHECKPOINT_SECONDS == 0:
            self.checkpoint = (self.steps, second)
            self.decide(second, "checkpoint", text=f"checkpoint {self.steps}")
        if second and second % 45 == 0:
            self.evaluate(second)

    def preempt(self, index: int, second: int) -> None:
        del self.workers[index]
        self.waiting += 1
        self.preemptions += 1
        self.replayed += 64
        self.decide(
            second, "ended", replica=f"worker-{index}", cause="preempted",
            replacement=f"worker-{index + 3}",
            text=f"worker-{index} ended: preempted; replaced by worker-{index + 3}",
        )  # fmt: skip
        self.decide(
            second + 1, "pending", replica=f"worker-{index + 3}",
            cause="Unschedulable",
            text=f"worker-{index + 3} waits: 0/1 nodes are available: insufficient cpu",
        )  # fmt: skip

    def join(self, index: int, second: int) -> None:
        self.workers[index] = "running"
        self.decide(
            second, "joined", replica=f"worker-{index}", cost_seconds=6.0,
            text=f"worker-{index} runs after 6.0 s of waiting",
        )  # fmt: skip
        if index >= WANTED:
            lost, seconds = f"worker-{index - 3}", second - PREEMPTED_AT + 0.2
            self.decide(
                second, "relaunched", replica=lost, cause="preempted",
                replacement=f"worker-{index}", cost_seconds=seconds,
                text=f"worker-{index} works {seconds} s after the end of {lost}",
            )  # fmt: skip

    def evaluate(self, second: int) -> None:
        share = self.tasks / TASKS
        self.evaluations.append(
            EvaluationResult(
                version=self.steps,
                metrics={
                    "accuracy": 0.985 - 0.8 * math.exp(-6 * share),
                    "loss": self.loss(share),
                },
                records=360,
                seconds=0.8,
                time=STARTED + second,
                why="steps",
            )
        )

    def loss(self, share: float) -> float:
        return 0.04 + 2.2 * math.exp(-5 * share) * (1 + 0.1 * self.random.random())

    def work(self, second: int) -> None:
        for index in list(self.workers):
            if second - self.started[index] == 6:
                self.join(index, second)
            state = self.workers[index]
            cause = {"running": "train"}.get(state, "start")
            self.spend(cause, 0.83 if cause == "train" else 1.0)
            if cause == "train":
                self.spend("waitPs", 0.12)
                self.spend("waitData", 0.05)
                self.tasks = min(TASKS, self.tasks + 0.45)
                self.steps += 14
        self.spend("preempted", float(self.waiting))
        active = sum(state == "running" for state in self.workers.values())
        for number, part in ((0, 0.78), (1, 0.22)):
            noise = 1 + 0.1 * self.random.random()
            self.moved[number][0] += int(active * part * 3e6 * noise)
            self.moved[number][1] += int(active * part * 2.6e6 * noise)
            self.moved[number][2] += active * 14
            self.moved[number][3] += active * 14 * 0.0021 * part * noise

    def spend(self, cause: str, seconds: float) -> None:
        self.goodput[cause] = self.goodput.get(cause, 0.0) + seconds

    def sample(self, second: int) -> HistorySample:
        share = self.tasks / TASKS
        active = [i for i, state in self.workers.items() if state == "running"]
        version, written = self.checkpoint or (None, None)
        return HistorySample(
            time=STARTED + second,
            state="running" if active else "starting",
            workers_wanted=WANTED,
            workers_min=1,
            workers_max=6,
            workers_running=len(active),
            workers_pending=self.waiting,
            epoch=int(share * 6),
            records_done=int(self.tasks) * 64,
            records_per_second=len(active) * 29 * (1 + 0.05 * self.random.random()),
            tasks_done=int(self.tasks),
            tasks_total=TASKS,
            tasks_leased=2 * len(active),
            tasks_waiting=3 if second - PREEMPTED_AT in range(8) else 0,
            replayed_records=self.replayed,
            steps=self.steps,
            version=self.steps,
            loss=self.loss(share) if active else None,
            eta_seconds=(TASKS - self.tasks) / (0.45 * len(active)) if active else None,
            checkpoint_version=version,
            checkpoint_age_seconds=None if written is None else second - written + 0.0,
            checkpoint_seconds=None if written is None else 0.6 + written % 7 / 10,
            preemptions=self.preemptions,
            goodput_seconds=dict(self.goodput),
            workers={
                str(index): WorkerSample(
                    state=state,
                    phase="train" if state == "running" else "start",
                    step_seconds=self.step(index) if state == "running" else 0.0,
                    memory_bytes=700 * 2**20,
                )
                for index, state in self.workers.items()
            },
            ps={
                str(number): PsSample(
                    state="running",
                    version=self.steps,
                    memory_bytes=int((0.3 + 0.4 * share) * GIB),
                    memory_limit_bytes=GIB,
                    parameter_bytes=int(0.2 * GIB),
                    embedding_rows=int(90_000 * share),
                    received_bytes=int(moved[0]),
                    sent_bytes=int(moved[1]),
                    calls=int(moved[2]),
                    call_seconds=moved[3],
                )
                for number, moved in enumerate(self.moved)
            },
        )

    def step(self, index: int) -> float:
        slow = 2.3 if index == 5 else 1.0  # one that came back is on a slow node
        return slow * 0.065 * (1 + 0.15 * self.random.random())


def _relaunches(history: History) -> list[Relaunch]:
    return [
        Relaunch(
            replica=one.replica,
            reason=one.cause,
            replacement=one.replacement,
            time=one.time,
            detail=one.text,
            seconds=one.cost_seconds,
        )
        for one in history.decisions
        if one.kind == "relaunched"
    ]


def ended_view(
    history: History, *, name: str = "digits", message: str = "",
    status: JobState = JobState.SUCCEEDED,
) -> JobView:  # fmt: skip
    """Return the view of the job after its end."""
    last = history.samples[-1]
    goodput = dict(last.goodput_seconds)
    report = JobReport(
        name=name,
        type="train",
        strategy="parameterServer",
        status=status,
        message=message,
        started=STARTED,
        seconds=last.time - STARTED,
        epochs=6,
        steps=last.steps,
        version=last.version,
        records=last.records_done,
        records_per_second=last.records_done / (last.time - STARTED),
        replayed_records=last.replayed_records,
        replays=[],
        bad_records=[],
        skipped_batches=0,
        lost_updates=0,
        rewinds=0,
        master_restarts=1,
        goodput_seconds=goodput,
        goodput=share(goodput),
        last_loss=last.loss,
        metrics=history.evaluations[-1].metrics,
        evaluations=list(history.evaluations),
        relaunches=_relaunches(history),
        checkpoint="checkpoints/version-1",
        exports=[],
    )
    condition = Condition(status.value)
    return JobView(name, condition, report=report)


def running_view(history: History, *, name: str = "digits") -> JobView:
    """Return the view of the job while it runs."""
    last = history.samples[-1]
    status = JobStatus(
        name=name,
        type="train",
        strategy="parameterServer",
        state=JobState.RUNNING,
        message="",
        started=STARTED,
        time=last.time,
        master_generation=2,
        workers_wanted=WANTED,
        progress=Progress(
            epoch=last.epoch,
            epochs=6,
            records_per_epoch=TASKS * 64 // 6,
            records_done=last.records_done,
            tasks_done=last.tasks_done,
            tasks_total=TASKS,
            steps=last.steps,
            version=last.version,
            records_per_second=last.records_per_second,
            eta_seconds=last.eta_seconds,
        ),
        relaunches=_relaunches(history),
        last_loss=last.loss,
        last_evaluation=history.evaluations[-1] if history.evaluations else None,
        goodput_seconds=dict(last.goodput_seconds),
    )
    return JobView(name, Condition.RUNNING, status=status)
