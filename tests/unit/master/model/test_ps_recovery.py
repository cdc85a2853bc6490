"""PS that come back: with what, what counts as lost, and that none waits for ever."""

import asyncio
import os
import sys

import pytest
from elasticdl.job.heartbeats import PsHeartbeat
from elasticdl.job.spec.job import JobSpec, UpdateMode
from elasticdl.job.tasks import ReplicaId, Task, TaskType
from elasticdl.job.words import JobState, ReplicaState
from elasticdl.master.course.watchdog import look_at
from elasticdl.master.tasks import model_facts
from elasticdl.master.tasks.audit import audit

from tests.unit.master.model.test_origin import checkpoint_of

RECORDS = 64
EVALUATION = Task(type=TaskType.EVALUATION)


def first_checkpoint(master) -> bool:
    newest = master.job.parts.checkpoints.newest
    return newest is not None and newest.manifest.version == 0


def all_hold_tasks(rig, master) -> bool:
    queue = master.job.parts.ledger.queue
    return queue is not None and len(queue.leased) == rig.values.job.worker.replicas


def counted_as_trained(master) -> int:
    queue = master.job.parts.ledger.queue
    return 0 if queue is None else queue.done_records


async def until_known_at(rig, master, version: int) -> None:
    """Wait until the master has heard of this version from everybody."""
    rig.world.version = version
    ps = master.job.parts.holder
    await rig.until(lambda: ps._versions == {0: version, 1: version})


def test_values_that_nobody_has_any_more_take_all_back_to_the_checkpoint(rig) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving() as master:
            await rig.until(lambda: first_checkpoint(master))
            rig.kill("ps-1")  # and no worker has pulled anything
            await rig.until(lambda: master.job.parts.ledger.rewinds == 1)
            await rig.until(lambda: not master.job.parts.holder.rewinding)
            rig.world.go.set()
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED
        assert rig.world.restored[-1][1].endswith("version-0")
        assert not any(handback for *_, handback in rig.world.restored)
        assert audit(rig.job_dir.journal_dir).ok

    rig.run(story, checkpoint__every_seconds=0)


def test_a_ps_that_waits_for_values_goes_back_when_their_last_holder_is_lost(
    rig,
) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        rig.world.pulled = 4
        async with rig.serving() as master:
            await rig.until(lambda: first_checkpoint(master))
            ps = master.job.parts.holder
            await until_known_at(rig, master, 4)
            # It hears of no PS that waits, so it hands nothing over.
            rig.world.mute |= {"worker-0", "worker-1"}
            rig.kill("ps-1")
            await rig.until(lambda: any(ps.view().wants_values))
            rig.world.pulled = None
            rig.world.mute.clear()
            await rig.until(lambda: master.job.parts.ledger.rewinds == 1)
            rig.world.go.set()
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED
        assert audit(rig.job_dir.journal_dir).ok

    rig.run(story, checkpoint__every_seconds=0)


def test_values_on_their_way_have_time_for_their_bytes(rig) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        rig.world.pulled, rig.world.bytes = 4, 10_000_000_000
        async with rig.serving() as master:
            await rig.until(lambda: first_checkpoint(master))
            parts = master.job.parts
            await until_known_at(rig, master, 4)
            before = look_at(master.job).bound
            rig.world.mute |= {"worker-0", "worker-1"}  # they hand nothing over yet
            rig.kill("ps-1")
            await rig.until(lambda: any(parts.holder.view().wants_values))
            asked = parts.holder._asked_at[1]
            parts.holder.tick(now=asked + 1059.0)
            assert parts.ledger.rewinds == 0
            assert look_at(master.job).bound == before + 1060.0
            parts.holder.tick(now=asked + 1061.0)
            assert parts.ledger.rewinds == 1
            cause = parts.ledger.newest_of(model_facts.RewindFact).cause
            assert cause == "no worker handed values to ps-1 in 1060 s"

    rig.run(story, checkpoint__every_seconds=0)


@pytest.mark.parametrize("restarted", [False, True])
def test_updates_that_handed_values_lack_are_counted(rig, restarted) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        rig.world.pulled = 5
        async with rig.serving() as master:
            await rig.until(lambda: first_checkpoint(master))
            await until_known_at(rig, master, 12)
            if not restarted:
                await lose(rig, master)
        async with rig.serving() as master:
            if restarted:
                await rig.until(lambda: master.job.parts.holder._versions != {})
                await lose(rig, master)
            rig.world.go.set()
            report = await rig.ended()
        assert report.lost_updates == 7
        assert report.rewinds == 0

    async def lose(rig, master) -> None:
        rig.kill("ps-1")
        await rig.until(lambda: rig.world.restored[-1] == ("ps-1", "", True))
        await rig.until(lambda: master.job.parts.holder.initialized)

    rig.run(story, checkpoint__every_seconds=0)


