"""Jobs that are added, changed, mended and removed by commits alone, with Argo CD."""

import json
import time

import pytest
from elasticdl.job.names import ANNOTATION_WORKERS
from elasticdl.job.words import JobState

from tests.e2e import figures
from tests.e2e.gitops.conftest import application
from tests.e2e.kube import wait_until
from tests.e2e.releases import merged, values_file

SMALL = {"cpu": 1, "memory": "1536Mi"}
MASTER = "elasticdl-digits-master"
DIGITS, LATE = application("digits"), application("late")
# Argo CD removes no Application amid a sync; one that fails is tried five times more,
# after 5, 10, 20, 40 and 60 s.
RETRIES_SECONDS = 400.0
ENDLESS = {
    "training": {"epochs": 10_000},
    "worker": {"replicas": 2, "resources": SMALL},
}


@pytest.fixture(scope="module")
def added(deployment):
    """The main job, added by a commit; it trains until its file is removed."""
    begun = time.monotonic()
    values = merged(values_file("digits.yaml"), {"job": ENDLESS})
    job, revision = deployment.add(values)
    deployment.argo.wait_application(DIGITS)
    figures.record("gitops_commit_to_application_seconds", time.monotonic() - begun)
    job.wait_status("a first step", lambda s: s.progress.steps > 0, seconds=300)
    figures.record("gitops_commit_to_first_step_seconds", time.monotonic() - begun)
    deployment.argo.wait_synced(DIGITS, revision)
    yield job
    if "digits" in deployment.values:
        deployment.remove("digits")
        deployment.argo.wait_gone(DIGITS)


@pytest.fixture(scope="module")
def digits(deployment, added):
    """The same, with the health check."""
    bring_health_check(deployment)
    return added


def bring_health_check(deployment):
    file = str(deployment.platform.root / "gitops" / "argocd-cm.yaml")
    deployment.argo.kube.run("patch", "configmap", "argocd-cm", "--patch-file", file)


def test_a_job_is_progressing_until_the_health_check_is_there_and_healthy_then(
    deployment, added
):
    argo = deployment.argo
    argo.wait_health(DIGITS, "Progressing")  # what the built-in check says
    bring_health_check(deployment)
    argo.wait_health(DIGITS, "Healthy")
    assert "running" in argo.message(DIGITS, f"Job/{MASTER}")
    # Below the job is all that its master made, and none of it is out of sync.
    shown = argo.tree(DIGITS)
    assert {"Pod/elasticdl-digits-ps-0", "Pod/elasticdl-digits-worker-0"} <= set(shown)
    assert "ConfigMap/elasticdl-digits-status" in shown
    assert argo.sync_status(DIGITS) == "Synced"


def test_a_commit_changes_the_size_and_nobody_who_stays_is_restarted(
    deployment, digits
):
    digits.wait_running("worker", 2)
    before = digits.uids()
    kept = secrets(deployment)
    begun = time.monotonic()
    revision = deployment.commit("digits", job={"worker": {"replicas": 4}})
    digits.wait_status(
        "four workers wanted", lambda s: s.workers_wanted == 4, seconds=120
    )
    figures.record("gitops_commit_to_wanted_size_seconds", time.monotonic() - begun)
    digits.wait_running("worker", 4)
    figures.record("gitops_commit_to_running_size_seconds", time.monotonic() - begun)
    deployment.argo.wait_synced(DIGITS, revision)
    assert before.items() <= digits.uids().items()
    # Each rendering has others, which would lock the new workers out: the first token
    # and the first authority stay, nobody writes them, and nothing is out of sync.
    assert secrets(deployment) == kept
    deployment.argo.render_anew(DIGITS)
    assert deployment.argo.sync_status(DIGITS) == "Synced"
    assert secrets(deployment) == kept
    digits.wait_steps(20)

    deployment.sync("digits", job={"worker": {"replicas": 2}})
    digits.wait_running("worker", 2)
    deployment.argo.wait_health(DIGITS, "Healthy")


def test_drift_made_by_hand_is_healed_and_the_masters_work_is_left_alone(
    deployment, digits, elasticdl
):
    digits.wait_running("worker", 2)
    kube, before = deployment.kube, digits.uids()
    said = elasticdl("scale", "digits", "--workers=3")
    assert "Argo CD keeps this job" in said

    def healed() -> bool:
        text = kube.get("configmap", "elasticdl-digits")["data"]["job.yaml"]
        return "replicas: 2" in text and len(digits.in_phase("worker")) == 2

    wait_until("what Git says", healed, seconds=120)
    kube.delete("service", MASTER)
    wait_until("the Service", lambda: kube.get("service", MASTER), seconds=120)
    assert before["ps-0"] == digits.uids()["ps-0"]
    assert {n: u for n, u in before.items() if n.startswith("master")}.items() <= (
        digits.uids().items()
    )
    digits.wait_steps(20)
    # Argo CD goes through it every 10 s: what it took for foreign would be gone by now.
    deployment.argo.refresh(DIGITS)
    wait_until(
        "it is in sync",
        lambda: deployment.argo.sync_status(DIGITS) == "Synced",
        seconds=60,
    )
    assert kube.get("configmap", "elasticdl-digits-status")


