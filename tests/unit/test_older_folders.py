"""Folders of jobs that earlier versions wrote are read as if this one had."""

import shutil
from pathlib import Path

from elasticdl.job import history
from elasticdl.job.status import JobReport
from elasticdl.job.values.file import load_values
from elasticdl.job.words import EndCause, HappeningKind, JobState
from elasticdl.master.happenings import Diary
from elasticdl.master.members.relaunches import Relaunches
from elasticdl.master.tasks import facts
from elasticdl.master.tasks.audit import audit
from elasticdl.master.tasks.ledger import Ledger

FOLDER = Path(__file__).parents[1] / "fixtures" / "job-before-rooms"
RECORDS = 1438


def test_the_causes_of_its_losses_are_known_without_having_been_written() -> None:
    report = JobReport.model_validate_json((FOLDER / "report.json").read_bytes())
    assert report.status is JobState.STOPPED
    assert {(one.replica, one.end_cause) for one in report.relaunches} == {
        ("worker-1", EndCause.KILLED),
        ("ps-0", EndCause.KILLED),
    }
    told = history.read(FOLDER / "history.jsonl")
    assert [
        (one.replica, one.end_cause)
        for one in told.decisions
        if one.kind == HappeningKind.ENDED
    ] == [("worker-1", EndCause.KILLED), ("ps-0", EndCause.KILLED)]
    assert {one.kind for one in told.decisions} <= set(HappeningKind)


def test_its_journal_is_gone_on_with(tmp_path: Path) -> None:
    shutil.copytree(FOLDER / "journal", tmp_path, dirs_exist_ok=True)
    ledger = Ledger.open(tmp_path, now=1.0)
    known = Relaunches(ledger, Diary())
    assert known.causes_by_role() == {"ps": {"killed": 1}, "worker": {"killed": 1}}
    assert known.counts_by_role() == known.causes_by_role()
    assert ledger.newest_of(facts.JobStateFact).state is JobState.STOPPED
    ledger.close()
    report = audit(tmp_path)
    assert report.ok
    assert {sum(epoch.times.values()) for epoch in report.epochs} == {RECORDS}


def test_its_values_file_is_read() -> None:
    values = load_values(FOLDER / "job.yaml")
    assert (values.job.name, values.job.ps.replicas) == ("digits", 2)