def test_updates_are_counted_of_which_only_the_master_before_was_told(rig) -> None:
    """It was lost between the PS, of which it knew, and the one that replaces it."""

    async def story(rig) -> None:
        rig.world.go.clear()
        rig.world.pulled = 5
        async with rig.serving() as master:
            await rig.until(lambda: first_checkpoint(master))
            await until_known_at(rig, master, 12)
            # No call is under way that would tell the next master.
            rig.world.mute |= {"worker-0", "worker-1", "ps-0"}
            await asyncio.sleep(0.5)
            rig.runner.refuse = "no room"
            rig.kill("ps-1")
            ledger = master.job.parts.ledger
            await rig.until(lambda: bool(ledger.all_of(model_facts.ReachedFact)))
            await ledger.commit()
        rig.world.version = 5  # all that is told now
        rig.world.mute.clear()
        rig.runner.refuse = ""
        async with rig.serving() as master:
            await rig.until(lambda: rig.world.restored[-1] == ("ps-1", "", True))
            await rig.until(lambda: master.job.parts.holder.initialized)
            rig.world.go.set()
            report = await rig.ended()
        assert report.lost_updates == 7
        assert report.rewinds == 0

    rig.run(story, checkpoint__every_seconds=0)


def test_updates_of_tasks_that_are_done_are_counted_though_no_heartbeat_came_through(
    rig,
) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        rig.world.pulled = 5
        async with rig.serving() as master:
            await rig.until(lambda: first_checkpoint(master))
            await until_known_at(rig, master, 5)
            # What it is reported with is all that comes through.
            rig.world.mute |= {"worker-0", "worker-1", "ps-1"}
            await rig.call_of("worker-0", ps_versions=[12, 12])
            # Of before a rewind, or after one that this master has not made: no word.
            await rig.call_of("worker-1", ps_versions=[40, 40], ps_rewind=1)
            rig.kill("ps-1")
            await rig.until(lambda: rig.world.restored[-1] == ("ps-1", "", True))
            rig.world.mute.clear()
            await rig.until(lambda: master.job.parts.holder.initialized)
            rig.world.go.set()
            report = await rig.ended()
        assert report.lost_updates == 7
        assert report.rewinds == 0

    rig.run(story, checkpoint__every_seconds=0)


def test_what_counts_as_trained_was_in_each_ps_though_nobody_lives_who_was_told(
    rig,
) -> None:
    async def story(rig) -> None:
        async def stop_after_four(task) -> None:
            if len(rig.world.trained) == 4:
                rig.world.go.clear()

        rig.world.before = stop_after_four
        async with rig.serving() as master:
            await rig.until(lambda: not rig.world.go.is_set())
            await rig.until(lambda: counted_as_trained(master) > 0)
        rig.world.mute |= {"ps-0", "ps-1", "worker-0", "worker-1"}
        async with rig.serving() as master:
            # As the journal has it: a report may have come as the master before ended.
            trained = master.job.parts.ledger.queue.new_steps
            assert trained > 0
            ps = master.job.parts.holder
            assert (ps._versions, ps._newest_version(1)) == ({}, trained)
            ps.go_back("a test", now=master.job.clock())
            assert ps._newest_version(1) == ps.version
            rig.world.mute.clear()
            rig.world.before = None
            rig.world.go.set()
            assert (await rig.ended()).status is JobState.SUCCEEDED

    rig.run(story, checkpoint__every_seconds=0)


def test_updates_lost_with_a_ps_and_the_master_together_are_counted(rig) -> None:
    """Nobody who knows of them has been heard when the PS asks what it begins with."""

    async def story(rig) -> None:
        rig.world.go.clear()
        rig.world.pulled = 5
        async with rig.serving() as master:
            await rig.until(lambda: first_checkpoint(master))
            await until_known_at(rig, master, 12)
        rig.world.mute |= {"ps-0", "worker-0", "worker-1"}
        async with rig.serving() as master:
            parts = master.job.parts
            before = parts.table.ps()[1]
            rig.kill("ps-1")
            await rig.until(lambda: parts.table.ps()[1] not in (None, before))
            await rig.until(lambda: parts.table.ps()[1].state is ReplicaState.RUNNING)
            rig.world.mute.clear()
            await rig.until(lambda: parts.holder.initialized)
            rig.world.go.set()
            report = await rig.ended()
        assert report.lost_updates == 7
        assert report.rewinds == 0

    rig.run(story, checkpoint__every_seconds=0)


