"""The values file that runs on a laptop runs in a cluster, unchanged.

Also where users are the namespace's own, as OpenShift's `restricted-v2` has it:
admission gives each pod that names no user one of the namespace's range, and leaves the
group to the image: root's, since no image knows such a user.
"""

import os

import pytest
from elasticdl.job.words import JobState

from tests.e2e.kube import wait_until
from tests.e2e.releases import values_file

RANGE = 1_000_680_000  # where a namespace's users begin
API = "admissionregistration.k8s.io/v1"
KIND = "MutatingAdmissionPolicy"
USERS = (
    "Object{spec: Object.spec{securityContext: Object.spec.securityContext"
    f"{{runAsUser: {RANGE}, fsGroup: {RANGE}}}}}}}"
)
NAMES_ONE = (
    "has(object.spec.securityContext) && has(object.spec.securityContext.runAsUser)"
)


def answers_at_all_addresses(kube, job, role, port):
    """Connect from a worker to each address of a role's pods; return how many."""
    worker = job.pods("worker")["worker-0"]["metadata"]["name"]
    addresses = [
        one["ip"] for pod in job.pods(role).values() for one in pod["status"]["podIPs"]
    ]
    connect = "import socket, sys; socket.create_connection(sys.argv[1:], 5)"
    for address in addresses:
        words = ["python", "-c", connect, address, str(port)]
        kube.run("exec", worker, "--", *words)
    return len(addresses)


def test_the_digits_job_of_the_quick_start_completes_in_a_cluster(job, elasticdl, kube):
    digits = job(values_file("digits.yaml"))
    assert digits.wait_running("worker", 3) == {"worker-0", "worker-1", "worker-2"}
    assert digits.wait_running("ps", 2) == {"ps-0", "ps-1"}
    digits.wait_steps(1)
    # One in IPv4 or IPv6, or both, as the cluster has it (CLUSTER_FAMILY).
    families = 2 if os.environ.get("CLUSTER_FAMILY") == "dual" else 1
    assert answers_at_all_addresses(kube, digits, "master", 50001) == families
    assert answers_at_all_addresses(kube, digits, "ps", 50002) == 2 * families
    report = digits.wait_succeeded()
    assert report.metrics["accuracy"] > 0.95
    assert report.records == 40 * 1438
    status = digits.status()
    assert status is not None
    assert status.state is JobState.SUCCEEDED
    assert "Evaluation metrics" in digits.master_log()
    assert any("succeeded" in message for message in digits.notices())

    # Its folder is on the claim until somebody removes it.
    said = elasticdl("jobs", "clean", "--older-than", "30d")
    assert "digits: succeeded" in said
    assert "0 folders removed" in said
    said = elasticdl("jobs", "clean", "--older-than", "0s")
    assert "1 folder removed" in said
    assert elasticdl("jobs", "clean", "--older-than", "0s") == (
        "0 folders removed (0 B), 0 kept\n"
    )


@pytest.fixture
def openshift(kube):
    """Admission that gives users to those pods of this namespace that name none."""
    name = kube.namespace
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["pods"],
    }
    policy = {
        "matchConstraints": {"resourceRules": [rule]},
        "matchConditions": [{"name": "no-user", "expression": f"!({NAMES_ONE})"}],
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "mutations": [
            {
                "patchType": "ApplyConfiguration",
                "applyConfiguration": {"expression": USERS},
            }
        ],
    }
    here = {"matchLabels": {"kubernetes.io/metadata.name": name}}
    bound = {"policyName": name, "matchResources": {"namespaceSelector": here}}
    named = {"apiVersion": API, "metadata": {"name": name}}
    kube.apply({**named, "kind": KIND, "spec": policy})
    kube.apply({**named, "kind": f"{KIND}Binding", "spec": bound})
    probe = ["run", "probe", "--image=x", "--dry-run=server", "--output=yaml"]
    restricted = (
        '{"spec": {"securityContext": {"runAsNonRoot": true, "seccompProfile": '
        '{"type": "RuntimeDefault"}}, "containers": [{"name": "probe", "image": "x", '
        '"securityContext": {"allowPrivilegeEscalation": false, "capabilities": '
        '{"drop": ["ALL"]}}}]}}'
    )
    try:
        wait_until(
            "users of the namespace",
            lambda: (
                f"runAsUser: {RANGE}" in kube.run(*probe, f"--overrides={restricted}")
            ),
            seconds=60,
        )
        yield
    finally:
        kube.delete(f"{KIND}Binding", name)
        kube.delete(KIND, name)


@pytest.mark.soak
@pytest.mark.usefixtures("openshift")
def test_a_job_runs_to_its_end_as_users_that_no_image_knows(job, kube):
    values = {**values_file("digits.yaml"), "openshift": True}
    digits = job(values, training={"epochs": 4})
    digits.wait_running("worker", 3)
    digits.wait_running("ps", 2)
    pods = digits.pods()
    assert {name.partition("-")[0] for name in pods} == {"master", "ps", "worker"}
    for name, pod in pods.items():
        assert pod["spec"]["securityContext"]["runAsUser"] == RANGE, name
        said = kube.run("exec", pod["metadata"]["name"], "--", "id")
        assert f"uid={RANGE} gid=0(root) groups=0(root),{RANGE}" in said, name
    report = digits.wait_succeeded()
    assert report.records == 4 * 1438
    assert report.exports
