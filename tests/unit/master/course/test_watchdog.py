"""The watchdog: what moves, what may stand still, and how the rest ends."""

from dataclasses import replace

import pytest
from elasticdl.checkpoint import store
from elasticdl.checkpoint.layout import Manifest
from elasticdl.errors import ExitCode
from elasticdl.job.names import Role
from elasticdl.job.spec.job import JobSpec
from elasticdl.job.words import JobState
from elasticdl.master.calls.lost_leases import most_deaths
from elasticdl.master.course import watchdog
from elasticdl.master.course.watchdog import (
    STILL_STARTS,
    Look,
    Verdict,
    WatchedProgress,
    judge,
    look_at,
)
from elasticdl.master.tasks import model_facts
from elasticdl.master.tasks.audit import audit

LOOK = Look(moved=(1,), bound=600.0, waits_for="a PS", can_go_back=True)
SINCE = WatchedProgress(moved=(1,), since=100.0)


def test_what_moves_is_left_alone_however_long_the_job_lasts() -> None:
    watch = WatchedProgress(moved=(0,), since=0.0)
    for turn in range(1, 10):
        look = replace(LOOK, moved=(turn,))
        watch, verdict = judge(watch, look, now=turn * 599.0)
        assert verdict is Verdict.WAIT


def test_what_is_held_may_stand_still_for_ever_and_then_has_the_whole_bound() -> None:
    held = replace(LOOK, held="the job is paused")
    watch, verdict = judge(SINCE, held, now=1e6)
    assert verdict is Verdict.WAIT
    watch, verdict = judge(watch, LOOK, now=1e6 + 599.0)
    assert verdict is Verdict.WAIT
    watch, verdict = judge(watch, LOOK, now=1e6 + 600.0)
    assert verdict is Verdict.GO_BACK


def test_nothing_that_moves_goes_back_once_and_then_ends() -> None:
    watch, verdict = judge(SINCE, LOOK, now=699.0)
    assert verdict is Verdict.WAIT
    watch, verdict = judge(watch, LOOK, now=700.0)
    assert verdict is Verdict.GO_BACK
    watch, verdict = judge(watch, LOOK, now=1299.0)
    assert verdict is Verdict.WAIT
    watch, verdict = judge(watch, LOOK, now=1300.0)
    assert verdict is Verdict.END


def test_what_got_further_after_going_back_may_go_back_again() -> None:
    watch, _ = judge(SINCE, replace(LOOK, reached=(8,)), now=700.0)
    moved = replace(LOOK, moved=(2,), reached=(9,))
    watch, verdict = judge(watch, moved, now=800.0)
    assert verdict is Verdict.WAIT
    watch, verdict = judge(watch, moved, now=1400.0)
    assert verdict is Verdict.GO_BACK


@pytest.mark.parametrize("reached", [(0,), (7,), (8,)])
def test_what_stands_still_again_before_it_got_further_ends(reached) -> None:
    watch, verdict = judge(SINCE, replace(LOOK, reached=(8,)), now=700.0)
    assert verdict is Verdict.GO_BACK
    again = replace(LOOK, moved=(2,), reached=reached)
    watch, verdict = judge(watch, again, now=800.0)
    assert verdict is Verdict.WAIT
    watch, verdict = judge(watch, again, now=1399.0)
    assert verdict is Verdict.WAIT
    _, verdict = judge(watch, again, now=1400.0)
    assert verdict is Verdict.END


def test_a_job_that_cannot_go_back_ends() -> None:
    _, verdict = judge(SINCE, replace(LOOK, can_go_back=False), now=700.0)
    assert verdict is Verdict.END


def test_a_task_that_no_worker_brings_on_is_named_and_ends_the_job(rig) -> None:
    async def let_time_pass(rig, master) -> None:
        watchdog = master.loop._watchdog
        parts = master.job.parts
        await rig.until(
            lambda: len(parts.ledger.queue.leased) == 2 or rig.world.rewinds
        )
        await rig.until(lambda: watchdog._watch.moved == look_at(master.job).moved)
        watchdog._watch = replace(watchdog._watch, since=0.0)
        watchdog._looked = 0.0
        master.job.parts.signals.wake()

    async def story(rig) -> None:
        rig.world.go.clear()  # heartbeats go on, and no step is made
        async with rig.serving() as master:
            parts = master.job.parts
            await rig.until(lambda: parts.checkpoints.newest is not None)
            await let_time_pass(rig, master)
            await rig.until(lambda: parts.ledger.rewinds == 1)
            await rig.until(lambda: not parts.holder.rewinding)
            cause = parts.ledger.newest_of(model_facts.RewindFact).cause
            assert cause.startswith("nothing has moved for 20 s: worker-")
            assert cause.endswith("train.csv records 0 to 8 and makes no step")
            await let_time_pass(rig, master)
            report = await rig.ended()
        assert report.status is JobState.FAILED
        assert "nothing has moved for 20 s: no worker asks" in report.message
        assert "launched again" in report.message

    rig.run(story, checkpoint__every_seconds=0)


@pytest.mark.parametrize("paused", [False, True])
def test_a_paused_job_is_held_and_a_training_one_is_not(rig, paused) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving() as master:
            state = JobState.PAUSED if paused else JobState.RUNNING
            await rig.until(lambda: master.job.state is state)
            await rig.until(
                lambda: any(
                    m.ready and m.alive for m in master.job.parts.table.workers()
                )
            )
            await rig.until(lambda: master.job.parts.holder.initialized)
            assert look_at(master.job).held == ("the job is paused" if paused else "")

    rig.run(story, paused=paused)


