"""Serving pods that are more important than training: the tutorial's test-nginx."""

from __future__ import annotations

from tests.e2e.jobs.mnist import RESTRICTED, RESTRICTED_CONTAINER
from tests.e2e.kube import Kube

NAME = "test-nginx"
# Of the tutorial's own: training's classes push nothing out. Without a class the pods
# would too, but dashboards would not tell them from the rest.
CLASS = "test-serving"


def make_class(kube: Kube) -> None:
    """Make the PriorityClass, of the whole cluster."""
    kube.apply(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": CLASS},
            "value": 1000,
        }
    )


def deploy(kube: Kube, *, image: str, replicas: int) -> None:
    """Make or scale the Deployment: cpu 2 each, above training."""
    labels = {"app": NAME}
    wanted = {"cpu": "2"}
    kube.apply(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": NAME},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {
                        "priorityClassName": CLASS,
                        "terminationGracePeriodSeconds": 1,
                        "securityContext": RESTRICTED,
                        "containers": [
                            {
                                "name": "main",
                                "image": image,
                                "command": ["sleep", "3600"],
                                "resources": {"requests": wanted, "limits": wanted},
                                "securityContext": RESTRICTED_CONTAINER,
                            }
                        ],
                    },
                },
            },
        }
    )


def num_running(kube: Kube) -> int:
    """Return how many pods of it run and are not leaving."""
    return sum(
        pod["status"]["phase"] == "Running"
        for pod in kube.list("pods", f"app={NAME}")
        if "deletionTimestamp" not in pod["metadata"]
    )


def num_there(kube: Kube) -> int:
    """Return how many pods of it hold CPUs or ask for them, leaving ones included."""
    return len(kube.list("pods", f"app={NAME}"))
