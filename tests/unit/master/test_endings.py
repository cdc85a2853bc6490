"""What has to be on disk before others go by it."""

import asyncio

import pytest
from elasticdl.errors import ExitCode, JournalError
from elasticdl.job import in_force
from elasticdl.job.heartbeats import PsHeartbeat, WorkerHeartbeat
from elasticdl.job.names import JobDir
from elasticdl.job.spec.job import JobSpec
from elasticdl.job.tasks import LeaseRequest, ReplicaId
from elasticdl.master import assembly
from elasticdl.master.tasks import model_facts


def test_no_worker_is_told_that_the_job_is_over_before_the_last_report_is_on_disk(
    rig,
) -> None:
    async def story(rig) -> None:
        rig.world.go.clear()  # nobody trains meanwhile
        async with rig.serving() as master:
            await rig.until(
                lambda: any(w.ready for w in master.job.parts.table.workers())
            )
            parts = master.job.parts
            worker = next(w for w in parts.table.workers() if w.ready)
            request = LeaseRequest(
                replica=ReplicaId(
                    role="worker",
                    index=worker.key.index,
                    generation=worker.generation,
                ),
                want=1,
            )
            journal = parts.ledger._journal
            async with journal._disk:  # the disk is at something
                parts.ledger.record(model_facts.BegunFact(time=1.0))
                master.job.finished = True
                asked = asyncio.ensure_future(master.servicer.Lease(request, None))
                for _ in range(10):
                    await asyncio.sleep(0)
                assert not asked.done()
            assert (await asked).finished

    rig.run(story)


def test_nobody_is_told_of_a_rewind_before_the_journal_has_it(rig) -> None:
    """The next master would go on as if it had not been, with those who went back."""

    async def story(rig) -> None:
        rig.world.go.clear()  # nobody trains meanwhile
        async with rig.serving() as master:
            parts = master.job.parts
            await rig.until(
                lambda: (
                    any(w.ready for w in parts.table.workers())
                    and any(p and p.ps for p in parts.table.ps())
                )
            )
            worker = next(w for w in parts.table.workers() if w.ready)
            ps = next(p for p in parts.table.ps() if p and p.ps)
            beats = [
                (
                    master.servicer.WorkerSync,
                    WorkerHeartbeat(
                        replica=named(worker), worker=worker.worker, seen_revision=-1
                    ),
                ),
                (
                    master.servicer.PsSync,
                    PsHeartbeat(replica=named(ps), status=ps.ps, seen_revision=-1),
                ),
            ]
            async with parts.ledger._journal._disk:  # the disk is at something
                parts.holder.go_back("to see who hears of it", now=1.0)
                asked = [
                    asyncio.ensure_future(call(beat, None)) for call, beat in beats
                ]
                for _ in range(10):
                    await asyncio.sleep(0)
                assert not any(one.done() for one in asked)
            told = await asyncio.gather(*asked)
            assert [one.rewind for one in (told[0].ps, told[1])] == [1, 1]

    rig.run(story)


def named(member) -> ReplicaId:
    return ReplicaId(
        role=member.key.role, index=member.key.index, generation=member.generation
    )


def test_a_master_that_cannot_write_what_is_in_force_ends_so_that_it_can_go_on(
    tmp_path,
) -> None:
    spec = JobSpec.model_validate(
        {"name": "j", "model": {"definition": "m.f"}, "data": {"training": "t"}}
    )
    nowhere = JobDir(tmp_path / "gone")
    with pytest.raises(FileNotFoundError):
        in_force.put_in_force(nowhere, spec)
    with pytest.raises(JournalError) as caught:
        assembly._put_in_force(nowhere, spec)
    assert caught.value.exit_code == ExitCode.STORAGE
    assert "free some room" in str(caught.value)
