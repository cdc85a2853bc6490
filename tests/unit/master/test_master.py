"""What a master does with a job: the real one, over gRPC, with scripted replicas."""

import asyncio
import json
import math

import pytest
from elasticdl.checkpoint import shelf
from elasticdl.errors import CheckpointError, ExitCode
from elasticdl.job.names import Role
from elasticdl.job.tasks import (
    ExportTarget,
    Task,
    TaskType,
)
from elasticdl.job.words import JobState
from elasticdl.master.tasks.audit import audit
from elasticdl.master.tasks.eta import Pace
from elasticdl.master.telling import status

from tests.unit.master.looks import (
    first_checkpoint,
    old_checkpoint,
)


def test_a_job_runs_to_its_end_and_every_record_is_trained_once(rig) -> None:
    async def story(rig) -> None:
        async with rig.serving():
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED
        assert report.records == 128
        assert report.replayed_records == 0
        assert audit(rig.job_dir.journal_dir).ok
        assert {name for name, *_ in rig.world.trained} == {"worker-0", "worker-1"}
        assert rig.running.result().exit_code is ExitCode.OK
        assert not any(rig.runner.running(role) for role in (Role.PS, Role.WORKER))

    rig.run(story, training__epochs=2)


def test_evaluation_and_export_happen_before_workers_may_leave(rig) -> None:
    async def story(rig) -> None:
        async with rig.serving():
            report = await rig.ended()
        assert report.metrics == {"accuracy": 0.9}
        assert rig.world.summaries[-1] == 64.0
        assert report.evaluations[-1].records == 64
        assert report.exports == ["/out/final"]
        assert report.evaluations[-1].version == rig.world.version

    rig.run(story, data__validation="test.csv", export__dir="out")


def test_an_epoch_end_is_evaluated_while_the_next_epoch_trains(rig) -> None:
    async def story(rig) -> None:
        async with rig.serving():
            report = await rig.ended()
        assert report.evaluations[-1].version == report.version
        assert "epoch end" in {e.why for e in report.evaluations}

    rig.run(story, data__validation="test.csv", training__epochs=3)


def test_checkpoints_are_complete_and_belong_to_a_position(rig) -> None:
    async def story(rig) -> None:
        async with rig.serving():
            report = await rig.ended()
        path, manifest = shelf.newest(rig.job_dir.checkpoints_dir)
        assert str(path) == report.checkpoint
        assert manifest.version == rig.world.version
        assert manifest.position["queue"]["done_records"] == 64
        assert len(manifest.shards) == 2
        assert not list(rig.job_dir.checkpoints_dir.glob("pending-*"))

    rig.run(story)


# -- data ------------------------------------------------------------------------------


def test_missing_data_fails_the_job_with_the_path(rig) -> None:
    async def story(rig) -> None:
        async with rig.serving():
            report = await rig.ended()
        assert report.status is JobState.FAILED
        assert "nothing.csv" in report.message
        assert rig.running.result().exit_code is ExitCode.DATA

    rig.run(story, data__training="nothing.csv")


def test_missing_data_is_prepared_once_by_a_worker(rig) -> None:
    async def story(rig) -> None:
        (rig.root / "train.csv").unlink()
        async with rig.serving():
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED
        assert rig.world.types.count(TaskType.PREPARE) == 1
        assert report.records == 64

    rig.run(story, data__prepare={"command": ["make-it"]})


def test_a_custom_reader_is_asked_for_its_shards(rig) -> None:
    async def story(rig) -> None:
        rig.world.ready = {"custom_reader": True}
        async with rig.serving():
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED
        assert rig.world.types.count(TaskType.SHARDS) == 1
        assert report.records == 64

    rig.run(story, data__training="table://somewhere")


# -- other kinds of job ----------------------------------------------------------------


def test_an_evaluate_job_has_no_ps_and_ends_with_metrics(rig) -> None:
    async def story(rig) -> None:
        async with rig.serving():
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED
        assert report.metrics == {"accuracy": 0.9}
        assert rig.world.summaries == [64.0]
        assert not rig.runner.running(Role.PS)
        assert {launch.key.role for launch in rig.runner.launches} == {Role.WORKER}
        assert rig.world.restored[0][1] == checkpoint

    checkpoint = old_checkpoint(rig)
    rig.run(
        story,
        type="evaluate",
        data__validation="test.csv",
        checkpoint__init_from=checkpoint,
    )


def test_an_evaluate_job_shows_its_checkpoints_version_and_that_it_runs(rig) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving() as master:
            await rig.until(lambda: master.job.parts.rounds.current is not None)
            now = status.build(master.job, now=master.job.clock())
            assert now.state is JobState.RUNNING
            assert now.progress.records_per_epoch == 64
            rig.world.go.set()
            report = await rig.ended()
        assert [e.version for e in report.evaluations] == [400]
        assert report.version == 400

    rig.run(
        story,
        type="evaluate",
        data__validation="test.csv",
        checkpoint__init_from=old_checkpoint(rig),
    )


