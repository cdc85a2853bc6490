"""A namespace with a locked platform on a real API server, and pods to try in it.

Used by the tests of the lock. Pods and Jobs are what the chart renders from values that
a committer may write, stamped as the master does.
"""

import json
import subprocess
from itertools import count

from elasticdl.client.cluster.errand import errand_pod
from elasticdl.job.names import Role
from elasticdl.runner.base import Launch, ReplicaKey
from elasticdl.runner.kubernetes.pods import stamp

from tests.chart.rendering import config_map, job, merged, of_kind
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


def named(**keys):
    """Return the values of job `digits` with these keys of the chart or of `job`."""
    tree = job(**{k: v for k, v in keys.items() if k != "job"})
    return merged(tree, {"job": keys.get("job", {})})


def of_role(role, **keys):
    return named(pods={role: keys})


def container(**keys):
    return {"name": "extra", "image": "x", **keys}


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
