"""The launcher and the handle, with a master that only pretends."""

from __future__ import annotations

import json
import os
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from elasticdl import client
from elasticdl.client import Condition, Launcher, LaunchOutcome
from elasticdl.client.local.launcher import Timing
from elasticdl.errors import (
    ExitCode,
    JobError,
    NotFoundError,
    PlatformError,
    SpecError,
)
from elasticdl.job.names import ENV_TOKEN, Role
from elasticdl.job.values.document import ValuesFile
from elasticdl.job.values.file import load_values
from elasticdl.testing.scripted import gone

BOUND_SECONDS = 30.0
FAST = Timing(probe=0.05, answer=0.2, silent=0.6, after_report=5.0)
Launch = Callable[..., Launcher]


def scripted(role: Role) -> tuple[str, ...]:
    assert role is Role.MASTER
    return (sys.executable, "-m", "elasticdl.testing.scripted_master")


def values(
    *, seconds: float = 1000.0, end: str = "succeeded", **job: object
) -> ValuesFile:
    tree = {
        "name": "digits",
        "model": {"definition": "digits.cnn.custom_model"},
        "data": {"training": "train"},
        "master": {"env": {"SCRIPT_SECONDS": str(seconds), "SCRIPT_END": end}},
        "worker": {"replicas": 2, "max": 4},
        **job,
    }
    return ValuesFile.model_validate({"kind": "job", "job": tree})


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    launchers: list[Launcher] = []

    def start(
        of: ValuesFile, *, command: object = scripted, **options: bool
    ) -> Launcher:
        launcher = client.launch(
            of,
            environ=os.environ,
            jobs_dir=tmp_path,
            command=command,  # type: ignore[arg-type]  # a stand-in for the fixture's user
            timing=FAST,
            **options,
        )
        launchers.append(launcher)
        return launcher

    yield start
    for launcher in launchers:
        launcher.kill()
        assert launcher.wait(BOUND_SECONDS)


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + BOUND_SECONDS
    while not condition():
        assert time.monotonic() < end, "never came"
        time.sleep(0.01)


def until_running(launcher: Launcher) -> None:
    until(lambda: launcher.status is not None)


def until_second_master(launcher: Launcher) -> None:
    def came() -> bool:
        return launcher.status is not None and launcher.status.master_generation == 2

    until(came)


def end_of(launcher: Launcher) -> LaunchOutcome:
    outcome = launcher.wait(BOUND_SECONDS)
    assert outcome is not None
    return outcome


def test_a_job_that_succeeds_leaves_report_and_no_process(launch: Launch) -> None:
    launcher = launch(values(seconds=0.3))
    outcome = end_of(launcher)
    assert outcome.exit_code == ExitCode.OK
    assert outcome.report is not None
    assert outcome.report.status == "succeeded"
    assert not launcher.job_dir.run_file.exists()
    job = client.LocalJob(launcher.job_dir)
    assert job.view().report == outcome.report
    assert job.wait() == outcome.report


def test_the_jobs_token_is_seen_by_its_user_alone(launch: Launch) -> None:
    launcher = launch(values(seconds=20))
    until_running(launcher)
    run_file = launcher.job_dir.run_file
    token = json.loads(run_file.read_text())["token"]
    assert len(token) >= 32
    assert stat.S_IMODE(run_file.stat().st_mode) == 0o600
    processes = psutil.Process().children(recursive=True)
    assert processes
    for process in processes:
        assert token not in " ".join(process.cmdline())
        assert process.environ()[ENV_TOKEN] == token
    other = launch(values(name="other", seconds=20))
    assert json.loads(other.job_dir.run_file.read_text())["token"] != token


def test_a_failed_jobs_exit_code_is_the_masters(launch: Launch) -> None:
    outcome = end_of(launch(values(seconds=0.1, end="failed")))
    assert outcome.exit_code == ExitCode.USER_CODE
    assert outcome.report is not None
    assert outcome.report.message == "cnn.py:12: loss() returned shape (64,)"


def test_a_master_that_refuses_is_not_started_again(launch: Launch) -> None:
    launcher = launch(values(end="refuse"))
    outcome = end_of(launcher)
    assert outcome.exit_code == ExitCode.DATA
    assert outcome.report is None
    assert "data/digits: no such folder" in outcome.message
    assert launcher.take_notices() == []


def test_a_master_that_never_comes_up_is_given_up_with_its_last_words(
    launch: Launch,
) -> None:
    def broken(role: Role) -> tuple[str, ...]:
        return (sys.executable, "-S", "-c", "raise ImportError('no module named x')")

    outcome = end_of(launch(values(), command=broken))
    assert outcome.exit_code == ExitCode.JOB_FAILED
    assert "before it could answer" in outcome.message
    assert "ImportError: no module named x" in outcome.message


def test_the_end_of_a_job_whose_master_never_comes_up_is_told(
    launch: Launch, tmp_path: Path
) -> None:
    def broken(role: Role) -> tuple[str, ...]:
        return (sys.executable, "-S", "-c", "raise ImportError('no module named x')")

    said = tmp_path / "said"
    script = 'echo "$ELASTICDL_JOB $ELASTICDL_STATE: $ELASTICDL_MESSAGE" >> "$0"'
    on_end = {"command": ["sh", "-c", script, str(said)]}
    end_of(launch(values(onEnd=on_end), command=broken))
    assert said.read_text().startswith("digits failed: the master ended 3 times")


