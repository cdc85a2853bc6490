"""A disk that takes no journal, for a while or for good, and what waits for it."""

import asyncio
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from elasticdl.errors import ExitCode
from elasticdl.job.names import Role
from elasticdl.job.status import JobReport
from elasticdl.job.words import JobState
from elasticdl.master import job_state
from elasticdl.master import master as masters
from elasticdl.master.course import loop, wind_down
from elasticdl.master.model import checkpointing, ps_group
from elasticdl.master.tasks import journal as journals
from elasticdl.master.tasks.audit import audit
from elasticdl.master.telling import on_end, publishing, status
from elasticdl.runner.base import ReplicaKey

from tests.unit.master.looks import leases_known

pytestmark = pytest.mark.skipif(
    not Path("/dev/full").exists(), reason="Linux has /dev/full"
)


def fill_disk(master) -> int:
    """Let the journal meet a full disk; return a descriptor of the real file."""
    journal = master.job.parts.ledger._journal
    kept = os.dup(journal._fd)
    full = os.open("/dev/full", os.O_RDWR)
    os.dup2(full, journal._fd)
    os.close(full)
    return kept


def make_room(master, kept: int) -> None:
    """Let the journal write into the real file again."""
    os.dup2(kept, master.job.parts.ledger._journal._fd)
    os.close(kept)


# Limits of less than an outage lasts.
SHORT = {
    "journal_wait": 30.0,
    "worker__heartbeat_seconds": 0.1,
    "worker__dead_seconds": 1.0,
}


@pytest.fixture
def hangs(monkeypatch) -> Iterator[threading.Event]:
    """While it is cleared the journal's disk does not answer."""
    answers, real = threading.Event(), journals._sync
    answers.set()

    def sync(descriptor: int) -> None:
        answers.wait()
        real(descriptor)

    monkeypatch.setattr(journals, "_NO_ANSWER_SECONDS", 0.1)
    monkeypatch.setattr(journals, "_LEAST_SECONDS", 0.1)
    monkeypatch.setattr(journals, "_sync", sync)
    yield answers
    answers.set()


async def begun(rig, master) -> None:
    """Return when there is a checkpoint, and all workers have a task."""
    parts = master.job.parts
    await rig.until(lambda: parts.checkpoints.newest is not None)
    await rig.until(lambda: leases_known(rig) == 2)


def test_a_full_disk_under_the_journal_is_waited_for(rig) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving() as master:
            await rig.until(lambda: leases_known(rig) == 2)
            kept = fill_disk(master)
            rig.world.go.set()
            ledger = master.job.parts.ledger
            await rig.until(lambda: ledger.trouble)
            said = status.build(master.job, now=master.job.clock()).message
            done = ledger.queue.done_tasks
            make_room(master, kept)
            report = await rig.ended()
        assert done < 8
        assert "cannot write the journal" in said
        assert "goes on by itself once there is room" in said
        assert "fails after 30 s" in said
        assert not ledger.trouble
        assert report.status is JobState.SUCCEEDED
        assert audit(rig.job_dir.journal_dir).ok

    rig.run(story, journal_wait=30.0)


def test_nobody_is_silent_whose_heartbeats_wait_for_the_journals_disk(rig) -> None:
    """They are answered when the journal has a rewind that was decided."""

    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving() as master:
            parts = master.job.parts
            await begun(rig, master)
            kept = fill_disk(master)
            parts.holder.go_back("a test", now=master.job.clock())
            await rig.until(lambda: parts.ledger.trouble)
            await asyncio.sleep(2.5)
            make_room(master, kept)
            await rig.until(lambda: bool(rig.world.rewinds))
            rig.world.go.set()
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED
        assert [one.reason for one in report.relaunches] == []

    rig.run(story, **SHORT)