def test_a_restarted_master_makes_no_versions_of_fewer_gradients(rig) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving() as master:
            await rig.until(lambda: all_hold_tasks(rig, master))
            await rig.until(lambda: rig.world.quorums[-1:] == [3])
        del rig.world.quorums[:]
        async with rig.serving():
            await rig.until(lambda: len(rig.world.quorums) > 4)
            assert set(rig.world.quorums) <= {0, 3}
            rig.world.go.set()
            await rig.ended()

    rig.run(story, ps__mode="sync", worker__replicas=3)


def test_workers_an_earlier_master_had_count_until_they_were_heard(rig) -> None:
    """One that was between two tasks holds no lease, and trains on in a moment."""

    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving() as master:
            await rig.until(lambda: all_hold_tasks(rig, master))
            for replica in rig.everyone:
                replica.kill()
            ledger = master.job.parts.ledger
            for lease_id in ledger.queue.leases_of(0):
                ledger.finish(lease_id, records=8, steps=2, now=0.0)
            await ledger.commit()
        async with rig.serving() as master:
            assert not master.job.parts.ledger.queue.leases_of(0)
            assert master.job.parts.holder.quorum.number == 2

    rig.run(story, ps__mode="sync")


def test_who_evaluates_in_sync_mode_reads_no_training_task_ahead(rig) -> None:
    """It does not count meanwhile, and would begin that task without a word."""

    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving() as master:
            await rig.until(lambda: all_hold_tasks(rig, master))
            parts = master.job.parts
            assert parts.holder.quorum.may_begin(0)
            parts.side.add(EVALUATION)
            lease = parts.side.lease(0, types=None, deadline=1e12)
            assert not parts.holder.quorum.may_begin(0)
            assert parts.holder.quorum.may_begin(1)
            parts.side.finish(lease.lease_id)
            assert parts.holder.quorum.may_begin(0)
            rig.world.go.set()
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED

    rig.run(story, ps__mode="sync")


def test_ps_0_hears_of_no_lower_quorum_that_the_next_master_would_not_know_of(
    rig, monkeypatch
) -> None:
    """Else it would make versions without a worker that the next master lets train."""
    written: list[bytes] = []
    write = os.pwrite

    def noting(fd: int, data: bytes, offset: int) -> int:
        written.append(bytes(data))
        return write(fd, data, offset)

    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving() as master:
            await rig.until(lambda: all_hold_tasks(rig, master))
            parts = master.job.parts
            first = parts.table.ps()[0]
            monkeypatch.setattr(os, "pwrite", noting)
            tasks = parts.ledger.recover(0, cause="cut off", now=0.0, died=False)
            parts.holder.quorum.gone(0)
            assert tasks
            request = PsHeartbeat(
                replica=ReplicaId(role="ps", index=0, generation=first.generation)
            )
            reply = await master.servicer.PsSync(request, None)
            assert reply.quorum == 1
            assert b"cut off" in b"".join(written)
            rig.world.go.set()
            await rig.ended()

    rig.run(story, ps__mode="sync")


def test_ps_and_master_lost_with_nothing_to_go_back_to_go_on(rig) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        rig.world.disk_full = True
        async with rig.serving() as master:
            await rig.until(lambda: bool(master.job.parts.checkpoints.problem))
            rig.kill("ps-1")
            await rig.until(lambda: master.job.parts.ledger.rewinds == 1)
            await rig.until(
                lambda: [n for n, *_ in rig.world.restored].count("ps-1") == 2
            )
        rig.world.disk_full = False
        async with rig.serving() as master:
            assert not master.job.parts.holder.rewinding
            rig.world.go.set()
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED
        assert report.rewinds == 1
        assert audit(rig.job_dir.journal_dir).ok

    rig.run(story, ps__mode="sync")


