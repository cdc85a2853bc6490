"""What a job in a cluster shows, from its objects: states, and why it does not run."""

import base64
import gzip
import json

import pytest
from elasticdl.client import Condition
from elasticdl.client.cluster.objects import (
    JobObjects,
    history_of,
    last_words,
    newest,
    pods_of,
    replica_of,
    view_of,
    why_pending,
)

MAP = {
    "metadata": {
        "name": "elasticdl-digits",
        "uid": "u1",
        "creationTimestamp": "2026-11-21T10:00:00Z",
    }
}
JOB = {"metadata": {"name": "elasticdl-digits-master"}, "spec": {}, "status": {}}
STATUS = {
    "name": "digits",
    "type": "train",
    "strategy": "parameterServer",
    "state": "running",
    "started": 1.0,
    "time": 2.0,
    "master_generation": 1,
    "workers_wanted": 3,
}
REPORT = {
    "name": "digits",
    "type": "train",
    "strategy": "parameterServer",
    "status": "failed",
    "message": "the data is empty",
    "started": 1.0,
    "seconds": 2.0,
    "epochs": 0,
    "steps": 0,
    "version": 0,
    "records": 0,
    "records_per_second": 0.0,
    "replayed_records": 0,
    "replays": [],
    "bad_records": [],
    "skipped_batches": 0,
    "lost_updates": 0,
    "rewinds": 0,
    "master_restarts": 0,
    "goodput_seconds": {},
    "goodput": 0.0,
    "last_loss": None,
    "metrics": {},
    "evaluations": [],
    "relaunches": [],
    "checkpoint": "",
    "exports": [],
}


def status_map(uid="u1", **documents):
    data = {f"{name}.json": json.dumps(one) for name, one in documents.items()}
    return {
        "metadata": {"ownerReferences": [{"kind": "ConfigMap", "uid": uid}]},
        "data": data,
    }


def pod(role="master", index=0, *, phase="Pending", made="10:00", **status):
    return {
        "metadata": {
            "name": f"elasticdl-digits-{role}-{index}",
            "creationTimestamp": f"2026-11-21T{made}:00Z",
            "labels": {
                "elasticdl-replica-type": role,
                "elasticdl-replica-index": str(index),
            },
        },
        "spec": {"containers": [{"name": "main", "image": "zoo:1"}]},
        "status": {"phase": phase, **status},
    }


def waiting(reason, message=""):
    state = {"waiting": {"reason": reason, "message": message}}
    return [{"name": "main", "state": state}]


def ended(exit_code, *, message="", reason="Error"):
    state = {"exitCode": exit_code, "message": message, "reason": reason}
    return [{"name": "main", "state": {"terminated": state}}]


def warning(name, message, time="2026-11-21T10:00:00Z"):
    return {
        "type": "Warning",
        "message": message,
        "lastTimestamp": time,
        "involvedObject": {"name": name},
    }


def view(**observed):
    return view_of("digits", JobObjects(MAP, **{"master_job": JOB, **observed}))


def test_a_job_that_runs_shows_its_status():
    seen = view(status_map=status_map(status=STATUS), pods=[pod(phase="Running")])
    assert seen.condition is Condition.RUNNING
    assert (seen.status.state, seen.note) == ("running", "")


def test_the_report_counts_more_than_an_older_status():
    both = status_map(status=STATUS, report=REPORT)
    seen = view(status_map=both)
    assert seen.condition is Condition.FAILED
    assert (seen.status, seen.report.message) == (None, "the data is empty")


def test_the_status_of_an_earlier_job_of_that_name_is_not_believed():
    old = status_map("u0", status=STATUS, report=REPORT)
    seen = view(status_map=old, pods=[pod()])
    assert (seen.condition, seen.report) == (Condition.PENDING, None)


def test_a_status_that_cannot_be_read_leaves_what_the_objects_say():
    broken = status_map(status={**STATUS, "workers_wanted": "some"})
    assert view(status_map=broken, pods=[pod(phase="Running")]).status is None


def test_a_field_that_a_later_master_tells_is_passed_over():
    later = status_map(status={**STATUS, "of_another_version": 1})
    assert view(status_map=later, pods=[pod(phase="Running")]).status is not None


def test_a_running_job_whose_master_is_away_says_why():
    seen = view(
        status_map=status_map(status=STATUS),
        pods=[pod(containerStatuses=waiting("ImagePullBackOff", "no such tag"))],
    )
    assert seen.condition is Condition.RUNNING
    assert "its master does not run now: image zoo:1 cannot be pulled" in seen.note


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (
            {"containerStatuses": waiting("ErrImagePull", "not found")},
            "image zoo:1 cannot be pulled (ErrImagePull): not found",
        ),
        (
            {"containerStatuses": waiting("CreateContainerConfigError", "no secret")},
            "CreateContainerConfigError: no secret",
        ),
        (
            {
                "conditions": [
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "message": '0/1 nodes: claim "x" not found',
                    }
                ]
            },
            'no node for its pod: 0/1 nodes: claim "x" not found',
        ),
        ({"containerStatuses": waiting("ContainerCreating")}, "its pod starts"),
    ],
)
def test_a_pending_master_says_what_it_waits_for(status, expected):
    seen = view(pods=[pod(**status)])
    assert (seen.condition, seen.note) == (Condition.PENDING, expected)


