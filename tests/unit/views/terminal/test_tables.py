"""What is shown of a job, as text 80 columns wide."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from elasticdl.client import Condition, JobView
from elasticdl.job.decision import Decision
from elasticdl.job.names import JobDir
from elasticdl.job.spec.job import JobSpec, JobType
from elasticdl.job.status import (
    EvaluationResult,
    GroupOut,
    GroupStatus,
    JobReport,
    JobStatus,
    Progress,
    Relaunch,
    ReplicaStatus,
)
from elasticdl.job.words import JobState, OutCause
from elasticdl.master.tasks.audit import AuditReport, EpochAudit, Gap, ReplayCause
from elasticdl.testing.scripted_master import ScriptedMaster
from elasticdl.views.terminal.audit import audit_view
from elasticdl.views.terminal.events import EventCursor, events
from elasticdl.views.terminal.live import (
    LineView,
    LiveView,
    choose_view,
    eta,
    greeting,
    live_lines,
    progress_line,
)
from elasticdl.views.terminal.tables import (
    jobs_table,
    last_words,
    report_view,
    status_view,
    way_on,
)
from rich.console import Console, RenderableType

EVALUATION = EvaluationResult(
    version=400,
    metrics={"accuracy": 0.97812},
    records=360,
    seconds=0.4,
    time=1050.0,
    why="epoch end",
)
RELAUNCH = Relaunch(
    replica="worker-1", reason="killed", replacement="worker-3", time=1010.0, detail=""
)


def replica(name: str, state: str = "running", **fields: Any) -> ReplicaStatus:
    role, _, index = name.partition("-")
    return ReplicaStatus(
        name=name, role=role, index=int(index), generation=1, state=state, **fields
    )


def status(**fields: Any) -> JobStatus:
    known: dict[str, Any] = {
        "name": "digits",
        "type": "train",
        "strategy": "parameterServer",
        "state": JobState.RUNNING,
        "started": 1000.0,
        "time": 1060.0,
        "master_generation": 1,
        "workers_wanted": 3,
        "progress": Progress(
            epoch=1,
            epochs=3,
            records_per_epoch=1437,
            records_done=2155,
            steps=67,
            records_per_second=539.0,
            eta_seconds=4.2,
        ),
        "replicas": [
            replica("worker-0", phase="train", step=31, loss=0.5, since=1001.0),
            replica("worker-1", "ended", reason="killed", since=1010.0),
            replica("worker-3", "pending", reason="waiting for CPU: 2 of 2 in use"),
            replica("ps-0", version=67, memory_bytes=90 << 20),
            replica("ps-1", "ended", reason="killed"),
        ],
        "last_loss": 0.4321,
        "last_evaluation": EVALUATION,
        "checkpoint_version": 60,
        "checkpoint_age_seconds": 12.0,
    }
    return JobStatus(**{**known, **fields})


def report(tmp_path: Path, state: JobState, **fields: Any) -> JobReport:
    master = ScriptedMaster(JobDir(tmp_path / "digits"), seconds=100.0, end=state)
    return master.report(state).model_copy(update=fields)


def shown(renderable: RenderableType) -> str:
    console = Console(
        record=True, width=80, file=None, quiet=False, force_terminal=False
    )
    with console.capture() as capture:
        console.print(renderable)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def test_progress_in_one_line() -> None:
    assert progress_line(status()) == (
        "epoch 2/3, 49 % (2 155 of 4 311 records), 539 records/s, step 67, loss "
        "0.4321, validation accuracy 0.9781, 4 s left, "
        "workers 1 of 3: 1 training, 1 pending, PS 1 of 2"
    )
    assert progress_line(status(), short=True) == (
        "epoch 2/3, 49 % (2 155 of 4 311 records), 4 s left"
    )


def test_progress_of_an_endless_job_and_of_one_that_starts() -> None:
    endless = status(progress=Progress(epoch=6, epochs=0, records_per_epoch=10))
    assert progress_line(endless, short=True) == "epoch 7"
    starting = status(state=JobState.STARTING, progress=Progress(), replicas=[])
    assert progress_line(starting, short=True) == "starting"
    assert progress_line(status(type="predict"), short=True).startswith("predicting, ")


def test_what_is_left_of_job_and_epoch_is_told_in_one_way() -> None:
    def shown(state: JobState = JobState.RUNNING, **fields: Any) -> str:
        return eta(status(state=state, progress=Progress(**fields)))

    assert shown(epoch=1, epochs=9, eta_seconds=725.0) == "12 min left"
    both = {"eta_seconds": 725.0, "epoch_eta_seconds": 41.3}
    assert shown(epoch=1, epochs=9, **both) == "12 min left (epoch 41 s)"
    assert shown(epoch=8, epochs=9, **both) == "12 min left"
    assert shown(epoch=1, epoch_eta_seconds=41.3) == "epoch 41 s left"
    assert shown(JobState.PAUSED, epoch=1, epochs=9, **both) == ""
    assert shown() == ""


def test_the_status_shows_roles_and_relaunches_with_their_reasons() -> None:
    text = shown(
        status_view(
            JobView(
                "digits",
                Condition.RUNNING,
                status=status(
                    relaunches=[RELAUNCH], message="validation data is small"
                ),
            ),
            now=1061.0,
        )
    )
    for part in (
        "digits train job, strategy parameterServer, running, begun 1 min 01 s ago",
        "validation data is small",
        "evaluation at version 400: accuracy 0.9781",
        "checkpoint at version 60, 12 s ago",
        "worker-0  running  1 min 00 s  training",
        "worker-1  ended    51 s        killed",
        "waiting for CPU:",
        "90 MiB",
        "ENDED     WHY     REPLACED BY  BACK AFTER",
        "worker-1  killed  worker-3",
    ):
        assert part in text, text


def test_the_status_of_a_group_says_who_is_in_who_is_out_and_what_it_costs() -> None:
    group = GroupStatus(
        round=3,
        members=["worker-2", "worker-0"],
        level=True,
        why="worker-1 ended",
        since=1050.0,
        change_seconds=2.5,
        changes_seconds=4.0,
        last="worker-0",
        out=[
            GroupOut(name="worker-3", cause=OutCause.PREPARING),
            GroupOut(name="worker-4", cause=OutCause.LEFT_OUT, seconds=8.0),
        ],
    )
    made = status(
        group=group,
        replicas=[
            replica("worker-0", step=9, wait_seconds=0.001, step_bytes=2048),
            replica("worker-2", step=9, wait_seconds=0.020, step_bytes=2048),
            replica("worker-3"),
        ],
    )
    view = JobView("digits", Condition.RUNNING, status=made)
    told = shown(status_view(view, now=1060.0))
    for line in (
        "round 3 of worker-2 (leads), worker-0: worker-1 ended",
        "the change to it cost 2.5 s, all changes 4.0 s; the others wait for worker-0",
        "worker-0 waits 1.0 ms and sends 2 KiB, worker-2 waits 20 ms and sends",
        "worker-3: preparing its model; worker-4: left out",
        "may come back in 8.0 s",
    ):
        assert line in " ".join(told.split()), line
    before = status(group=group.model_copy(update={"round": 0, "members": []}))
    view = JobView("digits", Condition.RUNNING, status=before)
    assert "round 0" not in shown(status_view(view, now=1060.0))
    alone = made.model_copy(
        update={"group": group.model_copy(update={"members": ["worker-0"]})}
    )
    view = JobView("digits", Condition.RUNNING, status=alone)
    assert "in a step" not in shown(status_view(view, now=1060.0))


def test_a_job_without_a_status_says_why() -> None:
    away = JobView("digits", Condition.RUNNING, note="its master does not answer now")
    assert shown(status_view(away, now=0.0)) == (
        "digits running its master does not answer now"
    )
    lost = shown(status_view(JobView("digits", Condition.INTERRUPTED), now=0.0))
    assert "`elasticdl train` goes on" in lost


def test_the_report_is_legible_and_its_last_words_say_it_all(tmp_path: Path) -> None:
    done = report(
        tmp_path,
        JobState.SUCCEEDED,
        records=28740,
        records_per_second=701.0,
        seconds=41.0,
        metrics={"accuracy": 0.98123},
        replayed_records=512,
        master_restarts=1,
        lost_updates=3,
        relaunches=[RELAUNCH],
    )
    text = shown(
        status_view(JobView("digits", Condition.SUCCEEDED, report=done), now=0)
    )
    for part in (
        "status      succeeded",
        "records     28 740, 701 a second, 512 replayed",
        "took        41 s",
        "goodput     75 % of the workers' time",
        "time        training 75%, starting 21%, waiting for PS 3%",
        "events      1 master restart, 3 lost updates",
        "exports     outputs/digits/saved_model",
        "worker-1  killed  worker-3",
    ):
        assert part in text, text
    assert last_words(done) == "succeeded in 41 s: accuracy 0.9812"
    assert last_words(done.model_copy(update={"metrics": {}})) == (
        "succeeded in 41 s: 28 740 records"
    )


def test_a_path_in_a_report_is_never_folded(tmp_path: Path) -> None:
    long = "/" + "/".join(f"folder-{n}" for n in range(12))
    console = Console(width=80, force_terminal=True, color_system=None)
    with console.capture() as capture:
        view = report_view(report(tmp_path, JobState.SUCCEEDED, checkpoint=long))
        console.print(view, crop=False)
    assert f"checkpoint  {long}\n" in capture.get()


def test_only_a_training_job_has_steps_and_ps(tmp_path: Path) -> None:
    done = report(tmp_path, JobState.SUCCEEDED, type="evaluate", version=400)
    text = shown(report_view(done))
    assert "version     400 of the model" in text
    assert "steps" not in text
    assert "goodput" not in text
    model = {"definition": "m.f"}
    train = JobSpec.model_validate(
        {"name": "j", "model": model, "data": {"training": "t"}, "ps": {"replicas": 2}}
    )
    assert greeting(train) == "job j: train, 1 worker, 2 PS"
    reads = train.model_copy(update={"type": JobType.EVALUATE})
    assert greeting(reads) == "job j: evaluate, 1 worker"


def test_a_failed_report_says_why(tmp_path: Path) -> None:
    failed = report(tmp_path, JobState.FAILED)
    assert last_words(failed) == "failed: cnn.py:12: loss() returned shape (64,)"
    assert "failed" in shown(report_view(failed))


def test_the_list_has_a_row_for_each_job(tmp_path: Path) -> None:
    done = report(tmp_path, JobState.STOPPED, started=0.0)
    text = shown(
        jobs_table(
            [
                JobView("digits", Condition.RUNNING, status=status()),
                JobView("wine", Condition.STOPPED, report=done),
                JobView("lost", Condition.INTERRUPTED),
            ],
            now=1060.0,
        )
    )
    assert "digits  running      1 min 00 s ago  epoch 2/3, 49 %" in text
    assert "wine    stopped" in text
    assert "lost    interrupted" in text


def test_the_audit_counts_and_judges() -> None:
    epoch = EpochAudit(0, True, 1437, {1: 1400, 2: 37}, {"worker-0": 1474}, 64)
    good = AuditReport([epoch], [], [ReplayCause("worker killed", 2, 37)], 1, 1, 0, [])
    text = shown(audit_view(good))
    for part in (
        "1      yes       1 437    1 400 x1, 37 x2, 64 undone  worker-0 1 474",
        "worker killed    2      37",
        "every record of 1 finished epoch was trained, up to 37 of them again; 1 late",
    ):
        assert part in text, text
    bad = AuditReport([epoch], [Gap(0, "train-0", 64, 128)], [], 0, 0, 0, [])
    text = shown(audit_view(bad))
    assert "missed: epoch 1, train-0, records 64 to 127" in text
    assert "MISSED 64 records of finished epochs" in text
    open_epoch = EpochAudit(0, False, 1437, {1: 64}, {}, 0)
    none = AuditReport([open_epoch], [], [], 0, 0, 0, [])
    assert "no epoch of training is finished yet" in shown(audit_view(none))


def test_epochs_that_went_the_same_way_share_a_row() -> None:
    plain = [EpochAudit(n, True, 10, {1: 10}, {"worker-0": 10}, 0) for n in range(3)]
    twice = EpochAudit(3, True, 10, {1: 8, 2: 2}, {"worker-1": 12}, 0)
    now = EpochAudit(4, False, 10, {0: 6, 1: 4}, {"worker-1": 4}, 0)
    text = shown(audit_view(AuditReport([*plain, twice, now], [], [], 0, 0, 0, [])))
    assert [line.split() for line in text.splitlines()[1:4]] == [
        ["1-3", "yes", "10", "10", "x1", "worker-0", "30"],
        ["4", "yes", "10", "8", "x1,", "2", "x2", "worker-1", "12"],
        ["5", "no", "10", "6", "x0,", "4", "x1", "worker-1", "4"],
    ]


def test_brackets_in_a_message_are_no_markup(tmp_path: Path) -> None:
    message = "needs `pip install 'elasticdl[worker]'`"
    failed = report(tmp_path, JobState.FAILED, message=message)
    console = Console(width=100, markup=False, force_terminal=False)
    with console.capture() as capture:
        view = JobView("mnist", Condition.FAILED, report=failed)
        console.print(jobs_table([view], now=0.0))
    assert "elasticdl[worker]" in capture.get()


def told(*happened: Decision, **fields: Any) -> JobStatus:
    return status(happened=list(happened), **fields)


def happened(kind: str, **fields: Any) -> Decision:
    return Decision(time=1.0, kind=kind, **fields)


ENDED = happened("ended", replica="worker-1", cause="killed", replacement="worker-3")


def test_events_are_told_once() -> None:
    lines, seen = events(EventCursor(), told(ENDED))
    assert lines == ["running"]  # what an earlier launch saw is not told again
    lines, seen = events(seen, told(ENDED))
    assert lines == []
    crash = happened(
        "ended",
        replica="ps-0",
        cause="error",
        replacement="ps-0",
        detail="Traceback (most recent call last):\n  File\nMemoryError: x",
    )
    given_up = happened("ended", replica="worker-9", cause="error")
    new = (
        happened("joined", replica="worker-3", text="worker-3 runs"),
        happened("state", cause="finishing", detail="exporting"),
        happened("attention", text="exporting"),
        crash,
        given_up,
        happened("rewound", text="model and data went back"),
        happened("evaluated", text="evaluation at version 400: accuracy 0.9781"),
    )
    lines, seen = events(seen, told(ENDED, *new, state=JobState.FINISHING))
    assert lines == [
        "finishing: exporting",
        "ps-0 error (MemoryError: x): it is started again",
        "worker-9 error: it is not replaced",
        "model and data went back",
        "evaluation at version 400: accuracy 0.9781",
    ]
    assert events(seen, told(ENDED, *new, state=JobState.FINISHING))[0] == []


def test_another_master_tells_what_is_new_and_not_the_state_again() -> None:
    _, seen = events(EventCursor(), told(ENDED))
    lines, _ = events(
        seen,
        told(
            happened("master", text="master generation 2 goes on"),
            ENDED,
            happened("state", cause="running"),
            master_generation=2,
        ),
    )
    assert lines == [
        "the master is back; it read its journal and goes on",
        "worker-1 killed: worker-3 takes its place",
    ]


def test_who_looks_seldom_hears_how_much_was_missed() -> None:
    _, seen = events(EventCursor(), told(ENDED))
    lines, _ = events(seen, told(ENDED, happened_before=7))
    assert lines == [
        "6 happenings left out here; `elasticdl explain` has all",
        "worker-1 killed: worker-3 takes its place",
    ]


def test_why_a_job_fails_is_left_to_its_last_line() -> None:
    _, seen = events(EventCursor(), status())
    why = "worker-1: the model module failed: m.py:7: no layer"
    given_up = ENDED.model_copy(update={"replacement": "", "detail": why})
    failed = happened("state", cause="failed", detail=why)
    failing = told(given_up, failed, ending="failed", message=why)
    lines, seen = events(seen, failing)
    assert lines == ["the job fails: its processes are ended"]
    assert events(seen, failing)[0] == []


def test_the_status_names_every_port_of_figures() -> None:
    view = JobView(
        "digits",
        Condition.RUNNING,
        status=status(
            master_metrics_port=4001,
            replicas=[
                replica("ps-0", metrics_port=4002),
                replica("worker-0", state="ended", metrics_port=4003),
            ],
        ),
    )
    text = shown(status_view(view, now=1061.0))
    assert text.endswith("/metrics of master :4001, ps-0 :4002")


def test_lines_come_every_few_seconds_and_at_events() -> None:
    now = 0.0
    console = Console(width=80, force_terminal=False)
    view = LineView(console, clock=lambda: now)
    with console.capture() as capture, view:
        view.update(None, ["the master was killed (SIGKILL); it is started again"])
        view.update(status(), [])
        view.update(status(last_loss=0.3), [])  # too soon
        now = 6.0
        view.update(status(last_loss=0.2), [])
        view.update(status(last_loss=0.2), [])
    lines = [line[9:] for line in capture.get().splitlines()]  # without the time
    assert lines == [
        "the master was killed (SIGKILL); it is started again",
        "running",
        progress_line(status()),
        progress_line(status(last_loss=0.2)),
    ]


def test_a_terminal_gets_a_bar() -> None:
    console = Console(width=100, force_terminal=True, color_system=None)
    view = choose_view(console, "digits")
    assert isinstance(view, LiveView)
    with console.capture() as capture, view:
        view.update(None, ["[notice]"])
        view.update(status(progress=Progress()), [])
        view.update(status(), [])
    text = capture.get()
    assert "[notice]" in text
    assert "digits epoch 2/3 " in text
    assert "49 % 4 s left" in text
    assert "539 records/s · step 67 · loss 0.4321" in text
    assert "\n  validation accuracy 0.9781" in text
    assert "workers 1 of 3: 1 training, 1 pending · PS 1 of 2" in text


def test_on_a_narrow_terminal_the_bar_is_shorter_and_the_rest_whole() -> None:
    left = Progress(
        epochs=9, records_per_epoch=100, records_done=90, eta_seconds=7250.0
    )
    console = Console(width=60, force_terminal=False)
    with console.capture() as capture:
        console.print(live_lines(status(name="a-long-name-of-a-job", progress=left)))
    first = capture.get().splitlines()[0].rstrip()
    assert first.startswith("a-long-name-of-a-job epoch 1/9 ")
    assert first.endswith(" 10 % 2 h 01 min left")


def test_the_list_tells_what_is_left_before_it_is_cut() -> None:
    view = JobView("digits", Condition.RUNNING, status=status(), place="namespace ml")
    assert "epoch 2/3, 49 %, 4 s left" in shown(jobs_table([view], now=1060.0))


def test_a_pipe_gets_lines() -> None:
    assert isinstance(choose_view(Console(force_terminal=False), "digits"), LineView)


def test_a_job_that_was_stopped_says_what_could_not_be_saved(tmp_path: Path) -> None:
    said = "by hand; no checkpoint was written; it resumes from version 4"
    stopped = report(tmp_path, JobState.STOPPED, message=said)
    assert f"message     {said}" in shown(report_view(stopped))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"checkpoint": "/c/version-4"}, "it goes on from its newest checkpoint when"),
        ({"checkpoint": ""}, "it has no checkpoint to go on from"),
        ({"type": "predict", "checkpoint": ""}, "it goes on where it was when"),
    ],
)
def test_a_job_that_was_stopped_says_from_where_it_goes_on_if_from_anywhere(
    tmp_path: Path, fields: dict[str, Any], said: str
) -> None:
    assert way_on(report(tmp_path, JobState.STOPPED, **fields)).startswith(said)
