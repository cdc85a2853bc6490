"""What is trained is saved before a job succeeds, or the job says that it is not."""

import asyncio
import shutil
import sys
from pathlib import Path

import pytest
from elasticdl.checkpoint import shelf, store
from elasticdl.checkpoint.layout import Manifest
from elasticdl.errors import ExitCode
from elasticdl.job.tasks import Task, TaskType
from elasticdl.job.words import JobState
from elasticdl.master.model import checkpoint_requests
from elasticdl.master.tasks import model_facts
from elasticdl.master.tasks.audit import audit
from elasticdl.master.telling import status


def test_a_full_disk_while_training_is_told_and_training_goes_on(rig) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        rig.world.disk_full = True
        async with rig.serving() as master:
            await rig.until(lambda: bool(master.job.parts.checkpoints.problem))
            assert "No space left" in status.build(master.job, now=0.0).message
            rig.world.go.set()
            await rig.until(lambda: master.job.state is JobState.FINISHING)
            rig.world.disk_full = False
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED
        assert report.records == 64
        assert report.message == ""

    rig.run(story)


def test_a_model_that_cannot_be_saved_fails_the_job_which_goes_on_when_launched_again(
    rig,
) -> None:
    async def story(rig) -> None:
        rig.world.disk_full = True
        async with rig.serving():
            report = await rig.ended()
            assert rig.running.result().exit_code is ExitCode.STORAGE
        assert report.status is JobState.FAILED
        assert report.checkpoint == ""
        assert "No space left" in report.message
        assert "launch the job again" in report.message
        rig.world.disk_full = False
        rig.runner.states.clear()
        async with rig.serving(launched=True):
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED
        assert shelf.resolve(rig.job_dir.checkpoints_dir)[0].name in report.checkpoint
        assert audit(rig.job_dir.journal_dir).ok

    rig.run(story, master__journal_wait_seconds=0.1)


def test_a_disk_that_is_full_at_the_end_is_waited_for(rig) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving() as master:
            await rig.until(lambda: master.job.parts.checkpoints.newest is not None)
            rig.world.disk_full = True
            rig.world.go.set()
            await rig.until(lambda: master.job.parts.checkpoints.refused_end)
            rig.world.disk_full = False
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED
        assert_has_everything(rig, report)

    rig.run(story)


def assert_has_everything(rig, report) -> None:
    path, manifest = shelf.resolve(rig.job_dir.checkpoints_dir)
    assert str(path) == report.checkpoint
    assert manifest.position["queue"]["done_records"] == 64
    assert manifest.position["queue"]["waiting"] == []


def test_a_model_that_is_exported_but_not_checkpointed_is_saved_and_says_so(
    rig,
) -> None:
    async def story(rig) -> None:
        rig.world.disk_full = True
        async with rig.serving():
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED
        assert report.exports == ["/out/final"]
        assert "checkpoint not written: " in report.message

    rig.run(story, export__dir="out", master__journal_wait_seconds=0.1)


def test_a_stop_that_cannot_write_says_from_where_the_job_resumes(rig) -> None:
    async def story(rig) -> None:
        rig.world.pause_after = 2
        async with rig.serving() as master:
            await rig.until(lambda: master.job.parts.checkpoints.newest is not None)
            await rig.until(lambda: len(rig.world.trained) >= 2)
            rig.world.disk_full = True
            master.job.end(JobState.STOPPED, "by the test", ExitCode.STOPPED)
            report = await rig.ended()
        assert report.status is JobState.STOPPED
        assert "by the test; checkpoint not written" in report.message
        assert "it resumes from version" in report.message

    rig.run(story, master__journal_wait_seconds=0.1, checkpoint__every_seconds=0)


def replace_checkpoints_by_a_file(rig) -> None:
    shutil.rmtree(rig.job_dir.checkpoints_dir)
    rig.job_dir.checkpoints_dir.write_text("in the way")


@pytest.mark.parametrize("stopped", [True, False])
def test_an_end_names_no_checkpoint_that_was_removed_to_go_on_from(
    rig, stopped
) -> None:
    async def story(rig) -> None:
        rig.world.pause_after = 2
        async with rig.serving() as master:
            await rig.until(lambda: master.job.parts.checkpoints.newest is not None)
            await rig.until(lambda: len(rig.world.trained) >= 2)
            replace_checkpoints_by_a_file(rig)
            if stopped:
                master.job.end(JobState.STOPPED, "by the test", ExitCode.STOPPED)
            else:
                rig.world.pause_after = sys.maxsize
            report = await rig.ended()
        assert report.status is (JobState.STOPPED if stopped else JobState.FAILED)
        assert report.checkpoint == ""
        assert "Not a directory" in report.message
        assert "on from" not in report.message
        assert "no checkpoint of this job can be loaded any more" in report.message

    rig.run(story, master__journal_wait_seconds=0.1, checkpoint__every_seconds=0)


