"""The values file that runs on a laptop runs in a cluster, unchanged."""

from elasticdl.job.status import JobState

from tests.e2e.kube import wait_until
from tests.e2e.releases import values_file


def test_the_digits_job_of_the_quick_start_completes_in_a_cluster(job):
    digits = job(values_file("digits.yaml"))
    assert digits.wait_running("worker", 3) == {"worker-0", "worker-1", "worker-2"}
    assert digits.in_phase("ps") == {"ps-0", "ps-1"}
    report = digits.wait_succeeded()
    assert report.metrics["accuracy"] > 0.95
    assert report.records == 40 * 1438
    status = digits.status()
    assert status is not None
    assert status.state is JobState.SUCCEEDED
    assert "Evaluation metrics" in digits.master_log()
    assert any("succeeded" in message for message in digits.notices())


def test_a_job_leaves_nothing_when_it_is_uninstalled(job, kube):
    def objects():
        kinds = "all,configmaps,secrets,serviceaccounts,poddisruptionbudgets,"
        kinds += "networkpolicies,roles,rolebindings,leases,persistentvolumeclaims"
        names = kube.run("get", kinds, "--output=name").split()
        return {name for name in names if not name.startswith("event")}

    before = objects()
    digits = job(values_file("digits.yaml"))
    digits.wait_running("worker", 3)
    digits.uninstall()
    wait_until("nothing left", lambda: objects() == before, seconds=120)
