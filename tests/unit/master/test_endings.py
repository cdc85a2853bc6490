"""What has to be on disk before others go by it."""

import asyncio

import pytest
from elasticdl.errors import ExitCode, JournalError
from elasticdl.job import in_force
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
