"""What a worker makes a link of in its job's folder has its master touch nothing else.

A worker can write in its job's folder; its master sees the folders of other jobs, and
has a token and a key in files of its own.
"""

import asyncio
import contextlib
import gzip
import os
import threading
from pathlib import Path

import pytest
from elasticdl.checkpoint import shelf, store
from elasticdl.checkpoint.layout import MANIFEST
from elasticdl.errors import CheckpointError, ElasticDLError
from elasticdl.job import folder
from elasticdl.job.in_force import in_force, put_in_force
from elasticdl.job.names import JobDir
from elasticdl.job.values.document import ValuesFile
from elasticdl.master.pod import prepare
from elasticdl.master.tasks.audit import audit
from elasticdl.master.tasks.journal import Journal
from elasticdl.master.telling import shortening
from elasticdl.master.telling.appending import append

from tests.unit.checkpoint.test_shelf import of_j, write
from tests.unit.client.local.test_folder import values
from tests.unit.master.test_pod import Volume

SECRET = "the master's token\n"


@pytest.fixture
def own(tmp_path: Path) -> JobDir:
    """The folder of the job whose worker makes links."""
    made = JobDir(tmp_path / "jobs" / "ml" / "own")
    made.root.mkdir(parents=True)
    return made


@pytest.fixture
def other(tmp_path: Path) -> JobDir:
    """The folder of another job, which this worker does not see."""
    made = JobDir(tmp_path / "jobs" / "ml" / "other")
    made.root.mkdir(parents=True)
    return made


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file that the master alone can read."""
    file = tmp_path / "token"
    file.write_text(SECRET)
    return file


def everything(root: Path) -> dict[str, bytes]:
    """Return the files of a folder, with what is in them."""
    return {
        str(file.relative_to(root)): file.read_bytes()
        for file in sorted(root.rglob("*"))
        if file.is_file()
    }


def journaled(directory: Path) -> None:
    """Write a journal of two segments."""

    async def run() -> None:
        journal = Journal(directory, wait_seconds=0.0)
        list(journal.past())
        journal.append({"k": "fact"})
        await journal.commit()
        await journal.compact(lambda: {"state": 1})
        journal.append({"k": "fact"})
        await journal.commit()
        journal.close()

    asyncio.run(run())


def spec_document() -> ValuesFile:
    tree = values().job.document()
    model = {**tree["model"], "files": {"m.py": "print()"}}
    return ValuesFile.model_validate({"kind": "job", "job": {**tree, "model": model}})


def test_a_segment_that_is_a_link_to_a_secret_is_not_packed_where_workers_read_it(
    own: JobDir, secret: Path
) -> None:
    """Each snapshot packs the segments before it, by copying what is in them."""

    async def run() -> None:
        journal = Journal(own.journal_dir, wait_seconds=0.0)
        list(journal.past())
        journal.append({"k": "fact"})
        await journal.commit()
        (own.journal_dir / "00000000.jsonl").symlink_to(secret)
        await journal.compact(lambda: {"state": 1})
        journal.close()

    asyncio.run(run())
    packed = [gzip.decompress(f.read_bytes()) for f in own.journal_dir.glob("*.gz")]
    assert packed
    assert SECRET.encode() not in packed
    assert secret.read_text() == SECRET


def test_a_snapshot_that_is_a_link_is_not_read(own: JobDir, other: JobDir) -> None:
    journaled(other.journal_dir)
    journaled(own.journal_dir)
    theirs = next(other.journal_dir.glob("snapshot-*.json"))
    (own.journal_dir / "snapshot-00000009.json").symlink_to(theirs)
    with pytest.raises((OSError, ElasticDLError), match="link"):
        list(Journal(own.journal_dir, wait_seconds=0.0).past())


def test_a_journal_that_is_a_link_takes_no_other_jobs_journal_over(
    own: JobDir, other: JobDir
) -> None:
    """A segment after that of its master would end the other job."""

    async def run() -> None:
        journal = Journal(other.journal_dir, wait_seconds=0.0)
        own.journal_dir.symlink_to(other.journal_dir)
        with pytest.raises(OSError, match="link"):
            Journal(own.journal_dir, wait_seconds=0.0)
        with pytest.raises((OSError, ElasticDLError), match="link"):
            audit(own.journal_dir)
        journal.append({"k": "fact"})
        await journal.commit()
        journal.close()

    asyncio.run(run())
    assert [file.name for file in other.journal_dir.iterdir()] == ["00000001.jsonl"]


def test_a_journal_that_becomes_a_link_has_nothing_written_or_packed_behind_it(
    own: JobDir, other: JobDir
) -> None:
    journaled(other.journal_dir)
    before = everything(other.root)

    async def run() -> None:
        journal = Journal(own.journal_dir, wait_seconds=0.0)
        list(journal.past())
        journal.append({"k": "fact"})
        await journal.commit()
        own.journal_dir.rename(own.root / "aside")
        own.journal_dir.symlink_to(other.journal_dir)
        with pytest.raises(ElasticDLError):
            await journal.compact(lambda: {"state": 1})
        journal.close()

    asyncio.run(run())
    assert everything(other.root) == before


@pytest.mark.parametrize("name", ["in-force.yaml", "job.yaml", "report.json"])
def test_a_document_that_is_a_link_is_not_written_through(
    own: JobDir, other: JobDir, name: str
) -> None:
    folder.fill(other, values())
    put_in_force(other, values().job)
    (other.root / "report.json").write_text("{}")
    before = everything(other.root)
    (own.root / name).symlink_to(other.root / name)
    folder.fill(own, spec_document())
    (own.root / name).unlink(missing_ok=True)
    (own.root / name).symlink_to(other.root / name)
    put_in_force(own, spec_document().job)
    assert everything(other.root) == before


@pytest.mark.parametrize("name", ["model", "logs"])
def test_no_code_is_written_into_another_jobs_folder(
    own: JobDir, other: JobDir, name: str
) -> None:
    (other.root / name).mkdir()
    (own.root / name).symlink_to(other.root / name)
    with pytest.raises(OSError, match="link"):
        folder.fill(own, spec_document())
    assert everything(other.root) == {}


def test_another_jobs_specification_and_report_are_not_read(
    tmp_path: Path, other: JobDir
) -> None:
    """What is read would be put in force where this job's workers can see it."""
    volume = Volume(tmp_path)
    volume.start("a")
    put_in_force(other, values(env={"PASSWORD": "x"}).job)
    own = volume.job_dir
    own.in_force_file.unlink(missing_ok=True)
    own.in_force_file.symlink_to(other.in_force_file)
    (volume.config_dir / "job.yaml").write_text("kind: job\njob: {workers: 3}\n")
    with pytest.raises(ElasticDLError, match="link"):
        prepare(volume.config_dir, own, uid="a", lock_seconds=0.0)
    other.report_file.write_text("{}")
    own.report_file.unlink(missing_ok=True)
    own.report_file.symlink_to(other.report_file)
    assert folder.read_report(own) is None


