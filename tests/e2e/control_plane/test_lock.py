"""What a locked platform refuses in pods of its jobs, and what a master may touch.

The chart's own policies, on a real API server. Pods and Jobs are what the chart renders
from values that a committer may write, stamped as the master does; nothing is made
unless a token has to be bound to it (`dryRun`: admission says the same).
"""

import json
import subprocess
from itertools import count

import pytest
from elasticdl.client.cluster.errand import errand_pod
from elasticdl.job.names import Role
from elasticdl.runner.base import Launch, ReplicaKey
from elasticdl.runner.kubernetes.pods import stamp

from tests.chart.rendering import (
    EXAMPLES,
    JOBS,
    config_map,
    job,
    merged,
    of_kind,
    values_of,
)
from tests.chart.rendering import objects as rendered
from tests.e2e.kube import wait_until

POLICY = "ValidatingAdmissionPolicy"
ALLOWED = {
    "serviceAccounts": ["data-reader"],
    "secrets": ["warehouse"],
    "claims": ["datasets"],
    "priorityClasses": ["batch"],
    "volumes": ["nfs"],
}
ACCOUNTS = ("default", "data-reader", "cluster-owner", "elasticdl-alone-master")
CLASSES = ("batch", "production")
_numbers = count(1)


class Locked:
    """A namespace whose platform is locked."""

    def __init__(self, control_plane, name: str, allowed) -> None:
        self.control_plane, self.name = control_plane, name
        control_plane.kubectl("create", "namespace", name)
        values = {
            "platform": {"locked": True, "allowed": allowed},
            "priorityClasses": {"create": False},
        }
        kept = rendered(values, namespace=name)
        self.policies = [
            full_name for kind, full_name in kept if kind == f"{POLICY}Binding"
        ]
        self.apply(*kept.values())
        for account in ACCOUNTS[1:]:
            self.control_plane.kubectl("-n", name, "create", "sa", account)
        bad = pods_of(job(serviceAccounts={"job": "nobody"}), name)["worker"]
        wait_until("the lock is in force", lambda: self.refusal(bad), seconds=60)

    def apply(self, *found) -> None:
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(found)})
        self.control_plane.kubectl("-n", self.name, "apply", "-f-", text=text)

    def kubectl(self, *arguments: str, text: str = "", token: str = ""):
        """Call as the administrator, or as whoever has that token."""
        program = self.control_plane.state / "bin" / "kubectl"
        config = self.control_plane.kubeconfig
        if token:
            whole = json.loads(
                self.control_plane.kubectl("config", "view", "--raw", "-ojson")
            )
            whole["users"][0]["user"] = {"token": token}
            config = self.control_plane.state / "token.kubeconfig"
            config.write_text(json.dumps(whole))
        return subprocess.run(
            [program, f"--kubeconfig={config}", "-n", self.name, *arguments],
            input=text,
            capture_output=True,
            text=True,
            check=False,
        )

    def refusal(self, made, *, token: str = "") -> str:
        """Return why the object would not be made; empty where it would."""
        words = ["create", "--dry-run=server", "-f-"]
        done = self.kubectl(*words, text=json.dumps(made), token=token)
        return done.stderr if done.returncode else ""

    def close(self) -> None:
        for name in self.policies:
            for kind in (f"{POLICY}Binding", POLICY):
                self.control_plane.kubectl("delete", kind, name)
        self.control_plane.kubectl("delete", "namespace", self.name, "--wait=false")


