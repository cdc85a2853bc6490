"""What is wrong is said once and clearly: in status, in the log, as an Event."""

import helm_python
import pytest
from elasticdl.job.words import JobState

from tests.e2e.kube import wait_until
from tests.e2e.releases import values_file

DIGITS = values_file("digits.yaml")
LITTLE = {"memory": "512Mi"}


@pytest.mark.parametrize(
    ("worker", "said"),
    [
        pytest.param(
            {"image": "localhost:5000/nothing:1"},
            "localhost:5000/nothing:1",
            id="an image that is nowhere",
        ),
        pytest.param(
            {"resources": {"cpu": 1000}},
            "Insufficient cpu",
            id="more cpu than any node has",
            marks=pytest.mark.soak,
        ),
    ],
)
def test_workers_that_cannot_start_wait_and_everybody_hears_why(
    job, elasticdl, worker, said
):
    digits = job(DIGITS, worker=worker, ps={"resources": LITTLE})
    status = digits.wait_status(
        "the reason is shown",
        lambda s: sum(said in r.reason for r in s.replicas if r.role == "worker") == 3,
    )
    assert status.state is JobState.PREPARING
    assert not status.relaunches
    shown = "".join(elasticdl("status", "digits").split())
    assert said.replace(" ", "") in shown
    wait_until("an Event", lambda: any(said in n for n in digits.notices()), seconds=60)
    wait_until("the log", lambda: said in digits.master_log(), seconds=60)
    # Nothing needs to be done anew once what lacked is there.
    assert digits.wait_running("ps", 2) == {"ps-0", "ps-1"}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"worker": {"priority": "nosuch"}}, "no PriorityClass with name nosuch"),
        (
            {
                "model": {
                    "definition": "net.model",
                    "files": {"net.py": "import nosuch"},
                }
            },
            "No module named 'nosuch'",
        ),
    ],
    ids=["a PriorityClass that is nowhere", "a model that cannot be imported"],
)
def test_a_job_that_can_never_run_fails_with_one_clear_line(
    job, elasticdl, changes, said
):
    digits = job(DIGITS, **changes)
    report = digits.wait_ended()
    assert report.status is JobState.FAILED
    assert said in report.message
    assert said in elasticdl("status", "digits")
    assert said in digits.master_log()
    wait_until("an Event", lambda: any(said in n for n in digits.notices()), seconds=60)
    # Only the master's pod is left, for its log.
    wait_until(
        "no pods", lambda: set(digits.uids()) == set(digits.uids("master")), seconds=60
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"job": {"name": "x" * 50}}, "maxLength"),
        ({"job": {"name": "my.job"}}, "does not match pattern"),
        ({"state": {"claimName": "nowhere"}}, "no PersistentVolumeClaim `nowhere`"),
        ({"job": {"workers": {}}}, "additional properties 'workers' not allowed"),
    ],
    ids=["a name too long", "a name that is no label", "no such claim", "misspelt"],
)
def test_what_can_be_known_before_is_refused_and_nothing_is_made(
    job, kube, changes, said
):
    values = {**DIGITS, **{k: v for k, v in changes.items() if k != "job"}}
    before = kube.run("get", "all,configmaps,secrets", "--output=name")
    with pytest.raises(helm_python.HelmError, match=said):
        job(values, **changes.get("job", {}))
    assert kube.run("get", "all,configmaps,secrets", "--output=name") == before


@pytest.mark.soak
def test_a_second_job_of_one_name_is_refused_and_the_first_goes_on(job, helm):
    digits = job(DIGITS)
    with pytest.raises(helm_python.HelmError, match="has a job `digits` already"):
        helm.install("another", digits.values)
    assert digits.wait_succeeded().metrics["accuracy"] > 0.95


def test_a_namespace_without_the_platform_is_named(cluster, platform, kube, job):
    helm = platform.helm(kube.namespace)
    helm.uninstall("elasticdl")
    with pytest.raises(helm_python.HelmError, match="the platform is not installed"):
        job(DIGITS)
