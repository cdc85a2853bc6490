"""The audit believes neither the queue nor a worker: journals with what must not be."""

import asyncio
import io
import json
import tracemalloc
from dataclasses import replace

import pytest
from elasticdl.data.reader import Shard
from elasticdl.job.words import JobState
from elasticdl.master.tasks import facts, model_facts
from elasticdl.master.tasks.audit import audit, to_json
from elasticdl.master.tasks.journal import Journal
from elasticdl.master.tasks.ledger import Ledger, Made
from elasticdl.master.tasks.queue_plan import QueuePlan
from elasticdl.views.terminal.audit import audit_view
from rich.console import Console

from tests.unit.master.calls.test_many_workers import bytecodes

PLAN = QueuePlan(
    (Shard("a", 0, 20), Shard("b", 5, 9)), batch_size=4, batches_per_task=2
)
# Of PLAN, in the order of giving out.
TASKS = [("a", 0, 8), ("a", 8, 16), ("a", 16, 20), ("b", 5, 9)]


def written(directory, events, plan=PLAN, *, succeeded=True):
    """Audit a journal of these events."""
    journal = Journal(directory)
    journal.append({"k": "open", "t": 1.0})
    journal.append({"k": "plan", "plan": plan.to_json()})
    for event in events:
        journal.append(event)
    if succeeded:
        journal.append({"k": "note", "kind": "state", "data": {"state": "succeeded"}})
    asyncio.run(journal.commit())
    journal.close()
    return audit(directory)


def lease(number, task_id, worker=0, **changes):
    source, start, end = TASKS[task_id]
    event = {"k": "lease", "w": worker, "l": number, "d": 9.0, "i": task_id}
    return {**event, "s": source, "a": start, "b": end, "e": 0, **changes}


def done(number, records, **changes):
    return {"k": "done", "l": number, "n": records, "st": 2, "t": 2.0, **changes}


def back(number, cause="killed"):
    return {"k": "back", "l": number, "c": cause, "t": 2.0}


RIGHT = [
    event
    for number, (_, start, end) in enumerate(TASKS)
    for event in (lease(number + 1, number), done(number + 1, end - start))
]


def test_a_right_journal_is_right(tmp_path):
    report = written(tmp_path, RIGHT)
    assert report.ok
    assert report.once
    assert [epoch.times for epoch in report.epochs] == [{1: 24}]


def test_a_launch_of_a_job_that_had_ended_is_no_restart_of_a_master(tmp_path):
    opened = {"k": "open", "t": 5.0}
    launched = {"k": "note", "kind": "run", "data": {"time": 1.0}}
    again = written(tmp_path / "launched", [launched, *RIGHT, opened, launched])
    assert again.master_restarts == 0
    lost = written(tmp_path / "lost", [launched, *RIGHT, opened, opened])
    assert lost.master_restarts == 2


def group_round(*members):
    """Note a round of workers, by (generation, index)."""
    data = model_facts.GroupRoundFact(
        number=1,
        members=tuple(
            model_facts.GroupMemberFact(number=number, index=index, address="", since=1)
            for number, index in members
        ),
        begins=True,
        restore_dir="",
        time=1.0,
        why="",
    )
    return {"k": "note", "kind": data.KIND, "data": data.tree()}


def test_records_of_a_groups_task_are_those_of_who_took_them(tmp_path):
    events = [group_round((11, 0), (12, 1)), lease(1, 0), done(1, 8)]
    events[-1]["sh"] = [[11, 3], [12, 5]]
    # A worker that came later, under an index that is used again; and a rest that
    # nobody named, which is the holder's.
    events += [group_round((11, 0), (15, 2)), lease(2, 1), done(2, 8)]
    events[-1]["sh"] = [[12, 1], [15, 4]]
    report = written(tmp_path, events, succeeded=False)
    assert report.faults == []
    assert report.epochs[0].by_worker == {"worker-0": 6, "worker-1": 6, "worker-2": 4}