def test_where_the_newest_checkpoint_was_removed_an_end_names_the_one_before(
    rig,
) -> None:
    async def story(rig) -> None:
        rig.world.pause_after = 2
        async with rig.serving() as master:
            checkpoints = master.job.parts.checkpoints
            await rig.until(lambda: checkpoints.newest is not None)
            first = checkpoints.newest
            await rig.until(lambda: len(rig.world.trained) >= 2)
            checkpoints.ask("the test", now=master.job.clock())
            await rig.until(lambda: checkpoints.newest is not first)
            shutil.rmtree(checkpoints.newest.dir)
            rig.world.pause_after = 4
            await rig.until(lambda: len(rig.world.trained) >= 4)
            rig.world.disk_full = True
            master.job.end(JobState.STOPPED, "by the test", ExitCode.STOPPED)
            report = await rig.ended()
        assert report.checkpoint == first.dir
        assert f"it resumes from version {first.manifest.version}" in report.message

    rig.run(story, master__journal_wait_seconds=0.1, checkpoint__every_seconds=0)


def test_a_stop_while_a_ps_is_missing_says_from_where_the_job_resumes(rig) -> None:
    """What was trained since the newest checkpoint is lost with that PS."""

    async def story(rig) -> None:
        rig.world.pause_after = 2
        async with rig.serving() as master:
            await rig.until(lambda: master.job.parts.checkpoints.newest is not None)
            await rig.until(lambda: len(rig.world.trained) >= 2)
            rig.kill("ps-1")
            master.job.end(JobState.STOPPED, "by the test", ExitCode.STOPPED)
            report = await rig.ended()
        assert report.status is JobState.STOPPED
        assert "no checkpoint was written, since not all of the model is" in (
            report.message
        )
        assert "it resumes from version" in report.message

    rig.run(story, checkpoint__every_seconds=0)


def test_a_stop_that_loses_a_ps_while_it_writes_says_from_where_the_job_resumes(
    rig,
) -> None:
    async def story(rig) -> None:
        rig.world.pause_after = 2
        async with rig.serving() as master:
            checkpoints = master.job.parts.checkpoints
            await rig.until(lambda: checkpoints.newest is not None)
            await rig.until(lambda: len(rig.world.trained) >= 2)
            rig.world.beats_per_part = 20
            master.job.end(JobState.STOPPED, "by the test", ExitCode.STOPPED)
            await rig.until(
                lambda: checkpoints.request and checkpoints.request.written_bytes
            )
            rig.kill("ps-1")
            report = await rig.ended()
        assert "the last checkpoint was not completed" in report.message
        assert "it resumes from version" in report.message

    rig.run(story, checkpoint__every_seconds=0)


def test_a_checkpoint_of_a_moment_before_the_end_does_not_pass_for_the_last_one(
    rig,
) -> None:
    """PS 0 had its last update already, another PS had not: the version is the same."""

    async def before_the_last(task: Task) -> None:
        last = task.type == TaskType.TRAINING and len(rig.world.trained) == 7
        if not last or made:
            return
        made.append(task)
        rig.world.version += 2
        parts = rig.master.job.parts
        await rig.until(lambda: not parts.checkpoints.busy)
        parts.checkpoints.ask("a test", now=rig.master.job.clock())
        await rig.until(lambda: not parts.checkpoints.busy)
        rig.world.version -= 2

    async def story(rig) -> None:
        rig.world.before = before_the_last
        async with rig.serving():
            report = await rig.ended()
        assert made
        assert report.status is JobState.SUCCEEDED
        assert_has_everything(rig, report)

    made: list[Task] = []
    rig.run(story, worker__replicas=1, checkpoint__every_seconds=0)