@pytest.mark.soak
def test_a_grant_is_no_drift_and_stays_over_a_sync(deployment, digits):
    deployment.sync("digits", job={"worker": {"min": 1, "max": 3}})
    # As many as there are, so that nobody has to start or leave.
    digits.grant(2, why="room for another job")
    digits.wait_status("it obeys", lambda status: status.grant)
    # A commit is applied over it, and what heals by itself has looked since.
    deployment.sync("digits", job={"evaluation": {"everySteps": 401}})
    deployment.argo.refresh(DIGITS)
    wait_until(
        "it is in sync",
        lambda: deployment.argo.sync_status(DIGITS) == "Synced",
        seconds=60,
    )
    marks = deployment.kube.get("configmap", "elasticdl-digits")["metadata"]
    assert "room for another job" in marks["annotations"][ANNOTATION_WORKERS]
    status = digits.status()
    assert status is not None
    assert status.grant is not None
    gone = f"{ANNOTATION_WORKERS}-"
    deployment.kube.run("annotate", "configmap/elasticdl-digits", gone)


def test_a_wrong_file_is_told_in_the_schemas_words_and_changes_nothing(
    deployment, digits
):
    argo, before = deployment.argo, digits.uids()
    right = deployment.values["digits"]
    deployment.commit("digits", job={"workers": {"replicas": 9}})
    wait_until(
        "the error", lambda: "ComparisonError" in argo.conditions(DIGITS), seconds=60
    )
    said = argo.conditions(DIGITS)["ComparisonError"]
    assert "at '/job': additional properties 'workers' not allowed" in said
    digits.wait_steps(20)
    assert digits.uids() == before

    deployment.values["digits"] = right
    revision = deployment.commit("digits")
    argo.wait_synced(DIGITS, revision)
    argo.wait_health(DIGITS, "Healthy")
    assert digits.uids() == before


@pytest.mark.soak
def test_a_change_of_the_masters_pod_replaces_the_master_and_nothing_else(
    deployment, digits
):
    digits.wait_running("worker", 2)
    before = digits.uids()
    old = deployment.uid("job", MASTER)
    deployment.sync("digits", pods={"master": {"labels": {"team": "b"}}})
    assert deployment.uid("job", MASTER) != old
    digits.wait_status("the next master", lambda s: s.master_generation > 1)
    digits.wait_steps(20)
    after = digits.uids()
    stay = {n: u for n, u in before.items() if not n.startswith("master")}
    assert stay.items() <= after.items()
    deployment.argo.wait_health(DIGITS, "Healthy")

    # A size after it touches the master no more.
    old = deployment.uid("job", MASTER)
    deployment.sync("digits", job={"worker": {"replicas": 3}})
    digits.wait_running("worker", 3)
    assert deployment.uid("job", MASTER) == old


@pytest.mark.soak
def test_a_new_run_of_a_running_job_rolls_out_to_all_roles_by_one_commit(
    deployment, digits
):
    before = running(digits)
    # As another image would: pods of all roles are other ones.
    deployment.sync("digits", run=2, pods={"common": {"labels": {"image": "next"}}})
    wait_until(
        "only the new run's Job",
        lambda: set(jobs(deployment, "digits")) == {f"{MASTER}-2"},
        seconds=120,
    )
    wait_until(
        "no pod of the old run",
        lambda: not set(before.values()) & set(running(digits).values()),
        seconds=240,
    )
    digits.wait_running("worker", digits.status().workers_wanted)
    digits.wait_steps(20)
    pods = digits.pods()
    for name in running(digits):
        assert pods[name]["metadata"]["labels"].get("image") == "next"
    deployment.argo.wait_health(DIGITS, "Healthy")


@pytest.mark.soak
def test_a_job_that_was_stopped_by_hand_stays_stopped_until_it_is_run_again(
    deployment, digits, elasticdl
):
    elasticdl("stop", "digits")
    deployment.argo.wait_health(DIGITS, "Suspended")
    deployment.argo.refresh(DIGITS)
    assert deployment.argo.sync_status(DIGITS) == "Synced"
    steps = digits.status().progress.steps
    deployment.sync("digits", run=3)
    digits.wait_status(
        "it goes on",
        lambda s: s.state is JobState.RUNNING and s.progress.steps > steps,
        seconds=300,
    )
    deployment.argo.wait_health(DIGITS, "Healthy")


