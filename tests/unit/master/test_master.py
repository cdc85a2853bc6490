"""What a master does with a job: the real one, over gRPC, with scripted replicas."""

import asyncio
import json
import math
import os
from pathlib import Path

import pytest
from elasticdl.checkpoint import shelf, store
from elasticdl.checkpoint.layout import Manifest
from elasticdl.errors import CheckpointError, ExitCode, FencedError
from elasticdl.job.folder import in_force
from elasticdl.job.heartbeats import (
    ModelInfo,
    PsHeartbeat,
    PsReport,
    Registration,
    WorkerHeartbeat,
)
from elasticdl.job.names import Role
from elasticdl.job.status import JobReport, JobStatus
from elasticdl.job.tasks import (
    BadRecord,
    LeaseRequest,
    Outcome,
    Task,
    TaskReport,
    TaskType,
)
from elasticdl.job.values.file import edit_values
from elasticdl.job.words import ExitReason, JobState
from elasticdl.master.calls import leasing
from elasticdl.master.members import goodput
from elasticdl.master.tasks import facts
from elasticdl.master.tasks.audit import audit
from elasticdl.master.tasks.eta import Pace
from elasticdl.master.telling import status
from elasticdl.runner.base import ReplicaKey


def leases_known(rig) -> int:
    """Leases whose answers have arrived, so that they are in the journal."""
    return sum(len(replica.held) for replica in rig.replicas.values())


def two_leases(master) -> bool:
    queue = master.job.parts.ledger.queue
    return queue is not None and len(queue.leased) == 2


def live_workers(rig) -> list[int]:
    return rig.runner.running(Role.WORKER)


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


# -- losses ----------------------------------------------------------------------------


def test_a_killed_worker_is_replaced_by_the_next_index_and_counts_no_failure(
    rig,
) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving() as master:
            await rig.until(lambda: two_leases(master))
            rig.kill("worker-0")
            await rig.until(lambda: live_workers(rig) == [1, 2])
            rig.world.go.set()
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED
        assert [(r.replica, r.reason, r.replacement) for r in report.relaunches] == [
            ("worker-0", "killed", "worker-2")
        ]
        assert report.replayed_records == 8
        assert audit(rig.job_dir.journal_dir).ok

    rig.run(story, worker__max_restarts=0)


def test_the_only_worker_may_be_preempted_five_times_in_a_row(rig) -> None:
    """Defects D3 and D17: nothing is dropped and the job does not end in the gap."""

    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving():
            for index in range(5):
                key = ReplicaKey(Role.WORKER, index)
                await rig.until(
                    lambda key=key: key in rig.replicas and rig.replicas[key].held
                )
                rig.kill(f"worker-{index}", ExitReason.PREEMPTED)
            rig.world.go.set()
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED
        assert report.records == 64
        assert len(report.relaunches) == 5
        assert audit(rig.job_dir.journal_dir).ok

    rig.run(story, worker__replicas=1, worker__max_restarts=0)


def test_a_worker_that_is_taken_away_is_replaced_while_it_still_leaves(rig) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving() as master:
            await rig.until(lambda: two_leases(master))
            rig.runner.take_away(ReplicaKey(Role.WORKER, 0), ExitReason.PREEMPTED)
            await rig.until(lambda: 2 in live_workers(rig))
            rig.world.go.set()
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED
        assert [(r.replica, r.reason, r.replacement) for r in report.relaunches] == [
            ("worker-0", "preempted", "worker-2")
        ]
        assert audit(rig.job_dir.journal_dir).ok

    rig.run(story)


def test_a_silent_worker_is_killed_and_replaced(rig) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving() as master:
            await rig.until(lambda: two_leases(master))
            rig.world.mute.add("worker-1")
            await rig.until(lambda: live_workers(rig) == [0, 2])
            rig.world.go.set()
            report = await rig.ended()
        assert report.relaunches[0].reason == "silent"
        assert any(s.key.index == 1 and s.reason == "silent" for s in rig.runner.stops)
        assert report.status is JobState.SUCCEEDED

    rig.run(story, worker__dead_seconds=0.4, worker__heartbeat_seconds=0.1)