def test_a_killed_master_is_started_again(launch: Launch) -> None:
    launcher = launch(values())
    until_running(launcher)
    job = client.LocalJob(launcher.job_dir)
    pid = job.kill("master", signal.SIGKILL)
    until(
        lambda: launcher.status is not None and launcher.status.master_generation == 2
    )
    assert gone(pid)
    assert launcher.take_notices() == [
        "the master was killed (SIGKILL); it is started again"
    ]


def test_a_silent_master_is_killed_and_started_again(
    launch: Launch,
) -> None:
    launcher = launch(values())
    until_running(launcher)
    client.LocalJob(launcher.job_dir).kill("master", signal.SIGSTOP)
    until(
        lambda: launcher.status is not None and launcher.status.master_generation == 2
    )
    first, second = launcher.take_notices()
    assert first.startswith("the master was silent for ")
    assert second == "the master was killed (SIGKILL); it is started again"


def test_stopping_ends_cleanly_and_the_job_goes_on_later(launch: Launch) -> None:
    launcher = launch(values())
    until_running(launcher)
    launcher.stop()
    assert launcher.stopping
    outcome = end_of(launcher)
    assert outcome.exit_code == ExitCode.STOPPED
    assert outcome.report is not None
    assert outcome.report.status == "stopped"
    again = launch(values(seconds=0.01))
    (notice,) = again.take_notices()
    assert notice.startswith("unfinished (stopped): it goes on")
    outcome = end_of(again)
    assert outcome.report is not None
    assert outcome.report.master_restarts == 1  # the same journal


def test_a_stop_wish_before_the_master_answers_is_passed_on(launch: Launch) -> None:
    launcher = launch(values())
    launcher.stop()
    assert end_of(launcher).exit_code == ExitCode.STOPPED


def test_killing_ends_at_once_without_a_report(launch: Launch) -> None:
    launcher = launch(values())
    until_running(launcher)
    launcher.kill()
    outcome = end_of(launcher)
    assert outcome == LaunchOutcome(ExitCode.STOPPED, None, "stopped at once")
    assert client.LocalJob(launcher.job_dir).condition is Condition.INTERRUPTED


def test_a_second_launcher_is_refused(launch: Launch, tmp_path: Path) -> None:
    until_running(launch(values()))
    with pytest.raises(JobError, match="already running"):
        client.launch(values(), environ=os.environ, jobs_dir=tmp_path, command=scripted)


def test_what_goes_wrong_in_the_supervising_thread_ends_the_job(
    launch: Launch,
) -> None:
    def broken(role: Role) -> tuple[str, ...]:
        raise RuntimeError(f"no command for {role}")

    outcome = end_of(launch(values(), command=broken))
    assert outcome.exit_code == ExitCode.JOB_FAILED
    assert "no command for master" in outcome.message


def test_the_verbs_of_a_running_job(launch: Launch, tmp_path: Path) -> None:
    launcher = launch(values())
    until_running(launcher)
    job = client.find("digits", tmp_path)
    view = job.view()
    assert view.condition is Condition.RUNNING
    assert view.status is not None
    assert view.status.name == "digits"
    assert job.set_capacity(1.5) == (0, 0, 0)
    with pytest.raises(PlatformError, match="expected 0 or more"):
        job.set_capacity(-1.0)
    with pytest.raises(NotFoundError, match="running now: master-0"):
        job.kill("worker-7", signal.SIGKILL)
    assert job.scale(client.Scaling(workers=4)).before.worker.replicas == 2
    assert load_values(job.job_dir.spec_file).job.worker.replicas == 4
    with pytest.raises(SpecError, match=r"got 5, expected at most worker\.max, 4"):
        job.scale(client.Scaling(workers=5))
    with pytest.raises(SpecError, match="expected 1 or more"):
        job.scale(client.Scaling(workers=0))
    assert load_values(job.job_dir.spec_file).job.worker.replicas == 4
    assert job.scale(client.Scaling(paused=True)).after.paused
    assert load_values(job.job_dir.spec_file).job.paused
    assert list(job.logs("master", tail=1)) == ["serving"]
    with pytest.raises(NotFoundError, match="there are: master-0"):
        job.logs("ps-0")
    with pytest.raises(JobError, match="still runs after"):
        job.wait(0.0)
    job.stop()
    report = job.wait(BOUND_SECONDS)
    assert report is not None
    assert report.status == "stopped"
    with pytest.raises(JobError, match=r"not running \(stopped\)"):
        job.scale(client.Scaling(workers=3))
    with pytest.raises(JobError, match=r"not running \(stopped\)"):
        job.kill("master", signal.SIGKILL)


def test_following_a_log_ends_with_the_job(launch: Launch) -> None:
    launcher = launch(values(seconds=3.0))  # a busy machine is late with its look
    until_running(launcher)
    job = client.LocalJob(launcher.job_dir)
    assert list(job.logs("master", follow=True)) == ["serving"]


def test_a_job_of_strategy_local_is_not_scaled(launch: Launch, tmp_path: Path) -> None:
    local = values(strategy="local", worker={"replicas": 1}, seconds=0.01)
    end_of(launch(local))
    with pytest.raises(SpecError, match="strategy local"):
        client.find("digits", tmp_path).scale(client.Scaling(workers=2))


def test_an_unknown_job_gets_a_hint(launch: Launch, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no job was started there yet"):
        client.find("digits", tmp_path / "nowhere")
    end_of(launch(values(seconds=0.01)))
    with pytest.raises(NotFoundError, match="did you mean 'digits'"):
        client.find("digit", tmp_path)
    with pytest.raises(NotFoundError, match="there are: digits"):
        client.find("zzz", tmp_path)
    assert [job.name for job in client.list_jobs(tmp_path)] == ["digits"]
