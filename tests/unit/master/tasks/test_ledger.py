"""Ledger, journal and audit: what is answered is on disk, and the proof of it."""

import asyncio
import shutil
from dataclasses import replace

import pytest
from elasticdl.data.reader import Shard
from elasticdl.errors import JournalError, SupersededError
from elasticdl.job.words import JobState
from elasticdl.master.tasks import facts, model_facts
from elasticdl.master.tasks.audit import audit, to_json
from elasticdl.master.tasks.ledger import Ledger
from elasticdl.master.tasks.queue_plan import QueuePlan
from hypothesis import given, settings
from hypothesis import strategies as st

PLAN = QueuePlan(
    (Shard("a", 0, 60), Shard("b", 0, 33)), batch_size=4, batches_per_task=2, epochs=2
)


def run(coroutine):
    return asyncio.run(coroutine)


def opened(directory, plan=PLAN):
    ledger = Ledger.open(directory, now=1.0)
    ledger.open_plan(plan)
    return ledger


def records_of(ledger, lease_id):
    """What an honest worker reports."""
    queue = ledger.queue
    if lease_id in queue.leased:
        return queue.leased[lease_id].task.records
    waiting = [t.records for t in queue.waiting if t.last_lease == lease_id]
    return waiting[0] if waiting else 8