def test_a_hung_worker_is_killed_and_its_task_goes_to_another(rig) -> None:
    async def story(rig) -> None:
        rig.world.stuck.add("worker-0")
        async with rig.serving():
            report = await rig.ended()
        assert report.relaunches[0].reason == "hung"
        assert report.status is JobState.SUCCEEDED
        assert audit(rig.job_dir.journal_dir).ok

    rig.run(story)


def test_a_missed_deletion_is_found_by_the_next_list(rig) -> None:
    """Defect D14: no ghost worker stays."""

    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving() as master:
            await rig.until(lambda: two_leases(master))
            rig.replicas[ReplicaKey(Role.WORKER, 0)].kill()
            rig.runner.vanish(ReplicaKey(Role.WORKER, 0))
            rig.runner.list_again()
            await rig.until(lambda: live_workers(rig) == [1, 2])
            rig.world.go.set()
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED

    rig.run(story)


def test_crashes_of_user_code_beyond_the_budget_fail_the_job_with_the_traceback(
    rig,
) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving():
            for index in range(2):
                name = f"worker-{index}"
                await rig.until(lambda index=index: index in live_workers(rig))
                rig.kill(
                    name, ExitReason.ERROR, exit_code=1, message="ValueError: boom"
                )
            report = await rig.ended()
        assert report.status is JobState.FAILED
        assert "boom" in report.message
        assert "maxRestarts" in report.message
        assert rig.running.result().exit_code is ExitCode.JOB_FAILED
        assert not live_workers(rig)

    rig.run(story, worker__replicas=1, worker__max_restarts=1)


def test_a_wrong_model_module_fails_the_job_at_once(rig) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving():
            await rig.until(lambda: 0 in live_workers(rig))
            rig.kill(
                "worker-0",
                ExitReason.ERROR,
                exit_code=int(ExitCode.USER_CODE),
                message="zoo/m.py:3: no function f",
            )
            report = await rig.ended()
        assert report.status is JobState.FAILED
        assert "zoo/m.py:3: no function f" in report.message
        assert rig.running.result().exit_code is ExitCode.USER_CODE

    rig.run(story)


def test_a_task_that_keeps_failing_fails_the_job_with_its_error(rig) -> None:
    async def story(rig) -> None:
        rig.world.fail = lambda task: "Traceback\nValueError: bad loss"
        async with rig.serving():
            report = await rig.ended()
        assert report.status is JobState.FAILED
        first = report.message.splitlines()[0]
        assert "failed 3 times" in first
        assert first.endswith("ValueError: bad loss")

    rig.run(story, worker__replicas=1, training__batches_per_task=1000)


def test_a_fatal_failure_is_not_tried_again(rig) -> None:
    async def story(rig) -> None:
        rig.world.fail = lambda task: "fatal: the loss is NaN"
        async with rig.serving():
            report = await rig.ended()
        assert report.status is JobState.FAILED
        assert "the loss is NaN" in report.message
        assert "times" not in report.message
        assert rig.running.result().exit_code is ExitCode.JOB_FAILED

    rig.run(story)


def test_a_failure_by_bad_data_gives_the_job_the_exit_code_of_data(rig) -> None:
    async def story(rig) -> None:
        rig.world.fail = lambda task: "fatal: data/train: record 7: bad checksum"
        async with rig.serving():
            report = await rig.ended()
        assert report.message.endswith("data/train: record 7: bad checksum")
        assert rig.running.result().exit_code is ExitCode.DATA

    rig.run(story)


# -- PS --------------------------------------------------------------------------------


def first_checkpoint(master) -> bool:
    return master.job.parts.keeper.newest is not None


