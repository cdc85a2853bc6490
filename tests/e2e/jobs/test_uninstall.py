"""What is uninstalled is gone, but for data: every kind of object is compared."""

from tests.e2e.kube import Kube, wait_until
from tests.e2e.releases import values_file

# They come and go by themselves.
_PASSING = ("events", "events.events.k8s.io", "componentstatuses", "endpoints")


def listed(kube: Kube, *, namespaced: bool) -> set[str]:
    """Return the names of all objects: of one namespace, or of the cluster."""
    words = [f"--namespaced={str(namespaced).lower()}", "--verbs=list", "--output=name"]
    kinds = set(kube.run("api-resources", *words).split()) - set(_PASSING)
    return set(kube.run("get", ",".join(sorted(kinds)), "--output=name").split())


def everything(kube: Kube) -> set[str]:
    return listed(kube, namespaced=True) | listed(kube, namespaced=False)


def others_are_gone(kube: Kube) -> bool:
    """Whether nothing of earlier tests is still on its way out."""
    kinds = {"namespace": "Terminating", "persistentvolume": "Released"}
    return not any(
        one["status"].get("phase") == leaving
        for kind, leaving in kinds.items()
        for one in kube.list(kind)
    )


def test_a_running_job_leaves_nothing_when_it_is_uninstalled(job, kube, helm):
    wait_until("earlier tests are gone", lambda: others_are_gone(kube), seconds=180)
    before = everything(kube)
    digits = job(values_file("digits.yaml"))
    digits.wait_running("worker", 3)
    # A volume of the claim is made with its first pod.
    volumes = {name for name in everything(kube) if "persistentvolume/" in name}
    digits.uninstall()
    wait_until(
        "nothing but the volume is left",
        lambda: everything(kube) <= before | volumes,
        seconds=180,
    )
    assert before <= everything(kube)

    # Of the platform only the claim stays, which holds the data (policy `keep`).
    helm.uninstall("elasticdl")
    by_kubernetes = {"configmap/kube-root-ca.crt", "serviceaccount/default"}
    wait_until(
        "only the claim is left",
        lambda: (
            listed(kube, namespaced=True)
            == {*by_kubernetes, "persistentvolumeclaim/fileserver-claim"}
        ),
        seconds=60,
    )
