"""What `checkpoint.initFrom` means, and what is taken when it cannot be loaded."""

import asyncio
import errno
from pathlib import Path

import pytest
from elasticdl.beneath import Folder
from elasticdl.checkpoint import store
from elasticdl.checkpoint.layout import Manifest
from elasticdl.errors import ExitCode
from elasticdl.job.words import JobState
from elasticdl.master import patience
from elasticdl.master.model.origin import Origin
from elasticdl.master.tasks.audit import audit
from elasticdl.master.tasks.ledger import Ledger


def checkpoint_of(place: Path, version: int, run: str = "r") -> str:
    """A checkpoint that nobody here looks into."""
    target = place / f"version-{version}"
    target.mkdir(parents=True)
    shard = store.write_shard(target, 0, 1, {}, {"version": version})
    manifest = Manifest(
        job="j", run=run, strategy="local", version=version, shards=[shard]
    )
    store.write_manifest(target, manifest)
    return str(target)


@pytest.mark.parametrize(
    "job", [{}, {"ps__mode": "sync"}, {"strategy": "local", "worker__replicas": 1}]
)
def test_init_from_a_folder_takes_the_next_older_checkpoint_for_a_damaged_one(
    rig, job
) -> None:
    async def story(rig) -> None:
        rig.world.damaged.add(damaged)
        async with rig.serving() as master:
            report = await rig.ended()
            assert master.job.parts.holder.origin.dir == older
        assert report.status is JobState.SUCCEEDED
        assert report.records == 64
        assert f"begins with the older {older}" in report.message
        assert older in rig.world.loaded
        assert Path(damaged).is_dir()  # it is another job's: nothing moves it
        assert audit(rig.job_dir.journal_dir).ok

    older = checkpoint_of(rig.root / "old", 5)
    damaged = checkpoint_of(rig.root / "old", 9)
    rig.run(story, checkpoint__init_from=str(rig.root / "old"), **job)


@pytest.mark.parametrize("stopped", [False, True])
def test_a_job_has_no_checkpoint_of_its_own_before_a_worker_knows_that_its_model_fits(
    rig, stopped
) -> None:
    """PS have that of `initFrom`, which may be another model's, and part after part."""

    async def story(rig) -> None:
        rig.world.can_load = "worker-0"  # it waits for `go`
        rig.world.go.clear()
        async with rig.serving() as master:
            await rig.until(lambda: master.job.parts.holder.known)
            await asyncio.sleep(0.5)
            assert master.job.parts.checkpoints.request is None
            if stopped:
                master.job.end(JobState.STOPPED, "by the test", ExitCode.STOPPED)
            rig.world.go.set()
            report = await rig.ended()
        if stopped:
            assert report.message == "by the test"  # nothing was trained
            assert master.job.parts.checkpoints.newest is None
        else:
            assert report.status is JobState.SUCCEEDED

    given = checkpoint_of(rig.root / "old", 5)
    rig.run(story, checkpoint__init_from=given, worker__replicas=1)


def test_what_ps_do_not_take_over_is_a_warning_of_the_job(rig) -> None:
    async def story(rig) -> None:
        rig.world.warning = "the checkpoint has no m"
        async with rig.serving():
            report = await rig.ended()
        assert report.warnings == ["the checkpoint has no m"]  # of two PS

    rig.run(story, checkpoint__init_from=checkpoint_of(rig.root / "old", 5))


def test_a_checkpoint_on_a_volume_that_is_away_at_the_start_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job's own folder may be on another one; the error would be final."""
    given = checkpoint_of(tmp_path / "old", 5)
    left = [errno.ESTALE, errno.EIO, errno.ETIMEDOUT]
    names = Folder.names

    def away(folder: Folder) -> list[str]:
        if left and folder.path == Path(given).parent:
            raise OSError(left.pop(), "away")
        return names(folder)

    monkeypatch.setattr(Folder, "names", away)
    monkeypatch.setattr(patience, "_RETRY_SECONDS", 0.0)
    ledger = Ledger.open(tmp_path / "journal", now=1.0)
    origin = Origin(ledger, str(Path(given).parent), wait_seconds=60.0)
    ledger.close()
    assert (origin.dir, left) == (given, [])


