"""The journal: torn writes, old masters that wake up, full disks, other versions."""

import asyncio
import gzip
import json
import os
import resource
import shutil
from pathlib import Path

import pytest
from elasticdl.data.reader import Shard
from elasticdl.errors import JournalError, SupersededError
from elasticdl.job.words import JobState
from elasticdl.master.tasks import facts, journal_files, model_facts
from elasticdl.master.tasks.audit import audit
from elasticdl.master.tasks.journal import Journal
from elasticdl.master.tasks.journal_files import read_events
from elasticdl.master.tasks.ledger import Ledger
from elasticdl.master.tasks.permutation import Permutation
from elasticdl.master.tasks.queue_plan import QueuePlan
from elasticdl.running import RunningClock

PLAN = QueuePlan((Shard("a", 0, 400),), batch_size=4, batches_per_task=2, shuffle=True)
# Written by the code of the release before batches, snapshot and packed parts too.
FORMAT_1 = Path(__file__).parents[3] / "fixtures/journal-1"
PLAN_1 = QueuePlan(
    (Shard("a", 0, 60), Shard("b", 0, 33)),
    batch_size=4,
    batches_per_task=2,
    epochs=3,
    shuffle=True,
    seed=3,
)


def run(coroutine):
    return asyncio.run(coroutine)


def opened(directory, plan=PLAN):
    ledger = Ledger.open(directory, now=1.0)
    ledger.open_plan(plan)
    return ledger


def train(ledger, count, worker=0):
    for _ in range(count):
        leased = ledger.lease(worker, now=2.0, lease_seconds=60.0)
        ledger.finish(leased.lease_id, records=8, steps=2, now=3.0)


def closed(ledger):
    run(ledger.commit())
    ledger.close()


def done_tasks(directory):
    ledger = Ledger.open(directory, now=5.0)
    ledger.close()
    return ledger.queue.done_tasks if ledger.queue else 0


def newest(directory):
    return max(directory.glob("*.jsonl"))


def two_batches(directory):
    """Write a batch that was answered and a second one; return where that begins."""
    ledger = opened(directory)
    train(ledger, 3)
    run(ledger.commit())
    answered = newest(directory).stat().st_size
    train(ledger, 4)
    closed(ledger)
    return answered


# -- torn writes ----------------------------------------------------------------------


def test_a_write_torn_at_any_byte_loses_that_write_alone(tmp_path):
    answered = two_batches(tmp_path / "whole")
    whole = newest(tmp_path / "whole").read_bytes()
    for end in range(answered, len(whole)):
        torn = tmp_path / f"{end}"
        torn.mkdir()
        (torn / "00000001.jsonl").write_bytes(whole[:end])
        assert done_tasks(torn) == 3
        shutil.rmtree(torn)
    assert done_tasks(tmp_path / "whole") == 7


@pytest.mark.parametrize("page", [1, 16, 64, 512])
def test_a_write_of_which_any_pages_are_missing_loses_that_write_alone(tmp_path, page):
    answered = two_batches(tmp_path / "whole")
    whole = newest(tmp_path / "whole").read_bytes()
    for start in range(answered, len(whole), page):
        torn = tmp_path / f"{start}"
        torn.mkdir()
        nul = b"\0" * min(page, len(whole) - start)
        (torn / "00000001.jsonl").write_bytes(
            whole[:start] + nul + whole[start + len(nul) :]
        )
        assert done_tasks(torn) == 3
        shutil.rmtree(torn)


def test_a_file_that_was_made_longer_before_its_bytes_came_loses_nothing(tmp_path):
    two_batches(tmp_path)
    with newest(tmp_path).open("ab") as file:
        file.write(b"\0" * 5000)
    assert done_tasks(tmp_path) == 7
    assert done_tasks(tmp_path) == 7  # the next master too


def test_what_was_torn_stays_dropped_when_others_have_written_after_it(tmp_path):
    answered = two_batches(tmp_path)
    path = newest(tmp_path)
    path.write_bytes(path.read_bytes()[: answered + 40])
    second = opened(tmp_path)
    train(second, 2)
    closed(second)
    assert done_tasks(tmp_path) == 5
    assert len(audit(tmp_path, list_trained=True).trained) == 5


