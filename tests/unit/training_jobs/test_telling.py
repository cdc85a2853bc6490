"""What a TrainingJob shows: its state, its workers, its conditions."""

import json

import jsonschema
import pytest
from elasticdl.job.names import ANNOTATION_MESSAGE, ANNOTATION_STATE, ANNOTATION_STOP
from elasticdl.job.values.structural import definition
from elasticdl.job.values.training_job import read_manifest
from elasticdl.job.words import JobState
from elasticdl.training_jobs.reconcile import reconcile
from elasticdl.training_jobs.resource import Made, Seen
from elasticdl.training_jobs.telling import Outcome, is_soft, patch_of, status_of
from elasticdl.training_jobs.verdicts import Reason, Refused

from tests.unit.training_jobs.objects import (
    BEGAN,
    REGISTRY,
    master,
    replica,
    status_map,
    there,
    training_job,
)

NOW = "2026-11-24T22:01:00Z"


def told(job, seen, refused=None, now=NOW):
    values, _ = read_manifest(job.manifest)
    outcome = Outcome(job.made, refused, values)
    return status_of(job, seen, outcome, now=now)


def conditions(status):
    return {one["type"]: (one["status"], one["reason"]) for one in status["conditions"]}


def test_a_running_job_shows_what_its_master_says():
    job = training_job(job__worker__replicas=4)
    status = told(job, there(job, status_map=status_map()))
    assert status["state"] == "running"
    assert status["workers"] == {"wanted": 4, "granted": 3, "running": 1}
    assert status["replicas"] == 2  # one of them is pending
    assert status["loss"] == "0.1235"
    assert (status["epoch"], status["recordsDone"]) == (1, 500)
    assert status["selector"] == (
        "elasticdl-job-name=digits,elasticdl-replica-type=worker"
    )
    assert conditions(status) == {
        "Accepted": ("True", "Valid"),
        "Applied": ("True", "Applied"),
        "Complete": ("False", "Running"),
        "Failed": ("False", "Running"),
    }


def test_a_paused_job_wants_no_worker_and_has_none_granted():
    job = training_job(job__paused=True)
    assert told(job, there(job))["workers"]["wanted"] == 0
    # By a grant it has its minimum again when it goes on.
    paused = status_map(state=JobState.PAUSED, workers_wanted=2, replicas=[])
    status = told(job, there(job, status_map=paused))
    assert status["state"] == "paused"
    assert status["workers"] == {"wanted": 0, "granted": 0, "running": 0}


@pytest.mark.parametrize("strategy", ["local", "allReduce"])
def test_workers_that_hold_the_model_stay_while_their_job_is_paused(strategy):
    spec = {"job__strategy": strategy, "job__worker": {"replicas": 1}}
    job = training_job(job__paused=True, **spec)
    replicas = [replica("worker", 0, "running")]
    paused = {"state": JobState.PAUSED, "workers_wanted": 1, "replicas": replicas}
    shown = status_map(strategy=strategy, **paused)
    status = told(job, there(job, status_map=shown))
    assert status["workers"] == {"wanted": 1, "granted": 1, "running": 1}


def test_workers_that_ended_are_no_replicas():
    job = training_job()
    replicas = [replica("worker", 0, "ended"), replica("ps", 0, "running")]
    status = told(job, there(job, status_map=status_map(replicas=replicas)))
    assert (status["replicas"], status["workers"]["running"]) == (0, 0)


@pytest.mark.parametrize(
    ("state", "complete", "failed"),
    [(JobState.SUCCEEDED, "True", "False"), (JobState.FAILED, "False", "True")],
)
def test_conditions_say_how_a_job_ended(state, complete, failed):
    job = training_job()
    seen = there(job, status_map=status_map(report=True, status=state, message="so"))
    status = told(job, seen)
    assert status["state"] == state
    found = conditions(status)
    assert (found["Complete"][0], found["Failed"][0]) == (complete, failed)
    assert status["workers"] == {"wanted": 3, "granted": 0, "running": 0}


