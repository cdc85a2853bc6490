"""The table finds members by what they are now, whoever changed them."""

from pathlib import Path

import pytest
from elasticdl.job.heartbeats import WorkerReport
from elasticdl.job.spec.job import JobSpec
from elasticdl.job.words import EndCause, ReplicaState
from elasticdl.master.members.table import MemberTable
from elasticdl.master.tasks.ledger import Ledger


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("told_why", "scaled down"),
        ("lost_by", EndCause.SILENT),
        ("ready", False),
        ("state", ReplicaState.PENDING),
    ],
)
def test_a_worker_that_is_to_leave_or_is_lost_does_not_count_as_active(
    tmp_path: Path, field: str, value: object
) -> None:
    spec = JobSpec.model_validate(
        {
            "name": "j",
            "model": {"definition": "m.f"},
            "data": {"training": "d"},
        }
    )
    ledger = Ledger.open(tmp_path, now=1.0)
    table = MemberTable(spec, ledger, ps_seats=1)
    one = table.schedule(None, priority="low", now=1.0)
    one.state, one.ready = ReplicaState.RUNNING, True
    one.worker = WorkerReport(phase="train", step=1)
    ledger.close()
    assert (table.num_active, table.num_at_work) == (1, 1)
    setattr(one, field, value)
    assert table.num_active == 0
    assert table.num_at_work == (1 if field == "ready" else 0)