def test_an_evaluate_job_says_how_long_it_will_take(rig) -> None:
    async def slowly(task) -> None:
        if task.type == TaskType.EVALUATION:
            await asyncio.sleep(0.1)

    async def story(rig) -> None:
        rig.world.before = slowly
        async with rig.serving() as master:
            job = master.job
            job.pace = Pace(0.2, settled_seconds=0.1, warm_seconds=0.0)

            def told():
                progress = status.build(job, now=job.clock()).progress
                return progress if progress.eta_seconds else None

            await rig.until(told)
            shown = told()
            left = shown.records_per_epoch - shown.records_done
            assert 0 < left < shown.records_per_epoch
            assert shown.eta_seconds == pytest.approx(
                left / job.pace.per_second(), abs=0.1
            )
            assert shown.records_per_second > 0
            await rig.ended()

    rig.run(
        story,
        type="evaluate",
        data__validation="test.csv",
        checkpoint__init_from=old_checkpoint(rig),
    )


def test_a_metric_that_is_no_number_is_a_result_too(rig) -> None:
    async def story(rig) -> None:
        rig.world.results = lambda _: {"loss": None, "accuracy": 0.5}
        async with rig.serving():
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED
        assert math.isnan(report.metrics["loss"])
        assert report.metrics["accuracy"] == 0.5

    rig.run(story, data__validation="test.csv")


def test_a_report_that_the_master_stumbles_over_fails_the_job_with_a_word(rig) -> None:
    async def story(rig) -> None:
        rig.world.results = lambda _: {"loss": "many"}
        async with rig.serving():
            report = await rig.ended()
        assert report.status is JobState.FAILED
        assert "internal: " in report.message

    rig.run(story, data__validation="test.csv")


def test_a_checkpoint_that_is_not_there_ends_the_job_before_anything_starts(
    rig,
) -> None:
    async def story(rig) -> None:
        with pytest.raises(CheckpointError, match="no-such: got no such folder"):
            async with rig.serving():
                pass
        assert not rig.runner.launches

    rig.run(
        story,
        type="evaluate",
        data__validation="test.csv",
        checkpoint__init_from=str(rig.root / "no-such"),
    )


def test_a_predict_job_goes_through_every_record(rig) -> None:
    async def story(rig) -> None:
        async with rig.serving():
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED
        assert set(rig.world.types) == {TaskType.PREDICTION}
        assert report.records == 64
        assert report.predictions

    rig.run(
        story,
        type="predict",
        data__prediction="test.csv",
        checkpoint__init_from=old_checkpoint(rig),
    )


def test_strategy_local_goes_back_to_its_checkpoint_when_the_worker_is_lost(
    rig,
) -> None:
    async def story(rig) -> None:
        async with rig.serving() as master:
            await rig.until(lambda: len(rig.world.trained) >= 2)
            rig.world.go.clear()
            await rig.until(lambda: first_checkpoint(master))
            await rig.until(lambda: master.job.parts.holder.begun)
            rig.kill("worker-0")
            await rig.until(lambda: master.job.parts.ledger.rewinds == 1)
            rig.world.go.set()
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED
        assert rig.world.restored[-1][1].startswith(str(rig.job_dir.checkpoints_dir))
        assert report.records == 64
        assert audit(rig.job_dir.journal_dir).ok

    rig.run(story, strategy="local", worker__replicas=1, checkpoint__every_seconds=0)


# -- callbacks -------------------------------------------------------------------------


def test_early_stopping_ends_training_and_the_best_model_is_kept(rig) -> None:
    async def story(rig) -> None:
        rig.world.results = lambda n: {"accuracy": 0.5 if n > 1 else 0.8}
        rig.world.ready = {
            "callbacks_json": json.dumps(
                [
                    {
                        "class": "EarlyStopping",
                        "monitor": "val_accuracy",
                        "patience": 1,
                    },
                    {"class": "ModelCheckpoint", "monitor": "val_accuracy"},
                    {
                        "class": "ReduceLROnPlateau",
                        "monitor": "val_accuracy",
                        "patience": 1,
                        "factor": 0.5,
                    },
                ]
            )
        }
        async with rig.serving():
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED
        assert report.epochs < 1000
        assert "/out/best" in report.exports
        assert "/out/final" in report.exports
        assert 0.5 in rig.world.scales

    rig.run(
        story, data__validation="test.csv", training__epochs=100_000, export__dir="out"
    )


def test_the_last_model_is_written_when_the_best_one_lies_in_its_place(rig) -> None:
    """It removes what rounds of lost masters left aside: none is to be moved then."""
    moved, last = [], []

    async def before(task: Task) -> None:
        if task.type == TaskType.EXPORT and task.target == ExportTarget.FINAL:
            last.append((task.beside, list(moved)))
        elif task.move:
            await asyncio.sleep(0.05)
            moved.append(task.round)

    async def story(rig) -> None:
        rig.world.before = before
        rig.world.results = lambda n: {"accuracy": float(n)}
        checkpoint = {"class": "ModelCheckpoint", "monitor": "val_accuracy"}
        rig.world.ready = {"callbacks_json": json.dumps([checkpoint])}
        async with rig.serving():
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED
        ((newest, before_it),) = last
        assert before_it[-1] == newest

    rig.run(story, data__validation="test.csv", export__dir="out")


@pytest.mark.parametrize("interval", ["every_steps", "every_seconds"])
def test_an_interval_of_evaluations_without_records_for_them_is_told(rig, interval):
    async def story(rig) -> None:
        async with rig.serving():
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED
        assert "nothing is evaluated" in report.message
        assert "data.validation" in report.message

    rig.run(story, **{f"evaluation__{interval}": 3})