def test_a_lost_ps_comes_back_under_its_index_and_restores_its_shard(rig) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving() as master:
            await rig.until(lambda: first_checkpoint(master))
            rig.world.version = 6
            await rig.until(lambda: master.job.version == 6)
            master.job.parts.keeper.ask("test", now=master.job.clock())
            await rig.until(
                lambda: master.job.parts.keeper.newest.manifest.version == 6
            )
            rig.world.version = 9
            ps = master.job.parts.holder
            await rig.until(lambda: ps._versions == {0: 9, 1: 9})
            view = ps.view()
            rig.kill("ps-1")
            await rig.until(lambda: ps.view().addresses[1] == "")
            await rig.until(lambda: ps.view().addresses[1] != "")
            assert ps.view().generations[1] > view.generations[1]
            assert ps.view().rewind == 0
            rig.world.go.set()
            report = await rig.ended()
        assert report.lost_updates == 3
        assert rig.world.restored[-1][:2] == (
            "ps-1",
            str(rig.job_dir.checkpoints_dir / "version-6"),
        )
        assert report.relaunches[0].replacement == "ps-1"
        assert report.relaunches[0].seconds is not None
        assert report.replayed_records == 0

    rig.run(story, checkpoint__every_seconds=0)


def test_without_a_checkpoint_past_version_0_workers_hand_values_back(rig) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        rig.world.pulled = 0
        async with rig.serving() as master:
            await rig.until(lambda: first_checkpoint(master))
            rig.kill("ps-1")
            await rig.until(lambda: rig.world.restored[-1] == ("ps-1", "", True))
            rig.world.go.set()
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED

    rig.run(story, checkpoint__every_seconds=0)


def test_in_sync_mode_a_lost_ps_takes_all_back_to_the_checkpoint(rig) -> None:
    async def story(rig) -> None:
        async with rig.serving() as master:
            await rig.until(lambda: len(rig.world.trained) >= 3)
            rig.world.go.clear()
            await rig.until(lambda: first_checkpoint(master))
            done = master.job.parts.ledger.queue.done_records
            back_to = master.job.parts.keeper.newest.manifest
            assert back_to.position["queue"]["done_records"] <= done
            rig.kill("ps-1")
            await rig.until(lambda: rig.world.rewinds == [1])
            await rig.until(lambda: not master.job.parts.holder.rewinding)
            assert master.job.parts.holder.view().rewind == 1
            rig.world.go.set()
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED
        assert report.rewinds == 1
        assert report.records == 64
        assert audit(rig.job_dir.journal_dir).ok

    rig.run(story, ps__mode="sync", checkpoint__every_seconds=0)


def test_when_all_ps_are_lost_training_goes_back_in_async_mode_too(rig) -> None:
    async def story(rig) -> None:
        async with rig.serving() as master:
            await rig.until(lambda: len(rig.world.trained) >= 3)
            rig.world.go.clear()
            await rig.until(lambda: first_checkpoint(master))
            rig.kill("ps-0")
            rig.kill("ps-1")
            await rig.until(lambda: master.job.parts.ledger.rewinds == 1)
            await rig.until(lambda: not master.job.parts.holder.rewinding)
            rig.world.go.set()
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED
        assert report.rewinds == 1
        assert audit(rig.job_dir.journal_dir).ok

    rig.run(story, checkpoint__every_seconds=0)


async def two_checkpoints(rig, master) -> tuple[str, str]:
    """Let the job make a second checkpoint beyond the first; their folders."""
    keeper = master.job.parts.keeper

    async def stop_after_two(task) -> None:
        if len(rig.world.trained) == 2:
            rig.world.go.clear()

    rig.world.before = stop_after_two
    await rig.until(lambda: first_checkpoint(master))
    first = keeper.newest.dir
    await rig.until(lambda: not rig.world.go.is_set())
    rig.world.before = None
    keeper.ask("a test", now=master.job.clock())
    await rig.until(lambda: keeper.newest.dir != first)
    return first, keeper.newest.dir


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_a_damaged_newest_checkpoint_falls_back_to_the_next_one_while_running(
    rig, mode
) -> None:
    async def story(rig) -> None:
        async with rig.serving() as master:
            first, newest = await two_checkpoints(rig, master)
            rig.world.damaged.add(newest)
            rig.kill("ps-0")
            await rig.until(lambda: master.job.parts.keeper.gave_up(newest))
            await rig.until(lambda: not master.job.parts.holder.rewinding)
            assert rig.world.rewinds
            assert master.job.parts.holder.rewind_dir == first
            rig.world.go.set()
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED
        assert report.rewinds == len(set(rig.world.rewinds))
        assert report.records == 64
        assert audit(rig.job_dir.journal_dir).ok
        # Nobody takes the damaged one, or what else is left of the old course.
        assert str(shelf.resolve(rig.job_dir.checkpoints_dir)[0]) == report.checkpoint

    rig.run(story, ps__mode=mode, checkpoint__every_seconds=0)


