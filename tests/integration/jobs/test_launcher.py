"""Starting, stopping, resuming and resizing a job as a user does at the terminal."""

import json
import os
import signal

import psutil
import pytest
from elasticdl.client import Scaling
from elasticdl.job.status import JobReport
from elasticdl.testing.claims import check_whole

pytestmark = pytest.mark.usefixtures("unmeasured")


@pytest.mark.parametrize(
    "strategy",
    ["parameterServer", pytest.param("allReduce", marks=pytest.mark.soak)],
)
def test_ctrl_c_hands_tasks_back_and_the_job_resumes_in_the_middle_of_its_epoch(
    job, strategy
):
    one = job("pause", strategy=strategy, training={"epochs": 100_000})
    one.wait_for_step(130)
    one.interrupt()
    stopped = one.finish(expected=130)
    assert stopped.status == "stopped"
    assert stopped.records > 0
    assert "stopped" in one.output
    again = job("pause", strategy=strategy, training={"epochs": 100_000})
    again.wait_for_step(stopped.steps + 20)
    again.end_after_this_epoch()
    report = again.finish()
    check_whole(again, report)
    assert "goes on where it was" in again.output
    # Each record of each epoch once: a clean stop costs no more than the tasks in hand.
    assert report.records == len(again.audit().epochs) * 1438
    assert report.seconds > 0


def test_second_ctrl_c_ends_everything_at_once(job):
    one = job("now", training={"epochs": 0}, ps={"replicas": 1}, worker={"replicas": 1})
    one.wait_for_step(50)
    for process in psutil.Process(one.launcher_pid).children():
        # A stopped worker cannot hand anything back: only the second press ends it.
        if any("elasticdl.worker" in part for part in process.cmdline()):
            process.suspend()
    one.interrupt()
    one.wait_until(lambda s: True, "an answer")
    one.interrupt()
    assert one.wait_for_exit() == 130
    assert one.processes() == []


def test_no_process_outlives_a_killed_launcher(job):
    one = job("orphans", training={"epochs": 0})
    one.wait_for_step(20)
    pids = [int(line.split()[0]) for line in one.processes()]
    assert len(pids) >= 5
    os.kill(one.launcher_pid, signal.SIGKILL)
    one.wait_for_exit()
    _, alive = psutil.wait_procs([psutil.Process(p) for p in live(pids)], timeout=20)
    assert alive == []


def live(pids):
    return [p for p in pids if psutil.pid_exists(p)]


@pytest.mark.soak  # tests/e2e/jobs/test_scale.py claims it of pods
def test_scale_up_and_down_restarts_nobody(job):
    one = job("resize", worker={"replicas": 1}, training={"epochs": 10_000})
    before = pids(one.wait_for_step(100))
    assert one.handle.scale(Scaling(workers=3)).before.worker.replicas == 1
    grown = one.wait_until(
        lambda s: len(pids(s)) == 5 and training(s) == 3, "three workers at work"
    )
    assert before.items() <= pids(grown).items()
    one.handle.scale(Scaling(workers=2))
    shrunk = one.wait_until(lambda s: len(pids(s)) == 4, "two workers")
    assert before.items() <= pids(shrunk).items()
    one.end_after_this_epoch()
    report = one.finish()
    check_whole(one, report)
    assert [r.replica for r in report.relaunches if r.replacement] == []


def pids(status):
    return {
        r.name: r.pid
        for r in status.replicas
        if r.role != "master" and r.state == "running"
    }


def training(status):
    return sum(r.phase == "train" for r in status.replicas)


def test_report_and_logs_say_what_happened(job):
    one = job(
        "report",
        training={"epochs": 5, "logLossSteps": 20},
        evaluation={"everySteps": 60, "atEpochEnd": True},
    )
    report = one.finish()
    check_whole(one, report)
    again = JobReport.model_validate(json.loads(one.job_dir.report_file.read_text()))
    assert again == report
    assert report.records == 5 * 1438
    assert report.steps == pytest.approx(report.version, abs=2)
    # A round serves all reasons that came up during the one before: few, not none.
    evaluated = [result.version for result in report.evaluations]
    assert len(evaluated) >= 2
    assert evaluated == sorted(evaluated)
    assert evaluated[-1] == report.version, "the final model is evaluated"
    assert {"accuracy", "loss"} <= set(report.metrics)
    # Where one of the two starts late, the other has done all.
    assert "Loss" in one.log_text("worker", 0) + one.log_text("worker", 1)
    assert "Evaluation metrics[version=" in one.log_text("master", 0)
    # The ledger accounts for every second of every worker.
    life = sum(report.goodput_seconds.values())
    assert 0 < report.goodput < 1
    assert life > report.seconds * 0.8
    assert "accuracy" in one.output.splitlines()[-1]


def test_strategy_local_trains_and_resumes(job):
    settings = {
        "strategy": "local",
        "worker": {"replicas": 1},
        "training": {"epochs": 10_000},
        "checkpoint": {"everySeconds": 1.0},
    }
    one = job("local", **settings)
    one.wait_until(lambda s: s.checkpoint_version, "a checkpoint")
    one.fault("worker", signal.SIGKILL)
    one.end_after_this_epoch()
    report = one.finish()
    check_whole(one, report)
    assert report.rewinds == 1
