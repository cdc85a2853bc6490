"""What a locked platform refuses in pods of its jobs.

The chart's own policies, on a real API server; nothing is made (`dryRun`: admission
says the same).
"""

import json

import pytest

from tests.chart.rendering import EXAMPLES, JOBS, values_of
from tests.e2e.control_plane.lock.locking import (
    POLICY,
    Locked,
    container,
    named,
    of_role,
    pods_of,
)

OWN_SECRETS = "elasticdl-digits-token or elasticdl-digits-ca"
SECRET = {"secretKeyRef": {"name": "warehouse", "key": "a"}}
# Of each: what a committer may write, whose pod it is, what is said, and whether a
# platform can allow it.
REFUSED = {
    "another account of a worker": (
        named(serviceAccounts={"job": "data-reader"}),
        "worker",
        "got the service account data-reader, expected elasticdl-job;",
        True,
    ),
    "the master's account in a worker": (
        named(serviceAccounts={"job": "elasticdl-master"}),
        "worker",
        "got the service account elasticdl-master, expected elasticdl-job",
        False,
    ),
    "another account of the master": (
        named(serviceAccounts={"master": "cluster-owner"}),
        "job",
        "got the service account cluster-owner, expected elasticdl-master or",
        False,
    ),
    "a host path": (
        named(job={"volumes": [{"mountPath": "/host", "hostPath": "/"}]}),
        "worker",
        "got another kind of volume as elasticdl-volume-0, expected configMap,",
        False,
    ),
    "another kind of volume": (
        of_role("ps", volumes=[{"name": "n", "nfs": {"server": "s", "path": "/"}}]),
        "ps",
        "got another kind of volume as n, expected configMap,",
        True,
    ),
    "a copy of another claim": (
        of_role("worker", volumes=[{"name": "n", "ephemeral": {"volumeClaimTemplate": {
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
                "dataSource": {"kind": "PersistentVolumeClaim", "name": "datasets"},
            }}}}]),
        "worker",
        "got another kind of volume as n, expected configMap,",
        False,
    ),
    "a driver that brings secrets": (
        of_role("ps", volumes=[{"name": "n", "csi": {"driver": "secrets"}}]),
        "ps",
        "got another kind of volume as n, expected configMap,",
        False,
    ),
    "a privileged container": (
        of_role("worker", containerSecurityContext={
            "privileged": True, "allowPrivilegeEscalation": True}),
        "worker",
        "got privilege, escalation, capabilities, root or a port of the host in main",
        False,
    ),
    "escalation": (
        of_role("master", containerSecurityContext={"allowPrivilegeEscalation": None}),
        "job",
        "got privilege, escalation, capabilities, root or a port of the host in main",
        False,
    ),
    "capabilities": (
        of_role("ps", containerSecurityContext={"capabilities": {"add": ["NET_RAW"]}}),
        "ps",
        "got privilege, escalation, capabilities, root or a port of the host in main",
        False,
    ),
    "root": (
        of_role("ps", securityContext={"runAsUser": 0, "runAsNonRoot": False}),
        "ps",
        "got a namespace of the host, or root, expected neither",
        False,
    ),
    "the user of the image": (
        of_role("ps", securityContext={"runAsUser": None, "runAsNonRoot": False}),
        "ps",
        "got a namespace of the host, or root, expected neither",
        False,
    ),
    "the user of the image in a sidecar": (
        of_role(
            "worker",
            securityContext={"runAsUser": None},
            sidecars=[container(securityContext={
                "runAsNonRoot": False, "allowPrivilegeEscalation": False})],
        ),
        "worker",
        "got a namespace of the host, or root, expected neither",
        False,
    ),
    "privilege in a sidecar": (
        of_role("worker", sidecars=[container(securityContext={
            "privileged": True, "allowPrivilegeEscalation": True})]),
        "worker",
        "got privilege, escalation, capabilities, root or a port of the host in extra",
        False,
    ),
    "a port of the host": (
        of_role("worker", sidecars=[
            container(ports=[{"containerPort": 1, "hostPort": 1}])]),
        "worker",
        "got privilege, escalation, capabilities, root or a port of the host in extra",
        False,
    ),
    "a hook that calls from the network of the node": (
        of_role("worker", lifecycle={
            "postStart": {"httpGet": {"host": "169.254.169.254", "port": 80}}}),
        "worker",
        "got a probe or a hook that calls another host in main, expected the pod's own",
        False,
    ),
    "a probe of a sidecar that does": (
        of_role("master", sidecars=[
            container(livenessProbe={"tcpSocket": {"host": "127.0.0.1", "port": 1}})]),
        "job",
        "got a probe or a hook that calls another host in extra, expected the pod's",
        False,
    ),
    "a Secret as a volume": (
        of_role("worker", volumes=[
            {"name": "s", "secret": {"secretName": "warehouse"}}]),
        "worker",
        f"got the Secrets warehouse, expected {OWN_SECRETS};",
        True,
    ),
    "a Secret in a projected volume": (
        of_role("worker", volumes=[{"name": "s", "projected": {
            "sources": [{"secret": {"name": "warehouse"}}]}}]),
        "worker",
        "got the Secrets warehouse, expected",
        True,
    ),
    "a Secret in a variable": (
        of_role("master", env=[{"name": "A", "valueFrom": SECRET}]),
        "job",
        "got the Secrets warehouse, expected",
        True,
    ),
    "a Secret in a variable of an init container": (
        of_role("ps", initContainers=[container(env=[
            {"name": "A", "valueFrom": SECRET}])]),
        "ps",
        "got the Secrets warehouse, expected",
        True,
    ),
    "a Secret as a whole environment": (
        of_role("worker", envFrom=[{"secretRef": {"name": "warehouse"}}]),
        "worker",
        "got the Secrets warehouse, expected",
        True,
    ),
    "a Secret to pull images with": (
        named(images={"pullSecrets": ["warehouse"]}),
        "job",
        "got the Secrets warehouse, expected",
        True,
    ),
    "the token of another job": (
        named(token={"existingSecret": "elasticdl-other-token"}),
        "worker",
        f"got the Secrets elasticdl-other-token, expected {OWN_SECRETS};",
        False,
    ),
    "the authority of another job in TensorBoard": (
        named(monitoring={"tensorboard": {
            "enabled": True,
            "labels": {"elasticdl-job-name": "other"},
            "env": [{"name": "A", "valueFrom": {"secretKeyRef": {
                "name": "elasticdl-other-ca", "key": "tls.key"}}}],
        }}),
        "tensorboard",
        f"got the Secrets elasticdl-other-ca, expected {OWN_SECRETS};",
        False,
    ),
    "another claim for the job's folder": (
        named(state={"claimName": "datasets"}),
        "job",
        "got the claims datasets, expected fileserver-claim;",
        True,
    ),
    "another claim for data": (
        named(job={"volumes": [{"mountPath": "/d", "claimName": "datasets"}]}),
        "worker",
        "got the claims datasets, expected fileserver-claim;",
        True,
    ),
    "another priority class": (
        named(job={"worker": {"priority": "batch"}}),
        "worker",
        "got the priority class `batch`, expected elasticdl-high or elasticdl-low;",
        True,
    ),
    "a renamed priority class": (
        named(priorityClasses={"high": {"name": "production"}}),
        "job",
        "got the priority class `production`, expected elasticdl-high or elasticdl-",
        False,
    ),
    "a class of a queue": (
        named(commonLabels={"kueue.x-k8s.io/priority-class": "batch"}),
        "job",
        "got the class `batch` of a queue, expected elasticdl-high or elasticdl-low;",
        True,
    ),
    "a class of a queue for a worker": (
        of_role("worker", labels={"kueue.x-k8s.io/priority-class": "production"}),
        "worker",
        "got the class `production` of a queue, expected elasticdl-high or",
        False,
    ),
    "the cluster's default priority": (
        named(job={"worker": {"priority": ""}}),
        "worker",
        "got the priority class ``, expected elasticdl-high or elasticdl-low;",
        False,
    ),
    "a label of the exporter on TensorBoard": (
        named(
            serviceAccounts={"job": "cluster-owner"},
            monitoring={"tensorboard": {"enabled": True, "labels": {
                "app.kubernetes.io/component": "exporter",
                "app.kubernetes.io/part-of": "other"}}},
        ),
        "tensorboard",
        "got the service account cluster-owner, expected elasticdl-job;",
        False,
    ),
}  # fmt: skip