def test_a_disk_that_stays_full_fails_the_job_and_acknowledges_nothing(rig) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving() as master:
            await rig.until(lambda: leases_known(rig) == 2)
            kept = fill_disk(master)
            rig.world.go.set()
            report = await rig.ended()
            os.close(kept)
        assert report.status is JobState.FAILED
        assert "cannot write the journal" in report.message
        assert rig.running.result().exit_code is ExitCode.STORAGE
        assert not rig.world.late

    rig.run(story, journal_wait=0.3)


def test_no_checkpoint_counts_what_a_journal_that_is_refused_has_not(rig) -> None:
    """A master that is lost then would go on behind records that no journal has."""

    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving() as master:
            parts = master.job.parts
            await begun(rig, master)
            first = parts.checkpoints.newest
            kept = fill_disk(master)
            rig.world.go.set()
            queue = parts.ledger.queue
            await rig.until(lambda: parts.ledger.trouble and queue.done_tasks)
            parts.checkpoints.ask("a test", now=master.job.clock())
            await rig.until(lambda: parts.checkpoints.naming)
            await asyncio.sleep(0.5)
            assert parts.checkpoints.newest is first
            make_room(master, kept)
            await rig.until(lambda: parts.checkpoints.newest is not first)
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED
        assert audit(rig.job_dir.journal_dir).ok

    rig.run(story, journal_wait=30.0, worker__heartbeat_seconds=0.1)


def test_a_disk_that_does_not_answer_is_told_and_fails_the_job_in_the_end(
    rig, hangs
) -> None:
    """As a file server that is away, where its clients wait for ever."""

    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving() as master:
            ledger = master.job.parts.ledger
            await rig.until(lambda: leases_known(rig) == 2)
            hangs.clear()
            rig.world.go.set()
            await rig.until(lambda: ledger.trouble)
            said = status.build(master.job, now=master.job.clock()).message
            report = await rig.ended()
            hangs.set()
        assert "no answer from its disk" in said
        assert "goes on by itself once it answers" in said
        assert report.status is JobState.FAILED
        assert rig.running.result().exit_code is ExitCode.STORAGE
        assert not rig.world.late

    rig.run(story, journal_wait=1.0)


def test_a_stop_waits_a_minute_for_a_disk_that_does_not_answer(
    rig, monkeypatch, hangs
) -> None:
    monkeypatch.setattr(job_state, "STOP_SECONDS", 0.5)

    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving() as master:
            parts = master.job.parts
            await begun(rig, master)
            hangs.clear()
            rig.world.go.set()
            await rig.until(lambda: parts.ledger.trouble)
            master.job.end(JobState.STOPPED, "asked to stop", status.STOPPED)
            report = await rig.ended()
            hangs.set()
        assert report.status is JobState.STOPPED
        assert "no answer from its disk" in report.message
        assert "it resumes from version" in report.message

    rig.run(story, journal_wait=3600.0)


@pytest.mark.parametrize("stops", [False, True])
def test_where_all_of_the_jobs_folder_does_not_answer_its_end_is_told_in_time(
    rig, monkeypatch, hangs, stops
) -> None:
    """No replica waits for it, nor does the platform, to which the end is told."""
    for module in (wind_down, masters, publishing):
        monkeypatch.setattr(module, "END_SECONDS", 0.2)
    monkeypatch.setattr(job_state, "STOP_SECONDS", 0.5)
    gone, write = checkpointing._is_gone, masters._write
    monkeypatch.setattr(
        checkpointing, "_is_gone", lambda path: hangs.wait() and gone(path)
    )
    monkeypatch.setattr(masters, "_write", lambda *to: hangs.wait() and write(*to))

    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving() as master:
            parts = master.job.parts
            await begun(rig, master)
            hangs.clear()
            rig.world.go.set()
            await rig.until(lambda: parts.ledger.trouble)
            if stops:
                master.job.end(JobState.STOPPED, "asked to stop", status.STOPPED)
            await rig.until(lambda: rig.publisher.report)
            told = JobReport.model_validate_json(rig.publisher.report)
            assert not parts.table.members  # no replica waits for the disk
            # Who waits for the report is answered until it is there.
            assert not rig.running.done()
            hangs.set()
            await rig.ended()
        assert told.status is (JobState.STOPPED if stops else JobState.FAILED)
        assert "no answer from its disk" in told.message

    rig.run(story, journal_wait=3600.0 if stops else 1.0)


