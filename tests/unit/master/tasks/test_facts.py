"""The journal's facts: each kind is stored and read, as are those of before."""

import asyncio
import inspect
import json
import math
from pathlib import Path

import pytest
from elasticdl.errors import JournalError
from elasticdl.job import words
from elasticdl.master.tasks import facts, model_facts
from elasticdl.master.tasks.fact import Fact, StateFact
from elasticdl.master.tasks.journal_files import read_events
from elasticdl.master.tasks.ledger import Ledger

FIXTURES = Path(__file__).parents[3] / "fixtures"

# One of each kind, as it is stored: the format on disk.
STORED = {
    ("run", ""): {"time": 2.5, "before": 1.0},
    ("launch", ""): {"of": "abc"},
    ("state", "job"): {
        "name": "job",
        "state": "failed",
        "time": 3.0,
        "message": "no",
        "exit_code": 4,
    },
    ("state", "spec"): {"name": "spec", "job": {"name": "j"}},
    ("state", "rest"): {"name": "rest", "resting": True},
    ("state", "groupRound"): {
        "name": "groupRound",
        "number": 3,
        "members": [{"number": 7, "index": 2, "address": "10.0.0.1:50003", "since": 1}],
        "begins": False,
        "restore_dir": "",
        "time": 4.0,
        "why": "worker-1 ended",
        "cause": "ended",
        "changes_seconds": 2.5,
        "repairs": 1,
    },
    ("toldEnd", ""): {"run": 1},
    ("replica", ""): {
        "name": "ps-0",
        "role": "ps",
        "index": 0,
        "generation": 3,
        "priority": "high",
        "memory": 1024,
        "address": "127.0.0.1:1",
        "metrics_port": 7,
        "pid": 9,
        "registered": True,
        "ready": True,
        "initialized": False,
        "restore": {
            "dir": "/c/version-3",
            "handback": False,
            "min_version": 0,
            "version": 3,
            "rewind": 1,
            "alone": False,
        },
        "ended": False,
        "time": 4.0,
        "joined": 3.0,
    },
    ("relaunch", ""): {
        "replica": "worker-1",
        "reason": "killed",
        "cause": "killed",
        "replacement": "worker-3",
        "time": 4.0,
        "detail": "SIGKILL",
        "why_not": "",
        "seconds": None,
        "counted": True,
    },
    ("recovered", ""): {"record": 0, "seconds": 1.5},
    ("state", "relaunches"): {
        "name": "relaunches",
        "run": 1,
        "counted": [4.0],
        "counts": {"worker": {"killed": 1}},
        "causes": {"worker": {"killed": 1}},
    },
    ("state", "goodput"): {"name": "goodput", "seconds": {"train": 1.5}},
    ("state", "goodputLive"): {
        "name": "goodputLive",
        "workers": {"3": {"train": 1.5}},
    },
    ("model", ""): {"callbacks": "[]", "custom_reader": False, "parameters": 7},
    ("state", "initFrom"): {
        "name": "initFrom",
        "given": "/c",
        "dir": "/c/version-3",
        "bytes": 9,
        "dropped": ["/c/version-4"],
        "version": 3,
    },
    ("begun", ""): {"time": 4.0},
    ("checkpoint", ""): {"name": "newest", "version": 3, "dir": "/c/version-3"},
    ("state", "course"): {
        "name": "course",
        "run": "4f",
        "unnamed": False,
        "rewinds": 1,
        "limits": [[0, 3]],
    },
    ("rewind", ""): {"dir": "/c", "version": 3, "cause": "ps-0 was lost", "time": 4.0},
    ("rewound", ""): {"number": 1, "versions": [3, 2]},
    ("lostUpdates", ""): {"ps": "ps-0", "count": 7},
    ("missing", ""): {"name": "ps-0", "ranges": [[3, 5]]},
    ("reached", ""): {"name": "ps-0", "version": 5, "rewind": 1},
    ("evaluation", ""): {
        "version": 3,
        "metrics": {"loss": 0.5},
        "records": 8,
        "seconds": 1.0,
        "time": 6.0,
        "why": "steps",
        "number": 1000001,
        "epochs_done": 1,
        "point": "0.3",
        "kept": False,
        "aside": ["best"],
    },
    ("undone", ""): {"rounds": [1000001]},
    ("round", ""): {"epochs_done": 1, "number": 1000001},
    ("export", ""): {
        "target": "best",
        "paths": ["/out/best"],
        "point": "0.3",
        "round": 1000001,
    },
    ("prepared", ""): {"time": 1.0},
    ("shards", ""): {"shards": {"training": [["a", 0, 60], ["b", 0, 33]]}},
    ("start", ""): {"position": {"cursor": 0, "waiting": []}},
    ("badRecord", ""): {"source": "a", "record": 3, "reason": "torn"},
    ("skipped", ""): {"worker": "worker-0", "batches": 2},
}


