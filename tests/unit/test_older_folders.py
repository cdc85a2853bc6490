"""Folders of jobs that earlier versions wrote are read as if this one had."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from elasticdl.checkpoint import reshard, store
from elasticdl.job import history
from elasticdl.job.status import JobReport
from elasticdl.job.values.file import load_values
from elasticdl.job.words import EndCause, HappeningKind, JobState
from elasticdl.master.happenings import Diary
from elasticdl.master.members.relaunches import Relaunches
from elasticdl.master.tasks import facts
from elasticdl.master.tasks.audit import audit
from elasticdl.master.tasks.ledger import Ledger
from elasticdl.tensor.placement import GradientKind, Variable, place

FIXTURES = Path(__file__).parents[1] / "fixtures"
FOLDER = FIXTURES / "job-before-rooms"
CHECKPOINT = FIXTURES / "checkpoint-before-rooms" / "version-200"
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


SHAPES = {"dense/kernel": (12, 5), "dense/bias": (5,), "table": (33, 4), "scale": ()}


def counted(name: str, first: int) -> np.ndarray:
    shape = SHAPES[name]
    size = int(np.prod(shape, dtype=int))
    return np.arange(first, first + size, dtype=np.float32).reshape(shape)


def test_every_byte_of_its_checkpoint_is_right() -> None:
    store.verify(CHECKPOINT)


def test_its_checkpoint_is_restored_whole() -> None:
    whole = reshard.load_all(CHECKPOINT)
    assert whole.version == 200
    assert '"Adam"' in whole.optimizer
    assert whole.states["moving_mean"].tolist() == [0, 1, 2]
    for name in SHAPES:
        assert np.array_equal(whole.values[name], counted(name, 0))
        assert np.array_equal(whole.slots["m"][name], counted(name, 1000))
        assert np.array_equal(whole.slots["v"][name], counted(name, 2000))


@pytest.mark.parametrize("num_ps", [1, 2, 3])
def test_its_checkpoint_is_restored_by_any_number_of_ps(num_ps: int) -> None:
    kinds = {"table": GradientKind.ROWWISE}
    variables = [
        Variable(name, shape, kinds.get(name, GradientKind.DENSE))
        for name, shape in SHAPES.items()
    ]
    layout = place(variables, num_ps)
    reader = reshard.CheckpointReader(CHECKPOINT)
    for ps in range(num_ps):
        loaded = reshard.load_pieces(reader, layout, ps)
        for piece in layout.pieces[ps]:
            name = layout.variables[piece.variable].name
            rows = counted(name, 2000).reshape(
                layout.variables[piece.variable].num_rows, -1
            )
            part = rows[piece.start : piece.end].reshape(-1)
            held = loaded.slots["v"][piece.offset : piece.offset + piece.size]
            assert np.array_equal(held, part)