@pytest.mark.parametrize("under_way", [False, True])
def test_a_stop_waits_a_minute_for_checkpoints_whose_disk_does_not_answer(
    rig, monkeypatch, under_way
) -> None:
    monkeypatch.setattr(job_state, "STOP_SECONDS", 0.5)
    monkeypatch.setattr(wind_down, "END_SECONDS", 0.2)
    answers, sweep = threading.Event(), checkpointing.shelf.sweep
    answers.set()

    def waits(*given, **more) -> None:
        answers.wait()
        sweep(*given, **more)

    monkeypatch.setattr(checkpointing.shelf, "sweep", waits)

    async def story(rig) -> None:
        async with rig.serving() as master:
            await begun(rig, master)
            answers.clear()
            checkpoints = master.job.parts.checkpoints
            if under_way:
                checkpoints.ask("in training", now=master.job.clock())
            tried = checkpoints._count
            master.job.end(JobState.STOPPED, "asked to stop", status.STOPPED)
            try:
                report = await rig.ended()
            finally:
                answers.set()
        assert report.status is JobState.STOPPED
        assert "the disk is stuck; it resumes from version" in report.message
        # Once for as long as a stop waits, and never again.
        assert checkpoints._count == tried + (not under_way)

    rig.run(story, journal_wait=3600.0)


def test_an_end_that_the_journal_has_not_says_so(rig, monkeypatch) -> None:
    """Nor does anybody hear of it before: who comes next knows no end."""
    leave = wind_down.WindDown._let_ps_leave
    kept: list[int] = []
    headlines: list[str] = []

    async def story(rig) -> None:
        rig.publisher.headline = lambda *of: headlines.append(" ".join(of))
        async with rig.serving() as master:

            async def fills(self: object) -> None:
                await leave(self)
                kept.append(fill_disk(master))

            monkeypatch.setattr(wind_down.WindDown, "_let_ps_leave", fills)
            ledger = master.job.parts.ledger
            await rig.until(lambda: ledger.trouble)
            assert not master.job.state.ended
            await rig.until(lambda: "cannot write the journal" in headlines[-1])
            report = await rig.ended()
            os.close(kept[0])
        # Once, with the report.
        assert sum(one.startswith("succeeded") for one in headlines) == 1
        assert report.status is JobState.SUCCEEDED
        assert "cannot write the journal" in report.message
        assert "it lacks the job's end" in report.message

    rig.run(story, journal_wait=2.0)


def test_a_report_that_its_disk_never_takes_holds_nobody_for_ever(
    rig, monkeypatch
) -> None:
    """The job's end is told with what the report would have said."""
    for module in (wind_down, masters, publishing, on_end):
        monkeypatch.setattr(module, "END_SECONDS", 0.2)
    monkeypatch.setattr(masters, "REPORT_SECONDS", 0.5)
    answers, write = threading.Event(), masters._write
    monkeypatch.setattr(masters, "_write", lambda *to: answers.wait() and write(*to))
    told: list[on_end.End] = []
    monkeypatch.setattr(on_end, "tell", lambda _, end: told.append(end))

    async def story(rig) -> None:
        async with rig.serving() as master:
            ending = await asyncio.wait_for(rig.running, 30.0)
            assert not rig.job_dir.report_file.exists()
            where = {"namespace": "local", "environ": {}}
            await asyncio.wait_for(on_end.tell_once(master.job, ending, **where), 30.0)
            answers.set()

    rig.run(story, on_end={"command": ["true"]})
    assert told[0].report is not None
    assert told[0].report.steps > 0


