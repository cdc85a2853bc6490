"""What a restarted master goes on with."""

import asyncio

import pytest
from elasticdl.errors import ExitCode
from elasticdl.job.in_force import in_force
from elasticdl.job.names import Role
from elasticdl.job.values.file import edit_values
from elasticdl.job.words import JobState
from elasticdl.master.members import goodput
from elasticdl.master.tasks import facts
from elasticdl.master.tasks.audit import audit
from elasticdl.runner.base import ReplicaKey

from tests.unit.master.looks import (
    leases_known,
    live_workers,
    two_leases,
)

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
