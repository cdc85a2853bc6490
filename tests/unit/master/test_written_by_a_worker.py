"""What a worker can write into its job's folder gives it no rights of its master's.

A worker has its job's folder, with the journal and the specification in force in it.
"""

import asyncio
from pathlib import Path

from elasticdl.job.in_force import put_in_force
from elasticdl.job.spec.job import JobSpec
from elasticdl.job.values.document import ValuesFile
from elasticdl.master.assembly import edit_meanwhile
from elasticdl.master.live_edits import by_the_file
from elasticdl.master.pod import prepare
from elasticdl.master.tasks import facts
from elasticdl.master.tasks.ledger import Ledger

from tests.unit.client.local.test_folder import values
from tests.unit.master.test_pod import Volume

CRITICAL = "system-node-critical"
PLANTED = {
    "onEnd": {"command": ["sh", "-c", "cat /var/run/secrets/*"]},
    "env": {"LD_PRELOAD": "/data/planted.so"},
    "ps": {
        "env": {"LD_PRELOAD": "/data/planted.so"},
        "priority": CRITICAL,
    },
    "worker": {"env": {"A": "b"}, "priority": CRITICAL},
}
TOLD = {
    "onEnd": {"webhook": "https://chat.example/x"},
    "env": {"REGION": "eu"},
    "ps": {"priority": "high"},
    "worker": {"priority": "0.5", "replicas": 2},
}


def spec_with(sections: dict[str, object]) -> JobSpec:
    job = {**values().job.document(), **sections}
    return ValuesFile.model_validate({"kind": "job", "job": job}).job


def noted(folder: Path, spec: JobSpec) -> Ledger:
    """A journal whose newest specification is this one."""

    async def write() -> None:
        ledger = Ledger.open(folder, now=0.0, wait_seconds=0.0)
        ledger.record(facts.SpecificationFact(job=spec.document()))
        await ledger.commit()
        ledger.close()

    asyncio.run(write())
    return Ledger.open(folder, now=1.0, wait_seconds=0.0)


def test_a_master_runs_nothing_that_a_worker_wrote_into_the_journal(tmp_path) -> None:
    ledger = noted(tmp_path, spec_with(PLANTED))
    told = spec_with(TOLD)
    edit = edit_meanwhile(ledger, told)
    ledger.close()
    assert edit.spec == told
    assert not edit.refused


def test_what_may_not_change_while_a_job_runs_is_still_the_journals(tmp_path) -> None:
    ledger = noted(tmp_path, spec_with({"training": {"batchSize": 7}}))
    edit = edit_meanwhile(ledger, spec_with({"training": {"batchSize": 9}, **TOLD}))
    ledger.close()
    assert edit.spec.training.batch_size == 7
    assert [change.path for change in edit.refused] == ["training.batchSize"]
    assert edit.spec.on_end.webhook == "https://chat.example/x"


def test_where_the_values_file_is_wrong_nothing_is_run_instead(tmp_path) -> None:
    volume = Volume(tmp_path)
    volume.start("a")
    put_in_force(volume.job_dir, spec_with(PLANTED))
    (volume.config_dir / "job.yaml").write_text("kind: job\njob: {workers: 3}\n")
    prepared = prepare(volume.config_dir, volume.job_dir, uid="a", lock_seconds=0.0)
    assert prepared.lock is not None
    prepared.lock.release()
    assert prepared.spec.on_end.command == []
    assert prepared.spec.env == prepared.spec.ps.env == prepared.spec.worker.env == {}
    assert (prepared.spec.ps.priority, prepared.spec.worker.priority) == ("high", "low")


def test_a_group_of_workers_goes_on_as_well_where_the_values_file_is_wrong() -> None:
    """Whose specification may have no section `ps`, or the next master refuses it."""
    noted = spec_with({"strategy": "allReduce"})
    assert spec_with(by_the_file(noted, None).document()) == noted


def test_where_a_master_writes_checkpoints_is_not_taken_from_the_journal() -> None:
    planted = spec_with({"checkpoint": {"dir": "/data/others", "keep": 3}})
    told = spec_with({"checkpoint": {"dir": "/data/own"}})
    assert by_the_file(planted, told).checkpoint.dir == "/data/own"
    assert by_the_file(planted, spec_with({})).checkpoint.dir == ""
    assert by_the_file(planted, None).checkpoint.dir == ""
    assert by_the_file(planted, None).checkpoint.keep == 3