def test_a_job_whose_master_is_given_up_has_failed_whatever_it_said_last():
    job = training_job()
    failed = {"type": "Failed", "status": "True", "message": "too many tries"}
    given_up = {**master(job), "status": {"conditions": [failed]}}
    status = told(job, there(job, status_map=status_map(), masters=(given_up,)))
    assert (status["state"], status["message"]) == (
        "failed",
        "its master failed: too many tries",
    )
    assert conditions(status)["Failed"] == ("True", "Failed")
    assert status["workers"] == {"wanted": 3, "granted": 0, "running": 0}
    assert status["replicas"] == 0
    # It stays so when its master's Job is cleaned up, until it is run again.
    cleaned = there(job, status_map=status_map(), masters=())
    again = told(training_job(status), cleaned)
    assert (again["state"], again["message"]) == (status["state"], status["message"])
    assert conditions(again)["Failed"] == ("True", "Failed")
    edit = told(training_job(again), cleaned, Refused(Reason.IMMUTABLE, "not now"))
    assert edit["message"] == "not now"
    assert told(training_job(edit), cleaned)["message"] == status["message"]
    # One that said how it ended has ended so.
    over = status_map(state=JobState.STOPPED)
    status = told(job, there(job, status_map=over, masters=(given_up,)))
    assert status["state"] == "stopped"


def test_a_job_whose_master_is_done_does_not_wait_for_it_to_begin():
    # Its ConfigMap was deleted by hand, and its status with it.
    job = training_job()
    done = {"type": "Complete", "status": "True"}
    over = {**master(job), "status": {"conditions": [done]}}
    status = told(job, there(job, masters=(over,)))
    assert (status["state"], status["message"]) == (
        "stopped",
        "its master has ended, and what it said is gone with its ConfigMap",
    )
    assert status["workers"] == {"wanted": 3, "granted": 0, "running": 0}
    # It says on its Job how it ended.
    marks = {ANNOTATION_STATE: "stopped", ANNOTATION_MESSAGE: "by hand"}
    marked = {**over, "metadata": {**over["metadata"], "annotations": marks}}
    status = told(job, there(job, masters=(marked,)))
    assert (status["state"], status["message"]) == ("stopped", "by hand")
    # What it said is known.
    ended = told(job, there(job, status_map=status_map(report=True), masters=(over,)))
    status = told(training_job(ended), there(job, masters=(over,)))
    assert status["state"] == "succeeded"
    assert conditions(status)["Complete"][0] == "True"


def test_what_an_earlier_run_left_is_not_told_of_the_next_one():
    job = training_job(run=2)
    old = status_map(report=True, time=BEGAN - 5, started=BEGAN - 90, state="stopped")
    status = told(job, there(job, status_map=old))
    assert status["state"] == "waiting"
    assert conditions(status)["Complete"][0] == "False"


def test_a_refused_one_says_why_and_has_nothing():
    job = training_job()
    refused = Refused(Reason.NAME_TAKEN, "it is another's")
    status = told(job, Seen(platform=REGISTRY), refused)
    assert (status["state"], status["message"]) == ("refused", "it is another's")
    found = conditions(status)
    assert found["Accepted"] == ("False", "NameTaken")
    assert found["Applied"] == ("False", "NameTaken")


@pytest.mark.parametrize("theirs", [[], [{"kind": "TrainingJob", "uid": "uid-0"}]])
def test_another_job_of_the_name_is_not_told_of_as_this_one(theirs):
    job = training_job()
    seen = there(job, status_map=status_map(report=True))
    for thing in (seen.config_map, *seen.masters):
        thing["metadata"]["ownerReferences"] = theirs
    refused = Refused(Reason.NAME_TAKEN, "it is another's")
    status = told(job, seen, refused)
    assert (status["state"], status["message"]) == ("refused", "it is another's")
    assert status["workers"] == {"wanted": 3, "granted": 0, "running": 0}
    assert conditions(status)["Complete"][0] == "False"
    assert "loss" not in status