def test_when_no_checkpoint_can_be_loaded_the_job_fails_and_begins_no_new_course(
    rig,
) -> None:
    async def story(rig) -> None:
        async with rig.serving() as master:
            rig.world.damaged |= set(await two_checkpoints(rig, master))
            rig.kill("ps-0")
            report = await rig.ended()
            assert rig.running.result().exit_code is ExitCode.STORAGE
        assert report.status is JobState.FAILED
        assert "no checkpoint of this job can be loaded" in report.message
        assert "--restart" in report.message

    rig.run(story, ps__mode="sync", checkpoint__every_seconds=0)


def test_a_job_refuses_to_begin_where_others_have_their_checkpoints(rig) -> None:
    async def story(rig) -> None:
        with pytest.raises(CheckpointError, match=r"checkpoint\.dir.*initFrom"):
            async with rig.serving():
                pass
        assert not rig.runner.launches

    rig.run(story, checkpoint__dir=str(Path(old_checkpoint(rig)).parent))


def test_the_quorum_is_the_number_of_workers_that_hold_training_tasks(rig) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving():
            await rig.until(lambda: 3 in rig.world.quorums)
            rig.kill("worker-0")
            await rig.until(lambda: rig.world.quorums[-1] == 2)
            await rig.until(lambda: rig.world.quorums[-1] == 3)
            rig.world.go.set()
            await rig.ended()

    rig.run(story, ps__mode="sync", worker__replicas=3)


def test_a_worker_between_two_tasks_counts_for_the_quorum(rig) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving():
            await rig.until(lambda: rig.world.quorums[-1:] == [2])
            del rig.world.quorums[:]
            rig.world.go.set()
            await rig.ended()
        fell = rig.world.quorums.index(1) if 1 in rig.world.quorums else None
        # At the very end one is left without a task; it never gets one again.
        assert fell is None or 2 not in rig.world.quorums[fell:]

    rig.run(
        story,
        ps__mode="sync",
        training__epochs=20,
        training__batches_per_task=1,
        evaluation__at_epoch_end=False,
    )


def test_backup_workers_do_not_raise_the_quorum(rig) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving() as master:
            await rig.until(
                lambda: (
                    master.job.parts.ledger.queue is not None
                    and len(master.job.parts.ledger.queue.leased) == 3
                )
            )
            await rig.until(lambda: rig.world.quorums[-1] == 2)
            rig.world.go.set()
            await rig.ended()
        assert 3 not in rig.world.quorums

    rig.run(story, ps__mode="sync", ps__grads_to_wait=2, worker__replicas=3)


# -- restarts of the master ------------------------------------------------------------


def test_a_restarted_master_adopts_replicas_and_keeps_their_leases(rig) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving() as master:
            await rig.until(lambda: leases_known(rig) == 2)
            held = set(master.job.parts.ledger.queue.leased)
            revision = master.job.parts.signals.revision
        async with rig.serving() as master:
            assert set(master.job.parts.ledger.queue.leased) == held
            assert master.job.parts.signals.revision > revision
            rig.world.go.set()
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED
        assert report.master_restarts == 1
        assert report.replayed_records == 0
        assert not report.relaunches
        assert len(rig.runner.launches) == 4
        assert audit(rig.job_dir.journal_dir).ok

    rig.run(story)


def test_leases_outlive_the_time_without_a_master_however_long_it_was(rig) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving():
            await rig.until(lambda: leases_known(rig) == 2)
        rig.clock_ahead = 3600.0
        async with rig.serving() as master:
            await rig.until(lambda: not master.job.parts.table.settling)
            rig.world.go.set()
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED
        assert report.replayed_records == 0

    rig.run(story, tasks__lease_seconds=600.0)