def test_each_kind_is_in_the_one_list_and_has_an_example_here():
    concrete = {
        of
        for module in (facts, model_facts)
        for _, of in inspect.getmembers(module, inspect.isclass)
        if issubclass(of, Fact) and of not in {Fact, StateFact}
    }
    assert set(facts.KINDS) == concrete
    assert len(facts.KINDS) == len(concrete)
    assert {(of.KIND, of.NAME) for of in facts.KINDS} == set(STORED)


@pytest.mark.parametrize("kind", facts.KINDS, ids=lambda kind: kind.__name__)
def test_each_kind_is_read_and_written_as_it_is_stored(kind):
    stored = STORED[kind.KIND, kind.NAME]
    fact = facts.read(kind.KIND, json.loads(json.dumps(stored)))
    assert type(fact) is kind
    assert json.loads(json.dumps(fact.tree())) == stored


@pytest.mark.parametrize("kind", facts.KINDS, ids=lambda kind: kind.__name__)
def test_each_kind_comes_back_from_a_journal_equal_to_what_was_recorded(tmp_path, kind):
    fact = facts.read(kind.KIND, STORED[kind.KIND, kind.NAME])
    first = Ledger.open(tmp_path, now=1.0)
    first.record(fact)
    recorded = first.all_of(kind)
    asyncio.run(first.commit())
    first.close()
    again = Ledger.open(tmp_path, now=2.0)
    again.close()
    assert again.all_of(kind) == recorded == [fact]


def journals_of_before():
    for directory in (FIXTURES / "journal-1", FIXTURES / "job-before-rooms/journal"):
        for _, event in read_events(directory):
            if event["k"] == "note":
                yield event


def test_no_field_of_a_journal_of_before_is_passed_over():
    seen = set()
    for event in journals_of_before():
        fact = facts.read(event["kind"], event["data"])
        assert set(event["data"]) <= set(fact.tree()), event
        seen.add(event["kind"])
    assert len(seen) > 10


def test_metrics_that_are_no_numbers_come_back_as_such(tmp_path):
    stored = {**STORED["evaluation", ""], "metrics": {"loss": float("nan")}}
    first = Ledger.open(tmp_path, now=1.0)
    first.record(facts.read("evaluation", stored))
    asyncio.run(first.commit())
    first.close()
    again = Ledger.open(tmp_path, now=2.0)
    again.close()
    assert math.isnan(again.newest_of(model_facts.EvaluationFact).metrics["loss"])


def test_a_field_of_a_later_version_is_passed_over():
    stored = {**STORED["recovered", ""], "later": [1]}
    assert facts.read("recovered", stored) == facts.RecoveredFact(record=0, seconds=1.5)


def test_a_state_without_a_name_is_the_jobs():
    fact = facts.read("state", {"state": "succeeded"})
    assert fact == facts.JobStateFact(state=words.JobState.SUCCEEDED)


@pytest.mark.parametrize(
    ("kind", "stored", "told"),
    [
        ("weather", {}, "'weather', which this version does not know"),
        ("state", {"name": "mood"}, "'state mood', which this version does not know"),
        ("begun", {"v": 2, "time": 1.0}, "'begun' in version 2, which this version"),
        ("begun", {}, "'begun', which cannot be read: Field required at time"),
        ("begun", {"time": "soon"}, "at time; it is damaged, or another version"),
    ],
)
def test_what_this_version_cannot_read_is_refused_with_a_sentence(kind, stored, told):
    with pytest.raises(JournalError, match=told):
        facts.read(kind, stored)


def test_the_newest_is_that_of_the_name_or_of_all_if_no_name_is_given(tmp_path):
    ledger = Ledger.open(tmp_path, now=1.0)
    for name in ("ps-0", "ps-1", "ps-0"):
        ledger.record(model_facts.MissingFact(name=name, ranges=((1, 2),)))
    assert ledger.newest_of(model_facts.MissingFact).name == "ps-0"
    assert ledger.newest_of(model_facts.MissingFact, "ps-1").name == "ps-1"
    assert ledger.newest_of(model_facts.MissingFact, "ps-2") is None
    ledger.close()
