"""The command line on a real API server: what is made, shown, changed and refused.

No pod ever runs here; what a kubelet and a master would write, the tests write.
"""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import helm_python
import pytest
from elasticdl.client.cluster import ClusterJob, Where, connect
from elasticdl.client.cluster.errand import run_errand
from elasticdl.errors import ExitCode, PlatformError
from elasticdl.job.status import JobReport, JobStatus, Progress, ReplicaStatus
from elasticdl.job.words import JobState
from kubernetes.config import kube_config
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[3]
CHART = ROOT / "charts" / "elasticdl"
# The flags of the cloud tutorial, and its numbers.
TUTORIAL = (
    "--image_name=localhost:5000/elasticdl:mnist",
    "--model_zoo=model_zoo",
    "--model_def=mnist.functional_api.custom_model",
    "--training_data=/data/mnist/train",
    "--validation_data=/data/mnist/test",
    "--num_epochs=5",
    "--master_resource_request=cpu=2,memory=2048Mi",
    "--master_resource_limit=cpu=2,memory=2048Mi",
    "--master_pod_priority=high",
    "--worker_resource_request=cpu=2,memory=2048Mi",
    "--worker_resource_limit=cpu=2,memory=2048Mi",
    "--worker_pod_priority=low",
    "--ps_resource_request=cpu=2,memory=2048Mi",
    "--ps_resource_limit=cpu=2,memory=2048Mi",
    "--ps_pod_priority=high",
    "--minibatch_size=64",
    "--num_minibatches_per_task=64",
    "--num_ps_pods=2",
    "--num_workers=4",
    "--evaluation_steps=200",
    "--grads_to_wait=1",
    "--job_name=test-mnist",
    "--log_level=INFO",
    "--image_pull_policy=Always",
    "--volume=mount_path=/data,claim_name=fileserver-claim",
    "--distribution_strategy=ParameterServerStrategy",
)
_numbers = count(1)
_STATUS = JobStatus(
    name="test-mnist",
    type="train",
    strategy="parameterServer",
    state=JobState.RUNNING,
    started=1.0,
    time=2.0,
    master_generation=1,
    workers_wanted=4,
    progress=Progress(epochs=5, records_per_epoch=1000, records_done=500),
    replicas=[
        ReplicaStatus(
            name="worker-0", role="worker", index=0, generation=1, state="running"
        )
    ],
)
_REPORT = JobReport(
    name="test-mnist",
    type="train",
    strategy="parameterServer",
    status=JobState.SUCCEEDED,
    message="",
    started=1.0,
    seconds=9.0,
    epochs=5,
    steps=100,
    version=100,
    records=5000,
    records_per_second=500.0,
    replayed_records=0,
    replays=[],
    bad_records=[],
    skipped_batches=0,
    lost_updates=0,
    rewinds=0,
    master_restarts=0,
    goodput_seconds={},
    goodput=1.0,
    last_loss=0.1,
    metrics={"accuracy": 0.98},
    evaluations=[],
    relaunches=[],
    checkpoint="",
    exports=[],
)
STATUS = _STATUS.model_dump(mode="json")
REPORT = _REPORT.model_dump(mode="json")


class User:
    """Somebody with a kube config, a namespace with the platform, and a terminal."""

    def __init__(self, control_plane: Any, namespace: str, home: Path) -> None:
        self.control_plane, self.namespace = control_plane, namespace
        self.env = {
            **os.environ,
            "KUBECONFIG": str(control_plane.kubeconfig),
            "ELASTICDL_JOBS_DIR": str(home / "jobs"),
            "COLUMNS": "100",
        }

    def elasticdl(self, *words: str, code: int = ExitCode.OK) -> str:
        """Run a command; what it printed, standard error behind standard output."""
        done = subprocess.run(
            [sys.executable, "-m", "elasticdl.cli.main", *words],
            env=self.env,
            capture_output=True,
            text=True,
            check=False,
        )
        said = done.stdout + done.stderr
        assert done.returncode == code, said
        return said

    def submit(self, *words: str, code: int = ExitCode.OK) -> str:
        return self.elasticdl(
            "train", *TUTORIAL, "-n", self.namespace, *words, code=code
        )

    def kubectl(self, *words: str, text: str | None = None) -> str:
        return self.control_plane.kubectl("-n", self.namespace, *words, text=text)

    def get(self, *words: str) -> Any:
        return json.loads(self.kubectl("get", *words, "-ojson"))

    def install_platform(self, **values: Any) -> None:
        said = {
            "kind": "platform",
            "images": {"registry": "registry.example/team"},
            "priorityClasses": {"create": False},
        }
        with helm_python.Config(
            kubeconfig_path=self.control_plane.kubeconfig, namespace=self.namespace
        ) as config:
            config.install(
                CHART,
                "elasticdl",
                {**said, **values},
                namespace=self.namespace,
            )

    def apply(self, thing: dict[str, Any]) -> None:
        self.kubectl("apply", "-f-", text=json.dumps(thing))

    def master_pod(self) -> str:
        """Wait for the pod that the Job controller makes; its name."""
        selector = "elasticdl-replica-type=master"
        self.kubectl("wait", "--for=create", "pod", "-l", selector, "--timeout=30s")
        return str(self.get("pods", "-l", selector)["items"][0]["metadata"]["name"])

    def write_as_master(self, job: str, **documents: Any) -> None:
        """Write the job's status, owned by its ConfigMap."""
        owner = self.get("configmap", f"elasticdl-{job}")["metadata"]
        self.apply(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {
                    "name": f"elasticdl-{job}-status",
                    "ownerReferences": [
                        {
                            "apiVersion": "v1",
                            "kind": "ConfigMap",
                            "name": owner["name"],
                            "uid": owner["uid"],
                        }
                    ],
                },
                "data": {
                    f"{key}.json": json.dumps({**value, "name": job})
                    for key, value in documents.items()
                },
            }
        )


