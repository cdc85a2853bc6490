"""Whose checkpoints they are, and to which of them a job may go back."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from elasticdl.checkpoint import store
from elasticdl.checkpoint.layout import Manifest
from elasticdl.data.reader import Shard
from elasticdl.errors import CheckpointError
from elasticdl.master.model.checkpoint_identity import (
    Course,
    course_of,
    find,
    note_course,
    point,
)
from elasticdl.master.tasks import facts
from elasticdl.master.tasks.ledger import Ledger
from elasticdl.master.tasks.queue_plan import QueuePlan

MINE = Course("mine", "job")


def manifest(version: int, *, rewind: int = 0, run: str = "mine") -> Manifest:
    return Manifest(
        job="job", run=run, strategy="local", version=version, rewind=rewind, shards=[]
    )


def write(directory: Path, version: int, *, rewind: int = 0, run: str = "mine") -> str:
    aside = directory / "pending-x"
    shard = store.write_shard(aside, 0, 1, {}, {"version": version})
    whole = manifest(version, rewind=rewind, run=run)
    store.write_manifest(aside, whole.model_copy(update={"shards": [shard]}))
    return str(store.publish(aside, directory, version))


def test_what_a_rewind_undid_is_never_gone_back_to() -> None:
    later = MINE.after(1, manifest(50))
    assert later.holds(manifest(50))
    assert not later.holds(manifest(100))
    assert later.holds(manifest(100, rewind=1))
    again = later.after(2, manifest(70, rewind=1))
    assert again.holds(manifest(50))
    assert again.holds(manifest(60, rewind=1))
    assert not again.holds(manifest(100, rewind=1))
    back = again.after(3, manifest(40))
    assert not back.holds(manifest(60, rewind=1))
    assert not back.holds(manifest(50))
    assert back.holds(manifest(40))


def test_after_a_rewind_to_the_beginning_no_older_checkpoint_is_of_the_course() -> None:
    later = MINE.after(1, None)
    assert not later.holds(manifest(0))
    assert later.holds(manifest(0, rewind=1))


def test_a_course_that_a_rewind_skipped_is_left_for_good() -> None:
    # Rewind 1 and 2 both went back to a checkpoint of before.
    course = MINE.after(1, manifest(50)).after(2, manifest(50))
    assert not course.holds(manifest(40, rewind=1))
    assert course.holds(manifest(50))


def test_checkpoints_without_a_run_belong_to_a_journal_that_is_older_than_runs() -> (
    None
):
    assert not MINE.holds(manifest(5, run=""))
    old = Course("mine", "job", unnamed=True)
    assert old.holds(manifest(5, run=""))
    assert not old.holds(manifest(5, run="").model_copy(update={"job": "other"}))


def test_of_a_folder_with_those_of_others_the_own_ones_are_taken(
    tmp_path: Path,
) -> None:
    mine = write(tmp_path, 5)
    write(tmp_path, 9, run="theirs")
    assert [one.dir for one in find(tmp_path, MINE)] == [mine]
    assert [one.dir for one in find(tmp_path, MINE, launched=True)] == [mine]


def test_a_job_does_not_begin_in_a_folder_of_checkpoints_of_others(
    tmp_path: Path,
) -> None:
    write(tmp_path, 9, run="theirs")
    with pytest.raises(CheckpointError, match=r"of another run.*checkpoint\.initFrom"):
        find(tmp_path, MINE, launched=True)
    assert find(tmp_path, MINE) == []  # a master that takes over has begun already


def test_the_newest_is_of_the_present_course_whatever_its_version(
    tmp_path: Path,
) -> None:
    for version in (50, 100):
        write(tmp_path, version)
    course = MINE.after(1, manifest(50))
    newest = write(tmp_path, 60, rewind=1)
    assert [one.dir for one in find(tmp_path, course)][-1] == newest
    assert len(find(tmp_path, course)) == 2


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    opened = Ledger.open(tmp_path / "journal", now=0.0)
    yield opened
    opened.close()


def test_a_journal_keeps_its_run_and_its_course(ledger: Ledger) -> None:
    course = course_of(ledger, "job", new_run="a")
    assert course == Course("a", "job")
    later = course.after(1, manifest(50, run="a"))
    note_course(ledger, later)
    assert course_of(ledger, "job", new_run="b") == later


def test_a_journal_of_before_takes_the_checkpoints_without_a_run(
    ledger: Ledger,
) -> None:
    ledger.record(facts.RunFact(time=0.0))
    course = course_of(ledger, "job", new_run="a")
    assert course.holds(manifest(7, run=""))


def test_two_points_are_equal_where_nothing_was_trained_between(
    ledger: Ledger,
) -> None:
    assert point(ledger) == "0.0"
    shard = Shard("s", 0, 100)
    ledger.open_plan(QueuePlan((shard,), batch_size=10, batches_per_task=1))
    ledger.lease(0, now=0.0, lease_seconds=9.0)
    assert point(ledger) == ""
    ledger.finish(1, records=10, steps=1, now=0.0)
    assert point(ledger) == "0.1"
    position = ledger.position()
    ledger.rewind(position, applied={}, cause="a test", now=0.0)
    assert point(ledger) == "1.1"