def test_the_api_server_finds_nothing_wrong_in_the_policies(locked):
    for name in locked.policies:
        words = ["get", POLICY, name, "-ojson"]
        policy = json.loads(locked.control_plane.kubectl(*words))
        status = policy.get("status", {})
        assert not status.get("typeChecking", {}).get("expressionWarnings"), name


@pytest.mark.parametrize("case", REFUSED)
def test_a_locked_platform_refuses_it_and_lets_pass_what_its_values_list(
    locked, lenient, case
):
    values, role, said, can_be_listed = REFUSED[case]
    refusal = locked.refusal(pods_of(values, locked.name)[role])
    assert said in refusal
    assert "the platform of namespace locked is locked: who runs it can" in refusal
    assert "denied request: " in refusal
    if can_be_listed:
        assert not lenient.refusal(pods_of(values, lenient.name)[role])


OF_OTHERS = {"everything", "host-path"}  # examples of what a platform has to list


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_a_locked_platform_takes_the_jobs_that_ask_for_nothing_more(locked, file):
    values = values_of(file)
    if values["kind"] != "job" or file.stem in OF_OTHERS:
        assert file not in JOBS
        return
    for role, made in pods_of(values, locked.name).items():
        assert not locked.refusal(made), role


def test_a_pod_of_two_jobs_has_the_secrets_of_neither(locked):
    board = pods_of(example_with_board(), locked.name)["tensorboard"]
    board["metadata"]["labels"]["elasticdl-job-name"] = "other"
    refusal = locked.refusal(board)
    assert "got labels and owners of the jobs other and digits, expected" in refusal
    worker = pods_of(named(), locked.name)["worker"]
    worker["metadata"]["labels"]["elasticdl.org/tensorboard-of"] = "other"
    refusal = locked.refusal(worker)
    assert "of the jobs digits and other and digits, expected those of one" in refusal