def finish(ledger, lease_id, *, now=3.0, **told):
    records = records_of(ledger, lease_id)
    steps = -(-records // 4)
    return ledger.finish(lease_id, records=records, steps=steps, now=now, **told)


def work(ledger, worker=0, count=10**6):
    done = 0
    while done < count and (
        leased := ledger.lease(worker, now=2.0, lease_seconds=60.0)
    ):
        assert finish(ledger, leased.lease_id, now=3.0)
        done += 1
    return done


def closed(ledger):
    run(ledger.commit())
    ledger.close()


def test_restart_is_a_replay_of_the_same_events(tmp_path):
    first = opened(tmp_path)
    work(first, count=5)
    held = first.lease(1, now=4.0, lease_seconds=60.0)
    index, generation = first.next_worker_index(), first.next_generation()
    first.record(model_facts.CheckpointFact(version=2, dir="/x/version-2"))
    first.record(model_facts.CheckpointFact(version=3, dir="/x/version-3"))
    first.record(facts.SkippedFact(worker="worker-0", batches=3))
    closed(first)
    second = opened(tmp_path)
    assert second.queue.state() == first.queue.state()
    assert (first.generation, second.generation) == (1, 2)
    assert second.next_worker_index() == index + 1
    assert second.next_generation() == generation + 1
    assert second.all_of(model_facts.CheckpointFact) == [
        model_facts.CheckpointFact(version=3, dir="/x/version-3")
    ]
    assert second.all_of(facts.SkippedFact) == [
        facts.SkippedFact(worker="worker-0", batches=3)
    ]
    assert second.started == 1.0
    # The worker never stopped: its lease holds, and new ones get other ids.
    assert finish(second, held.lease_id, now=5.0)
    assert second.lease(1, now=6.0, lease_seconds=60.0).lease_id > held.lease_id
    closed(second)


def test_another_plan_on_the_same_journal_is_refused(tmp_path):
    closed(opened(tmp_path))
    ledger = Ledger.open(tmp_path, now=2.0)
    with pytest.raises(JournalError, match="begun with 93 records in 2 sources"):
        ledger.open_plan(QueuePlan((Shard("a", 0, 61),), 4, 2))
    closed(ledger)


def test_epochs_change_at_once_and_none_that_has_begun_is_cut(tmp_path):
    first = opened(tmp_path)
    per_epoch = first.queue.tasks_per_epoch
    work(first, count=per_epoch + 2)
    first.set_epochs(1)
    assert work(first) == per_epoch - 2
    first.set_epochs(3)
    work(first, count=1)
    closed(first)
    # Neither of the restarted master's own plan nor of the old file's.
    second = opened(tmp_path, replace(PLAN, epochs=3))
    assert second.plan.epochs == 3
    assert work(second) == per_epoch - 1
    assert second.queue.finished
    second.record(facts.JobStateFact(state=JobState.SUCCEEDED))
    closed(second)
    audited = audit(tmp_path)
    assert [(e.times, e.finished) for e in audited.epochs] == [({1: 93}, True)] * 3


def test_compaction_keeps_state_and_history(tmp_path):
    ledger = opened(tmp_path)

    async def busy():
        for _ in range(12):
            work(ledger, count=1)
            ledger.record(model_facts.UndoneFact(rounds=(ledger.queue.done_tasks,)))
            await ledger.commit()
            if ledger.wants_compaction(limit=500):
                await ledger.compact()
        await ledger.commit()

    run(busy())
    ledger.close()
    assert len(list(tmp_path.glob("snapshot-*.json"))) == 1
    assert len(list(tmp_path.glob("*.jsonl.gz"))) > 1
    again = opened(tmp_path)
    assert again.queue.state() == ledger.queue.state()
    assert again.all_of(model_facts.UndoneFact) == ledger.all_of(model_facts.UndoneFact)
    work(again)
    again.record(facts.JobStateFact(state=JobState.SUCCEEDED))
    closed(again)
    report = audit(tmp_path)
    assert report.ok
    assert [e.times for e in report.epochs] == [{1: 93}, {1: 93}]


def test_events_of_the_moment_of_compaction_are_not_lost(tmp_path):
    ledger = opened(tmp_path)
    work(ledger, count=3)

    async def meanwhile():
        compacting = asyncio.ensure_future(ledger.compact())
        while not compacting.done():
            work(ledger, count=1)
            await ledger.commit()
            await asyncio.sleep(0)
        work(ledger, count=1)
        await ledger.commit()

    run(meanwhile())
    ledger.close()
    again = opened(tmp_path)
    assert again.queue.state() == ledger.queue.state()
    closed(again)
    assert (
        len(audit(tmp_path, list_trained=True).trained) == ledger.queue.done_tasks > 4
    )


def test_snapshot_without_its_segment_is_used_and_not_forgotten(tmp_path):
    ledger = opened(tmp_path)
    work(ledger, count=4)
    run(ledger._journal.compact(ledger._state))
    ledger.close()
    (tmp_path / "00000002.jsonl").unlink()  # went down between rename and creation
    again = opened(tmp_path)
    work(again, count=2)
    closed(again)
    last = opened(tmp_path)
    assert last.queue.done_tasks == 6
    closed(last)


@pytest.mark.parametrize("what", ["folder", "segment", "taken over"])
def test_a_journal_that_was_removed_is_told_as_that_not_as_another_master(
    tmp_path, what
):
    folder = tmp_path / "journal"
    ledger = opened(folder)
    run(ledger.commit())
    if what == "taken over":
        Ledger.open(folder, now=2.0).close()
    if what == "folder":
        shutil.rmtree(folder)
    else:
        (folder / "00000001.jsonl").unlink()
    work(ledger, count=1)
    with pytest.raises(SupersededError) as told:
        run(ledger.commit())
    ledger.close()
    removed = what != "taken over"
    assert (
        "00000001.jsonl: this part of the journal was removed" in str(told.value)
    ) == removed
    assert ("another master of this job" in str(told.value)) != removed


def test_audit_counts_replays_and_late_reports(tmp_path):
    ledger = opened(tmp_path)
    ledger.lease(0, now=2.0, lease_seconds=5.0)
    assert [t.cause for t in ledger.expire(8.0)] == ["lease expired"]
    ledger.lease(1, now=9.0, lease_seconds=60.0)
    assert finish(ledger, 1, now=9.5) is None  # worker-0, late
    ledger.lease(2, now=9.0, lease_seconds=60.0)
    assert len(ledger.recover(2, cause="killed", now=10.0)) == 1
    finish(ledger, 2, now=11.0)
    work(ledger)
    closed(ledger)
    report = audit(tmp_path)
    assert report.ok
    assert report.late_reports == 1
    assert {(r.cause, r.tasks) for r in report.replays} == {
        ("lease expired", 1),
        ("killed", 1),
    }
    assert ledger.replayed_records == sum(r.records for r in report.replays) == 16
    assert [r.workers for r in ledger.replays] == [
        ["worker-0", "worker-1"],
        ["worker-2", "worker-0"],
    ]
    assert to_json(report)["ok"]


def test_audit_finds_a_missed_record(tmp_path):
    """A queue that loses a task is caught: the audit does not believe the queue."""
    ledger = opened(tmp_path)
    leased = ledger.lease(0, now=2.0, lease_seconds=60.0)
    ledger.queue._leases.pop(leased.lease_id)  # the defect: dropped in silence
    work(ledger)
    ledger.record(facts.JobStateFact(state=JobState.SUCCEEDED))
    closed(ledger)
    report = audit(tmp_path)
    assert not report.ok
    assert [(g.epoch, g.source, g.start, g.end) for g in report.gaps] == [
        (0, "a", 0, 8)
    ]


def test_audit_of_no_journal_says_so(tmp_path):
    with pytest.raises(JournalError, match="no journal"):
        audit(tmp_path / "nothing")


def test_rewind_undoes_what_came_after_and_audit_knows(tmp_path):
    ledger = opened(tmp_path)
    work(ledger, count=3)
    ledger.lease(7, now=2.0, lease_seconds=60.0)
    position = ledger.position()
    work(ledger, count=2)
    ledger.rewind(position, applied={3: 4}, cause="ps-0 lost", now=5.0)
    assert ledger.rewinds == 1
    work(ledger)
    ledger.record(facts.JobStateFact(state=JobState.SUCCEEDED))
    closed(ledger)
    report = audit(tmp_path)
    assert report.ok
    assert [e.times for e in report.epochs] == [{1: 93}, {1: 93}]
    assert report.epochs[0].undone == 16
    assert ledger.queue.done_records == 186


def test_report_repeated_after_a_rewind_does_not_count(tmp_path):
    """A reply is lost with the master, the PS rewind, and the worker reports again."""
    ledger = opened(tmp_path)
    leased = ledger.lease(0, now=2.0, lease_seconds=60.0)
    position = ledger.position()
    assert finish(ledger, leased.lease_id, now=3.0)
    ledger.rewind(position, applied={}, cause="ps-0 lost", now=4.0)
    assert finish(ledger, leased.lease_id, now=5.0) is None
    work(ledger)
    ledger.record(facts.JobStateFact(state=JobState.SUCCEEDED))
    closed(ledger)
    assert audit(tmp_path).ok
    assert ledger.queue.done_records == 186


_actions = st.lists(
    st.tuples(
        st.sampled_from(
            ["lease", "finish", "duplicate", "kill", "expire", "fail", "drain",
             "restart", "checkpoint", "rewind", "compact"]
        ),
        st.integers(0, 3),
    ),
    max_size=120,
)  # fmt: skip


@settings(max_examples=300)
@given(_actions, st.booleans(), st.sampled_from([0, 17]))
def test_any_schedule_of_faults_leaves_every_record_trained(
    tmp_path_factory, actions, shuffle, max_steps
):
    directory = tmp_path_factory.mktemp("journal")
    plan = QueuePlan(
        PLAN.shards, 4, 2, epochs=2, shuffle=shuffle, seed=3, max_steps=max_steps
    )
    ledger = opened(directory, plan)
    now, saved, old = 0.0, None, []
    for action, worker in actions:
        now += 1.0
        held = ledger.queue.leases_of(worker)
        old += held
        if action == "lease":
            ledger.lease(worker, now=now, lease_seconds=20.0)
        elif action == "finish" and held:
            assert finish(ledger, held[0], now=now)
        elif action == "duplicate" and old:
            finish(ledger, old[-1 - worker % len(old)], now=now)
        elif action == "kill":
            ledger.recover(worker, cause="killed", now=now)
        elif action == "expire":
            ledger.expire(now)
        elif action == "fail" and held:
            ledger.give_back(held[0], cause="user code", now=now, failed=True)
        elif action == "drain" and held:
            ledger.give_back(held[0], cause="drained", now=now, untouched=True)
        elif action == "checkpoint":
            saved = ledger.position()
        elif action == "rewind" and saved is not None:
            applied = {t["task_id"]: worker * 3 for t in saved["waiting"]}
            # The snapshot was taken a little later: it holds parts of later tasks.
            later = range(saved["cursor"], ledger.queue.cursor)
            applied |= dict.fromkeys(later, worker * 4)
            ledger.rewind(saved, applied=applied, cause="ps lost", now=now)
            saved = None
        elif action == "compact":
            run(ledger._journal.compact(ledger._state))
        elif action == "restart":
            closed(ledger)
            before = ledger.queue.state()
            ledger = opened(directory, plan)
            assert ledger.queue.state() == before
    for worker in range(4):
        ledger.recover(worker, cause="killed", now=now)
    work(ledger)
    assert ledger.queue.finished
    expected = 93 * 2 if not max_steps else None
    if expected:
        assert ledger.queue.done_records == expected
    else:
        assert ledger.queue.done_steps == max_steps
    if not max_steps:
        ledger.record(facts.JobStateFact(state=JobState.SUCCEEDED))
    closed(ledger)
    report = audit(directory)
    assert report.ok, report.gaps
    if not max_steps:
        assert len(report.epochs) == 2
        assert all(e.finished and 0 not in e.times for e in report.epochs)
