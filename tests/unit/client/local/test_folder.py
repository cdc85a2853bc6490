"""A job's folder: resume, move aside, and who runs it."""

from __future__ import annotations

import errno
import fcntl
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import IO

import pytest
from elasticdl.beneath import Folder
from elasticdl.client.local import folder
from elasticdl.client.local.folder import (
    PreparedJob,
    RunFile,
    awaited_storage,
    inspect,
    prepare,
)
from elasticdl.errors import JobError
from elasticdl.job.folder import KEPT_ASIDE, Condition, JobLock, move_aside
from elasticdl.job.names import JobDir
from elasticdl.job.status import JobReport
from elasticdl.job.values.document import ValuesFile
from elasticdl.job.values.file import load_values
from elasticdl.job.words import JobState
from pydantic import ValidationError


def values(**job: object) -> ValuesFile:
    tree = {
        "name": "digits",
        "model": {"definition": "digits.cnn.custom_model"},
        "data": {"training": "train", "validation": "test"},
        **job,
    }
    return ValuesFile.model_validate({"kind": "job", "job": tree})


def report(status: JobState) -> JobReport:
    return JobReport(
        name="digits",
        type="train",
        strategy="local",
        status=status,
        message="",
        started=0.0,
        seconds=1.0,
        epochs=1,
        steps=1,
        version=1,
        records=1,
        records_per_second=1.0,
        replayed_records=0,
        replays=[],
        bad_records=[],
        skipped_batches=0,
        lost_updates=0,
        rewinds=0,
        master_restarts=0,
        goodput_seconds={},
        goodput=1.0,
        last_loss=None,
        metrics={},
        evaluations=[],
        relaunches=[],
        checkpoint="",
        exports=[],
    )


def prepared(of: ValuesFile, jobs_dir: Path, *, restart: bool) -> PreparedJob:
    """Prepare as a launcher does that ends at once."""
    job = prepare(of, jobs_dir, restart=restart)
    job.lock.release()
    return job


def run_once(
    jobs_dir: Path,
    ending: JobState | None,
    mark: str = "old",
    what: ValuesFile | None = None,
) -> JobDir:
    """Leave a folder as a job does that ended so; None: its launcher was killed."""
    job = prepared(what or values(), jobs_dir, restart=False)
    job.job_dir.journal_dir.mkdir(exist_ok=True)
    (job.job_dir.journal_dir / "events").write_text(mark)
    if ending is not None:
        job.job_dir.report_file.write_text(report(ending).model_dump_json())
    return job.job_dir


def test_a_new_job_gets_its_folder_and_its_values(tmp_path: Path) -> None:
    job = prepared(values(), tmp_path, restart=False)
    assert (job.resumed, job.notice) == (False, "")
    assert load_values(job.job_dir.spec_file) == values()
    assert job.job_dir.logs_dir.is_dir()


def test_model_code_in_the_values_is_written_out(tmp_path: Path) -> None:
    model = {"definition": "cnn.custom_model", "files": {"cnn.py": "x = 1\n"}}
    job = prepared(values(model=model), tmp_path, restart=False)
    assert (job.job_dir.model_dir / "cnn.py").read_text() == "x = 1\n"


@pytest.mark.parametrize("name", ["/etc/cnn.py", "../cnn.py", "a/../../cnn.py"])
def test_model_code_stays_in_its_folder(tmp_path: Path, name: str) -> None:
    model = {"definition": "cnn.custom_model", "files": {name: "x = 1\n"}}
    with pytest.raises(ValidationError, match="inside the model's folder"):
        prepare(values(model=model), tmp_path, restart=False)


@pytest.mark.parametrize("ending", [JobState.STOPPED, JobState.FAILED, None])
def test_an_unfinished_job_goes_on_and_says_so(
    tmp_path: Path, ending: JobState | None
) -> None:
    run_once(tmp_path, ending)
    job = prepared(values(), tmp_path, restart=False)
    assert job.resumed
    assert "goes on where it was; --restart begins afresh" in job.notice
    assert (job.job_dir.journal_dir / "events").read_text() == "old"
    assert not job.job_dir.report_file.exists()


