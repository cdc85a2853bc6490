"""A disk that fills up under journal, checkpoints, the export, or everything."""

import contextlib
import errno
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from elasticdl.checkpoint import shelf
from elasticdl.client.local.launcher import Timing, launch
from elasticdl.job.values.document import ValuesFile
from elasticdl.testing.claims import check_whole

needs_prlimit = pytest.mark.skipif(
    not hasattr(resource, "prlimit"),
    reason="limits of a running process can be set on Linux alone",
)
needs_mount = pytest.mark.skipif(
    not sys.platform.startswith("linux") or os.geteuid() != 0,
    reason="to mount a small disk takes Linux and root",
)


def limit_files(pid, size):
    """From now on no file of that process may grow beyond `size`, as on a full disk."""
    hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, hard))


def pids(one, role):
    return [int(p.split()[0]) for p in one.processes() if f"elasticdl.{role}." in p]


def journal_size(one):
    """Of the segment that is written: the largest file of the master."""
    return max(f.stat().st_size for f in one.job_dir.journal_dir.glob("*.jsonl"))


def waits_for_disk(said):
    words = " ".join(said.split())  # lines of a terminal
    return "its master waits for its journal's disk: no space left on device" in words


def until(condition):
    end = time.monotonic() + 60.0
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.fixture
def small_disk(tmp_path):
    """Mounts a small disk as a folder of the test's, "jobs/NAME" being a job's."""
    mounted = []

    def mount(name):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        options = ["-t", "tmpfs", "-o", "size=8m"]
        done = subprocess.run(
            ["mount", *options, "elasticdl-test", str(folder)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            pytest.skip(f"a small disk cannot be mounted here: {done.stderr.strip()}")
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder):
    """Write until not a byte has room; the file to remove to free the disk."""
    file = folder / "filler"
    with file.open("wb", buffering=0) as target:
        for chunk in (1 << 16, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while target.write(b"x" * chunk):
                    pass
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        (folder / "more").write_bytes(b"x")
    (folder / "more").unlink()
    return file


@pytest.fixture
def small(job):
    """Makes a job of few processes that lasts until it is told to end."""

    def make(name, **changes):
        settings = {
            "training": {"epochs": 10_000},
            "worker": {"replicas": 1},
            "ps": {"replicas": 1},
        }
        return job(name, **{**settings, **changes})

    return make


@pytest.mark.soak
@needs_prlimit
def test_full_disk_under_checkpoints_or_the_journal_is_reported_and_waited_out(
    small, alerts
):
    one = small("full", ps={"replicas": 2}, worker={"replicas": 2})
    watch = alerts(one)
    one.wait_for_step(100)
    ps = pids(one, "ps")
    assert len(ps) == 2
    for pid in ps:
        limit_files(pid, 8192)  # their logs have room, a shard has not
    status = one.wait_until(
        lambda s: "checkpoint" in s.message, "a message of a checkpoint"
    )
    assert str(one.job_dir.checkpoints_dir) in status.message
    watch.wait_for_alert("ElasticDLCheckpointFailed")
    one.wait_for_step(status.progress.steps + 100)
    for pid in ps:
        limit_files(pid, resource.RLIM_INFINITY)

    (pid,) = pids(one, "master")
    limit_files(pid, journal_size(one))
    status = one.wait_until(
        lambda s: "cannot write the journal" in s.message, "a message of the journal"
    )
    assert "free some room on that disk" in status.message
    assert "goes on by itself once there is room" in status.message
    limit_files(pid, resource.RLIM_INFINITY)
    one.wait_until(lambda s: "journal" not in s.message, "an end of that message")
    one.wait_for_step(status.progress.steps + 100)
    one.end_after_this_epoch()
    report = one.finish()
    check_whole(one, report)
    assert report.master_restarts == 0
    assert "cannot write the journal" in one.log_text("master", 0)
    assert Path(report.checkpoint).is_dir()


@needs_prlimit
def test_disk_that_stays_full_fails_the_job_and_resuming_loses_nothing(small):
    one = small("still-full", master={"journalWaitSeconds": 1.0})
    one.wait_for_step(100)
    (pid,) = pids(one, "master")
    limit_files(pid, journal_size(one))
    code = one.wait_for_exit()
    assert code != 0
    assert "cannot write the journal" in one.output
    assert "Traceback" not in one.output
    assert one.processes() == []
    again = small("still-full", training={"epochs": 8})
    again.shortened = True  # it may have been beyond the eighth
    check_whole(again, again.finish())


@needs_mount
def test_full_disk_under_the_whole_job_is_waited_out(small, small_disk):
    folder = small_disk("jobs/full-disk")
    one = small("full-disk", checkpoint={"keep": 2})
    one.wait_for_step(100)
    filler = fill(folder)
    status = one.wait_until(
        lambda s: "cannot write the journal" in s.message, "a message of the journal"
    )
    filler.unlink()
    one.wait_for_step(status.progress.steps + 100)
    one.end_after_this_epoch()
    report = one.finish()
    check_whole(one, report)
    assert report.relaunches == []
    assert report.master_restarts == 0


@pytest.mark.soak
@needs_prlimit
@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP])
def test_a_group_waits_out_a_full_disk_under_the_journal_and_loses_nobody_else(
    job, fault
):
    """No round begins that the journal has not; the members wait for it."""
    one = job(
        "group-full",
        strategy="allReduce",
        worker={"replicas": 3},
        training={"epochs": 10_000, "batchSize": 16, "batchesPerTask": 4},
    )

    def all_three(status):
        group = status.group
        return group and group.level and len(group.members) == 3

    leader = one.wait_until(all_three, "3 members").group.members[0]
    one.wait_for_step(60)
    (pid,) = pids(one, "master")
    limit_files(pid, journal_size(one))
    one.wait_until(
        lambda s: "cannot write the journal" in s.message, "a message of the journal"
    )
    one.handle.kill(leader, fault)
    time.sleep(4.0)  # less than makes it silent
    if fault == signal.SIGSTOP:
        one.handle.kill(leader, signal.SIGCONT)
    time.sleep(32.0)  # more than any limit of a group
    limit_files(pid, resource.RLIM_INFINITY)
    one.wait_until(lambda s: "journal" not in s.message, "an end of that message")
    status = one.wait_until(all_three, "3 members")
    one.wait_for_step(status.progress.version + 40)
    one.end_after_this_epoch()
    report = one.finish()
    check_whole(one, report)
    assert one.audit().once
    assert report.rewinds == 0
    lost = [leader] if fault == signal.SIGKILL else []
    assert [relaunch.replica for relaunch in report.relaunches] == lost


