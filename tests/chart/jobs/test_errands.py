"""Short pods of commands, made of a job's templates as the chart renders them."""

import pytest
from elasticdl.client.cluster.errand import errand_of, errand_pod, place_of

from tests.chart.rendering import job, objects, of_kind


def test_jobs_of_other_claims_are_cleaned_up_by_pods_of_their_own():
    def place(name, **state):
        return place_of(of_kind(objects(job(name, state=state)), "ConfigMap"))

    claim, inside, folder = place("a")
    assert (inside, str(folder)) == ("", "/data/.elasticdl/jobs/ml")
    assert place("b") == (claim, inside, folder)
    assert place("b", hideOtherJobs=False) == (claim, inside, folder)
    assert place("c", claimName="other")[0] == "other"
    assert place("d", subPath="team")[1] == "team"


@pytest.mark.parametrize("template", ["ps.yaml", "worker.yaml"])
def test_a_commands_pod_makes_no_folder_of_a_job_that_has_none_yet(template):
    """The kubelet makes the folder of a `subPath`, and those around it, for root alone.

    `elasticdl sql -n ml` may come before any job has been on the claim.
    """
    made = of_kind(objects(job()), "ConfigMap")
    pod = errand_pod(made, "digits", "sql", lambda folder: ["sql"], keys=[template])
    (main,) = pod["spec"]["containers"]
    assert not [one for one in main["volumeMounts"] if one.get("subPath")]
    assert "elasticdl-hidden" not in str(pod)


def test_what_a_commands_pod_says_cannot_steer_the_terminal() -> None:
    """An audit tells of a journal that the job's code can write."""
    ended = {"exitCode": 8, "reason": "Error"}
    status = {"containerStatuses": [{"name": "main", "state": {"terminated": ended}}]}
    said = errand_of({"status": status}, "audit", ["\x1b]0;mine\x07\ta", "b\x1b[2J"])
    assert (said.text, said.exit_code) == ("]0;mine\ta\nb[2J", 8)