def test_a_job_that_was_stopped_before_its_master_began_is_stopped():
    job = training_job()
    held = {**master(job), "spec": {"suspend": True}}
    held["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "ours"
    seen = there(job, masters=(held,))
    waits = told(job, seen)
    assert waits["state"] == "waiting"
    assert waits["message"] == (
        "its Job has not been admitted by queue ours (spec.suspend)"
    )
    seen.config_map["metadata"]["annotations"] = {ANNOTATION_STOP: "by hand"}
    status = told(job, seen)
    assert status["state"] == "stopped"
    assert status["message"] == "it was stopped before it began"
    assert status["workers"] == {"wanted": 3, "granted": 0, "running": 0}
    # The next run is another master, which nobody holds.
    assert told(job, there(job, config_map=seen.config_map))["state"] == "waiting"


def test_a_specification_of_many_mistakes_gives_a_status_that_can_be_kept():
    job = training_job(pods={"common": {"tolerations": [{"key": 1}] * 2000}})
    refused = reconcile(job, Seen(platform=REGISTRY))
    assert isinstance(refused, Refused)
    status = told(job, Seen(platform=REGISTRY), refused)
    assert len(json.dumps(status)) < 100_000
    [accepted] = [one for one in status["conditions"] if one["type"] == "Accepted"]
    assert accepted["message"].startswith("101 mistakes:\n")
    assert "more mistakes than are told here" in accepted["message"]


def test_a_refused_edit_is_told_beside_a_job_that_goes_on():
    job = training_job()
    refused = Refused(Reason.IMMUTABLE, "not while it runs")
    status = told(job, there(job, status_map=status_map()), refused)
    assert (status["state"], status["message"]) == ("running", "not while it runs")
    assert conditions(status)["Accepted"] == ("False", "Immutable")


def test_what_an_api_server_refuses_is_no_mistake_of_the_specification():
    job = training_job()
    refused = Refused(Reason.NOT_APPLIED, "exceeded quota")
    status = told(job, Seen(platform=REGISTRY), refused)
    assert conditions(status)["Accepted"][0] == "True"
    assert conditions(status)["Applied"] == ("False", "NotApplied")


def test_a_condition_that_has_not_turned_keeps_its_time():
    job = training_job()
    first = told(job, there(job))
    again = training_job(first)
    later = "2026-11-24T23:00:00Z"
    second = told(again, there(job, status_map=status_map()), now=later)
    times = {one["type"]: one["lastTransitionTime"] for one in second["conditions"]}
    assert set(times.values()) == {NOW}


def test_a_status_that_says_the_same_is_not_written():
    job = training_job()
    first = told(job, there(job))
    assert patch_of(first, told(training_job(first), there(job), now="later")) is None


def test_loss_and_progress_alone_are_written_now_and_then():
    before = {"state": "running", "loss": "0.5", "recordsDone": 1}
    soft = patch_of(before, {**before, "loss": "0.4", "recordsDone": 2})
    assert soft == {"status": {"loss": "0.4", "recordsDone": 2}}
    assert is_soft(soft)
    gone = patch_of(before, {"state": "failed", "recordsDone": 1})
    assert gone == {"status": {"loss": None, "state": "failed"}}
    assert not is_soft(gone)


def test_what_was_made_is_found_again_by_the_next_controller():
    made = Made(2, "w", "f", ("v1/configmaps/a",))
    assert Made.of({"made": made.document()}) == made
    assert Made.of({}) == Made()


def test_every_status_fits_the_definition():
    schema = definition()["versions"][0]["schema"]["openAPIV3Schema"]
    job = training_job()
    seen = there(job, status_map=status_map(report=True))
    for status in (told(job, there(job)), told(job, seen)):
        known = schema["properties"]["status"]["properties"]
        assert set(status) <= set(known)
        jsonschema.validate(status, schema["properties"]["status"])
    assert reconcile(job, seen) is not None