@pytest.mark.parametrize("held", [TaskType.EVALUATION, TaskType.EXPORT])
def test_after_a_rewind_at_the_end_the_last_evaluation_and_export_are_of_the_new_course(
    rig, held
) -> None:
    async def hold(task: Task) -> None:
        final = rig.master.job.state is JobState.FINISHING
        if final and task.type == held and not rig.world.rewinds:
            holding.set()
            await rewound.wait()

    async def story(rig) -> None:
        rig.world.before = hold
        rig.world.go.clear()
        async with rig.serving() as master:
            parts = master.job.parts
            await rig.until(lambda: parts.checkpoints.newest is not None)
            rig.world.go.set()
            await rig.until(holding.is_set)
            first = parts.checkpoints.newest
            assert first is not None
            # Back to the first checkpoint, as if the last one could not be loaded.
            if first.manifest.version == rig.world.version:
                parts.checkpoints.give_up(first.dir)
            parts.holder.go_back("a test", now=master.job.clock())
            await rig.until(lambda: bool(rig.world.rewinds))
            trained = len(rig.world.trained)
            rewound.set()
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED
        assert len(rig.world.trained) > trained
        assert report.exports == ["/out/final"]
        rounds = parts.ledger.all_of(model_facts.EvaluationFact)
        exports = parts.ledger.all_of(model_facts.ExportFact)
        points = {rounds[-1].point, *(fact.point for fact in exports)}
        assert points == {shelf.resolve(first_dir(rig))[1].position["point"]}
        assert_has_everything(rig, report)

    def first_dir(rig):
        return rig.job_dir.checkpoints_dir

    holding, rewound = asyncio.Event(), asyncio.Event()
    rig.run(
        story,
        ps__mode="sync",
        data__validation="test.csv",
        export__dir="out",
        evaluation__at_epoch_end=False,
        checkpoint__every_seconds=0,
    )


def test_a_stop_waits_for_a_checkpoint_of_which_more_is_written_all_the_time(
    rig, monkeypatch
) -> None:
    """As 100 GB are: here a part takes many times as long as nothing may move."""
    monkeypatch.setattr(checkpoint_requests, "STILL_SECONDS", 0.5)

    async def story(rig) -> None:
        rig.world.pause_after = 2
        async with rig.serving() as master:
            await rig.until(lambda: master.job.parts.checkpoints.newest is not None)
            await rig.until(lambda: len(rig.world.trained) >= 2)
            rig.world.beats_per_part = 20  # of 0.1 s
            master.job.end(JobState.STOPPED, "by the test", ExitCode.STOPPED)
            report = await rig.ended()
        assert report.message == "by the test"
        path, newest = shelf.resolve(rig.job_dir.checkpoints_dir)
        assert newest.version == rig.world.version
        assert report.checkpoint == str(path)

    rig.run(story, checkpoint__every_seconds=0, master__journal_wait_seconds=0.1)


def test_strategy_local_goes_back_to_an_older_checkpoint_than_the_damaged_one(
    rig,
) -> None:
    async def story(rig) -> None:
        rig.world.pause_after = 1
        async with rig.serving() as master:
            checkpoints = master.job.parts.checkpoints
            await rig.until(lambda: checkpoints.newest is not None)
            first = checkpoints.newest.dir
            await rig.until(
                lambda: master.job.parts.holder.begun and not checkpoints.busy
            )
            checkpoints.ask("a test", now=master.job.clock())
            await rig.until(lambda: checkpoints.newest.dir != first)
            rig.world.damaged.add(checkpoints.newest.dir)
            rig.kill("worker-0")
            await rig.until(lambda: master.job.parts.ledger.rewinds == 2)
            rig.world.pause_after = sys.maxsize
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED
        assert rig.world.restored[-1][:2] == ("worker-1", first)
        assert audit(rig.job_dir.journal_dir).ok

    rig.run(story, strategy="local", worker__replicas=1, checkpoint__every_seconds=0)


def test_all_replicas_begin_with_one_checkpoint_while_another_job_writes_newer_ones(
    rig,
) -> None:
    async def story(rig) -> None:
        rig.world.mute.add("ps-1")  # so that the job has not begun yet
        async with rig.serving() as master:
            await rig.until(lambda: {"ps-0", "ps-1"} <= restored(rig).keys())
            write(others, 500)
        async with rig.serving() as master:
            rig.world.mute.clear()
            rig.world.restored.clear()
            rig.kill("ps-1")
            await rig.until(lambda: master.job.parts.holder.begun)
            await rig.ended()
        assert restored(rig)["ps-1"] == str(others / "version-400")

    def restored(rig) -> dict[str, str]:
        return {name: where for name, where, _ in rig.world.restored}

    def write(place: Path, version: int) -> None:
        aside = place / "pending-x"
        shard = store.write_shard(aside, 0, 1, {}, {"version": version})
        manifest = Manifest(job="j", strategy="local", version=version, shards=[shard])
        store.write_manifest(aside, manifest)
        store.publish(aside, place, version)

    others = rig.root / "others"
    write(others, 400)
    rig.run(story, checkpoint__init_from=str(others))