def test_an_evaluation_begins_afresh_on_whatever_checkpoint_is_named_now(
    tmp_path: Path,
) -> None:
    evaluation = values(
        type="evaluate", checkpoint={"initFrom": "x"}, data={"validation": "v"}
    )
    run_once(tmp_path, JobState.FAILED, what=evaluation)
    job = prepared(evaluation, tmp_path, restart=False)
    assert not job.resumed
    assert job.notice == "the failed job of this name was moved to digits~1"


def test_restart_moves_an_unfinished_job_aside(tmp_path: Path) -> None:
    run_once(tmp_path, JobState.STOPPED)
    job = prepared(values(), tmp_path, restart=True)
    assert not job.resumed
    assert not job.job_dir.journal_dir.exists()
    assert (tmp_path / "digits~1" / "journal" / "events").read_text() == "old"


def test_a_finished_job_is_moved_aside_and_three_are_kept(tmp_path: Path) -> None:
    for number in range(5):
        run_once(tmp_path, JobState.SUCCEEDED, mark=f"run {number}")
    kept = {
        path.name: (path / "journal" / "events").read_text()
        for path in tmp_path.iterdir()
        if path.is_dir()
    }
    assert kept == {
        "digits": "run 4",
        "digits~1": "run 3",
        "digits~2": "run 2",
        "digits~3": "run 1",
    }


def test_a_folder_that_is_a_link_is_moved_aside_and_goes_as_one(tmp_path: Path) -> None:
    big = tmp_path / "big"
    big.mkdir()
    root = tmp_path / "jobs" / "digits"
    root.parent.mkdir()
    root.symlink_to(big)
    for _ in range(KEPT_ASIDE + 1):
        move_aside(root)
        root.mkdir()
    assert big.is_dir()
    assert not any(path.is_symlink() for path in root.parent.iterdir())


def test_another_kind_of_job_does_not_go_on_with_it(tmp_path: Path) -> None:
    run_once(tmp_path, JobState.STOPPED)
    other = values(type="evaluate", checkpoint={"initFrom": "x"})
    with pytest.raises(JobError, match=r"unfinished train job, this is a evaluate job"):
        prepare(other, tmp_path, restart=False)


def test_a_running_job_is_refused(tmp_path: Path) -> None:
    job = prepare(values(), tmp_path, restart=False)
    pid, started = folder.own_start()
    folder.write_run(job.job_dir, RunFile(pid, "a:1", "a:2", time.time(), started))
    with pytest.raises(JobError, match=rf"already running \(pid {pid}\)"):
        prepare(values(), tmp_path, restart=False)
    job.lock.release()


def test_a_running_job_is_refused_where_the_file_system_knows_no_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    for kind in ({}, {"type": "evaluate", "checkpoint": {"initFrom": "x"}}):
        place = tmp_path / str(len(kind))
        job = prepare(values(**kind), place, restart=False)
        pid, started = folder.own_start()
        run = RunFile(pid, "a:1", "a:2", time.time(), started)
        folder.write_run(job.job_dir, run)
        with pytest.raises(JobError, match=rf"already running \(pid {pid}\)"):
            prepare(values(**kind), place, restart=False)
        assert folder.read_run(job.job_dir) == run
        job.lock.release()


def test_a_job_whose_name_nobody_chose_takes_one_that_is_free(tmp_path: Path) -> None:
    """Two predictions by one model at once: the second read its rows in vain."""
    longest = values(name="a" * 46)
    running = prepare(longest, tmp_path, restart=False)
    second = folder.with_free_name(longest, tmp_path)
    assert second.job.name == f"{'a' * 44}-2"
    also_running = prepare(second, tmp_path, restart=False)
    assert folder.with_free_name(longest, tmp_path).job.name == f"{'a' * 44}-3"
    running.lock.release()
    assert folder.with_free_name(longest, tmp_path) == longest
    also_running.lock.release()


