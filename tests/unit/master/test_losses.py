"""What a master does when it loses workers or PS."""

from pathlib import Path

import pytest
from elasticdl.checkpoint import shelf
from elasticdl.errors import CheckpointError, ExitCode
from elasticdl.job.names import Role
from elasticdl.job.words import ExitReason, JobState
from elasticdl.master.calls.heartbeats import fall_back
from elasticdl.master.tasks.audit import audit
from elasticdl.master.tasks.kills import LEAST_KILLS
from elasticdl.runner.base import ReplicaKey

from tests.unit.master.looks import (
    first_checkpoint,
    live_workers,
    old_checkpoint,
    two_leases,
)

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


@pytest.mark.parametrize("reason", [ExitReason.KILLED, ExitReason.PREEMPTED])
def test_a_task_at_which_ten_workers_in_a_row_are_killed_fails_the_job(
    rig, reason
) -> None:
    """A record that ends its process by a signal would meet each worker for ever."""

    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving() as master:
            for index in range(LEAST_KILLS):
                key = ReplicaKey(Role.WORKER, index)
                await rig.until(
                    lambda key=key: key in rig.replicas and rig.replicas[key].held
                )
                assert master.job.ending is None
                rig.kill(f"worker-{index}", reason)
            rig.world.go.set()
            report = await rig.ended()
        if reason is ExitReason.PREEMPTED:
            assert report.status is JobState.SUCCEEDED
            return
        assert report.status is JobState.FAILED
        assert "10 workers in a row were killed with" in report.message
        assert "records 0 to 8" in report.message

    rig.run(story, worker__replicas=1)


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


def test_a_lost_ps_comes_back_under_its_index_and_restores_its_shard(rig) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving() as master:
            await rig.until(lambda: first_checkpoint(master))
            rig.world.version = 6
            await rig.until(lambda: master.job.version == 6)
            master.job.parts.checkpoints.ask("test", now=master.job.clock())
            await rig.until(
                lambda: master.job.parts.checkpoints.newest.manifest.version == 6
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
            back_to = master.job.parts.checkpoints.newest.manifest
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
    checkpoints = master.job.parts.checkpoints

    async def stop_after_two(task) -> None:
        if len(rig.world.trained) == 2:
            rig.world.go.clear()

    rig.world.before = stop_after_two
    await rig.until(lambda: first_checkpoint(master))
    first = checkpoints.newest.dir
    await rig.until(lambda: not rig.world.go.is_set())
    rig.world.before = None
    checkpoints.ask("a test", now=master.job.clock())
    await rig.until(lambda: checkpoints.newest.dir != first)
    return first, checkpoints.newest.dir


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_a_damaged_newest_checkpoint_falls_back_to_the_next_one_while_running(
    rig, mode
) -> None:
    async def story(rig) -> None:
        async with rig.serving() as master:
            first, newest = await two_checkpoints(rig, master)
            rig.world.damaged.add(newest)
            rig.kill("ps-0")
            await rig.until(lambda: master.job.parts.checkpoints.gave_up(newest))
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


def test_what_a_ps_could_not_load_before_a_master_ended_is_no_loss_to_the_next_one(
    rig,
) -> None:
    async def story(rig) -> None:
        async with rig.serving() as master:
            _, newest = await two_checkpoints(rig, master)
            rig.world.damaged.add(newest)
            rig.kill("ps-0")
            await rig.until(lambda: master.job.parts.checkpoints.gave_up(newest))
            await rig.until(lambda: not master.job.parts.holder.rewinding)
            rewinds = master.job.parts.ledger.rewinds
        async with rig.serving() as master:
            job = master.job
            (ps, *_) = [one for one in job.parts.table.ps() if one is not None]
            # Its report was on its way when the master that knew of it was killed.
            fall_back(job, ps, newest, "damaged", now=job.clock())
            assert job.parts.ledger.rewinds == rewinds
            rig.world.go.set()
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED
        assert report.rewinds == rewinds

    rig.run(story, checkpoint__every_seconds=0)


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