def test_an_end_is_shown_with_its_report_however_long_the_journal_takes(
    rig, monkeypatch
) -> None:
    """Who sees an end asks for the report, and removes what the job had."""
    monkeypatch.setattr(loop, "_LONGEST_SLEEP_SECONDS", 0.02)
    real = journals._sync
    shown: list[tuple[str, bool]] = []

    def sync(descriptor: int) -> None:
        time.sleep(0.2)
        real(descriptor)

    async def story(rig) -> None:
        async with rig.serving() as master:
            show = rig.publisher.status

            def watched(document: str) -> None:
                state = json.loads(document)["state"]
                shown.append((state, bool(rig.publisher.report)))
                show(document)

            await begun(rig, master)
            monkeypatch.setattr(journals, "_sync", sync)
            monkeypatch.setattr(rig.publisher, "status", watched)
            await rig.ended()

    rig.run(story)
    # The last one goes with the report.
    assert ("succeeded", False) not in shown[:-1]
    assert len(shown) > 2


def test_what_the_journal_waits_for_is_shown_and_told_while_it_waits(rig) -> None:
    """In a cluster nobody can ask the master: the published status is all there is."""

    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving() as master:
            await rig.until(lambda: leases_known(rig) == 2)
            kept = fill_disk(master)
            rig.world.go.set()
            ledger = master.job.parts.ledger
            await rig.until(lambda: ledger.trouble)
            told = rig.publisher
            await rig.until(lambda: "cannot write the journal" in told.shown)
            assert ledger.trouble
            make_room(master, kept)
            await rig.ended()
        history = rig.job_dir.history_file.read_text()
        assert history.count('"kind":"attention"') == 1
        assert any(one.reason == "Attention" for one in told.notices)

    rig.run(story, journal_wait=30.0)


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_nobody_is_silent_while_a_slow_disk_takes_a_snapshot(
    rig, monkeypatch, mode
) -> None:
    """A PS is lost meanwhile: heartbeats tell of it when it is in the journal."""
    real, slow = journals._write_synced, []

    def write(*given) -> None:
        slow.append(time.monotonic())
        time.sleep(2.5)
        real(*given)

    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving() as master:
            await begun(rig, master)
            monkeypatch.setattr(journals, "_write_synced", write)
            monkeypatch.setattr(
                master.job.parts.ledger, "wants_compaction", lambda: not slow
            )
            master.job.parts.signals.wake()
            await rig.until(lambda: bool(slow))
            rig.kill("ps-0")
            await asyncio.sleep(3.0)
            rig.world.go.set()
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED
        assert [one.reason for one in report.relaunches] == ["killed"]

    rig.run(story, ps__mode=mode, **SHORT)


def test_time_in_which_the_journal_waits_is_no_standstill(rig, caplog) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving() as master:
            await begun(rig, master)
            for _ in range(2):  # for the second one a job would end
                kept = fill_disk(master)
                rig.kill("ps-0")
                await rig.until(lambda: master.job.parts.ledger.trouble)
                await asyncio.sleep(2.5)
                make_room(master, kept)
                await asyncio.sleep(0.5)
            rig.world.go.set()
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED
        assert "nothing has moved" not in caplog.text

    rig.run(story, ps__mode="sync", worker__start_seconds=0.5, **SHORT)


def test_values_are_handed_over_to_a_ps_however_long_the_journal_waited(
    rig, monkeypatch
) -> None:
    monkeypatch.setattr(ps_group, "HANDBACK_SECONDS", 2.0)

    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving() as master:
            await begun(rig, master)
            parts = master.job.parts
            rig.world.version = rig.world.pulled = 4
            await asyncio.sleep(0.5)
            rig.kill("ps-0")
            await rig.until(
                lambda: any(m and m.generation > 4 for m in parts.table.ps())
            )
            kept = fill_disk(master)
            await rig.until(lambda: parts.ledger.trouble)
            await asyncio.sleep(5.0)
            make_room(master, kept)
            await asyncio.sleep(1.0)
            assert (parts.holder.rewind, rig.world.handed) == (0, 4)
            rig.world.go.set()
            assert (await rig.ended()).status is JobState.SUCCEEDED

    rig.run(
        story,
        journal_wait=30.0,
        checkpoint__every_seconds=0,
        worker__heartbeat_seconds=0.1,
    )