def test_a_volume_that_cannot_be_mounted_is_told_from_the_events():
    creating = pod(containerStatuses=waiting("ContainerCreating"))
    events = [
        warning(creating["metadata"]["name"], "older", "2026-11-21T09:00:00Z"),
        warning(creating["metadata"]["name"], "MountVolume failed"),
        warning("another", "of no interest", "2026-11-21T11:00:00Z"),
    ]
    assert why_pending(creating, events) == "MountVolume failed"


def test_a_master_pod_that_may_not_be_made_says_what_the_api_server_said():
    events = [warning("elasticdl-digits-master", "exceeded quota: pods")]
    seen = view(events=events)
    assert seen.condition is Condition.PENDING
    assert seen.note == "the master's pod cannot be made: exceeded quota: pods"


def test_a_job_that_kubernetes_gave_up_has_failed_with_the_masters_last_words():
    condition = {"type": "Failed", "status": "True", "reason": "PodFailurePolicy"}
    job = {**JOB, "status": {"conditions": [condition]}}
    words = ended(3, message="error: job.yaml:3: got x")
    seen = view(master_job=job, pods=[pod(phase="Failed", containerStatuses=words)])
    assert seen.condition is Condition.FAILED
    assert seen.note == "its master failed: error: job.yaml:3: got x"
    assert "PodFailurePolicy" in view(master_job=job).note


def test_a_master_between_two_pods_says_how_the_last_one_ended():
    killed = ended(137, reason="OOMKilled")
    seen = view(pods=[pod(phase="Failed", containerStatuses=killed)])
    assert seen.note == "it ended (OOMKilled, exit code 137) and is started again"


def test_a_master_whose_job_a_queue_has_not_admitted_says_so():
    labels = {**JOB["metadata"].get("labels", {}), "kueue.x-k8s.io/queue-name": "a"}
    queued = {
        **JOB,
        "metadata": {**JOB["metadata"], "labels": labels},
        "spec": {"suspend": True},
    }
    seen = view(master_job=queued)
    assert seen.condition is Condition.PENDING
    assert seen.note == "its Job has not been admitted by queue a (spec.suspend)"
    held = view(master_job={**JOB, "spec": {"suspend": True}})
    assert held.note == "its Job is held (spec.suspend)"


def test_a_job_that_was_stopped_before_it_began_is_stopped():
    stopped = {"metadata": {**MAP["metadata"], "annotations": {
        "elasticdl.org/stop": "elasticdl stop"}}}  # fmt: skip
    suspended = {**JOB, "spec": {"suspend": True}}
    seen = view_of("digits", JobObjects(stopped, master_job=suspended))
    assert seen.condition is Condition.STOPPED


def test_a_job_without_its_master_job_is_interrupted():
    assert view(master_job=None).condition is Condition.INTERRUPTED


def test_pods_of_a_replica_come_newest_first_and_others_never():
    older, newer = pod(phase="Failed"), pod(made="10:05")
    others = [pod("worker", 1), {"metadata": {"name": "audit", "labels": {}}}]
    assert pods_of([older, *others, newer], "master") == [newer, older]
    assert [replica_of(one) for one in others] == ["worker-1", ""]


def test_an_evicted_pod_tells_its_own_reason():
    evicted = pod(phase="Failed", reason="Evicted", message="low on memory")
    assert last_words([evicted]) == "Evicted: low on memory"


def test_of_the_jobs_of_several_runs_the_last_one_counts():
    def made(name, at):
        return {"metadata": {"name": name, "creationTimestamp": f"2026-11-21T{at}Z"}}

    first, second = made("master", "10:00:00"), made("master-2", "11:00:00")
    assert newest([second, first]) == second
    assert newest([]) is None


def history_map(packed, uid="u1"):
    return {
        "metadata": {
            "name": "elasticdl-digits-history",
            "ownerReferences": [{"uid": uid}],
        },
        "binaryData": {"history.jsonl.gz": base64.b64encode(packed).decode()},
    }


def test_the_history_is_read_out_of_its_config_map():
    line = b'{"decision":{"time":5.0,"kind":"grown","cause":"worker.replicas: 2 -> 4"}}'
    told = history_of(MAP, history_map(gzip.compress(line)))
    assert [one.kind for one in told.decisions] == ["grown"]


@pytest.mark.parametrize(
    "shown",
    [
        None,
        history_map(gzip.compress(b"{}"), uid="of an earlier job"),
        history_map(b"no gzip"),
        history_map(gzip.compress(b"x" * 100)[:20]),
        {"metadata": {"ownerReferences": [{"uid": "u1"}]}},
    ],
    ids=["absent", "another job's", "not packed", "cut", "empty"],
)
def test_a_history_that_is_not_this_jobs_is_none(shown):
    told = history_of(MAP, shown)
    assert (told.samples, told.decisions) in (((), ()), ([], []))


def test_what_a_jobs_code_says_cannot_steer_the_terminal_of_who_looks() -> None:
    evil = "\x1b]0;mine\x07\x1b[2J"
    found = status_map(status={**STATUS, "message": evil})
    view = view_of("digits", JobObjects(MAP, found, JOB, [], []), place="here")
    assert view.status is not None
    assert view.status.message == "]0;mine[2J"
    ended = {"exitCode": 1, "reason": "Error", "message": evil}
    containers = [{"name": "main", "state": {"terminated": ended}}]
    assert last_words([{"status": {"containerStatuses": containers}}]) == "]0;mine[2J"
