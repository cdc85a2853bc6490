"""A job that runs does not notice what is done to its platform."""

import pytest

from tests.e2e.jobs.encrypted import read_metrics, secret
from tests.e2e.kube import wait_until
from tests.e2e.releases import merged, values_file

CHANGED = {
    "priorityClasses": {"create": False},
    "serviceAccounts": {"annotations": {"team": "ads"}},
}


@pytest.mark.soak
def test_a_job_trains_on_while_its_platform_is_upgraded_and_uninstalled(
    job, kube, helm
):
    values = merged(values_file("digits.yaml"), {"tls": {"metrics": {"enabled": True}}})
    digits = job(values, training={"epochs": 10_000})
    digits.wait_running("worker", 3)
    digits.wait_steps(1)
    before = digits.uids()
    figures_are_for_readers_who_bring_the_token(digits)

    helm.upgrade("elasticdl", CHANGED)
    account = kube.get("serviceaccount", "elasticdl-master")
    assert account["metadata"]["annotations"]["team"] == "ads"
    digits.wait_steps(300)
    assert digits.uids() == before

    # Nobody may write a status any more, so the worker's own log tells.
    helm.uninstall("elasticdl")
    assert kube.get("role", "elasticdl-master") is None
    told = digits.log("worker-0").count("Loss")
    wait_until(
        "worker-0 trains on",
        lambda: digits.log("worker-0").count("Loss") > told + 3,
        seconds=120,
    )
    assert digits.uids() == before
    assert kube.get("persistentvolumeclaim", "fileserver-claim")


def figures_are_for_readers_who_bring_the_token(digits):
    """The kubelet's probes, without one, keep these pods running and ready."""
    (master,) = digits.pods("master")
    token = secret(digits, "token", "metrics")
    shown = {
        master: "elasticdl_workers_wanted 3.0",
        "ps-0": "elasticdl_ps_version",
        "worker-0": "elasticdl_worker_step_seconds_count",
    }
    for pod, figure in shown.items():
        status, text = read_metrics(digits, pod, token)
        assert status == 200
        assert figure in text
        for other in (None, secret(digits, "token", "token")):
            status, text = read_metrics(digits, pod, other)
            assert status == 401
            assert "elasticdl_" not in text