def pods_of(values, namespace):
    """Return what the master and Kubernetes make of values: by role, `job` the Job."""
    found = rendered(values, namespace=namespace)
    templates = config_map(found)
    made = {"job": of_kind(found, "Job")}
    made["master"] = {
        "apiVersion": "v1",
        "kind": "Pod",
        **of_kind(found, "Job")["spec"]["template"],
    }
    name = f"elasticdl-{values['job']['name']}"
    made["master"]["metadata"] |= {"name": f"{name}-master-abcde"}
    share = values["job"].get("worker", {}).get("priority")
    for role in (Role.PS, Role.WORKER):
        launch = Launch(
            key=ReplicaKey(role, 0),
            generation=1,
            cpu=1.0,
            memory="64Mi",
            priority="elasticdl-low" if isinstance(share, float) else "",
            grace_seconds=15.0,
        )
        owner = {"name": name, "uid": "1"}
        text = json.dumps(templates[f"{role}.yaml"])
        made[str(role)] = stamp(text, launch, job=values["job"]["name"], owner=owner)
    board = found.get(("Deployment", f"{name}-tensorboard"))
    if board:
        made["tensorboard"] = {
            "apiVersion": "v1",
            "kind": "Pod",
            **board["spec"]["template"],
        }
        made["tensorboard"]["metadata"] |= {"generateName": f"{name}-tensorboard-"}
    text = {key: json.dumps(tree) for key, tree in templates.items()}
    about = {"metadata": {"name": name, "uid": "1"}, "data": text}
    name = values["job"]["name"]
    made["audit"] = errand_pod(about, name, "audit", lambda folder: ["audit"])
    return made


@pytest.fixture(scope="module")
def locked(control_plane, priority_classes):
    control_plane.kubectl("create", "namespace", "classes")
    for name in CLASSES:
        control_plane.kubectl("create", "priorityclass", name, "--value=7")
    one = Locked(control_plane, "locked", {})
    yield one
    one.close()


@pytest.fixture(scope="module")
def lenient(control_plane, locked):
    one = Locked(control_plane, "lenient", ALLOWED)
    yield one
    one.close()


def named(**keys):
    """Return the values of job `digits` with these keys of the chart or of `job`."""
    tree = job(**{k: v for k, v in keys.items() if k != "job"})
    return merged(tree, {"job": keys.get("job", {})})


def of_role(role, **keys):
    return named(pods={role: keys})


def container(**keys):
    return {"name": "extra", "image": "x", **keys}


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
def test_a_locked_platform_refuses_in_a_jobs_values(locked, case):
    values, role, said, _ = REFUSED[case]
    refusal = locked.refusal(pods_of(values, locked.name)[role])
    assert said in refusal
    assert "the platform of namespace locked is locked: who runs it can" in refusal
    assert "denied request: " in refusal


@pytest.mark.parametrize("case", [case for case, row in REFUSED.items() if row[3]])
def test_a_locked_platform_lets_pass_what_its_values_list(locked, lenient, case):
    values, role, _, _ = REFUSED[case]
    assert locked.refusal(pods_of(values, locked.name)[role])
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


def test_a_kind_of_volume_that_is_allowed_brings_no_foreign_secret(locked):
    allowed = {"volumes": ["azureFile", "iscsi"]}
    shares = Locked(locked.control_plane, "shares", allowed)
    for source in (
        {"azureFile": {"secretName": "cluster", "shareName": "s"}},
        {"iscsi": {"targetPortal": "a:1", "iqn": "iqn.2001-04.example:a", "lun": 0,
                   "chapAuthSession": True, "secretRef": {"name": "cluster"}}},
    ):  # fmt: skip
        values = of_role("worker", volumes=[{"name": "n", **source}])
        refusal = shares.refusal(pods_of(values, shares.name)["worker"])
        assert "got the Secrets cluster, expected" in refusal
    shares.close()


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


# -- masters --------------------------------------------------------------------------


def master_token(locked, name, *, run="", account="elasticdl-master"):
    """Return the token of a master's pod, which is made as its Job would."""
    base = f"elasticdl-{name}-master-{run}"[:58]
    pod = pods_of(named(job={"name": name}), locked.name)["master"]
    number = f"{next(_numbers):05d}".replace("0", "x")
    pod["metadata"]["name"] = f"{base}{number}"
    pod["spec"] |= {"serviceAccountName": account, "priorityClassName": "batch"}
    done = locked.kubectl("create", "-f-", "-ojson", text=json.dumps(pod))
    assert not done.returncode, done.stderr
    uid = json.loads(done.stdout)["metadata"]["uid"]
    bound = [f"--bound-object-name={base}{number}", f"--bound-object-uid={uid}"]
    words = ["create", "token", account, "--bound-object-kind=Pod", *bound]
    done = locked.kubectl(*words)
    assert not done.returncode, done.stderr
    return done.stdout.strip()


def replica(locked, name, role="worker"):
    return pods_of(named(job={"name": name}), locked.name)[role]


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