def test_what_is_gone_on_from_is_durable_though_its_writer_died_before_its_sync(
    tmp_path, monkeypatch
):
    """Else a machine that fails later tears the middle of the journal."""
    closed(opened(tmp_path))
    of_the_first = newest(tmp_path).stat().st_ino
    synced = []
    real = os.fdatasync

    def sync(fd):
        synced.append(os.fstat(fd).st_ino)
        real(fd)

    monkeypatch.setattr(os, "fdatasync", sync)
    second = opened(tmp_path)
    assert of_the_first in synced
    train(second, 1)
    closed(second)
    assert newest(tmp_path).stat().st_ino in synced


def test_damage_before_a_whole_batch_is_an_error_that_says_where(tmp_path):
    answered = two_batches(tmp_path)
    path = newest(tmp_path)
    damaged = bytearray(path.read_bytes())
    damaged[answered - 5] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(JournalError, match=r"after byte 0 it is damaged.*initFrom"):
        Ledger.open(tmp_path, now=2.0)


def test_a_missing_part_is_an_error_that_names_it(tmp_path):
    for _ in range(3):
        ledger = opened(tmp_path)
        train(ledger, 2)
        closed(ledger)
    (tmp_path / "00000002.jsonl").unlink()
    with pytest.raises(JournalError, match=r"00000002.jsonl: this part .* is missing"):
        Ledger.open(tmp_path, now=2.0)
    with pytest.raises(JournalError, match="is missing"):
        audit(tmp_path)


def test_a_cut_packed_part_is_a_clear_error(tmp_path):
    ledger = opened(tmp_path)
    train(ledger, 20)
    run(ledger._journal.compact(ledger._state))
    ledger.close()
    packed = tmp_path / "00000001.jsonl.gz"
    packed.write_bytes(packed.read_bytes()[:-30])
    with pytest.raises(JournalError, match="packed part of the journal is damaged"):
        audit(tmp_path)


# -- masters that are not the last ----------------------------------------------------


def test_an_old_master_that_wakes_up_answers_nothing_and_changes_nothing(tmp_path):
    old = opened(tmp_path)
    train(old, 3)
    run(old.commit())
    new = opened(tmp_path)
    train(new, 30)
    run(new.commit())
    train(old, 5)
    with pytest.raises(SupersededError, match="another master of this job"):
        run(old.commit())
    with pytest.raises(SupersededError):
        run(old.hold())
    run(new.hold())
    closed(new)
    old.close()
    assert done_tasks(tmp_path) == 33


def test_what_an_old_master_wrote_when_the_next_had_read_counts_for_nobody(tmp_path):
    """Its write had left the machine when it was cut off, and comes late."""
    old = opened(tmp_path)
    train(old, 3)
    run(old.commit())
    new = opened(tmp_path)
    train(new, 4)
    run(new.commit())
    train(old, 5, worker=1)
    late = journal_files.batch(old._journal._take())
    os.pwrite(old._journal._fd, late, old._journal._size)
    old.close()
    closed(new)
    assert done_tasks(tmp_path) == 7
    report = audit(tmp_path, list_trained=True)
    assert report.ok
    assert {one.worker for one in report.trained} == {"worker-0"}
    # ... and it does not come back from a packed part either.
    third = opened(tmp_path)
    run(third._journal.compact(third._state))
    third.close()
    assert len(audit(tmp_path, list_trained=True).trained) == 7


def test_a_write_during_which_another_master_took_over_is_not_answered(
    tmp_path, monkeypatch
):
    old = opened(tmp_path)
    run(old.commit())
    train(old, 2)
    write = os.pwrite

    def taken_over(*given):
        done = write(*given)
        Ledger.open(tmp_path, now=2.0).close()
        return done

    monkeypatch.setattr(os, "pwrite", taken_over)
    with pytest.raises(SupersededError):
        run(old.commit())
    old.close()