@pytest.fixture
def stranger(control_plane, tmp_path):
    """A user with a namespace in which nothing is."""
    namespace = f"cli{next(_numbers)}"
    control_plane.kubectl("create", "namespace", namespace)
    yield User(control_plane, namespace, tmp_path)
    control_plane.kubectl("delete", "namespace", namespace, "--wait=false")


@pytest.fixture
def user(stranger, priority_classes):
    stranger.install_platform()
    return stranger


def test_the_tutorials_flags_make_the_tutorials_job(user):
    said = user.submit()
    assert "job test-mnist: train, 4 workers, 2 PS" in said
    assert f"submitted to namespace {user.namespace} of kube context cluster" in said
    assert "  Job elasticdl-test-mnist-master\n" in said
    assert f"  elasticdl status test-mnist -n {user.namespace} --watch\n" in said
    job = user.get("configmap", "elasticdl-test-mnist")["data"]["job.yaml"]
    for line in ("replicas: 4", "replicas: 2", "cpu: 2", "everySteps: 200"):
        assert line in job
    pod = user.get("job", "elasticdl-test-mnist-master")["spec"]["template"]["spec"]
    assert pod["priorityClassName"] == "elasticdl-high"
    assert pod["containers"][0]["imagePullPolicy"] == "Always"
    assert pod["containers"][0]["image"] == "localhost:5000/elasticdl:mnist"


def test_a_values_file_goes_to_a_cluster_with_an_option_alone(user, tmp_path):
    file = tmp_path / "digits.yaml"
    file.write_text(
        "kind: job\njob:\n  name: digits\n  data: {training: d}\n"
        "  model: {definition: digits.cnn.custom_model}\n"
    )
    user.elasticdl("train", "-f", str(file), "-n", user.namespace)
    pod = user.get("job", "elasticdl-digits-master")["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"].startswith(
        "registry.example/team/elasticdl/master:"
    )


def test_without_a_registry_no_stock_image_is_asked_for(stranger, priority_classes):
    stranger.install_platform(images={})
    file = str(ROOT / "values" / "digits.yaml")
    said = stranger.elasticdl(
        "train", "-f", file, "-n", stranger.namespace, code=ExitCode.SPEC
    )
    assert "images.registry: got nothing, expected the registry that the stock" in said
    assert stranger.get("configmaps", "-l", "elasticdl-job-name")["items"] == []


@pytest.mark.soak
def test_a_submitted_job_is_found_without_saying_where_it_is(user):
    user.submit()
    user.master_pod()
    said = user.elasticdl("status", "test-mnist")
    assert "test-mnist pending: no node for its pod" in said
    assert user.namespace in user.elasticdl("list")
    listed = user.elasticdl("list", "-n", user.namespace)
    assert "test-mnist  pending" in listed
    assert user.namespace in user.elasticdl("list", "-A")


def test_a_second_job_of_that_name_is_refused_while_the_first_is_there(user):
    user.submit()
    said = user.submit(code=ExitCode.JOB_FAILED)
    assert "job test-mnist is in namespace" in said
    assert "give this one another name" in said


