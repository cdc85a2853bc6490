"""A journal whose disk, or other storage of the master, does not answer."""

import asyncio
import threading
import time

import pytest
from elasticdl.errors import JournalError
from elasticdl.master.tasks import journal as journals
from elasticdl.master.tasks.journal import Journal


def test_threads_of_other_storage_that_hangs_do_not_hold_the_journal_up(tmp_path):
    """A checkpoint's volume may have all that the loop gives out."""
    answers = threading.Event()

    async def story():
        loop = asyncio.get_running_loop()
        hung = [loop.run_in_executor(None, answers.wait) for _ in range(64)]
        journal = Journal(tmp_path)
        journal.append({"k": "a"})
        try:
            await asyncio.wait_for(journal.commit(), 10.0)
        finally:
            answers.set()
        journal.close()
        await asyncio.gather(*hung)

    asyncio.run(story())


def test_an_error_of_the_writing_itself_is_no_commit_that_never_ends(
    tmp_path, monkeypatch
):
    def sync(descriptor):
        raise MemoryError

    async def story():
        journal = Journal(tmp_path)
        monkeypatch.setattr(journals, "_sync", sync)
        for _ in range(2):
            journal.append({"k": "a"})
            with pytest.raises(JournalError, match="MemoryError"):
                await asyncio.wait_for(journal.commit(), 5.0)
        journal.close()

    asyncio.run(story())


def test_a_compaction_that_is_cancelled_leaves_no_event_behind(tmp_path, monkeypatch):
    real = journals._sync

    def slow(descriptor):
        time.sleep(0.2)
        real(descriptor)

    async def story():
        journal = Journal(tmp_path)
        monkeypatch.setattr(journals, "_sync", slow)
        journal.append({"k": "a"})
        compacting = asyncio.ensure_future(journal.compact(dict))
        await asyncio.sleep(0.05)
        compacting.cancel()
        await asyncio.wait_for(journal.commit(), 5.0)
        await journal.hold()
        journal.close()

    asyncio.run(story())


def test_a_journal_that_failed_is_tried_by_nobody_who_waited_for_its_disk(
    tmp_path, monkeypatch
):
    """Else each of them waits for as long once more."""
    monkeypatch.setattr(journals, "_NO_ANSWER_SECONDS", 0.05)
    monkeypatch.setattr(journals, "_LEAST_SECONDS", 0.1)
    answers, tries = threading.Event(), []

    def sync(descriptor):
        tries.append(descriptor)
        answers.wait()

    async def story():
        journal = Journal(tmp_path, wait_seconds=0.1)
        monkeypatch.setattr(journals, "_sync", sync)
        journal.append({"k": "a"})
        first = asyncio.ensure_future(journal.commit())
        await asyncio.sleep(0.02)
        asked = [first, journal.hold(), journal.compact(dict)]
        found = await asyncio.gather(*asked, return_exceptions=True)
        answers.set()
        assert [type(one) for one in found] == [JournalError] * 3
        assert len({str(one) for one in found}) == 1
        journal.close()

    asyncio.run(story())
    assert len(tries) == 1
