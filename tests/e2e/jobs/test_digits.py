"""The values file that runs on a laptop runs in a cluster, unchanged."""

from elasticdl.job.words import JobState

from tests.e2e.releases import values_file


def test_the_digits_job_of_the_quick_start_completes_in_a_cluster(job, elasticdl):
    digits = job(values_file("digits.yaml"))
    assert digits.wait_running("worker", 3) == {"worker-0", "worker-1", "worker-2"}
    assert digits.wait_running("ps", 2) == {"ps-0", "ps-1"}
    report = digits.wait_succeeded()
    assert report.metrics["accuracy"] > 0.95
    assert report.records == 40 * 1438
    status = digits.status()
    assert status is not None
    assert status.state is JobState.SUCCEEDED
    assert "Evaluation metrics" in digits.master_log()
    assert any("succeeded" in message for message in digits.notices())

    # Its folder is on the claim until somebody removes it.
    said = elasticdl("jobs", "clean", "--older-than", "30d")
    assert "digits: succeeded" in said
    assert "0 folders removed" in said
    said = elasticdl("jobs", "clean", "--older-than", "0s")
    assert "1 folder removed" in said
    assert elasticdl("jobs", "clean", "--older-than", "0s") == (
        "0 folders removed (0 B), 0 kept\n"
    )