def test_a_task_is_trained_once_whose_lease_waited_for_the_journal(rig) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving() as master:
            await rig.until(lambda: leases_known(rig) == 3)
            kept = fill_disk(master)
            rig.world.go.set()
            await rig.until(lambda: master.job.parts.ledger.trouble)
            await asyncio.sleep(8.0)  # more than a lease waits to be named
            make_room(master, kept)
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED
        tasks = [tuple(one[1:]) for one in rig.world.trained]
        assert len(tasks) == len(set(tasks)) == 8
        assert audit(rig.job_dir.journal_dir).late_reports == 0

    rig.run(
        story,
        journal_wait=30.0,
        worker__replicas=3,
        worker__dead_seconds=5.0,
        worker__heartbeat_seconds=0.1,
    )


def test_a_stop_waits_a_minute_for_the_journals_disk_and_the_job_resumes_from_older(
    rig, monkeypatch
) -> None:
    monkeypatch.setattr(job_state, "STOP_SECONDS", 1.0)

    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving() as master:
            await begun(rig, master)
            queue = master.job.parts.ledger.queue
            rig.world.go.set()
            await rig.until(lambda: queue.done_tasks > 5)
            kept = fill_disk(master)
            await rig.until(lambda: master.job.parts.ledger.trouble)
            master.job.end(JobState.STOPPED, "asked to stop", status.STOPPED)
            began = time.monotonic()
            report = await rig.ended()
            os.close(kept)
        assert time.monotonic() - began < 300.0  # and not an hour
        assert report.status is JobState.STOPPED
        assert report.message.count("cannot write the journal") == 1
        assert "it resumes from " in report.message
        for replica in rig.everyone:
            replica.kill()
        async with rig.serving(launched=True):
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED
        # A checkpoint ahead of the journal would leave a gap there.
        assert audit(rig.job_dir.journal_dir).ok

    rig.run(story, journal_wait=3600.0, training__epochs=3)


@pytest.fixture
def slow_disk(monkeypatch):
    """Makes each write of the journal take longer than a second, or as it was."""
    real = journals._sync

    def slow(fd: int) -> None:
        time.sleep(1.2)
        real(fd)

    return lambda is_slow: monkeypatch.setattr(
        journals, "_sync", slow if is_slow else real
    )


def test_who_is_to_leave_is_ended_in_time_though_each_write_takes_longer(
    rig, slow_disk
) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving() as master:
            await begun(rig, master)
            parts, key = master.job.parts, ReplicaKey(Role.WORKER, 1)
            slow_disk(True)
            rig.replicas[key].kill()  # and the platform does not show it
            now = master.job.clock()
            parts.membership.drain(parts.table.members[key], "scaled down", now=now)
            until = parts.table.members[key].stop_at
            await rig.until(lambda: key not in parts.table.members)
            assert master.job.clock() < until + 6.0
            slow_disk(False)
            rig.world.go.set()
            assert (await rig.ended()).status is JobState.SUCCEEDED

    rig.run(story, worker__grace_seconds=2.0, **SHORT)


def test_a_worker_that_is_silent_is_found_though_each_write_takes_longer(
    rig, slow_disk
) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving() as master:
            await begun(rig, master)
            slow_disk(True)
            rig.world.mute.add("worker-0")
            await rig.until(lambda: "worker-0" not in names(master))
            slow_disk(False)
            rig.world.go.set()
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED
        assert [one.reason for one in report.relaunches] == ["silent"]

    def names(master) -> set[str]:
        return {member.name for member in master.job.parts.table.workers()}

    rig.run(story, **SHORT)