def pass_the_bound(master) -> None:
    """Make the watchdog believe that nothing has moved for its whole bound."""
    watchdog = master.loop._watchdog
    watchdog._watch = replace(watchdog._watch, since=0.0)
    watchdog._looked = 0.0
    master.job.parts.signals.wake()


def stands_still(master) -> bool:
    """Whether the last evaluation waits, and the watchdog has seen all that moved."""
    job, parts = master.job, master.job.parts
    moved = look_at(job).moved == master.loop._watchdog._watch.moved
    waits = parts.rounds.current is not None and not parts.rounds.current.started
    at_rest = parts.holder.initialized and not (
        parts.holder.rewinding or parts.checkpoints.busy
    )
    return job.state is JobState.FINISHING and moved and waits and at_rest


@pytest.mark.parametrize("old_problem", [False, True])
def test_a_last_evaluation_that_never_begins_ends_the_job_after_one_rewind(
    rig, old_problem
) -> None:
    """Batches that are trained again are no progress, nor is an old full disk one."""

    async def story(rig) -> None:
        rig.world.disk_full = old_problem
        rig.world.pins_for_evaluation = False
        async with rig.serving() as master:
            for rewinds in range(2):
                await rig.until(
                    lambda n=rewinds: (
                        stands_still(master) and master.job.parts.ledger.rewinds == n
                    )
                )
                if old_problem:
                    assert master.job.parts.checkpoints.problem
                pass_the_bound(master)
                if not rewinds:
                    await rig.until(lambda: master.job.parts.ledger.rewinds == 1)
            report = await rig.ended()
        assert report.status is JobState.FAILED
        assert "a PS has not taken its snapshot" in report.message
        assert audit(rig.job_dir.journal_dir).rewinds == 1

    rig.run(
        story,
        checkpoint__every_seconds=0,
        evaluation__at_end=True,
        data__validation="test.csv",
    )


def test_tries_of_a_checkpoint_that_a_disk_refuses_are_no_progress(rig) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        rig.world.disk_full, rig.world.beats_per_part = True, 3
        async with rig.serving() as master:
            job, checkpoints = master.job, master.job.parts.checkpoints
            await rig.until(
                lambda: job.parts.holder.initialized and checkpoints.problem
            )
            await rig.until(lambda: checkpoints.request is None)
            before = look_at(job).moved
            await rig.until(
                lambda: checkpoints.request and checkpoints.request.written_bytes
            )
            assert look_at(job).moved == before

    rig.run(story, checkpoint__every_seconds=0)


def test_workers_and_ps_that_wait_for_room_hold_the_job(rig) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving() as master:
            await rig.until(lambda: master.job.parts.holder.initialized)
            await rig.until(lambda: len(rig.runner.running(Role.WORKER)) == 2)
            rig.runner.hold = True
            for name in ("worker-0", "worker-1"):
                rig.kill(name)
            await rig.until(
                lambda: not any(m.alive for m in master.job.parts.table.workers())
            )
            assert look_at(master.job).held == "all workers wait for room"

    rig.run(story)


@pytest.mark.parametrize("strategy", ["parameterServer", "local"])
def test_a_task_at_which_every_worker_hangs_fails_the_job_with_its_records(
    rig, strategy
) -> None:
    """Each loss takes strategy local back to its checkpoint; the deaths stay."""

    async def story(rig) -> None:
        rig.world.stuck |= {f"worker-{n}" for n in range(20)}
        async with rig.serving():
            report = await rig.ended()
        assert report.status is JobState.FAILED
        assert "3 workers hung or crashed with" in report.message
        assert "train.csv records 0 to 8" in report.message
        assert report.records == 0
        assert rig.running.result().exit_code is ExitCode.USER_CODE

    rig.run(
        story,
        strategy=strategy,
        worker__replicas=1,
        worker__max_restarts=0,
        worker__hang_seconds=8.0,
        worker__start_seconds=16.0,
        tasks__max_failures=3,
    )


def test_no_worker_is_lost_at_a_task_that_got_less_than_the_longest_bound() -> None:
    """Bounds of 8, 16, 32, ... 256 and 300 s: a slow step has had them all."""
    values = {
        "name": "x",
        "model": {"definition": "m.f"},
        "data": {"training": "t.csv"},
    }
    assert most_deaths(JobSpec.model_validate(values)) == 7


def test_ps_that_load_the_checkpoint_of_another_job_have_the_time_for_its_bytes(
    rig, monkeypatch
) -> None:
    async def load(rig, parts) -> float:
        await rig.until(lambda: all(m and m.restore for m in parts.table.ps()))
        assert parts.checkpoints.newest is None
        return look_at(rig.master.job).bound

    async def story(rig) -> None:
        rig.world.mute |= {"ps-0", "ps-1"}
        still = STILL_STARTS * rig.values.job.worker.start_seconds
        async with rig.serving() as master:
            assert await load(rig, master.job.parts) == still + shard.bytes
        async with rig.serving() as master:  # one that takes over knows as much
            assert await load(rig, master.job.parts) == still + shard.bytes
            rig.world.mute.clear()
            await rig.until(lambda: master.job.parts.holder.initialized)
            assert look_at(master.job).bound == still

    others = rig.root / "others"
    shard = store.write_shard(others, 0, 1, {}, {"version": 400})
    manifest = Manifest(job="j", strategy="local", version=400, shards=[shard])
    store.write_manifest(others, manifest)
    monkeypatch.setattr(watchdog, "SLOWEST_BYTES_PER_SECOND", 1.0)
    rig.run(story, checkpoint__init_from=str(others))
