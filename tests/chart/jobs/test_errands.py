"""Short pods of commands, made of a job's templates as the chart renders them."""

from elasticdl.client.cluster.errand import place_of

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
