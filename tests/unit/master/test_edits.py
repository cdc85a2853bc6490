"""What people do to a running job."""

from elasticdl.checkpoint import shelf
from elasticdl.job.status import JobStatus
from elasticdl.job.values.file import edit_values, load_values
from elasticdl.job.words import JobState
from elasticdl.master.tasks.audit import audit
from elasticdl.master.telling import status

from tests.unit.master.looks import first_checkpoint, live_workers, two_leases

# -- what people do to a running job ---------------------------------------------------


def test_replicas_edited_in_the_file_grow_and_shrink_the_job(rig) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving():
            await rig.until(lambda: live_workers(rig) == [0, 1])
            edit_values(rig.job_dir.spec_file, {"job.worker.replicas": 3})
            await rig.until(lambda: live_workers(rig) == [0, 1, 2])
            edit_values(rig.job_dir.spec_file, {"job.worker.replicas": 1})
            await rig.until(lambda: live_workers(rig) == [0])
            rig.world.go.set()
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED
        assert not report.relaunches
        assert report.replayed_records == 0

    rig.run(story)


def test_epochs_edited_in_the_file_end_the_job_with_the_epoch_that_has_begun(
    rig,
) -> None:
    async def story(rig) -> None:
        async with rig.serving() as master:
            await rig.until(lambda: master.job.epochs_done >= 1)
            edit_values(rig.job_dir.spec_file, {"job.training.epochs": 1})
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED
        audited = audit(rig.job_dir.journal_dir)
        assert audited.ok
        assert 1 <= len(audited.epochs) < 10_000
        assert all(epoch.finished for epoch in audited.epochs)

    rig.run(story, training__epochs=10_000, evaluation__at_epoch_end=False)


def test_other_edits_are_refused_and_the_job_goes_on(rig, caplog) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving() as master:
            await rig.until(lambda: live_workers(rig) == [0, 1])
            edit_values(
                rig.job_dir.spec_file,
                {"job.training.batchSize": 7, "job.worker.replicas": 1},
            )
            await rig.until(lambda: live_workers(rig) == [0])
            assert master.job.spec.training.batch_size == 4
            rig.job_dir.spec_file.write_text("kind: job\njob: {nonsense: 1}\n")
            await rig.until(lambda: "nothing changes" in caplog.text)
            rig.world.go.set()
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED
        assert "training.batchSize: 4 -> 7" in caplog.text

    rig.run(story)


def test_a_paused_job_gives_out_no_training_until_it_goes_on(rig) -> None:
    async def story(rig) -> None:
        async with rig.serving() as master:
            await rig.until(lambda: master.job.state is JobState.PAUSED)
            await rig.until(lambda: first_checkpoint(master))
            assert not rig.world.trained
            edit_values(rig.job_dir.spec_file, {"job.paused": False})
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED

    rig.run(story, paused=True)


def test_a_paused_job_that_freed_its_workers_is_not_below_its_minimum(rig) -> None:
    async def story(rig) -> None:
        async with rig.serving() as master:
            await rig.until(lambda: first_checkpoint(master))
            await rig.until(lambda: live_workers(rig) == [])
            assert status.build(master.job, now=master.job.clock()).message == ""
            edit_values(rig.job_dir.spec_file, {"job.paused": False})
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED

    rig.run(story, paused=True, worker__min=2, worker__pause_seconds=0.1)


def test_stop_hands_tasks_back_and_writes_a_checkpoint(rig) -> None:
    async def story(rig) -> None:
        async with rig.serving() as master:
            await rig.until(lambda: len(rig.world.trained) >= 2)
            rig.world.go.clear()
            some = next(iter(rig.replicas.values()))
            await some.call(some.client.stop, "enough")
            report = await rig.ended()
            assert not master.job.parts.ledger.queue.leased
        assert report.status is JobState.STOPPED
        assert report.message == "enough"
        assert shelf.newest(rig.job_dir.checkpoints_dir)[1].version == rig.world.version

    rig.run(story)


def test_status_tells_everything_as_json(rig) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving() as master:
            await rig.until(lambda: two_leases(master))
            some = next(iter(rig.replicas.values()))
            text = await some.call(lambda _: some.client.status(), None)
            seen = JobStatus.model_validate_json(text)
            assert seen.state is JobState.RUNNING
            assert {r.name for r in seen.replicas} == {
                "ps-0", "ps-1", "worker-0", "worker-1",
            }  # fmt: skip
            assert seen.progress.tasks_leased == 2
            assert seen.progress.records_per_epoch == 64
            assert seen.goodput_seconds["train"] >= 0
            rig.world.go.set()
            await rig.ended()

    rig.run(story)


def test_an_edit_is_in_the_history_before_the_master_has_looked_again(rig) -> None:
    """A master that is killed soon has told of it: the next one would not know."""

    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving() as master:
            await rig.until(lambda: two_leases(master))
            before = master.job.spec
            worker = before.worker.model_copy(update={"replicas": 3})
            master.loop.edit(before.model_copy(update={"worker": worker}))
            (told,) = list(master.job.parts.signals.diary.told)[-1:]
            assert (told.kind, told.cause) == ("grown", "worker.replicas: 2 -> 3")
            rig.world.go.set()
            await rig.ended()
        assert (
            "changed: worker.replicas: 2 -> 3" in rig.job_dir.history_file.read_text()
        )

    rig.run(story)


def test_an_edit_that_no_running_job_fits_is_refused_and_the_job_goes_on(rig) -> None:
    """Neither the master that takes it fails, nor one that reads it at its start."""
    edited = {"job.strategy": "parameterServer", "job.worker.replicas": 3}

    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving() as master:
            await rig.until(lambda: live_workers(rig) == [0])
            edit_values(rig.job_dir.spec_file, edited)
            rig.values = load_values(rig.job_dir.spec_file)
            told = master.job.parts.signals.diary
            await rig.until(lambda: any(one.kind == "refused" for one in told.told))
            assert [one.cause for one in told.told if one.kind == "refused"] == [
                "strategy: local -> parameterServer",
                "worker.replicas: 1 -> 3",
            ]
        async with rig.serving():
            rig.world.go.set()
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED

    rig.run(story, strategy="local", worker__replicas=1)


def test_an_edit_of_a_time_without_a_master_is_told_by_the_next_one(rig) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving() as master:
            await rig.until(lambda: two_leases(master))
        edit_values(rig.job_dir.spec_file, {"job.worker.replicas": 3})
        rig.values = load_values(rig.job_dir.spec_file)
        for taken_over in (1, 2):  # the second one says nothing of it
            async with rig.serving():
                await rig.until(lambda: live_workers(rig) == [0, 1, 2])
                await rig.until(
                    lambda n=taken_over: (
                        rig.job_dir.history_file.read_text().count('"master"') == n
                    )
                )
        async with rig.serving():
            rig.world.go.set()
            await rig.ended()
        history = rig.job_dir.history_file.read_text()
        assert history.count('"changed: worker.replicas: 2 -> 3"') == 1

    rig.run(story)