def test_a_lock_that_storage_fails_is_not_taken_for_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(fcntl, "flock", fail)
    with pytest.raises(OSError, match="Input/output error"):
        JobLock(JobDir(tmp_path / "digits"))


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="Linux has /proc")
def test_a_finished_job_whose_report_storage_fails_is_not_taken_for_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one of its name would go on with it, and be done at once."""
    job_dir = run_once(tmp_path, JobState.SUCCEEDED)
    read = Folder.reader

    def away(folder: Folder, name: str) -> IO[bytes]:
        if name == job_dir.report_file.name:
            raise OSError(errno.ESTALE, "Stale file handle")
        return read(folder, name)

    monkeypatch.setattr(Folder, "reader", away)
    with pytest.raises(OSError, match="Stale"):
        inspect(job_dir)


def test_a_launcher_lives_on_when_the_clock_is_set(tmp_path: Path) -> None:
    job_dir = run_once(tmp_path, None)
    pid, started = folder.own_start()
    mark = folder.start_mark(pid)
    # What psutil would have said before the clock was set an hour ahead.
    run = RunFile(pid, "a:1", "a:2", 0.0, started - 3600.0, launcher_mark=mark)
    folder.write_run(job_dir, run)
    assert inspect(job_dir) is Condition.RUNNING
    other = folder.start_mark(1)
    folder.write_run(job_dir, replace(run, launcher_mark=other))
    assert inspect(job_dir) is Condition.INTERRUPTED


def test_conditions(tmp_path: Path) -> None:
    assert inspect(JobDir(tmp_path / "digits")) is Condition.ABSENT
    for ending, expected in (
        (None, Condition.INTERRUPTED),
        (JobState.STOPPED, Condition.STOPPED),
        (JobState.FAILED, Condition.FAILED),
        (JobState.SUCCEEDED, Condition.SUCCEEDED),
    ):
        assert inspect(run_once(tmp_path, ending)) is expected


def test_a_dead_launchers_run_file_does_not_count(tmp_path: Path) -> None:
    job_dir = run_once(tmp_path, None)
    pid, started = folder.own_start()
    run = RunFile(pid, "a:1", "a:2", 0.0, started)
    folder.write_run(job_dir, run)
    assert inspect(job_dir) is Condition.RUNNING
    # The same pid, given to another process later.
    folder.write_run(job_dir, replace(run, launcher_started=started - 100.0))
    assert inspect(job_dir) is Condition.INTERRUPTED
    folder.write_run(job_dir, replace(run, launcher_pid=2**22 + 1))
    assert inspect(job_dir) is Condition.INTERRUPTED
    folder.remove_run(job_dir)
    assert folder.read_run(job_dir) is None


def test_an_unreadable_run_file_or_report_does_not_count(tmp_path: Path) -> None:
    job_dir = run_once(tmp_path, JobState.SUCCEEDED)
    job_dir.run_file.write_text("{")
    job_dir.report_file.write_text("{}")
    assert inspect(job_dir) is Condition.INTERRUPTED


def test_jobs_that_begin_at_once_have_names_of_their_own(tmp_path: Path) -> None:
    """One of them said that it runs already, when its rows were read."""
    begin = threading.Barrier(8)

    def prepared(place: Path) -> PreparedJob:
        begin.wait()
        return folder.prepare_free(values(), place, restart=True)

    with ThreadPoolExecutor(8) as pool:
        for turn in range(20):  # Of one alone most orders of events go well.
            jobs = list(pool.map(prepared, [tmp_path / str(turn)] * 8))
            assert len({job.spec.name for job in jobs}) == 8
            for job in jobs:
                job.lock.release()


def test_storage_that_has_room_and_takes_no_file_is_told(tmp_path: Path) -> None:
    """As beyond a quota, which no figure of the file system tells of."""
    job_dir = JobDir(tmp_path)
    job_dir.journal_dir.mkdir(parents=True)
    assert awaited_storage(job_dir, tries=True) == ""
    text = (
        "import resource, sys, pathlib\n"
        "from elasticdl.client.local.folder import awaited_storage\n"
        "from elasticdl.job.names import JobDir\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
        "where = JobDir(pathlib.Path(sys.argv[1]))\n"
        "told = [awaited_storage(where, tries=one) for one in (False, True)]\n"
        "print(repr(told[0]), told[1])\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", text, tmp_path],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert told.startswith("'' its master waits for its journal's disk: File too large")
    assert "goes on once it can be written" in told
    assert list(job_dir.journal_dir.iterdir()) == []
