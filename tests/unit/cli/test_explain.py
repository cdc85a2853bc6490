"""What `explain` says of a job: which decisions, in which words, about whom."""

from __future__ import annotations

import json

import pytest
from elasticdl.cli.explain import about
from elasticdl.cli.main import main
from elasticdl.client import Condition, JobView
from elasticdl.errors import NotFoundError
from elasticdl.job import history
from elasticdl.job.decision import Decision
from elasticdl.job.status import JobStatus, ReplicaStatus
from elasticdl.job.words import JobState
from elasticdl.views.terminal.explain import explain_view, together
from rich.console import Console

PENDING = "Unschedulable: 0/3 nodes are available: 3 Insufficient cpu."
TOLD = [
    Decision(time=10.0, kind="state", cause="running", text="job digits is running"),
    Decision(time=20.0, kind="joined", replica="worker-0", text="worker-0 runs"),
    Decision(
        time=60.0,
        kind="ended",
        replica="worker-0",
        cause="oomKilled",
        text="worker-0 ended: oomKilled; replaced by worker-2",
        replacement="worker-2",
        detail="used 2.0 GiB of 2.0 GiB",
    ),
    Decision(
        time=61.0,
        kind="pending",
        replica="worker-2",
        cause="Unschedulable",
        text=f"worker-2 waits: {PENDING}",
        detail=PENDING,
    ),
    Decision(
        time=95.0,
        kind="relaunched",
        replica="worker-0",
        cause="oomKilled",
        replacement="worker-2",
        cost_seconds=35.0,
    ),
    Decision(time=99.0, kind="master", text="master generation 2 goes on"),
]


def view(**fields: object) -> JobView:
    waiting = ReplicaStatus(
        name="worker-3",
        role="worker",
        index=3,
        generation=9,
        state="pending",
        reason=PENDING,
        since=88.0,
    )
    known = {
        "name": "digits",
        "type": "train",
        "strategy": "parameterServer",
        "state": JobState.RUNNING,
        "message": "1 worker runs, fewer than worker.min (2)",
        "started": 0.0,
        "time": 100.0,
        "master_generation": 2,
        "workers_wanted": 2,
        "replicas": [waiting],
        **fields,
    }
    return JobView("digits", Condition.RUNNING, status=JobStatus.model_validate(known))


def drawn(*arguments, **more) -> str:
    console = Console(width=80, highlight=False, markup=False, record=True)
    with console.capture() as capture:
        console.print(explain_view(*arguments, **more), crop=False)
    return capture.get()


def test_the_present_comes_first_with_who_waits_and_why() -> None:
    first, second, *_ = drawn(view(), TOLD).splitlines()
    assert first == ("job digits: running: 1 worker runs, fewer than worker.min (2)")
    assert second == f"worker-3: pending for 12 s, {PENDING}"[: len(second)]


def test_a_loss_is_told_with_its_cause_its_detail_and_its_cost() -> None:
    words = " ".join(drawn(view(), TOLD).split())
    assert "oomKilled; replaced by worker-2" in words
    assert "used 2.0 GiB of 2.0 GiB" in words
    assert "worker-2 works in its place (oomKilled) 35 s" in words
    assert all(len(line) <= 80 for line in drawn(view(), TOLD).splitlines()[2:])


def test_a_replica_is_told_of_as_the_one_that_came_too() -> None:
    kinds = [one.kind for one in about("worker-2", TOLD, view())]
    assert kinds == ["ended", "pending", "relaunched"]
    assert [one.kind for one in about("master", TOLD, view())] == ["state", "master"]
    assert about("worker-3", TOLD, view()) == []  # it lives, and nothing happened


def test_an_unknown_replica_is_answered_with_the_known_ones() -> None:
    with pytest.raises(NotFoundError) as refusal:
        about("wroker-2", TOLD, view())
    assert str(refusal.value) == (
        "job digits knows no replica 'wroker-2'; did you mean 'worker-2'? known are: "
        "master, worker-0, worker-2, worker-3"
    )


def test_many_replicas_with_the_same_fate_are_one_row() -> None:
    lost = [
        Decision(
            time=50.0 + number / 10,
            kind="ended",
            replica=f"worker-{number}",
            cause="preempted",
            replacement=f"worker-{number + 20}",
        )
        for number in range(9)
    ]
    later = Decision(time=70.0, kind="ended", replica="worker-9", cause="preempted")
    assert [len(row) for row in together([*lost, later])] == [9, 1]
    text = " ".join(drawn(view(), lost).split())
    assert "worker-25 and 3 more" in text
    assert "worker-8" not in text


def test_a_job_without_a_history_says_so() -> None:
    begins = JobView("digits", Condition.PENDING, note="no node for its pod")
    text = drawn(begins, [])
    assert "job digits: pending: no node for its pod" in text
    assert "its master has not begun" in text


def test_the_document_has_the_decisions_as_they_are(tmp_path, capsys) -> None:
    folder = tmp_path / "digits"
    folder.mkdir()
    (folder / "job.yaml").write_text(
        "kind: job\njob: {name: digits, model: {definition: a.b}, data: {training: d}}"
    )
    lines = "".join(history.line(one) + "\n" for one in TOLD)
    (folder / "history.jsonl").write_text(lines)
    arguments = ["explain", "digits", "worker-0", "--json", "--jobs-dir", str(tmp_path)]
    assert main(arguments) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["condition"] == "interrupted"
    assert [one["kind"] for one in document["decisions"]] == [
        "joined",
        "ended",
        "relaunched",
    ]
    assert document["decisions"][2]["cost_seconds"] == 35.0
