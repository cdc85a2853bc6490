"""What a master may touch where the platform is locked, by the chart's own policies."""

import json

import pytest

from tests.e2e.control_plane.lock.locking import master_token, named, pods_of, replica


def shown(name, end="-status"):
    metadata = {"name": f"elasticdl-{name}{end}"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}


def annotate(locked, token, what):
    words = ["annotate", "--dry-run=server", what, "a=b"]
    done = locked.kubectl(*words, token=token)
    return done.stderr if done.returncode else ""


OWN = "a master touches its own job alone"


@pytest.mark.parametrize(
    ("mine", "run", "others"),
    [
        ("a", "", ["b", "a-master", "a-1", "aa"]),
        ("a", "7-", ["b", "a-master-7", "a-7"]),
        ("a-master-7", "", ["a", "a-master", "master-7"]),
        ("a", "", ["a-master-7"]),
        # Kubernetes cuts the names of their pods.
        ("n" * 39, "12-", ["n" * 38, "n" * 40]),
        ("n" * 46, "", ["n" * 45, f"{'n' * 40}-m", "n" * 40]),
    ],
)
def test_a_master_makes_pods_of_its_own_job_alone(lenient, mine, run, others):
    token = master_token(lenient, mine, run=run)
    for role in ("ps", "worker"):
        assert not lenient.refusal(replica(lenient, mine, role), token=token)
    assert not lenient.refusal(shown(mine), token=token)
    assert not lenient.refusal(shown(mine, "-history"), token=token)
    for other in others:
        assert OWN in lenient.refusal(replica(lenient, other), token=token), other
        assert OWN in lenient.refusal(shown(other), token=token), other


def test_a_master_makes_no_pod_that_is_no_replica(lenient):
    token = master_token(lenient, "a")
    master = replica(lenient, "a", "master")
    assert "expected a PS or a worker of its job" in lenient.refusal(
        master, token=token
    )
    named_otherwise = replica(lenient, "a")
    named_otherwise["metadata"]["name"] = "web"
    assert "expected a PS or a worker of its job" in lenient.refusal(
        named_otherwise, token=token
    )
    without_labels = replica(lenient, "a")
    without_labels["metadata"]["labels"] = {}
    without_labels["spec"]["serviceAccountName"] = "cluster-owner"
    assert "got the service account cluster-owner" in lenient.refusal(
        without_labels, token=token
    ) or OWN in lenient.refusal(without_labels, token=token)


def test_a_master_deletes_and_changes_what_is_of_its_own_job_alone(lenient):
    mine, other = master_token(lenient, "x"), master_token(lenient, "y")
    pod = replica(lenient, "x")
    pod["spec"]["priorityClassName"] = "batch"
    del pod["metadata"]["ownerReferences"]  # an owner that is not there takes it along
    work = pods_of(named(job={"name": "x"}), lenient.name)["job"]
    work["spec"] |= {"suspend": True}
    lenient.apply(pod, work, shown("x", ""), shown("x"))
    delete = ["delete", "--dry-run=server", f"pod/{pod['metadata']['name']}"]
    things = ["cm/elasticdl-x", "cm/elasticdl-x-status", "job/elasticdl-x-master"]
    # kubectl reads what it changes: rights that a master does not need are given here.
    words = ["create", "rolebinding", "reader", "--clusterrole=view"]
    lenient.kubectl(*words, f"--serviceaccount={lenient.name}:elasticdl-master")
    for thing in things:
        assert not annotate(lenient, mine, thing), thing
        assert OWN in annotate(lenient, other, thing), thing
    assert not lenient.kubectl(*delete, token=mine).stderr
    assert OWN in lenient.kubectl(*delete, token=other).stderr
    lenient.apply({**pod, "metadata": {"name": "web", "labels": {"app": "web"}}})
    delete[-1] = "pod/web"
    assert OWN in lenient.kubectl(*delete, token=mine).stderr


def test_a_token_of_no_pod_is_no_masters(lenient):
    done = lenient.kubectl("create", "token", "elasticdl-master")
    assert not done.returncode, done.stderr
    refusal = lenient.refusal(shown("a"), token=done.stdout.strip())
    assert "got a call of the master in pod ``, expected that of job `a`" in refusal