def test_a_worker_that_ends_while_there_is_no_master_keeps_its_goodput(
    rig, monkeypatch
) -> None:
    """Each worker says 2 s of training; none are lost, or counted twice."""
    monkeypatch.setattr(goodput, "_NOTE_SECONDS", 0.0)
    monkeypatch.setattr(goodput, "_NOTE_SECONDS_PER_WORKER", 0.0)

    def trained(master) -> float:
        return master.job.parts.goodput.seconds(now=master.job.clock())["train"]

    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving() as master:
            await rig.until(lambda: two_leases(master))
            rig.kill("worker-0")
            await rig.until(lambda: live_workers(rig) == [1, 2])
            await rig.until(lambda: trained(master) == 6.0)
        rig.kill("worker-1")
        async with rig.serving() as master:
            await rig.until(lambda: live_workers(rig) == [2, 3])
            await rig.until(lambda: trained(master) == 8.0)
            rig.world.go.set()
            report = await rig.ended()
        assert report.goodput_seconds["train"] == 8.0

    rig.run(story)


def test_a_master_that_leaves_its_pod_hands_the_job_over_as_it_is(rig) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving() as master:
            await rig.until(lambda: leases_known(rig) == 2)
            held = set(master.job.parts.ledger.queue.leased)
            master.loop.hand_over()
            async with asyncio.timeout(20):
                assert await rig.running is None
        assert not rig.job_dir.report_file.exists()
        assert not rig.runner.stops
        async with rig.serving() as master:
            assert set(master.job.parts.ledger.queue.leased) == held
            rig.world.go.set()
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED
        assert (report.master_restarts, report.replayed_records) == (1, 0)
        assert not report.relaunches

    rig.run(story)


def test_a_master_that_is_ending_its_job_ends_it_before_it_leaves(rig) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving() as master:
            await rig.until(lambda: leases_known(rig) == 2)
            master.job.end(JobState.STOPPED, "by the test", ExitCode.STOPPED)
            master.loop.hand_over()
            report = await rig.ended()
        assert report.status is JobState.STOPPED

    rig.run(story)


@pytest.mark.parametrize("reported", [True, False])
def test_a_job_that_ended_is_not_begun_again_by_the_next_master(rig, reported) -> None:
    async def story(rig) -> None:
        async with rig.serving() as master:
            master.job.end(JobState.FAILED, "no such file", ExitCode.DATA)
            before = await rig.ended()
        launches = len(rig.runner.launches)
        if not reported:  # it was killed before it wrote its report
            rig.job_dir.report_file.unlink()
        async with rig.serving():
            report = await rig.ended()
            ending = rig.running.result()
        assert (ending.state, ending.exit_code) == (JobState.FAILED, ExitCode.DATA)
        assert report.message == "no such file"
        assert (report == before) is reported
        assert len(rig.runner.launches) == launches

    rig.run(story)


def test_a_refused_edit_does_not_reach_replicas_that_start_later(rig) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving():
            await rig.until(lambda: live_workers(rig) == [0, 1])
            edit_values(
                rig.job_dir.spec_file,
                {"job.worker.replicas": 3, "job.training.batchSize": 7},
            )
            await rig.until(lambda: live_workers(rig) == [0, 1, 2])
            spec = in_force(rig.job_dir)
            assert spec.worker.replicas == 3
            assert spec.training.batch_size != 7
            rig.job_dir.spec_file.write_text("kind: job\njob: {workers: 3}\n")
            assert in_force(rig.job_dir) == spec
            rig.world.go.set()
            await rig.ended()

    rig.run(story)


