"""Grants: what is read of an annotation, and what of it holds for a job."""

import math

import pytest
from elasticdl.job.grant import (
    GRANT_SECONDS,
    Grant,
    Read,
    format_grant,
    parse_grant,
    what_holds,
)
from elasticdl.job.spec.replicas import WorkerSpec
from elasticdl.job.status import GrantStatus
from elasticdl.job.values.file import parse_values

NOW = 1_795_400_000.0
ELASTIC = WorkerSpec(replicas=4, min=2, max=10)
GRANT = Grant(6, leave=(3, 1), until=NOW + 60, by="a", why="make room for ml/b")


def holds(grant: Grant, worker: WorkerSpec = ELASTIC) -> Read:
    return what_holds(Read(grant), worker, known=range(5), now=NOW)


def test_a_grant_is_read_as_it_was_written():
    assert parse_grant(format_grant(GRANT)) == Read(GRANT)
    assert holds(GRANT) == Read(GRANT)


def test_a_grant_says_how_long_it_is_and_need_not():
    said = Grant(6, until=NOW + 60, by="a", lasts=1800)
    assert parse_grant(format_grant(said)) == Read(said)
    for other in ('"soon"', "-5", "NaN", "1e400", "null", "true"):
        text = f'{{"workers": 6, "until": {NOW}, "for": {other}}}'
        assert parse_grant(text).grant == Grant(6, until=NOW)


def test_no_annotation_is_no_grant_and_nothing_to_complain_about():
    assert parse_grant("") == Read(None)
    assert what_holds(Read(None), ELASTIC, known=(), now=NOW) == Read(None)


@pytest.mark.parametrize(
    "text",
    [
        "rubbish",
        "12",
        "[]",
        "null",
        "{}",
        '{"workers": true, "until": 1}',
        '{"workers": 2.5, "until": 1}',
        '{"workers": "3", "until": 1}',
        '{"workers": 3}',
        '{"workers": 3, "until": "soon"}',
        '{"workers": 3, "until": Infinity}',
        '{"workers": 3, "until": NaN}',
        '{"workers": 3, "until": true}',
        '{"workers": 3, "until": 1' + "0" * 400 + "}",
        '{"workers": 3, "until": -1' + "0" * 400 + "}",
        '{"workers": 3, "until": 1, "leave": 4}',
        '{"workers": 3, "until": 1, "leave": ["worker-1"]}',
        "[" * 100_000,
        '{"workers": 1' + "0" * 5000 + ', "until": 1}',
    ],
)
def test_rubbish_grants_nothing_and_says_why_in_a_line(text):
    read = parse_grant(text)
    assert read.grant is None
    assert "grants nothing" in read.refused
    assert "\n" not in read.refused
    assert len(read.refused) < 200


def test_half_a_character_in_a_grant_can_still_be_written():
    text = (
        '{"workers": 3, "until": 1, "by": "a\\ud800", "why": "\\ud800 \\ud83d\\ude00"}'
    )
    grant = parse_grant(text).grant
    assert (grant.by, grant.why) == ("a?", "? \U0001f600")
    assert format_grant(grant).encode()
    assert GrantStatus(
        workers=3, until=1.0, by=grant.by, why=grant.why
    ).model_dump_json()


def test_who_signs_a_grant_writes_one_line_of_a_log():
    words = '"by": "ml/a\\n2026 ERROR  b", "why": "c\\nd"'
    grant = parse_grant(f'{{"workers": 6, "until": {NOW}, {words}}}').grant
    assert grant is not None
    assert (grant.by, grant.why) == ("ml/a 2026 ERROR b", "c d")


@pytest.mark.parametrize(("workers", "kept"), [(-3, 2), (0, 2), (1, 2), (99, 10)])
def test_a_number_beyond_the_users_bounds_is_clamped_and_said(workers, kept):
    read = holds(Grant(workers, until=NOW + 60))
    assert read.grant == Grant(kept, until=NOW + 60)
    assert f"got {workers}, expected 2 to 10" in read.refused


def test_strangers_are_not_told_to_leave_who_left_meanwhile_is_no_stranger():
    read = holds(Grant(3, leave=(4, 77), until=NOW + 60))
    assert read.grant == Grant(3, leave=(4,), until=NOW + 60)
    assert "77 never were workers" in read.refused


def test_an_expired_grant_grants_nothing():
    assert holds(Grant(6, until=NOW - 5)).grant is None
    assert Grant(6, until=NOW).expired(now=NOW)
    assert not Grant(6, until=NOW + 1).expired(now=NOW)


def test_nothing_is_granted_for_good():
    assert holds(Grant(6, until=NOW + 1e9)).grant is None
    assert holds(Grant(6)).grant is None
    assert holds(Grant(6, until=NOW + GRANT_SECONDS)).grant is not None


@pytest.mark.parametrize(
    "worker",
    [
        WorkerSpec(replicas=4),
        WorkerSpec(replicas=4, min=4, max=4),
        WorkerSpec(replicas=1, max=1),
        WorkerSpec(replicas=4, min=2, max=10, elastic=False),
    ],
)
def test_a_job_that_takes_no_part_keeps_its_own_size(worker):
    read = holds(GRANT, worker)
    assert read.grant is None
    assert "size is its own" in read.refused


def test_a_job_takes_part_if_it_leaves_something_to_decide():
    assert WorkerSpec(replicas=1, max=2).takes_part
    assert WorkerSpec(replicas=2, min=2, max=3).takes_part
    assert WorkerSpec(replicas=1, max=2).bounds == (1, 2)
    assert math.isinf(Grant(1).until)


def test_a_job_of_one_worker_has_no_range():
    _, problems = parse_values(
        "kind: job\njob: {name: a, strategy: local, model: {definition: a.b}, "
        "data: {training: d}, worker: {replicas: 1, min: 1, max: 4}}\n",
        source="f.yaml",
    )
    (said,) = map(str, problems)
    assert "job.worker.max: got 4, expected no range of workers (1 to 4)" in said
    assert "leave worker.min and worker.max out, or write strategy" in said