def test_scale_changes_the_job_within_its_bounds(user):
    user.submit("--set", "worker.max=6")
    there = ("test-mnist", "-n", user.namespace)
    said = user.elasticdl("scale", *there, "--workers", "6")
    assert "workers 4 -> 6; 2 more to come" in said
    job = user.get("configmap", "elasticdl-test-mnist")["data"]["job.yaml"]
    assert "replicas: 6" in job
    said = user.elasticdl("scale", *there, "--workers", "7", code=ExitCode.SPEC)
    assert "got 7, expected at most worker.max, 6" in said
    said = user.elasticdl("scale", *there, "--workers", "8", "--max", "8", "--min", "2")
    assert "workers 6 -> 8, min none -> 2, max 6 -> 8" in said


def test_scale_pauses_a_job_and_lets_it_go_on(user):
    user.submit()
    there = ("test-mnist", "-n", user.namespace)
    said = user.elasticdl("scale", *there, "--pause")
    assert "paused no -> yes; no task is given out; workers leave after 5 s" in said
    job = user.get("configmap", "elasticdl-test-mnist")["data"]["job.yaml"]
    assert "paused: true" in job
    assert "nothing to change" in user.elasticdl("scale", *there, "--pause")
    said = user.elasticdl("scale", *there, "--resume")
    assert "paused yes -> no; it goes on where it was, with 4 workers" in said


def test_a_running_job_shows_what_its_master_wrote(user):
    user.submit()
    user.write_as_master("test-mnist", status=STATUS)
    said = user.elasticdl("status", "test-mnist")
    assert "train job, strategy parameterServer, running" in said
    assert "worker-0" in said
    document = json.loads(
        user.elasticdl("status", "test-mnist", "-n", user.namespace, "--json")
    )
    assert document["status"]["progress"]["records_done"] == 500
    assert document["place"] == f"namespace {user.namespace}"


@pytest.fixture
def node(control_plane):
    """A node with 8 CPUs that takes no pod but those that name it."""
    name = f"top{next(_numbers)}"
    taint = {"key": "test", "effect": "NoSchedule"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
    text = json.dumps({**node, "spec": {"taints": [taint]}})
    control_plane.kubectl("apply", "-f-", text=text)
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": now}
    status = {"conditions": [ready], "allocatable": {"cpu": "8", "memory": "16Gi"}}
    patch = json.dumps({"status": status})
    control_plane.kubectl("patch", "node", name, "--subresource=status", f"-p={patch}")
    yield name
    control_plane.kubectl("delete", "node", name)


def serving_pod(node: str) -> dict[str, Any]:
    resources = {"requests": {"cpu": "3"}}
    container = {"name": "main", "image": "serving", "resources": resources}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "serving"},
        "spec": {
            "nodeName": node,
            "priorityClassName": "test-serving",
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
        },
    }


def test_top_shows_a_job_and_with_what_the_cluster_is_full(user, node):
    user.submit()
    user.write_as_master("test-mnist", status=STATUS)
    user.apply(serving_pod(node))
    said = user.elasticdl("top", "test-mnist", "-n", user.namespace)
    head = f"test-mnist  train, parameterServer, namespace {user.namespace}  running"
    assert said.startswith(head)
    assert "workers    1 running of 4 wanted\n" in said
    assert "serving 3 ▓ training 0 ▒ other 0 · free 5 of 8 CPUs" in said
    said = user.elasticdl("top", "-A", "--once")
    assert "serving 3" in said
    assert f"{user.namespace} " in said
    user.kubectl("delete", "pod", "serving", "--force", "--grace-period=0")


@pytest.mark.soak
def test_who_may_see_a_namespace_alone_sees_its_jobs_in_top(user, tmp_path):
    user.submit()
    user.write_as_master("test-mnist", status=STATUS)
    account = f"--serviceaccount={user.namespace}:default"
    user.kubectl("create", "rolebinding", "seer", "--clusterrole=view", account)
    token = user.kubectl("create", "token", "default").strip()
    config = json.loads(user.kubectl("config", "view", "--raw", "-ojson"))
    config["users"][0]["user"] = {"token": token}
    mine = tmp_path / "kubeconfig"
    mine.write_text(json.dumps(config))
    user.env["KUBECONFIG"] = str(mine)
    for words, seen in ((["test-mnist"], "1 running of 4 wanted"), ([], "1 job")):
        said = user.elasticdl("top", *words, "-n", user.namespace)
        assert seen in said
        assert "cluster    not known: it takes the right to list nodes and all" in said