def test_a_pipe_in_the_place_of_a_document_holds_no_master_up(own: JobDir) -> None:
    for file in (own.report_file, own.in_force_file, own.owner_file):
        os.mkfifo(file)
    assert folder.read_report(own) is None
    with pytest.raises(ElasticDLError, match="is no file"):
        in_force(own)


def test_a_history_that_is_a_link_has_nothing_appended_cut_or_copied(
    own: JobDir, other: JobDir
) -> None:
    victim = other.root / "journal"
    victim.write_text('{"event": 1}\n' * 9)
    before = everything(other.root)
    own.history_file.symlink_to(victim)
    with pytest.raises(OSError, match="link"):
        append(own.history_file, b"{}", b"\n", root=own.root)
    with pytest.raises(OSError, match="link"):
        shortening.shorten(own.history_file, most_bytes=8)
    with pytest.raises(OSError, match="link"):
        shortening.packed(own.history_file)
    assert everything(other.root) == before
    assert own.history_file.is_symlink()


def test_event_files_go_into_no_other_jobs_folder(own: JobDir, other: JobDir) -> None:
    other.tensorboard_dir.mkdir()
    own.tensorboard_dir.symlink_to(other.tensorboard_dir)
    with pytest.raises(OSError, match="link"):
        append(own.tensorboard_dir / "events", b"e", root=own.root)
    assert everything(other.root) == {}