@pytest.mark.parametrize(
    "shares", [[[11, 9]], [[99, 8]], [[11, 9], [12, -1]], [[11, 8], [12, 0]]]
)
def test_a_division_that_cannot_be_is_a_fault_and_counts_for_the_holder(
    tmp_path, shares
):
    events = [group_round((11, 0), (12, 1)), lease(1, 0, worker=1), done(1, 8)]
    events[-1]["sh"] = shares
    report = written(tmp_path, events, succeeded=False)
    (fault,) = report.faults
    assert fault.startswith("task 0 (epoch 1, a records 0 to 7) was reported done as")
    assert report.epochs[0].by_worker == {"worker-1": 8}


def test_a_task_trained_twice_that_never_came_back_is_a_fault(tmp_path):
    report = written(tmp_path, [*RIGHT, lease(9, 1, worker=1), done(9, 8)])
    assert not report.ok
    assert report.faults == [
        "task 1 (epoch 1, a records 8 to 15) was given out twice though it was done"
    ]


def test_a_task_in_the_hands_of_two_workers_is_a_fault(tmp_path):
    events = [lease(8, 0, worker=1), *RIGHT[:1], done(8, 8), *RIGHT[1:]]
    report = written(tmp_path, events)
    assert any(
        "given out twice though it had not come back" in f for f in report.faults
    )
    assert any("the report of lease 8 was counted" in fault for fault in report.faults)


def test_a_task_that_came_back_may_be_given_out_again(tmp_path):
    again = lease(9, 0, worker=1, c="killed")
    report = written(tmp_path, [lease(8, 0), back(8), again, done(9, 8), *RIGHT[2:]])
    assert report.ok
    assert not report.once
    assert [(one.cause, one.records) for one in report.replays] == [("killed", 8)]


def test_a_task_that_comes_again_as_other_records_is_a_fault(tmp_path):
    again = lease(9, 0, a=4)
    report = written(tmp_path, [lease(8, 0), back(8), again, done(9, 4), *RIGHT[2:]])
    assert "came back, and was given out again as a records 4 to 7" in report.faults[0]


@pytest.mark.parametrize(
    "wrong",
    [{"s": "c"}, {"a": 99, "b": 107}, {"e": 1}],
    ids=["source", "records", "epoch"],
)
def test_records_that_the_plan_does_not_have_are_a_fault(tmp_path, wrong):
    report = written(tmp_path, [lease(1, 0, **wrong), done(1, 8), *RIGHT[2:]])
    assert "which the plan does not have" in report.faults[0]
    assert [(gap.source, gap.start, gap.end) for gap in report.gaps] == [("a", 0, 8)]


def test_a_report_without_records_is_not_believed(tmp_path):
    report = written(tmp_path, [lease(1, 0), done(1, 0, st=0), *RIGHT[2:]])
    assert not report.ok
    assert (
        "was reported done by worker-0 with 0 records, expected 8" in report.faults[0]
    )


def test_a_report_of_rows_without_a_step_is_not_believed(tmp_path):
    report = written(tmp_path, [lease(1, 0), done(1, 8, st=0, r=8), *RIGHT[2:]])
    assert "was reported done without a step" in report.faults[0]


def test_a_reader_that_gave_fewer_records_than_it_listed_is_found(tmp_path):
    report = written(tmp_path, [lease(1, 0), done(1, 5, r=5), *RIGHT[2:]])
    assert "with 5 records, expected 8" in report.faults[0]


def test_what_a_feed_made_of_the_records_is_shown(tmp_path):
    ledger = Ledger.open(tmp_path, now=1.0)
    ledger.open_plan(PLAN)
    for made in (Made(5), Made(8), Made(0, bad=1, skipped_rows=3), Made(4)):
        task = ledger.lease(0, now=2.0, lease_seconds=60.0)
        records = task.task.records
        ledger.finish(task.lease_id, records=records, steps=1, made=made, now=3.0)
    asyncio.run(ledger.commit())
    ledger.close()
    report = audit(tmp_path)
    assert report.ok
    (epoch,) = report.epochs
    assert (epoch.rows, epoch.bad, epoch.skipped, epoch.filtered) == (17, 1, 3, 3)
    assert to_json(report)["epochs"][0]["filtered"] == 3
    console = Console(width=150)
    with console.capture() as shown:
        console.print(audit_view(report))
    for words in ("1 bad", "3 skipped (loss not finite)", "3 without a row (feed)"):
        assert words in shown.get()