def test_an_old_master_makes_no_snapshot(tmp_path):
    old = opened(tmp_path)
    train(old, 3)
    run(old.commit())
    new = opened(tmp_path)
    train(new, 4)
    run(new.commit())
    with pytest.raises(SupersededError):
        run(old._journal.compact(old._state))
    old.close()
    closed(new)
    assert not list(tmp_path.glob("snapshot-*"))
    assert done_tasks(tmp_path) == 7


def test_a_master_whose_folder_was_moved_aside_answers_nothing(tmp_path):
    old = opened(tmp_path / "job")
    run(old.commit())
    (tmp_path / "job").rename(tmp_path / "job~1")
    new = opened(tmp_path / "job")
    train(new, 2)
    run(new.commit())
    train(old, 1)
    with pytest.raises(SupersededError):
        run(old.commit())
    old.close()
    closed(new)
    assert done_tasks(tmp_path / "job") == 2


def test_masters_that_begin_at_the_same_time_are_told_apart(tmp_path):
    first = Journal(tmp_path)
    second = Journal(tmp_path)
    first.append({"k": "note"})
    with pytest.raises(SupersededError):
        run(first.commit())
    second.append({"k": "note", "n": 2})
    run(second.commit())
    assert [event["n"] for _, event in read_events(tmp_path)] == [2]
    first.close()
    second.close()


# -- versions -------------------------------------------------------------------------


def test_a_journal_of_format_1_is_gone_on_with(tmp_path):
    shutil.copytree(FORMAT_1, tmp_path, dirs_exist_ok=True)
    ledger = opened(tmp_path, PLAN_1)
    assert (ledger.generation, ledger.queue.done_records) == (3, 157)
    assert [lease.task_id for lease in ledger.queue.leased.values()] == [21]
    assert ledger.replayed_records == 8
    assert {fact.name for fact in ledger.all_of(facts.ReplicaFact)} == {
        "worker-0",
        "worker-2",
        "worker-3",
        "ps-0",
    }
    assert ledger.newest_of(model_facts.LostUpdatesFact).count == 7
    assert ledger.finish(27, records=4, steps=1, now=2000.0)
    while leased := ledger.lease(0, now=2000.0, lease_seconds=60.0):
        records = leased.task.records
        ledger.finish(leased.lease_id, records=records, steps=1, now=2001.0)
    ledger.record(facts.JobStateFact(state=JobState.SUCCEEDED))
    closed(ledger)
    again = opened(tmp_path, PLAN_1)
    assert again.queue.done_records == 3 * 93
    again.close()
    report = audit(tmp_path)
    assert report.ok
    assert [epoch.times for epoch in report.epochs] == [{1: 93}] * 3
    assert (report.late_reports, report.rewinds) == (1, 1)


def test_a_journal_of_format_1_torn_in_its_last_line_is_gone_on_with(tmp_path):
    shutil.copytree(FORMAT_1, tmp_path, dirs_exist_ok=True)
    with newest(tmp_path).open("ab") as file:
        file.write(b'0badc0de {"k":"lease","w')
    first = opened(tmp_path, PLAN_1)
    closed(first)
    second = opened(tmp_path, PLAN_1)
    assert second.queue.done_records == 157
    second.close()


def test_a_journal_of_format_1_damaged_in_the_middle_names_the_line(tmp_path):
    shutil.copytree(FORMAT_1, tmp_path, dirs_exist_ok=True)
    path = newest(tmp_path)
    path.write_bytes(path.read_bytes().replace(b'"w":0', b'"w":1', 1))
    with pytest.raises(JournalError, match=r"line \d is damaged.*initFrom"):
        Ledger.open(tmp_path, now=2.0)


def test_files_that_are_no_parts_of_it_are_left_alone(tmp_path):
    """A file server of macOS adds such a name for each."""
    ledger = opened(tmp_path)
    train(ledger, 3)
    closed(ledger)
    others = [
        "._00000001.jsonl",
        "copy.jsonl",
        "00000001 (2).jsonl.gz",
        "snapshot-.json",
    ]
    for name in others:
        (tmp_path / name).write_text("x")
    assert done_tasks(tmp_path) == 3
    assert {path.name for path in tmp_path.iterdir()} >= set(others)