def test_a_job_begun_anew_takes_the_file_as_it_is_and_mourns_nobody(rig) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving():
            await rig.until(lambda: leases_known(rig) == 2)
        for key in list(rig.replicas):
            rig.replicas[key].kill()
            rig.runner.vanish(key)
        rig.configure(checkpoint__keep=7, ps__replicas=1)
        rig.world.go.set()
        await asyncio.sleep(1.0)  # the machine is off: no time of the job's
        async with rig.serving(launched=True) as master:
            (_, run) = master.job.parts.ledger.all_of(facts.RunFact)
            assert run.time - run.before >= master.job.started + 0.9
            assert master.job.spec.checkpoint.keep == 7
            assert not master.job.parts.ledger.queue.leased
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED
        assert not report.relaunches
        assert report.master_restarts == 0
        assert audit(rig.job_dir.journal_dir).ok

    rig.run(story)


def test_a_worker_lost_while_no_master_ran_is_replaced(rig) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving():
            await rig.until(lambda: leases_known(rig) == 2)
        rig.replicas[ReplicaKey(Role.WORKER, 1)].kill()
        rig.runner.vanish(ReplicaKey(Role.WORKER, 1))
        async with rig.serving():
            await rig.until(lambda: live_workers(rig) == [0, 2])
            rig.world.go.set()
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED
        assert audit(rig.job_dir.journal_dir).ok

    rig.run(story)


def test_a_stopped_job_resumes_from_its_checkpoint_in_the_middle_of_an_epoch(
    rig,
) -> None:
    async def story(rig) -> None:
        async with rig.serving() as master:
            await rig.until(lambda: len(rig.world.trained) >= 4)
            rig.world.go.clear()
            master.job.end(JobState.STOPPED, "by the test", ExitCode.STOPPED)
            report = await rig.ended()
            assert rig.running.result().exit_code is ExitCode.STOPPED
        assert report.status is JobState.STOPPED
        first = report.records
        assert 0 < first < 64
        rig.world.go.set()
        rig.runner.states.clear()
        async with rig.serving(launched=True):
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED
        assert report.records == 64
        assert report.rewinds == 1
        assert sum(end - start for *_, start, end in rig.world.trained) == 64
        assert audit(rig.job_dir.journal_dir).ok

    rig.run(story)


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


def old_checkpoint(rig) -> str:
    """A checkpoint of version 400; nobody here looks into its shard."""
    place = rig.root / "version-400"
    place.mkdir()
    shard = store.write_shard(place, 0, 1, {}, {"version": 400})
    manifest = Manifest(job="j", strategy="local", version=400, shards=[shard])
    store.write_manifest(place, manifest)
    return str(place)


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


# -- calls that go wrong ---------------------------------------------------------------


def test_a_replica_of_an_old_generation_is_fenced(rig) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving() as master:
            await rig.until(lambda: two_leases(master))
            old = rig.replicas[ReplicaKey(Role.WORKER, 0)]
            rig.kill("worker-0")
            await rig.until(lambda: live_workers(rig) == [1, 2])
            for method, request in (
                (old.client.register, Registration()),
                (old.client.lease, LeaseRequest(want=1)),
                (old.client.worker_sync, WorkerHeartbeat()),
                (old.client.model_ready, ModelInfo()),
            ):
                with pytest.raises(FencedError, match="it was replaced"):
                    await old.call(method, request)
            rig.world.go.set()
            await rig.ended()

    rig.run(story)


def test_a_repeated_report_gets_the_same_answer_and_counts_once(rig) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving() as master:
            await rig.until(lambda: leases_known(rig) == 2)
            some = rig.replicas[ReplicaKey(Role.WORKER, 0)]
            some.kill()
            lease_id = next(iter(some.held))
            report = TaskReport(lease_id=lease_id, outcome=Outcome.DONE)
            for _ in range(3):
                reply = await some.call(
                    some.client.lease, LeaseRequest(reports=[report])
                )
                assert [r.accepted for r in reply.results] == [True]
            assert master.job.parts.ledger.queue.done_tasks == 1
            rig.kill("worker-0")
            rig.world.go.set()
            report = await rig.ended()
        assert report.records == 64

    rig.run(story)


