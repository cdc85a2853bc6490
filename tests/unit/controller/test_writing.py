"""Which grants are written: what changed, and what would soon expire."""

from dataclasses import replace

import pytest
from elasticdl.controller.jobs import KnownJob
from elasticdl.controller.writing import due_writes, foreign_jobs, renewals_at_once
from elasticdl.job.grant import GRANT_SECONDS, Grant
from elasticdl.planner.memory import Memory
from elasticdl.planner.outcome import Plan, Summary
from elasticdl.planner.view import Job, JobKey, Resources, Template

NOW = 1_795_400_000.0
ME = "ops/controller"
A, B = JobKey("ml", "a"), JobKey("ml", "b")


def known(key, grant=None):
    job = Job(key.namespace, key.name, Template(Resources()), max=9)
    return KnownJob(uid=f"uid-{key.name}", job=job, run=1, grant=grant)


def planned(sizes, leave=None):
    reasons = dict.fromkeys(sizes, "room is free")
    return Plan(sizes, leave or {}, reasons, Memory(), Summary(0, 0))


def due(plan, jobs, *, most=5):
    return due_writes(
        plan,
        {one.job.key: one for one in jobs},
        by=ME,
        grant_seconds=GRANT_SECONDS,
        most_renewals=most,
        now=NOW,
    )


def mine(workers, *, left=GRANT_SECONDS, leave=()):
    until = NOW + left
    return Grant(workers, leave, until, ME, "room is free", lasts=GRANT_SECONDS)


def test_a_job_without_a_grant_gets_one():
    [write] = due(planned({A: 4}), [known(A)])
    assert (write.key, write.uid, write.cause) == (A, "uid-a", "changed")
    assert write.grant == mine(4)


def test_what_is_granted_already_is_not_written_again():
    assert due(planned({A: 4}), [known(A, mine(4))]) == []


def test_another_number_is_written_and_so_is_who_leaves():
    jobs = [known(A, mine(4)), known(B, mine(3, leave=(1,)))]
    plan = planned({A: 3, B: 3}, {A: (2,), B: (0,)})
    written = {one.key: one.grant for one in due(plan, jobs)}
    assert written[A].workers == 3
    assert written[B].leave == (0,)


def test_that_nobody_has_to_leave_any_more_is_no_reason_to_write():
    assert due(planned({A: 4}, {A: ()}), [known(A, mine(4, leave=(2,)))]) == []


def test_another_reason_alone_waits_for_the_renewal():
    other = replace(mine(4), why="it was so")
    assert due(planned({A: 4}), [known(A, other)]) == []


def test_a_grant_is_renewed_when_a_third_of_its_time_is_over():
    young = mine(4, left=GRANT_SECONDS * 0.7)
    assert due(planned({A: 4}), [known(A, young)]) == []
    old = mine(4, left=GRANT_SECONDS * 0.6)
    [write] = due(planned({A: 4}), [known(A, old)])
    assert write.cause == "renewed"
    assert write.grant.until == NOW + GRANT_SECONDS


def test_renewals_are_spread_and_the_most_urgent_come_first():
    keys = [JobKey("ml", f"j{number}") for number in range(20)]
    jobs = [known(k, mine(2, left=1000 - 10 * n)) for n, k in enumerate(keys)]
    written = due(planned(dict.fromkeys(keys, 2)), jobs, most=3)
    assert [one.key for one in written] == keys[-1:-4:-1]


@pytest.mark.parametrize("seconds", [60, 300, GRANT_SECONDS])
@pytest.mark.parametrize("num_jobs", [3, 200, 5000])
def test_all_grants_are_renewed_before_one_ends(seconds, num_jobs):
    most = renewals_at_once(num_jobs, grant_seconds=seconds, every=5.0)
    assert num_jobs / most * 5.0 < seconds / 3


def test_an_expired_grant_is_written_anew():
    [write] = due(planned({A: 4}), [known(A, mine(4, left=-1))])
    assert write.cause == "changed"


@pytest.mark.parametrize("by", [ME, "other/controller", ""])
def test_a_grant_that_no_master_obeys_is_written_anew(by):
    ahead = replace(mine(4, left=8 * 3600), by=by)
    [write] = due(planned({A: 4}), [known(A, ahead)])
    assert (write.cause, write.grant) == ("changed", mine(4))
    jobs = {A: known(A, ahead)}
    assert foreign_jobs(jobs, by=ME, now=NOW) == []


def test_another_living_controllers_grant_is_not_overwritten():
    theirs = replace(mine(7), by="other/controller")
    jobs = {A: known(A, theirs)}
    assert due(planned({A: 4}), jobs.values()) == []
    assert foreign_jobs(jobs, by=ME, now=NOW) == [A]
    dead = replace(theirs, until=NOW + 600)
    assert len(due(planned({A: 4}), [known(A, dead)])) == 1


def test_a_job_that_went_meanwhile_gets_nothing():
    assert due(planned({A: 4}), []) == []