def job_of_another(locked):
    """Return the Job of another job's master, which waits for its node."""
    work = pods_of(named(job={"name": "other"}), locked.name)["job"]
    work["spec"]["template"]["spec"]["priorityClassName"] = "batch"
    locked.apply(work)
    shown = locked.kubectl("get", "job", "elasticdl-other-master", "-ojson").stdout
    return json.loads(shown)["metadata"]


def of_job(other):
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": other["name"]}
    return {**owner, "uid": other["uid"], "controller": True}


FOREIGN = {
    "a Job's pod": lambda pod, other: pod["metadata"].update(
        ownerReferences=[of_job(other)]
    ),
    "a Job's pod beside its own": lambda pod, other: pod["metadata"].update(
        ownerReferences=[
            {**pod["metadata"]["ownerReferences"][0], "controller": False},
            of_job(other),
        ]
    ),
    "an orphan": lambda pod, other: pod["metadata"].pop("ownerReferences"),
    "a pod of nobody's control": lambda pod, other: pod["metadata"]["ownerReferences"][
        0
    ].pop("controller"),
    "a pod of another ConfigMap": lambda pod, other: pod["metadata"]["ownerReferences"][
        0
    ].update(name="elasticdl.defaults"),
    "a Job's label": lambda pod, other: pod["metadata"]["labels"].update(
        {"batch.kubernetes.io/controller-uid": other["uid"]}
    ),
    "a Deployment's label": lambda pod, other: pod["metadata"]["labels"].update(
        {"pod-template-hash": "5d8f"}
    ),
    "the exporter's label": lambda pod, other: pod["metadata"]["labels"].update(
        {"app.kubernetes.io/component": "exporter"}
    ),
}


def event_of(name, namespace):
    about = {"kind": "Job", "apiVersion": "batch/v1", "name": name}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": "elasticdl."},
        "involvedObject": {**about, "namespace": namespace, "uid": "1"},
        "type": "Warning",
        "reason": "Ended",
        "message": "x",
    }


@pytest.mark.parametrize("run", ["", "7-"])
@pytest.mark.parametrize("mine", ["e", "e" * 39, "e" * 44])
def test_a_master_says_what_happened_to_its_own_job_alone(lenient, mine, run):
    token = master_token(lenient, mine, run=run)
    own = f"elasticdl-{mine}-master{run and '-7'}"
    assert not lenient.refusal(event_of(own, lenient.name), token=token)
    others = [f"{mine}1-master", f"{mine[:-1]}-master", f"{mine}-worker-0", "z-master"]
    for other in others:
        event = event_of(f"elasticdl-{other}", lenient.name)
        assert OWN in lenient.refusal(event, token=token), other


@pytest.mark.parametrize("case", FOREIGN)
def test_a_pod_of_a_master_is_counted_by_no_other_controller(lenient, case):
    """A Job takes a pod with its label for its own: it is complete when that ends."""
    token = master_token(lenient, "w")
    pod = replica(lenient, "w")
    assert not lenient.refusal(pod, token=token)
    FOREIGN[case](pod, job_of_another(lenient))
    refusal = lenient.refusal(pod, token=token)
    assert "got an owner or a label of something else from the master" in refusal


def test_a_master_gives_its_job_no_place_in_a_queue(lenient):
    token = master_token(lenient, "z")
    work = pods_of(named(job={"name": "z"}), lenient.name)["job"]
    work["spec"] |= {"suspend": True}
    lenient.apply(work)
    words = ["create", "rolebinding", "reader-z", "--clusterrole=view"]
    lenient.kubectl(*words, f"--serviceaccount={lenient.name}:elasticdl-master")
    assert not annotate(lenient, token, "job/elasticdl-z-master")
    label = "kueue.x-k8s.io/priority-class=production"
    words = ["label", "--dry-run=server", "job/elasticdl-z-master", label]
    refused = lenient.kubectl(*words, token=token).stderr
    assert "got other labels or owners from the master in pod" in refused