def test_an_ended_job_shows_its_report_and_makes_room_for_the_next(user):
    user.submit()
    user.write_as_master("test-mnist", status=STATUS, report=REPORT)
    said = user.elasticdl("status", "test-mnist")
    assert "job test-mnist succeeded in" in said
    said = user.elasticdl(
        "scale", "test-mnist", "--workers", "2", code=ExitCode.JOB_FAILED
    )
    assert "does not run (succeeded)" in said
    said = user.submit()
    assert "the succeeded job of this name was removed" in said
    assert "pending" in user.elasticdl("status", "test-mnist")


def test_stop_asks_the_master_by_an_annotation(user):
    user.submit()
    user.write_as_master("test-mnist", status=STATUS)
    user.elasticdl("stop", "test-mnist", "--no-wait")
    map_ = user.get("configmap", "elasticdl-test-mnist")
    assert map_["metadata"]["annotations"]["elasticdl.org/stop"] == "elasticdl stop"
    assert not user.get("job", "elasticdl-test-mnist-master")["spec"].get("suspend")


def test_a_job_that_never_began_is_stopped_and_begins_no_more(user):
    user.submit()
    said = user.elasticdl("stop", "test-mnist")
    assert "it was stopped before it began" in said
    assert "stopped" in user.elasticdl("status", "test-mnist")
    user.kubectl("wait", "--for=delete", "pod", "--all", "--timeout=30s")


def test_removing_a_job_leaves_nothing_of_it(user):
    before = user.kubectl("get", "all,configmap,secret,networkpolicy,pdb", "-oname")
    user.submit()
    said = user.elasticdl("stop", "test-mnist", "--remove")
    assert "release test-mnist removed" in said
    user.kubectl("wait", "--for=delete", "pod", "--all", "--timeout=30s")
    assert before == user.kubectl(
        "get", "all,configmap,secret,networkpolicy,pdb", "-oname"
    )
    said = user.elasticdl("status", "test-mnist", code=ExitCode.USAGE)
    assert "is not there any more" in said


def test_an_image_that_cannot_be_pulled_is_shown_by_status_and_logs(user):
    user.submit()
    pod = user.master_pod()
    waiting = {"reason": "ImagePullBackOff", "message": "no such tag"}
    status = {
        "phase": "Pending",
        "containerStatuses": [
            {
                "name": "main",
                "image": "i",
                "imageID": "",
                "ready": False,
                "restartCount": 0,
                "state": {"waiting": waiting},
            }
        ],
    }
    user.kubectl(
        "patch", "pod", pod, "--subresource=status", "--type=merge",
        "-p", json.dumps({"status": status}),
    )  # fmt: skip
    why = "image localhost:5000/elasticdl:mnist cannot be pulled (ImagePullBackOff)"
    assert why in user.elasticdl("status", "test-mnist")
    said = user.elasticdl("logs", "test-mnist", "master", code=ExitCode.JOB_FAILED)
    assert f"has no log yet: {why}" in said
    said = user.elasticdl("logs", "test-mnist", "worker-9", code=ExitCode.USAGE)
    assert "no pod of 'worker-9'" in said
    assert "there are: master" in said


