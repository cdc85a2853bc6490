"""What the master stamps on a pod template, and what it leaves alone."""

from typing import Any

import pytest
from elasticdl.errors import PlatformError
from elasticdl.job.names import Role
from elasticdl.runner.base import Launch, ReplicaKey
from elasticdl.runner.kubernetes.pods import stamp

OWNER = {"name": "elasticdl-digits", "uid": "u-1"}
TEMPLATE = """\
apiVersion: v1
kind: Pod
metadata:
  labels: {app.kubernetes.io/name: elasticdl, team: ml}
  annotations: {note: "yes"}
spec:
  serviceAccountName: elasticdl-job
  terminationGracePeriodSeconds: 15
  tolerations: [{key: spot, operator: Exists}]
  containers:
  - name: main
    image: elasticdl/worker:1
    env:
    - {name: ELASTICDL_JOB_DIR, value: /data/.elasticdl/jobs/ml/digits}
    - name: ELASTICDL_TOKEN
      valueFrom: {secretKeyRef: {name: elasticdl-digits-token, key: token}}
    - {name: SHARED, value: template}
    - {name: ELASTICDL_ROLE, value: worker}
    resources:
      requests: {cpu: "2", memory: 1Gi}
      limits: {cpu: "2", memory: 1Gi}
"""


def launch(**changes: Any) -> Launch:
    values: dict[str, Any] = {
        "key": ReplicaKey(Role.WORKER, 4),
        "generation": 9,
        "cpu": 2.0,
        "memory": "1024Mi",
        "priority": "",
        "grace_seconds": 15.0,
    }
    return Launch(**values | changes)


def stamped(template: str = TEMPLATE, **changes: Any) -> dict[str, Any]:
    return stamp(template, launch(**changes), job="digits", owner=OWNER)


def env(pod: dict[str, Any]) -> dict[str, Any]:
    return {e["name"]: e.get("value") for e in pod["spec"]["containers"][0]["env"]}


def test_name_labels_and_owner_are_the_masters_and_the_rest_is_the_templates() -> None:
    pod = stamped()
    assert pod["metadata"] == {
        "name": "elasticdl-digits-worker-4",
        "annotations": {"note": "yes"},
        "labels": {
            "app.kubernetes.io/name": "elasticdl",
            "team": "ml",
            "app.kubernetes.io/managed-by": "elasticdl-master",
            "elasticdl-job-name": "digits",
            "elasticdl-replica-type": "worker",
            "elasticdl-replica-index": "4",
            "elasticdl-generation": "9",
        },
        "ownerReferences": [
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "name": "elasticdl-digits",
                "uid": "u-1",
                "controller": True,
            }
        ],
    }
    assert pod["spec"]["tolerations"] == [{"key": "spot", "operator": "Exists"}]
    assert pod["spec"]["restartPolicy"] == "Never"
    assert "priorityClassName" not in pod["spec"]


def test_who_it_is_is_in_its_environment_once() -> None:
    pod = stamped(env={"SHARED": "job", "MINE": "1", "ELASTICDL_JOB_DIR": "/evil"})
    assert env(pod) == {
        "ELASTICDL_JOB_DIR": "/data/.elasticdl/jobs/ml/digits",
        "ELASTICDL_TOKEN": None,
        # As the chart has it: a role's own variable, or one of a Secret, wins.
        "SHARED": "template",
        "MINE": "1",
        "ELASTICDL_ROLE": "worker",
        "ELASTICDL_INDEX": "4",
        "ELASTICDL_GENERATION": "9",
    }
    assert len(pod["spec"]["containers"][0]["env"]) == 7


def test_the_launch_names_the_priority_class() -> None:
    assert stamped(priority="high")["spec"]["priorityClassName"] == "high"


@pytest.mark.parametrize(
    ("memory", "requests", "limits"),
    [
        ("1024Mi", "1Gi", "1Gi"),
        ("512Mi", "1Gi", "1Gi"),
        ("1536Mi", "1536Mi", "1536Mi"),
    ],
)
def test_more_memory_after_an_oom_kill_is_asked_for(
    memory: str, requests: str, limits: str
) -> None:
    resources = stamped(memory=memory)["spec"]["containers"][0]["resources"]
    assert resources["requests"] == {"cpu": "2", "memory": requests}
    assert resources["limits"] == {"cpu": "2", "memory": limits}


def test_a_limit_that_is_high_enough_stays() -> None:
    template = TEMPLATE.replace(
        'limits: {cpu: "2", memory: 1Gi}', "limits: {memory: 4Gi}"
    )
    resources = stamped(template, memory="2Gi")["spec"]["containers"][0]["resources"]
    assert resources["requests"]["memory"] == "2Gi"
    assert resources["limits"]["memory"] == "4Gi"


def test_stamping_leaves_the_template_as_it_was() -> None:
    first = stamped()
    stamped(key=ReplicaKey(Role.PS, 0), generation=10, memory="9Gi", env={"A": "1"})
    assert stamped() == first


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("a: [", "worker.yaml is not YAML"),
        ("", "got NoneType, expected a v1 Pod"),
        ("kind: Job", "got Job, expected a v1 Pod"),
        (
            "kind: Pod\nspec: {containers: [{name: worker}]}",
            "got containers worker, expected one named `main`",
        ),
        ("kind: Pod\nspec: {}", "got containers none, expected one named `main`"),
    ],
)
def test_a_template_that_is_no_pod_is_refused(template: str, message: str) -> None:
    with pytest.raises(PlatformError, match=message):
        stamped(template)


def test_what_the_server_will_refuse_is_left_to_its_words() -> None:
    template = TEMPLATE.replace("memory: 1Gi", "memory: lots")
    resources = stamped(template)["spec"]["containers"][0]["resources"]
    assert resources["requests"]["memory"] == "lots"
    nothing = "kind: Pod\nspec: {containers: [{name: main, resources: , env: [{}]}]}"
    assert {} in stamped(nothing)["spec"]["containers"][0]["env"]