@pytest.mark.soak
def test_a_failed_job_is_degraded_with_its_last_message_and_run_again_by_one_line(
    deployment, digits
):
    argo = deployment.argo
    tree = {
        "name": "late",
        "data": {"prepare": None, "training": "data/late/train", "validation": ""},
        "training": {"epochs": 2},
        "worker": {"replicas": 1, "resources": SMALL},
        "ps": {"replicas": 1},
    }
    values = merged(values_file("digits.yaml"), {"job": tree})
    del values["job"]["export"]
    late, _ = deployment.add(values)
    argo.wait_application(LATE)
    argo.wait_health(LATE, "Degraded", seconds=300)
    report = late.wait_ended()
    assert report.status is JobState.FAILED
    said = argo.message(LATE, "Job/elasticdl-late-master")
    assert said == report.message
    assert "data/late/train" in report.message

    # Somebody brings the data; the values file was right.
    command = ["cp", "-r", "/data/data/digits", "/data/data/late"]
    deployment.kube.run("exec", "elasticdl-digits-ps-0", "--", *command)
    deployment.sync("late", run=2)
    argo.wait_health(LATE, "Healthy", seconds=300)
    late.wait_status("success", lambda s: s.state is JobState.SUCCEEDED, seconds=600)
    wait_until(
        "only the second run's Job is there",
        lambda: set(jobs(deployment, "late")) == {"elasticdl-late-master-2"},
        seconds=60,
    )
    argo.wait_health(LATE, "Healthy")
    assert argo.sync_status(LATE) == "Synced"
    deployment.remove("late")
    argo.wait_gone(LATE)


@pytest.mark.soak
def test_of_two_files_with_one_job_name_the_second_one_is_refused(deployment, digits):
    argo, before = deployment.argo, digits.uids()
    work = set(jobs(deployment, "digits"))
    copy = merged(deployment.values["digits"], {"job": {"worker": {"replicas": 1}}})
    deployment.team.commit("jobs/copy.yaml", copy)
    argo.refresh()
    argo.wait_application(application("copy"))
    wait_until(
        "the refusal",
        lambda: "Shared resource found" in argo.said(application("copy")),
        seconds=60,
    )
    digits.wait_steps(20)
    assert digits.uids() == before
    assert set(jobs(deployment, "digits")) == work
    assert argo.sync_status(DIGITS) == "Synced"

    # Its file goes, and takes nothing of the other one along.
    deployment.team.commit("jobs/copy.yaml", None)
    argo.terminate(application("copy"))
    argo.refresh()
    argo.wait_gone(application("copy"), seconds=RETRIES_SECONDS)
    digits.wait_steps(20)
    assert digits.uids() == before


@pytest.mark.soak
def test_what_the_platform_has_not_listed_is_refused_in_its_words(deployment, digits):
    argo, before = deployment.argo, digits.uids()
    asked = {"serviceAccounts": {"master": "default"}, "job": {"name": "thief"}}
    thief = merged(values_file("digits.yaml"), asked)
    deployment.add(thief)
    argo.wait_application(application("thief"))
    said = (
        "got the service account default, expected elasticdl-master or "
        "elasticdl-thief-master; the platform of namespace ml is locked"
    )
    wait_until(
        "the refusal", lambda: said in argo.said(application("thief")), seconds=120
    )
    assert not jobs(deployment, "thief")
    argo.terminate(application("thief"))
    deployment.remove("thief")
    argo.wait_gone(application("thief"), seconds=RETRIES_SECONDS)
    assert digits.uids() == before


@pytest.fixture
def admission(deployment):
    """Admission that changes the pod of each Job of `digits` as it is made."""
    api = "admissionregistration.k8s.io/v1"
    named = {"metadata": {"name": "another-grace"}}
    expression = (
        "Object{spec: Object.spec{template: Object.spec.template{spec: "
        "Object.spec.template.spec{terminationGracePeriodSeconds: 31}}}}"
    )
    rule = {
        "apiGroups": ["batch"],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["jobs"],
    }
    selector = {"matchLabels": {"elasticdl-job-name": "digits"}}
    mutation = {
        "patchType": "ApplyConfiguration",
        "applyConfiguration": {"expression": expression},
    }
    kind, kube = "MutatingAdmissionPolicy", deployment.kube
    policy = {
        "matchConstraints": {"resourceRules": [rule], "objectSelector": selector},
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "mutations": [mutation],
    }
    kube.apply({"apiVersion": api, "kind": kind, **named, "spec": policy})
    bound = {"policyName": "another-grace"}
    kube.apply({"apiVersion": api, "kind": f"{kind}Binding", **named, "spec": bound})
    container = {"name": "main", "image": "x"}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    probe = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "probe", "labels": {"elasticdl-job-name": "digits"}},
        "spec": {"template": template},
    }

    def in_force() -> bool:
        words = ["create", "--dry-run=server", "--filename=-", "--output=json"]
        return grace_of(json.loads(kube.run(*words, stdin=json.dumps(probe)))) == 31

    try:
        wait_until("the policy is in force", in_force, seconds=60)
        yield
    finally:
        kube.delete(f"{kind}Binding", "another-grace")
        kube.delete(kind, "another-grace")