def test_a_lease_whose_answer_got_lost_goes_back(rig, monkeypatch) -> None:
    monkeypatch.setattr(leasing, "UNNAMED_SECONDS", 0.2)

    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving() as master:
            await rig.until(lambda: leases_known(rig) == 2)
            some = rig.replicas[ReplicaKey(Role.WORKER, 0)]
            # Asked for by a call whose answer this worker never sees.
            await some.call(some.client.lease, LeaseRequest(want=1))
            assert len(master.job.parts.ledger.queue.leased) == 3
            await rig.until(lambda: two_leases(master))
            rig.world.go.set()
            report = await rig.ended()
        assert report.records == 64
        assert report.replayed_records == 0

    rig.run(story)


def test_a_platform_that_refuses_is_asked_again(rig) -> None:
    async def story(rig) -> None:
        rig.runner.refuse = "not now"
        async with rig.serving() as master:
            await rig.until(
                lambda: (
                    all(m.launch_at > m.since for m in master.job.parts.table.workers())
                    and bool(master.job.parts.table.workers())
                )
            )
            rig.runner.refuse = ""
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED

    rig.run(story)


def test_a_platform_that_refuses_the_first_replicas_fails_the_job_at_once(rig) -> None:
    async def story(rig) -> None:
        rig.runner.refuse_check = "exceeded quota: cpu"
        async with rig.serving():
            report = await rig.ended()
        assert report.status is JobState.FAILED
        assert report.message == "exceeded quota: cpu"
        assert rig.runner.launches == []
        tried = [(one.key.role, one.key.index) for one in rig.runner.checked]
        assert sorted(tried) == [(Role.PS, 0), (Role.WORKER, 0)]
        assert rig.running.result().exit_code is ExitCode.PLATFORM

    rig.run(story)


def test_a_restarted_master_tries_nothing_that_runs_already(rig) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving():
            await rig.until(lambda: len(live_workers(rig)) == 2)
        rig.runner.refuse_check = "exceeded quota: by the replicas of this job"
        rig.world.go.set()
        async with rig.serving():
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED

    rig.run(story)


def test_what_happens_is_published_while_it_happens_and_at_the_end(rig) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving() as master:
            await rig.until(lambda: len(live_workers(rig)) == 2)
            rig.runner.end(ReplicaKey(Role.WORKER, 0), ExitReason.PREEMPTED)
            await rig.until(lambda: 2 in live_workers(rig))
            master.loop.edit(rig.values.job.model_copy(update={"name": "another-name"}))
            rig.world.go.set()
            report = await rig.ended()
        shown = JobStatus.model_validate_json(rig.publisher.shown)
        assert shown.state is JobState.SUCCEEDED
        assert [r.replica for r in shown.relaunches] == ["worker-0"]
        assert JobReport.model_validate_json(rig.publisher.report) == report
        told = {notice.reason: notice for notice in rig.publisher.notices}
        assert told["ReplicaPreempted"].message == (
            "worker-0 ended: preempted; replaced by worker-2"
        )
        assert not told["ReplicaPreempted"].warning
        assert "name: " in told["EditRefused"].message
        assert told["JobSucceeded"].message.startswith("job ")
        assert list(told)[-1] == "JobSucceeded"

    rig.run(story)


def test_of_an_edit_that_comes_when_the_job_is_over_nothing_is_taken(rig) -> None:
    async def story(rig) -> None:
        async with rig.serving() as master:
            report = await rig.ended()
            before = master.job.spec
            training = before.training.model_copy(update={"epochs": 2})
            master.loop.edit(before.model_copy(update={"training": training}))
            assert master.job.spec == before
            assert master.job.parts.ledger.plan.epochs == 1
            (refused,) = master.job.parts.signals.diary.take()
        assert report.status is JobState.SUCCEEDED
        told = "refused: training.epochs: 1 -> 2, for the job is over"
        assert refused.text.startswith(told)

    rig.run(story)


def test_pending_workers_do_not_block_the_job_and_their_time_is_counted(rig) -> None:
    async def story(rig) -> None:
        rig.runner.hold = True
        async with rig.serving() as master:
            await rig.until(
                lambda: (
                    len(master.job.parts.table.workers()) == 2
                    and all(
                        w.reason == "no room" for w in master.job.parts.table.workers()
                    )
                )
            )
            rig.runner.release()
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED
        assert "pending" in report.goodput_seconds

    rig.run(story)