@needs_mount
def test_a_master_that_begins_on_a_full_disk_says_so_and_goes_on(small, small_disk):
    folder = small_disk("jobs/begins-full/journal")
    one = small("begins-full")
    steps = one.wait_for_step(100).progress.steps
    filler = fill(folder)
    one.handle.kill("master", signal.SIGKILL)
    until(lambda: waits_for_disk(one.handle.view().note))
    shown = one.jobs_dir / "begins-full.out"
    until(lambda: waits_for_disk(shown.read_text()))
    filler.unlink()
    one.wait_for_step(steps + 100)
    one.end_after_this_epoch()
    report = one.finish()
    check_whole(one, report)
    assert (report.master_restarts, report.relaunches) == (1, [])


@needs_mount
def test_a_master_may_wait_longer_for_its_disk_than_a_start_takes(small_disk, tmp_path):
    fill(small_disk("jobs/waits/journal"))
    job = {
        "name": "waits",
        "model": {"definition": "digits.cnn.custom_model"},
        "data": {"training": "train"},
    }
    values = ValuesFile.model_validate({"kind": "job", "job": job})
    launcher = launch(
        values,
        environ=os.environ,
        jobs_dir=tmp_path / "jobs",
        command=lambda role: (
            sys.executable,
            "-S",
            "-c",
            "import time; time.sleep(99)",
        ),
        timing=Timing(probe=0.1, answer=0.1, starting=0.5),
    )
    time.sleep(4.0)  # three starts would be over
    notices = launcher.take_notices()
    launcher.kill()
    assert len(notices) == 1, notices
    assert waits_for_disk(notices[0])


@needs_mount
def test_full_disk_under_the_export_fails_the_job_which_exports_it_when_there_is_room(
    small, small_disk
):
    folder = small_disk("exported")
    filler = fill(folder)
    settings = {"training": {"epochs": 1}, "export": {"dir": str(folder)}}
    one = small("no-room", **settings)
    assert one.wait_for_exit() == 6
    assert "No space left on device" in one.output
    assert str(folder) in one.output
    assert "Traceback" not in one.output
    assert one.processes() == []
    trained = one.audit()
    assert trained.ok
    assert [epoch.finished for epoch in trained.epochs] == [True]
    _, newest = shelf.resolve(one.job_dir.checkpoints_dir)
    filler.unlink()

    again = small("no-room", **settings)
    report = again.finish()
    check_whole(again, report, least_accuracy=0.5)
    # Nothing is trained again: what is exported is that checkpoint.
    assert report.version == newest.version
    assert sorted(Path(path).name for path in report.exports) == [
        "model.keras",
        "saved_model",
    ]
    assert sorted(entry.name for entry in folder.iterdir()) == [
        "model.keras",
        "saved_model",
    ]


@pytest.mark.soak
@needs_mount
def test_disk_without_room_for_a_report_still_tells_why_the_job_failed(
    small, small_disk
):
    folder = small_disk("jobs/no-report")
    one = small("no-report", master={"journalWaitSeconds": 2.0})
    one.wait_for_step(100)
    fill(folder)
    code = one.wait_for_exit()
    assert code == 6
    assert "cannot write the journal: No space left on device" in one.output
    assert one.output.count("no-report failed") == 1
    assert "Traceback" not in one.output
    assert one.processes() == []