LEFT_OUT = [
    (Made(3, bad=1), "1 bad"),
    (Made(3, skipped_rows=1), "1 skipped (loss not finite)"),
    (Made(3), "1 without a row (feed)"),
    (Made(5), "1 rows more than records (feed, or a wrong count"),
]


@pytest.mark.parametrize(("made", "words"), LEFT_OUT)
def test_records_that_were_left_out_are_not_trained_exactly_once(tmp_path, made, words):
    ledger = Ledger.open(tmp_path, now=1.0)
    ledger.open_plan(QueuePlan((Shard("a", 0, 4),), batch_size=4, batches_per_task=1))
    task = ledger.lease(0, now=2.0, lease_seconds=60.0)
    ledger.finish(task.lease_id, records=4, steps=1, made=made, now=3.0)
    asyncio.run(ledger.commit())
    ledger.close()
    report = audit(tmp_path)
    assert report.ok
    assert not report.once
    console = Console(width=150)
    with console.capture() as shown:
        console.print(audit_view(report))
    assert f"1 finished epoch was trained but for {words}" in shown.get()


def test_updates_that_died_with_a_ps_and_late_reports_are_told(tmp_path):
    note = {"k": "note", "kind": "lostUpdates", "data": {"ps": "ps-0", "count": 7}}
    late = [lease(8, 0), back(8), lease(9, 0, worker=1, c="lease expired")]
    late += [done(8, 8, late=1), done(9, 8)]
    report = written(tmp_path, [*late, *RIGHT[2:], note])
    assert report.ok
    assert not report.once
    assert (report.lost_updates, report.late_records) == (7, 8)
    console = Console(width=150)
    with console.capture() as shown:
        console.print(audit_view(report))
    assert "up to 8 of them again; 1 late report, 7 lost updates" in shown.get()


# -- steps ----------------------------------------------------------------------------


def trained(directory, plan, *, tasks=10**6, succeeded=True):
    ledger = Ledger.open(directory, now=1.0)
    ledger.open_plan(plan)
    for number in range(tasks):
        if number % 1000 == 0:
            asyncio.run(ledger.commit())
        leased = ledger.lease(0, now=2.0, lease_seconds=60.0)
        if leased is None:
            break
        records = leased.task.records
        ledger.finish(leased.lease_id, records=records, steps=1, now=3.0)
    if succeeded:
        ledger.record(facts.JobStateFact(state=JobState.SUCCEEDED))
    asyncio.run(ledger.commit())
    ledger.close()
    return audit(directory)


@pytest.mark.parametrize("max_steps", range(1, 14))
def test_max_steps_that_end_anywhere_raise_no_alarm(tmp_path, max_steps):
    """Three epochs have 5, 5 and 5 steps; the last may be cut inside its last task."""
    plan = replace(PLAN, epochs=3, max_steps=max_steps)
    plan = replace(plan, shards=(Shard("a", 0, 20),))
    report = trained(tmp_path, plan)
    assert report.ok, (report.gaps, report.faults)
    assert [epoch.finished for epoch in report.epochs if epoch.finished] == [True] * (
        max_steps // 5
    )


def test_a_job_that_ends_before_its_steps_is_found(tmp_path):
    plan = replace(PLAN, epochs=0, max_steps=50)
    report = trained(tmp_path, plan, tasks=7)
    assert report.faults == [
        "the job succeeded with tasks of 11 steps, expected 50 (maxSteps)"
    ]


def test_a_task_that_is_missing_when_the_steps_are_over_is_found(tmp_path):
    plan = replace(PLAN, max_steps=5)
    report = written(tmp_path, [*RIGHT[:2], lease(2, 1), *RIGHT[4:6]], plan)
    assert [(gap.source, gap.start, gap.end) for gap in report.gaps] == [("a", 8, 16)]


# -- rewinds --------------------------------------------------------------------------


