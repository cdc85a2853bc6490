"""Short pods of commands, made of a job's templates as the chart renders them."""

import pytest
from elasticdl.client.cluster.errand import errand_pod, place_of

from tests.chart.rendering import container, job, merged, objects, of_kind


@pytest.mark.parametrize("state", [{}, {"hideOtherJobs": True}])
def test_who_cleans_up_sees_the_folders_of_all_jobs(state):
    """Of a job without PS the template is that of a worker, which may see its own."""
    values = merged(job(state=state), {"job": {"strategy": "allReduce"}})
    found = of_kind(objects(values), "ConfigMap")
    pod = errand_pod(found, "digits", "clean", lambda folder: [str(folder.parent)])
    mounts = {one["mountPath"] for one in container(pod)["volumeMounts"]}
    assert not any(one.startswith("/data/.elasticdl") for one in mounts)
    volumes = {one["name"] for one in pod["spec"]["volumes"]}
    assert {one["name"] for one in container(pod)["volumeMounts"]} <= volumes
    assert "elasticdl-hidden" not in volumes


def test_jobs_of_other_claims_are_cleaned_up_by_pods_of_their_own():
    def place(name, **state):
        return place_of(of_kind(objects(job(name, state=state)), "ConfigMap"))

    claim, inside, folder = place("a")
    assert (inside, str(folder)) == ("", "/data/.elasticdl/jobs/ml")
    assert place("b") == (claim, inside, folder)
    assert place("b", hideOtherJobs=True) == (claim, inside, folder)
    assert place("c", claimName="other")[0] == "other"
    assert place("d", subPath="team")[1] == "team"