def test_no_checkpoint_is_completed_or_named_in_another_jobs_folder(
    own: JobDir, other: JobDir
) -> None:
    theirs = write(other.checkpoints_dir, 5)
    before = everything(other.root)
    manifest = store.read_manifest(theirs).model_copy(update={"run": "mine"})
    own.checkpoints_dir.mkdir()
    aside = own.checkpoints_dir / "pending-mine"
    aside.symlink_to(theirs)
    with pytest.raises(CheckpointError, match="link"):
        store.write_manifest(aside, manifest, root=own.root)
    aside.unlink()
    own.checkpoints_dir.rmdir()
    own.checkpoints_dir.symlink_to(other.checkpoints_dir)
    (other.checkpoints_dir / aside.name).mkdir()
    with pytest.raises(CheckpointError, match="link"):
        store.publish(aside, own.checkpoints_dir, 6, root=own.root)
    assert shelf.abandon(own.checkpoints_dir / "version-5", root=own.root) is None
    shelf.sweep(own.checkpoints_dir, prefix="mine", root=own.root)
    assert (other.checkpoints_dir / aside.name).is_dir()
    assert everything(other.root) == before


def test_another_jobs_checkpoints_are_not_deleted_where_the_folder_turns_into_a_link(
    own: JobDir, other: JobDir
) -> None:
    """Where a worker knows when: while the master waits for it at a pipe."""
    for place in (own, other):
        for version in (1, 2, 3):
            write(place.checkpoints_dir, version)
    before = everything(other.root)
    # The last manifest that is read before anything is deleted.
    pipe = own.checkpoints_dir / "version-1" / MANIFEST
    told = pipe.read_bytes()
    pipe.unlink()
    os.mkfifo(pipe)

    over = threading.Event()

    def worker() -> None:
        handle = None
        while handle is None and not over.is_set():
            with contextlib.suppress(OSError):  # nobody reads it yet
                handle = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        if handle is None:
            return
        # Once: through the link the pipe's name leads to the other job's manifest.
        own.checkpoints_dir.rename(own.root / "aside")
        own.checkpoints_dir.symlink_to(other.checkpoints_dir)
        with contextlib.suppress(BrokenPipeError):  # the master reads no pipe
            os.write(handle, told)
        os.close(handle)

    beside = threading.Thread(target=worker)
    beside.start()
    try:
        # Where the link was there before the folder was listed, that is told.
        with contextlib.suppress(CheckpointError):
            shelf.delete_old(own.checkpoints_dir, 1, mine=of_j, root=own.root)
    finally:
        over.set()
        beside.join()
    assert everything(other.root) == before


def test_the_folder_itself_may_be_a_link(tmp_path: Path, own: JobDir) -> None:
    link = JobDir(tmp_path / "link")
    link.root.symlink_to(own.root)
    folder.fill(link, spec_document())
    put_in_force(link, spec_document().job)
    journaled(link.journal_dir)
    append(link.history_file, b"{}\n", b"\n", root=link.root)
    append(link.tensorboard_dir / "events", b"e", root=link.root)
    path = write(link.checkpoints_dir, 4)
    assert in_force(own) == spec_document().job
    assert (own.model_dir / "m.py").read_text() == "print()"
    assert store.read_manifest(path, root=link.root).version == 4
    assert shelf.newest(own.checkpoints_dir)[1].version == 4
    assert own.history_file.read_text() == "{}\n"