def test_a_journal_of_a_later_version_is_refused(tmp_path):
    closed(opened(tmp_path))
    path = newest(tmp_path)
    later = {"k": "segment", "v": 3, "read": []}
    path.write_bytes(journal_files.batch([journal_files.encoded(later)]))
    with pytest.raises(JournalError, match="got a journal of format 3, expected at mo"):
        Ledger.open(tmp_path, now=2.0)


def test_an_unknown_event_is_refused_with_a_sentence(tmp_path):
    journal = Journal(tmp_path)
    journal.append({"k": "teleport"})
    run(journal.commit())
    journal.close()
    with pytest.raises(JournalError, match="unknown kind 'teleport': another version"):
        Ledger.open(tmp_path, now=2.0)


def test_tasks_that_would_be_other_ones_today_are_an_error(tmp_path, monkeypatch):
    """Another order of the same epoch leaves records out, and nobody would notice."""
    ledger = opened(tmp_path)
    train(ledger, 10)
    closed(ledger)
    order = Permutation.__getitem__
    monkeypatch.setattr(
        Permutation, "__getitem__", lambda self, place: order(self, (place + 1) % 50)
    )
    with pytest.raises(JournalError, match=r"written by other rules.* says a = \d+"):
        Ledger.open(tmp_path, now=2.0)


# -- one moment, one batch ------------------------------------------------------------


def test_a_rewind_and_its_note_come_back_together_or_not_at_all(tmp_path):
    ledger = opened(tmp_path / "whole")
    train(ledger, 3)
    position = ledger.position()
    train(ledger, 3)
    run(ledger.commit())
    answered = newest(tmp_path / "whole").stat().st_size
    ledger.rewind(position, applied={}, cause="ps-0 was lost", now=4.0)
    ledger.record(model_facts.RewindFact(dir="/x/version-9", version=9))
    closed(ledger)
    whole = newest(tmp_path / "whole").read_bytes()
    for end in range(answered, len(whole) + 1):
        torn = tmp_path / f"{end}"
        torn.mkdir()
        (torn / "00000001.jsonl").write_bytes(whole[:end])
        again = Ledger.open(torn, now=5.0)
        again.close()
        noted = len(again.all_of(model_facts.RewindFact))
        assert again.rewinds == noted == (end == len(whole))
        shutil.rmtree(torn)


# -- the disk -------------------------------------------------------------------------


def test_many_callers_share_a_write(tmp_path):
    async def crowd():
        journal = Journal(tmp_path)

        async def one(number):
            journal.append({"k": "note", "n": number})
            await journal.commit()

        await asyncio.gather(*(one(n) for n in range(200)))
        journal.close()
        return journal.writes

    writes = run(crowd())
    assert len(list(read_events(tmp_path))) == 200
    assert writes <= 3


class FullDisk:
    """Makes every write past `size` bytes of a file fail, as on a full disk."""

    def __enter__(self):
        self._old = resource.getrlimit(resource.RLIMIT_FSIZE)
        return self

    def allow(self, size):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, self._old[1]))

    def __exit__(self, *_):
        resource.setrlimit(resource.RLIMIT_FSIZE, self._old)


def test_full_disk_is_waited_for_and_nothing_is_acknowledged_meanwhile(tmp_path):
    async def fill():
        with FullDisk() as disk:
            journal = Journal(tmp_path, wait_seconds=30.0)
            journal.append({"k": "note", "n": 1})
            await journal.commit()
            disk.allow(journal.segment_bytes + 5)  # the next line would be torn
            journal.append({"k": "note", "n": 2})
            waiting = asyncio.ensure_future(journal.commit())
            while journal.blocked_since is None:
                await asyncio.sleep(0.01)
            assert not waiting.done()
            disk.allow(1 << 20)
            await waiting
            assert journal.blocked_since is None
            journal.close()

    run(fill())
    assert [e["n"] for _, e in read_events(tmp_path)] == [1, 2]