def test_bad_records_and_skipped_batches_reach_the_report(rig) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving():
            await rig.until(lambda: leases_known(rig) == 2)
            some = rig.replicas[ReplicaKey(Role.WORKER, 0)]
            report = TaskReport(
                lease_id=next(iter(some.held)),
                outcome=Outcome.DONE,
                skipped_batches=2,
                bad_records=[BadRecord(source="train.csv", record=3, reason="torn")],
            )
            await some.call(some.client.lease, LeaseRequest(reports=[report]))
            rig.world.go.set()
            report = await rig.ended()
        assert report.bad_records == [
            {"source": "train.csv", "record": 3, "reason": "torn"}
        ]
        assert report.skipped_batches == 2

    rig.run(story)


def test_a_finished_job_is_not_run_again(rig) -> None:
    async def story(rig) -> None:
        async with rig.serving():
            await rig.ended()
        trained = list(rig.world.trained)
        async with rig.serving():
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED
        assert rig.world.trained == trained

    rig.run(story)


def test_a_ps_that_cannot_go_on_fails_the_job(rig) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving() as master:
            await rig.until(lambda: two_leases(master))
            ps = rig.replicas[ReplicaKey(Role.PS, 0)]
            status = PsReport(error="optimizer Foo cannot be run")
            await ps.call(ps.client.ps_sync, PsHeartbeat(status=status))
            report = await rig.ended()
        assert report.status is JobState.FAILED
        assert "optimizer Foo" in report.message

    rig.run(story)


def test_evaluation_by_steps_survives_the_loss_of_a_ps(rig) -> None:
    async def story(rig) -> None:
        async with rig.serving() as master:
            await rig.until(lambda: master.job.parts.rounds.last is not None)
            rig.kill("ps-0")
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED
        assert "steps" in {e.why for e in report.evaluations}
        # A round of the final version needs no other one.
        assert report.evaluations[-1].version == report.version
        assert audit(rig.job_dir.journal_dir).ok

    rig.run(
        story,
        data__validation="test.csv",
        evaluation__every_steps=4,
        training__epochs=4,
        checkpoint__every_seconds=0,
    )


def test_evaluation_by_time_is_due_without_any_other_event(rig) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving() as master:
            await rig.until(lambda: master.job.parts.rounds.current is not None)
            assert master.job.parts.rounds.current.why == "time"
            rig.world.go.set()
            await rig.ended()

    rig.run(
        story,
        data__validation="test.csv",
        evaluation__every_seconds=0.2,
        worker__replicas=3,
    )


# -- the journal's disk -------------------------------------------------------------


def fill_disk(master) -> int:
    """Let the journal meet a full disk; return a descriptor of the real file."""
    journal = master.job.parts.ledger._journal
    kept = os.dup(journal._fd)
    full = os.open("/dev/full", os.O_RDWR)
    os.dup2(full, journal._fd)
    os.close(full)
    return kept


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has /dev/full")
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
            os.dup2(kept, ledger._journal._fd)
            os.close(kept)
            report = await rig.ended()
        assert done < 8
        assert "cannot write the journal" in said
        assert "goes on by itself once there is room" in said
        assert "fails after 30 s" in said
        assert not ledger.trouble
        assert report.status is JobState.SUCCEEDED
        assert audit(rig.job_dir.journal_dir).ok

    rig.run(story, journal_wait=30.0)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has /dev/full")
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


def test_a_master_restarted_while_it_finishes_finishes(rig) -> None:
    async def story(rig) -> None:
        export_may_end = asyncio.Event()

        async def before(task: Task) -> None:
            if task.type == TaskType.EXPORT:
                await export_may_end.wait()

        rig.world.before = before
        async with rig.serving() as master:
            await rig.until(lambda: TaskType.EXPORT in rig.world.types)
            assert master.job.state is JobState.FINISHING
        export_may_end.set()
        async with rig.serving():
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED
        assert report.exports == ["/out/final"]
        assert len(report.evaluations) == 1

    rig.run(story, data__validation="test.csv", export__dir="out")
