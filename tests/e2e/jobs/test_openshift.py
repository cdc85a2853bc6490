"""A job whose users are the namespace's own, as OpenShift's `restricted-v2` has it.

Admission gives each pod that names no user one of the namespace's range, and leaves the
group to the image: root's, since no image knows such a user.
"""

import pytest

from tests.e2e.kube import wait_until
from tests.e2e.releases import values_file

RANGE = 1_000_680_000  # where a namespace's users begin
OURS = 10001  # the images' own user, which no pod may name there
API = "admissionregistration.k8s.io/v1"
KIND = "MutatingAdmissionPolicy"
USERS = (
    "Object{spec: Object.spec{securityContext: Object.spec.securityContext"
    f"{{runAsUser: {RANGE}, fsGroup: {RANGE}}}}}}}"
)
NAMES_ONE = (
    "has(object.spec.securityContext) && has(object.spec.securityContext.runAsUser)"
)


@pytest.fixture
def openshift(kube):
    """Admission that gives users to the pods of this namespace, and refuses ours."""
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