def grace_of(work):
    return work["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]


@pytest.mark.soak
def test_admission_that_changes_the_masters_pod_does_not_replace_it_for_ever(
    deployment, digits, admission
):
    argo = deployment.argo
    token = deployment.kube.get("secret", "elasticdl-digits-token")["data"]
    # It changes the label of the token's Secret as well.
    deployment.sync("digits", commonLabels={"cost": "7"})
    ((name, work),) = jobs(deployment, "digits").items()
    assert grace_of(work) == 31
    assert work["metadata"]["labels"]["cost"] == "7"

    def told(key):
        return argo.application(DIGITS)["status"][key]

    synced = told("operationState")["finishedAt"]
    for _ in range(3):
        before = told("reconciledAt")
        argo.refresh(DIGITS)
        wait_until(
            "it was compared", lambda at=before: told("reconciledAt") != at, seconds=60
        )
        assert argo.sync_status(DIGITS) == "Synced"
    assert told("operationState")["finishedAt"] == synced
    assert deployment.uid("job", name) == work["metadata"]["uid"]
    assert deployment.kube.get("secret", "elasticdl-digits-token")["data"] == token

    # What Git says of the pod still counts.
    deployment.sync("digits", pods={"master": {"labels": {"team": "d"}}})
    ((_, after),) = jobs(deployment, "digits").items()
    assert after["metadata"]["uid"] != work["metadata"]["uid"]
    assert after["spec"]["template"]["metadata"]["labels"]["team"] == "d"
    digits.wait_steps(20)


@pytest.mark.soak
def test_the_root_application_keeps_what_it_finds(deployment):
    argo, name = deployment.argo, "elasticdl-team-ml"
    file = str(deployment.platform.root / "gitops" / "root.yaml")

    def uids() -> list[str]:
        found = [argo.kube.get(kind, name) for kind in ("appproject", "applicationset")]
        return [one["metadata"]["uid"] for one in found]

    before = uids()
    argo.kube.run("apply", "--validate=strict", "--filename", file)
    try:
        wait_until(
            "the root is in sync",
            lambda: argo.sync_status("elasticdl") == "Synced",
            seconds=120,
        )
        assert argo.conditions("elasticdl") == {}
        assert uids() == before
    finally:
        argo.kube.run("delete", "--filename", file, seconds=120)
    # It has no finalizer: nothing goes with it.
    assert uids() == before


def test_a_file_that_is_removed_removes_its_job(deployment, digits):
    kube = deployment.kube
    begun = time.monotonic()
    deployment.remove("digits")
    deployment.argo.wait_gone(DIGITS)
    selector = "elasticdl-job-name=digits"

    def left() -> list[str]:
        kinds = "pods,jobs,configmaps,secrets,services,pdb,networkpolicies"
        return kube.run("get", kinds, "-l", selector, "--output=name").split()

    wait_until("nothing is left", lambda: not left(), seconds=120)
    figures.record("gitops_commit_to_gone_seconds", time.monotonic() - begun)
    # The platform and the data stay.
    assert kube.get("pvc", "fileserver-claim")
    assert deployment.argo.health("elasticdl-platform") == "Healthy"


def jobs(deployment, name):
    selector = f"elasticdl-job-name={name}"
    return {
        one["metadata"]["name"]: one for one in deployment.kube.list("jobs", selector)
    }


def secrets(deployment):
    """Return the job's token and its authority, and of which write each is."""
    found = {}
    for name in ("elasticdl-digits-token", "elasticdl-digits-ca"):
        secret = deployment.kube.get("secret", name)
        found[name] = secret["metadata"]["resourceVersion"], secret["data"]
    return found


def running(digits):
    """Return the running pods of all roles, with their uids."""
    names = {n for role in ("master", "ps", "worker") for n in digits.in_phase(role)}
    return {name: uid for name, uid in digits.uids().items() if name in names}