@pytest.mark.parametrize("job", [{}, {"strategy": "local", "worker__replicas": 1}])
def test_a_job_that_begins_between_two_multiples_evaluates_at_the_next_one(
    rig, job
) -> None:
    async def story(rig) -> None:
        async with rig.serving():
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED
        first, *_ = [one.version for one in report.evaluations]
        assert first >= 12

    begins_at = checkpoint_of(rig.root / "old", 9)
    rig.run(
        story,
        checkpoint__init_from=begins_at,
        evaluation__every_steps=4,
        data__validation="test.csv",
        **job,
    )


@pytest.mark.parametrize("kind", ["evaluate", "predict"])
def test_evaluate_and_predict_take_the_next_older_checkpoint_for_a_damaged_one(
    rig, kind
) -> None:
    async def story(rig) -> None:
        rig.world.damaged.add(damaged)
        async with rig.serving() as master:
            report = await rig.ended()
            assert master.job.version == 5
        assert report.status is JobState.SUCCEEDED
        assert {directory for _, directory, _ in rig.world.restored} == {older}
        # Else figures and predictions passed for those of the newest model.
        assert f"{damaged} cannot be loaded" in report.message

    older = checkpoint_of(rig.root / "old", 5)
    damaged = checkpoint_of(rig.root / "old", 9)
    data = {"data__validation": "test.csv"}
    if kind == "predict":
        data = {"data__prediction": "test.csv"}
    rig.run(story, type=kind, checkpoint__init_from=str(rig.root / "old"), **data)


@pytest.mark.parametrize("named", ["checkpoint", "folder"])
def test_a_job_whose_init_from_cannot_be_loaded_fails_with_what_to_do(
    rig, named
) -> None:
    async def story(rig) -> None:
        rig.world.damaged.add(damaged)
        async with rig.serving():
            report = await rig.ended()
            assert rig.running.result().exit_code is ExitCode.STORAGE
        assert report.status is JobState.FAILED
        assert f"cannot restore from {damaged}" in report.message
        words = {"checkpoint": "names this checkpoint alone", "folder": "no older one"}
        assert words[named] in report.message

    damaged = checkpoint_of(rig.root / "old", 5)
    given = damaged if named == "checkpoint" else str(rig.root / "old")
    rig.run(story, checkpoint__init_from=given)


def test_no_evaluation_is_made_of_two_checkpoints(rig) -> None:
    """One worker has loaded a checkpoint that another one cannot."""

    async def story(rig) -> None:
        rig.world.go.clear()
        rig.world.damaged.add(damaged)
        rig.world.can_load = "worker-0"
        async with rig.serving() as master:
            origin = master.job.parts.holder.origin
            await rig.until(lambda: origin.dir == older)
            rig.world.go.set()
            await rig.until(lambda: "worker-0" in rig.world.fenced)
            rig.kill("worker-0")
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED
        assert "worker-0" not in rig.world.at_work

    older = checkpoint_of(rig.root / "old", 5)
    damaged = checkpoint_of(rig.root / "old", 9)
    rig.run(
        story,
        type="evaluate",
        data__validation="test.csv",
        checkpoint__init_from=str(rig.root / "old"),
    )


def test_a_checkpoint_that_a_worker_evaluates_with_is_not_taken_back(rig) -> None:
    async def until_told(_task) -> None:
        await rig.world.go.wait()

    async def story(rig) -> None:
        rig.world.go.clear()
        rig.world.before = until_told
        async with rig.serving() as master:
            members = master.job.parts.table.workers
            await rig.until(lambda: [m.ready for m in members()] == [True, True])
            rig.world.damaged.add(only)
            rig.kill("worker-1")
            report = await rig.ended()
        assert report.status is JobState.FAILED
        assert "works with it already" in report.message

    checkpoint_of(rig.root / "old", 5)
    only = checkpoint_of(rig.root / "old", 9)
    rig.run(
        story,
        type="evaluate",
        data__validation="test.csv",
        checkpoint__init_from=str(rig.root / "old"),
    )
