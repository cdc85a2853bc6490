"""Calls to a master that go wrong, and a disk that takes no journal."""

import asyncio

import pytest
from elasticdl.errors import ExitCode, FencedError
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
    LeaseRequest,
    SkippedRecord,
    Task,
    TaskOutcome,
    TaskReport,
    TaskType,
)
from elasticdl.job.words import ExitReason, JobState
from elasticdl.master.calls import leasing
from elasticdl.master.tasks.audit import audit
from elasticdl.runner.base import ReplicaKey

from tests.unit.master.looks import (
    leases_known,
    live_workers,
    two_leases,
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
            report = TaskReport(lease_id=lease_id, outcome=TaskOutcome.DONE)
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
            refused = master.job.parts.signals.diary.told[-1]
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


def test_bad_records_reach_the_report_once_each_and_skipped_batches_summed(rig) -> None:
    """Another epoch, or what a rewind repeats, meets the same records again."""

    async def story(rig) -> None:
        rig.world.go.clear()
        async with rig.serving():
            await rig.until(lambda: leases_known(rig) == 2)
            for index in range(2):
                some = rig.replicas[ReplicaKey(Role.WORKER, index)]
                report = TaskReport(
                    lease_id=next(iter(some.held)),
                    outcome=TaskOutcome.DONE,
                    skipped_batches=2,
                    bad_records=[
                        SkippedRecord(source="train.csv", record=3, reason="torn")
                    ],
                )
                await some.call(some.client.lease, LeaseRequest(reports=[report]))
            rig.world.go.set()
            report = await rig.ended()
        assert report.bad_records == [
            {"source": "train.csv", "record": 3, "reason": "torn"}
        ]
        assert report.skipped_batches == 4

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