def rewind(cursor, *, waiting=(), applied=(), credited=(), stopped=False, goes_on=None):
    position = {"cursor": cursor, "waiting": list(waiting), "stopped": stopped}
    return {
        "k": "rewind",
        "p": position,
        "a": list(applied),
        "c": "ps-0 was lost",
        "t": 3.0,
        "cr": list(credited),
        "cu": cursor if goes_on is None else goes_on,
        "wt": [],
    }


def test_what_a_rewind_undid_and_nobody_repeated_is_missed(tmp_path):
    report = written(tmp_path, [*RIGHT, rewind(2), *RIGHT[4:6]])
    assert [(gap.source, gap.start, gap.end) for gap in report.gaps] == [("b", 5, 9)]
    assert report.epochs[0].undone == 8


def test_a_position_that_calls_done_what_never_was_is_found(tmp_path):
    """A checkpoint of another job, or of another course, takes the cursor too far."""
    report = written(tmp_path, [*RIGHT[:2], rewind(3), lease(9, 3), done(9, 4)])
    assert [(gap.source, gap.start, gap.end) for gap in report.gaps] == [("a", 8, 20)]


def test_records_kept_by_a_rewind_that_no_parameters_hold_are_found(tmp_path):
    held = {"task_id": 1, "source": "a", "start": 8, "end": 16}
    wrong = rewind(2, waiting=[held], applied=[[1, 4]], credited=[[1, "a", 8, 16, 0]])
    report = written(tmp_path, [*RIGHT, wrong], succeeded=False)
    assert "a rewind kept [[1, 'a', 8, 16]]" in report.faults[0]


def test_a_stop_that_a_rewind_undid_does_not_hide_what_is_missed(tmp_path):
    stop = {"k": "stop", "t": 2.0}
    undone = [*RIGHT[:4], stop, rewind(1), *RIGHT[2:4]]
    report = written(tmp_path / "undone", undone)
    assert [(gap.source, gap.start, gap.end) for gap in report.gaps] == [
        ("a", 16, 20),
        ("b", 5, 9),
    ]
    assert written(tmp_path / "stopped", [*RIGHT[:4], stop]).ok


# -- large jobs -----------------------------------------------------------------------


def test_an_audit_holds_a_few_bytes_for_each_task(tmp_path):
    tasks = 40_000
    plan = QueuePlan(
        (Shard("a", 0, tasks // 4),), batch_size=1, batches_per_task=1, epochs=4
    )
    trained(tmp_path, plan)
    tracemalloc.start()
    try:
        report = audit(tmp_path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert report.ok
    assert len(report.epochs) == 4
    # 10 M tasks in 512 MiB are 53 bytes each. Beside them a batch is held at a time.
    assert peak < 40 * tasks + (1 << 20)


def test_an_audit_takes_no_more_for_many_short_epochs_than_for_few_long_ones(tmp_path):
    def audited(epochs):
        plan = QueuePlan(
            (Shard("a", 0, 400 // epochs),), batch_size=1, batches_per_task=1
        )
        place = tmp_path / str(epochs)
        trained(place, replace(plan, epochs=epochs))
        reports = []
        cost = bytecodes(lambda: reports.append(audit(place)))
        assert reports[0].ok
        assert len(reports[0].epochs) == epochs
        return cost

    # A look at all tasks for each epoch takes 100 times as many.
    assert audited(200) < 4 * audited(2)


def test_a_journal_cannot_steer_the_terminal_of_who_reads_the_audit(tmp_path):
    """A worker can write it, and who audits may have more rights."""
    evil = "\x1b]0;mine\x07\x1b[2J"
    source = f"a{evil}"
    plan = replace(PLAN, shards=(Shard(source, 0, 20),))
    events = [
        lease(1, 0, s=source),
        back(1),
        lease(2, 0, s=source, c=evil),
        lease(3, 0, s=f"b{evil}"),
        lease(4, 0, s=source, c=7),
    ]
    report = written(tmp_path, events, plan)
    assert report.gaps
    assert report.faults
    shown = io.StringIO()
    Console(file=shown, width=500, color_system=None).print(audit_view(report))
    said = shown.getvalue() + json.dumps(to_json(report), ensure_ascii=False)
    assert "missed: epoch 1, a]0;mine[2J, records" in said
    assert not set(said) & {"\x1b", "\x07"}