def test_a_lock_takes_pods_whose_account_brings_secrets_to_pull_with(locked):
    """OpenShift gives each account one, and the API server each pod that of its own."""
    shift = Locked(locked.control_plane, "shift", {})
    for account in ("elasticdl-job", "elasticdl-master"):
        brings = {"imagePullSecrets": [{"name": f"{account}-dockercfg-x2z9k"}]}
        done = shift.kubectl("patch", "sa", account, "-p", json.dumps(brings))
        assert not done.returncode, done.stderr
    made = pods_of(example_with_board(), shift.name)
    for role in ("master", "ps", "worker", "tensorboard", "audit"):
        assert not shift.refusal(made[role]), role
    other = made["worker"]
    other["spec"]["imagePullSecrets"] = [{"name": "elasticdl-master-dockercfg-x2z9k"}]
    assert "got the Secrets elasticdl-master-dockercfg-x2z9k" in shift.refusal(other)
    values = of_role("worker", envFrom=[{"secretRef": {
        "name": "elasticdl-job-dockercfg-x2z9k"}}])  # fmt: skip
    mounted = pods_of(values, shift.name)["worker"]
    assert "got the Secrets elasticdl-job-dockercfg-x2z9k" in shift.refusal(mounted)
    shift.close()


CLAIM = {
    "accessModes": ["ReadWriteOnce"],
    "resources": {"requests": {"storage": "1Gi"}},
}


def brought(**source):
    return {"ephemeral": {"volumeClaimTemplate": {"spec": {**CLAIM, **source}}}}


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({"azureFile": {"secretName": "cluster", "shareName": "s"}}, "Secrets"),
        ({"iscsi": {"targetPortal": "a:1", "iqn": "iqn.2001-04.example:a", "lun": 0,
                    "chapAuthSession": True, "secretRef": {"name": "cluster"}}},
         "Secrets"),
        ({"csi": {"driver": "smb.csi.k8s.io",
                  "volumeAttributes": {"source": "//s/d", "secretName": "cluster"}}},
         "Secrets"),
        ({"cinder": {"volumeID": "a", "secretRef": {"name": "cluster"}}}, "Secrets"),
        (brought(dataSource={"kind": "PersistentVolumeClaim", "name": "cluster"}),
         "claims"),
        (brought(dataSourceRef={"kind": "PersistentVolumeClaim", "name": "cluster"}),
         "claims"),
        (brought(volumeName="cluster"), "claims"),
    ],
    ids=["azureFile", "iscsi", "csi", "cinder", "a copy", "a reference", "a volume"],
)  # fmt: skip
def test_a_kind_of_volume_that_is_allowed_brings_nothing_foreign(shares, source, said):
    values = of_role("worker", volumes=[{"name": "n", **source}])
    refusal = shares.refusal(pods_of(values, shares.name)["worker"])
    assert f"got the {said} cluster, expected" in refusal


def test_a_claim_of_its_own_is_taken_where_that_kind_is_allowed(shares):
    for source in (brought(), brought(dataSource=None, volumeName="")):
        values = of_role("worker", volumes=[{"name": "n", **source}])
        assert not shares.refusal(pods_of(values, shares.name)["worker"])


@pytest.fixture(scope="module")
def shares(locked):
    allowed = {"volumes": ["azureFile", "cinder", "csi", "ephemeral", "iscsi"]}
    one = Locked(locked.control_plane, "shares", allowed)
    yield one
    one.close()


def example_with_board():
    return named(monitoring={"tensorboard": {"enabled": True}})


def test_pods_that_are_no_jobs_are_left_alone(locked):
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web"},
        "spec": {
            "containers": [{"name": "main", "image": "x"}],
            "priorityClassName": "production",
            "volumes": [{"name": "s", "secret": {"secretName": "warehouse"}}],
        },
    }
    assert not locked.refusal(pod)
