"""The last checkpoint of a stop: what counts as a disk that refuses it."""

import asyncio

import pytest
from elasticdl.checkpoint import shelf
from elasticdl.errors import ExitCode
from elasticdl.job.words import JobState
from elasticdl.master.model.checkpoint_requests import STILL_SECONDS, CheckpointRequest


async def begun(rig, master):
    """Return the checkpoints of a job that has trained two tasks, and stands."""
    rig.world.pause_after = 2
    checkpoints = master.job.parts.checkpoints
    await rig.until(lambda: checkpoints.newest is not None)
    await rig.until(lambda: len(rig.world.trained) >= 2)
    return checkpoints


def check(rig, report) -> None:
    """Fail unless the stop has saved all that was trained."""
    _, newest = shelf.resolve(rig.job_dir.checkpoints_dir)
    assert report.message == "by the test"
    assert newest.version == rig.world.version


@pytest.mark.parametrize("refused", [True, False])
def test_a_copy_that_took_longer_than_a_stop_waits_is_no_refusal(rig, refused) -> None:
    """Refused once after it, or given up for a lost replica: it is asked for again."""

    async def story(rig) -> None:
        async with rig.serving() as master:
            checkpoints = await begun(rig, master)
            rig.world.mute = {"ps-0", "ps-1"}  # they copy
            await asyncio.sleep(0.3)
            checkpoints.ask("time", now=master.job.clock())
            await rig.until(lambda: checkpoints.request.ready)
            master.job.end(JobState.STOPPED, "by the test", ExitCode.STOPPED)
            await asyncio.sleep(4.0)
            if refused:
                rig.world.disk_full = True
                rig.world.mute = set()
                await rig.until(lambda: checkpoints.failures > 0)
                rig.world.disk_full = False
            else:
                checkpoints.abort()
                rig.world.mute = set()
            report = await rig.ended()
        check(rig, report)

    rig.run(story, checkpoint__every_seconds=0, master__journal_wait_seconds=3.0)


def test_a_stop_does_not_wait_for_a_ps_that_is_silent(rig) -> None:
    """Frozen, or away: nobody is launched in its place, and a copy has ten minutes."""

    async def story(rig) -> None:
        async with rig.serving() as master:
            await begun(rig, master)
            before = master.job.parts.checkpoints.schedule.version
            rig.world.mute = {"ps-1"}
            master.job.end(JobState.STOPPED, "by the test", ExitCode.STOPPED)
            report = await rig.ended()
        assert "ps-1 has not been heard for" in report.message
        assert f"it resumes from version {before}" in report.message

    rig.run(story, checkpoint__every_seconds=0, worker__dead_seconds=2.0)


def test_a_stop_waits_for_a_worker_whose_model_the_disk_takes_slowly(rig) -> None:
    """It is in a step for longer than any step takes, and not hung."""

    async def story(rig) -> None:
        async with rig.serving() as master:
            await begun(rig, master)
            rig.world.writes_seconds = 3.0
            master.job.end(JobState.STOPPED, "by the test", ExitCode.STOPPED)
            report = await rig.ended()
        check(rig, report)

    rig.run(story, worker__replicas=1, strategy="local", worker__hang_seconds=1.0)


@pytest.mark.parametrize("strategy", ["local", "parameterServer"])
def test_a_stop_by_a_master_that_has_just_begun_waits_for_who_has_the_model(
    rig, strategy
) -> None:
    async def story(rig) -> None:
        async with rig.serving() as first:
            await begun(rig, first)
            await rig.until(lambda: first.job.version == rig.world.version)
            rig.world.mute = {"worker-0", "ps-0", "ps-1"}
            await asyncio.sleep(0.3)
        async with rig.serving() as master:
            master.job.end(JobState.STOPPED, "by the test", ExitCode.STOPPED)
            await asyncio.sleep(0.5)
            rig.world.mute = set()
            report = await rig.ended()
        check(rig, report)

    rig.run(story, worker__replicas=1, strategy=strategy, checkpoint__every_seconds=0)


def test_what_is_counted_as_still_is_never_later_than_now() -> None:
    """A freeze of the whole machine is left out of the job's clock already."""
    request = CheckpointRequest(
        id="1", dir="d", why="", position={}, rewind=0, since=100.0, num_shards=1
    )
    request.prepared("")
    request.put_off(3600.0, now=110.0)
    assert request.moves_since == 110.0
    request.put_off(20.0, now=150.0)
    assert request.moves_since == 130.0
    bounds = {"in_worker": False, "still_seconds": STILL_SECONDS}
    request.pinned.add(0)
    assert not request.stuck(now=130.0 + STILL_SECONDS, **bounds)
    assert request.stuck(now=131.0 + STILL_SECONDS, **bounds)


def test_a_stop_that_waits_for_no_disk_asks_once_though_one_before_was_refused(
    rig,
) -> None:
    async def story(rig) -> None:
        async with rig.serving() as master:
            checkpoints = await begun(rig, master)
            rig.world.mute = {"ps-0", "ps-1"}
            checkpoints.ask("time", now=master.job.clock())
            await rig.until(lambda: checkpoints.request.ready)
            master.job.end(JobState.STOPPED, "by the test", ExitCode.STOPPED)
            await asyncio.sleep(0.5)
            checkpoints.abort()
            rig.world.mute = set()
            report = await rig.ended()
        check(rig, report)

    rig.run(story, checkpoint__every_seconds=0, master__journal_wait_seconds=0.0)