def test_a_full_disk_is_not_given_up_for_time_in_which_the_master_stood_still(tmp_path):
    async def fill():
        now = [0.0]
        with FullDisk() as disk:
            journal = Journal(tmp_path, clock=RunningClock(lambda: now[0]))
            disk.allow(0)
            journal.append({"k": "note", "n": 1})
            waiting = asyncio.ensure_future(journal.commit())
            while journal.blocked_since is None:
                await asyncio.sleep(0.01)
            now[0] += 700.0  # a container that is frozen, and thawed
            await asyncio.sleep(1.2)  # it tries again
            assert not waiting.done()
            disk.allow(1 << 20)
            await waiting
            journal.close()

    run(fill())


def test_disk_that_stays_full_is_an_error_that_says_what_to_do(tmp_path):
    async def fill():
        with FullDisk() as disk:
            journal = Journal(tmp_path, wait_seconds=0.0)
            disk.allow(0)
            journal.append({"k": "note"})
            with pytest.raises(JournalError, match=r"cannot write.*free some room"):
                await journal.commit()
            with pytest.raises(JournalError):
                await journal.commit()
            journal.close()

    run(fill())


def test_a_snapshot_without_room_is_not_tried_at_every_turn(tmp_path):
    asked = 0

    async def fill():
        nonlocal asked
        with FullDisk() as disk:
            journal = Journal(tmp_path)

            def state():
                nonlocal asked
                asked += 1
                return {"padding": "x" * 10_000}

            disk.allow(9_000)
            for number in range(200):
                journal.append({"k": "note", "n": number})
                await journal.commit()
                if journal.wants_snapshot(1000):
                    await journal.compact(state)
            journal.close()
            return journal.snapshots_failed

    failed = run(fill())
    assert asked == failed
    assert 2 <= failed <= 12  # of 170 turns past the limit
    assert len(list(read_events(tmp_path))) == 200
    assert not list(tmp_path.glob("*.tmp"))


def test_a_snapshot_that_cannot_be_put_in_place_loses_no_event(tmp_path, monkeypatch):
    ledger = opened(tmp_path)
    train(ledger, 5)

    def refuse(*_, **__):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(os, "rename", refuse)
        run(ledger.compact())
    train(ledger, 5)
    closed(ledger)
    assert done_tasks(tmp_path) == 10


def test_a_damaged_snapshot_is_replaced_by_all_that_is_older(tmp_path):
    ledger = opened(tmp_path)
    train(ledger, 5)
    run(ledger._journal.compact(ledger._state))
    train(ledger, 5)
    closed(ledger)
    next(tmp_path.glob("snapshot-*.json")).write_text("{}")
    assert done_tasks(tmp_path) == 10


def test_a_packed_part_is_whole_and_holds_what_the_plain_one_did(tmp_path):
    ledger = opened(tmp_path)
    train(ledger, 5)
    run(ledger.commit())
    plain = (tmp_path / "00000001.jsonl").read_bytes()
    run(ledger._journal.compact(ledger._state))
    ledger.close()
    assert gzip.decompress((tmp_path / "00000001.jsonl.gz").read_bytes()) == plain
    assert not (tmp_path / "00000001.jsonl").exists()
    assert json.loads(newest(tmp_path).read_bytes() or "{}") == {}


def test_a_packed_part_is_on_the_disk_before_the_plain_one_is_gone(
    tmp_path, monkeypatch
):
    ledger = opened(tmp_path)
    train(ledger, 5)
    plain, packed = tmp_path / "00000001.jsonl", tmp_path / "00000001.jsonl.gz"
    synced, seen = set(), []
    real_sync, real_unlink = os.fsync, os.unlink

    def sync(fd):
        real_sync(fd)
        synced.add((os.fstat(fd).st_ino, packed.exists()))

    def unlink(name, *, dir_fd):
        if name == plain.name:
            # Its bytes before it had its name, and then the name.
            seen.append((packed.stat().st_ino, False) in synced)
            seen.append((tmp_path.stat().st_ino, True) in synced)
        real_unlink(name, dir_fd=dir_fd)

    with monkeypatch.context() as watched:
        watched.setattr(os, "fsync", sync)
        watched.setattr(os, "unlink", unlink)
        run(ledger._journal.compact(ledger._state))
    ledger.close()
    assert seen == [True, True]


def test_journal_in_an_unwritable_place_is_a_clear_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match="cannot write the journal"):
        Ledger.open(tmp_path / "file", now=1.0)