def test_a_quota_without_room_is_shown_in_the_api_servers_words(user):
    user.apply(
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "none"},
            "spec": {"hard": {"pods": "0"}},
        }
    )
    user.submit()
    user.kubectl(
        "wait", "--for=create", "event", "--timeout=30s",
        "--field-selector=reason=FailedCreate",
    )  # fmt: skip
    said = user.elasticdl("status", "test-mnist")
    assert "the master's pod cannot be made" in said
    assert "exceeded quota: none" in " ".join(said.split())


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("--job_name=Test_Mnist",), "job.name: got 'Test_Mnist'"),
        (("--job_name=" + "x" * 60,), "job.name: got"),
        (("--volume=claim_name=none,mount_path=/data",), "no volume claim 'none'"),
        (("--worker_pod_priority=urgent",), "no PriorityClass 'urgent'"),
        (("-n", "nowhere"), "no namespace 'nowhere'"),
    ],
)
def test_what_would_never_run_is_refused_at_once(user, words, part):
    names = {word.partition("=")[0] for word in words}
    kept = [one for one in TUTORIAL if one.partition("=")[0] not in names]
    where = [] if "-n" in names else ["-n", user.namespace]
    command = ["train", *kept, *words, *where]
    done = subprocess.run(
        [sys.executable, "-m", "elasticdl.cli.main", *command],
        env=user.env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (ExitCode.SPEC, ExitCode.PLATFORM), done.stderr
    assert part in done.stderr
    assert user.get("configmaps", "-l", "elasticdl-job-name")["items"] == []


def test_without_the_platform_the_next_command_is_said(stranger, priority_classes):
    said = stranger.submit(code=ExitCode.PLATFORM)
    assert f"the platform is not in namespace {stranger.namespace}" in said
    assert f"helm install elasticdl charts/elasticdl -n {stranger.namespace}" in said


def test_a_submission_has_in_every_pod_what_its_platform_says(
    stranger, priority_classes
):
    selector = {"pool": "training"}
    common = {"nodeSelector": selector, "env": [{"name": "TEAM", "value": "vision"}]}
    stranger.install_platform(jobs={"defaults": {"pods": {"common": common}}})
    said = stranger.submit()
    paths = "images.registry, pods.common.nodeSelector.pool, pods.common.env"
    assert f"the platform of namespace {stranger.namespace} says: {paths}" in said
    made = stranger.get("configmap", "elasticdl-test-mnist")["data"]
    job = stranger.get("job", "elasticdl-test-mnist-master")["spec"]["template"]
    for pod in (job, YAML(typ="safe").load(made["worker.yaml"])):
        assert pod["spec"]["nodeSelector"] == selector
        env = {
            one["name"]: one.get("value") for one in pod["spec"]["containers"][0]["env"]
        }
        assert env["TEAM"] == "vision"


def test_what_a_platform_fixes_is_refused_before_anything_is_made(
    stranger, priority_classes
):
    stranger.install_platform(jobs={"fixed": ["job.imagePullPolicy"]})
    said = stranger.submit(code=ExitCode.SPEC)
    told = 'job.imagePullPolicy: got "Always", expected "IfNotPresent"; the platform of'
    assert told in said
    assert stranger.get("configmaps", "-l", "elasticdl-job-name")["items"] == []


def test_who_has_no_rights_hears_it_from_the_api_server(user, tmp_path):
    token = user.kubectl("create", "token", "default").strip()
    config = json.loads(user.control_plane.kubectl("config", "view", "--raw", "-ojson"))
    config["users"][0]["user"] = {"token": token}
    file = tmp_path / "kubeconfig"
    file.write_text(json.dumps(config))
    user.env["KUBECONFIG"] = str(file)
    said = user.elasticdl("list", "-n", user.namespace, code=ExitCode.PLATFORM)
    assert "cannot read configmaps in namespace" in said
    assert "ask for a role that allows it" in said
    said = user.submit(code=ExitCode.PLATFORM)
    assert "job test-mnist was not submitted" in said
    assert "cannot create resource" in said or "is forbidden" in said


def test_a_registry_in_a_cluster_is_asked_by_a_pod_that_has_its_volume(user):
    user.env["ELASTICDL_SQL_URL"] = "mysql://me:s3cr3t@shop/db"  # of tables, not asked
    command = ["models", "show", "income@2", "-n", user.namespace]
    asking = subprocess.Popen(
        [sys.executable, "-m", "elasticdl.cli.main", *command, "--models-dir", "shop"],
        env=user.env,
    )
    selector = "app.kubernetes.io/component=sql"
    try:
        user.kubectl("wait", "--for=create", "pod", "-l", selector, "--timeout=60s")
        (pod,) = user.get("pods", "-l", selector)["items"]
    finally:
        asking.kill()
        asking.wait()
    (main,) = pod["spec"]["containers"]
    *words, step, statement = main["args"]
    assert words == ["sql", "--step"]
    assert json.loads(step) == {"do": "ask", "models": "shop"}
    assert statement == 'DESCRIBE MODEL "income@2"'
    assert main["workingDir"] in {one["mountPath"] for one in main["volumeMounts"]}
    assert "s3cr3t" not in json.dumps(pod)


def test_an_errand_whose_pod_does_not_run_says_why_and_leaves_no_pod(user, monkeypatch):
    user.submit()
    config = str(user.control_plane.kubeconfig)
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", config)
    job = ClusterJob(connect(Where(namespace=user.namespace)), "test-mnist")
    with pytest.raises(PlatformError, match="no node for its pod"):
        run_errand(job, "audit", lambda folder: ["audit"], pending_seconds=3.0)
    audits = user.get("pods", "-l", "app.kubernetes.io/component=audit")
    assert all(one["metadata"].get("deletionTimestamp") for one in audits["items"])


def test_yaml_is_what_kubectl_can_apply(user, tmp_path):
    file = tmp_path / "job.yaml"
    user.submit("--yaml", str(file))
    user.kubectl("apply", "--dry-run=server", "-f", str(file))
    assert user.get("configmaps", "-l", "elasticdl-job-name")["items"] == []
