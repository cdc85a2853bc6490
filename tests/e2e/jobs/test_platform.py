"""A job that runs does not notice what is done to its platform."""

from tests.e2e.kube import wait_until
from tests.e2e.releases import values_file

CHANGED = {
    "priorityClasses": {"create": False},
    "serviceAccounts": {"annotations": {"team": "ads"}},
}


def test_a_job_trains_on_while_its_platform_is_upgraded_and_uninstalled(
    job, kube, helm
):
    digits = job(values_file("digits.yaml"), training={"epochs": 10_000})
    digits.wait_running("worker", 3)
    digits.wait_steps(1)
    before = digits.uids()

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