def test_a_ps_lost_before_all_told_of_their_values_takes_all_back(rig) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        rig.world.mute.add("ps-1")  # it serves, and is not heard of yet
        async with rig.serving() as master:
            parts = master.job.parts
            await rig.until(lambda: all_hold_tasks(rig, master))
            assert not parts.holder.begun
            rig.kill("ps-0")
            await rig.until(lambda: parts.ledger.rewinds == 1)
            rig.world.mute.clear()
            rig.world.go.set()
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED
        assert 1 in rig.world.rewinds  # ps-1 began anew too

    rig.run(story, ps__mode="sync")


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_what_counts_as_trained_is_trained_again_though_no_ps_had_told_of_its_values(
    rig, mode
) -> None:
    async def story(rig) -> None:
        rig.world.mute.add("ps-1")  # it serves, and is not heard of yet
        rig.world.pause_after = 2
        async with rig.serving() as master:
            await rig.until(lambda: counted_as_trained(master) > 0)
            # What is not on the disk yet was not answered, and is not trained.
            await master.job.parts.ledger.commit()
            gone = {worker.name for worker in master.job.parts.table.workers()}
        rig.world.mute.clear()
        rig.world.pause_after = sys.maxsize
        async with rig.serving(launched=True) as master:
            report = await rig.ended()
            back = master.job.parts.ledger.newest_of(model_facts.RewindFact)
        assert report.status is JobState.SUCCEEDED
        assert report.rewinds == 1
        assert back.cause == "the job was launched again"
        # The new PS have no values of the old ones: all is trained on them.
        again = {(a, b) for who, _, a, b in rig.world.trained if who not in gone}
        assert sum(b - a for a, b in again) == RECORDS
        assert audit(rig.job_dir.journal_dir).ok

    rig.run(story, ps__mode=mode)


def test_no_worker_of_a_sync_job_begins_before_ps_0_counts_it(rig) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()
        rig.world.mute.add("ps-0")  # goes by what an earlier master told it, say
        async with rig.serving() as master:
            parts = master.job.parts
            await rig.until(lambda: parts.holder.quorum.number == 2)
            assert not parts.ledger.queue.leased
            rig.world.mute.clear()
            await rig.until(lambda: all_hold_tasks(rig, master))
            assert rig.world.quorums[-1] == 2
            rig.world.go.set()
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED

    rig.run(story, ps__mode="sync")


def test_a_worker_that_is_not_counted_yet_keeps_no_other_waiting(rig) -> None:
    """It is gone, or there is no task left for it, before PS 0 has heard of it."""

    async def story(rig) -> None:
        rig.world.go.clear()
        rig.world.mute.add("ps-0")
        async with rig.serving() as master:
            parts = master.job.parts
            await rig.until(lambda: parts.holder.quorum.number == 2)
            rig.kill("worker-0")
            await rig.until(lambda: parts.holder.quorum.number == 1)
            rig.world.mute.clear()
            rig.world.go.set()
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED

    rig.run(story, ps__mode="sync")


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_ps_that_want_an_optimizer_for_their_checkpoint_can_be_called_by_workers(
    rig, mode
) -> None:
    """At the job's beginning, and after a rewind to such a checkpoint."""

    async def story(rig) -> None:
        rig.world.foreign.add(begins_with)
        rig.world.mute |= {"ps-0", "ps-1"}  # they load
        rig.world.go.clear()
        async with rig.serving() as master:
            ps, ledger = master.job.parts.holder, master.job.parts.ledger
            await rig.until(lambda: len(rig.world.restored) == 4)
            assert (ps.view().addresses, rig.world.brought) == (("", ""), False)
            rig.world.mute.clear()
            await rig.until(lambda: rig.world.brought and ps.known)
            await rig.until(lambda: first_checkpoint(master))
            newest = master.job.parts.checkpoints.newest.dir
            await rig.until(lambda: all_hold_tasks(rig, master))
            ps.begins(now=master.job.clock())
            rig.world.foreign.add(newest)
            rig.world.brought = False
            rig.kill("ps-0")
            rig.kill("ps-1")
            await rig.until(lambda: rig.world.restored[-1][1] == newest)
            await rig.until(lambda: rig.world.brought and ps.known)
            assert ledger.rewinds >= 1
            rig.world.go.set()
            report = await rig.ended()
        assert report.status is JobState.SUCCEEDED
        assert audit(rig.job_dir.journal_dir).ok

    begins_with = checkpoint_of(rig.root / "old", 0)
    rig.run(
        story,
        ps__mode=mode,
        checkpoint__init_from=begins_with,
        checkpoint__every_seconds=0,
    )


def test_sync_mode_refuses_to_continue_without_the_others() -> None:
    with pytest.raises(ValueError, match="recovery"):
        JobSpec.model_validate(
            {
                "name": "x",
                "model": {"definition": "m.f"},
                "data": {"training": "t.csv"},
                "ps": {"mode": str(UpdateMode.SYNC), "recovery": "continue"},
            }
        )
