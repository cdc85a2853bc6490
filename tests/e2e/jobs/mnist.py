"""Data shaped like MNIST, made of the digits set, and how it gets into a claim."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

import numpy as np
from elasticdl.data.making.builtin import Arrays
from elasticdl.data.making.datasets import make_dataset
from sklearn.datasets import load_digits

from tests.e2e.kube import Kube, wait_until

# Each digit comes as often, moved by up to two pixels: a fifth of MNIST.
COPIES = 8
NUM_TRAIN = 11501


def _arrays(_name: str) -> Arrays:
    digits = load_digits()
    small = digits.images.astype(np.float32) * (255 / 16)
    large = np.pad(small.repeat(3, axis=1).repeat(3, axis=2), ((0, 0), (2, 2), (2, 2)))
    random = np.random.default_rng(0)
    moved = [
        np.roll(large, tuple(random.integers(-2, 3, size=2)), axis=(1, 2))
        for _ in range(COPIES)
    ]
    return Arrays(
        np.concatenate(moved), np.tile(digits.target, COPIES).astype(np.int64)
    )


def make(folder: Path) -> Path:
    """Write `mnist/train` and `mnist/test` into a folder."""
    made = make_dataset("mnist", folder, load=_arrays)
    assert made.num_train == NUM_TRAIN
    return made.directory


def copy_to_claim(kube: Kube, folder: Path, *, image: str) -> None:
    """Copy a folder into `fileserver-claim`, through a pod, as the tutorial does."""
    kube.apply(_pod(image))
    wait_until("the pod with the claim runs", lambda: _runs(kube), seconds=120)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        tar.add(folder, arcname=folder.name)
    command = [kube.program, f"--namespace={kube.namespace}"]
    command += [f"--context={kube.context}"] if kube.context else []
    command += [f"--kubeconfig={kube.kubeconfig}"] if kube.kubeconfig else []
    subprocess.run(
        [
            *command,
            "exec",
            "--stdin",
            "copy",
            "--",
            "tar",
            "--extract",
            "--directory=/data",
        ],
        input=packed.getvalue(),
        check=True,
        timeout=120,
    )
    kube.delete("pod", "copy")


def _runs(kube: Kube) -> bool:
    pod = kube.get("pod", "copy")
    return bool(pod) and pod["status"]["phase"] == "Running"


def _pod(image: str) -> dict:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "copy"},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "securityContext": RESTRICTED,
            "containers": [
                {
                    "name": "main",
                    "image": image,
                    "command": ["sleep", "3600"],
                    "securityContext": RESTRICTED_CONTAINER,
                    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                }
            ],
            "volumes": [
                {
                    "name": "data",
                    "persistentVolumeClaim": {"claimName": "fileserver-claim"},
                }
            ],
        },
    }


RESTRICTED = {
    "runAsNonRoot": True,
    "runAsUser": 10001,
    "fsGroup": 10001,
    "seccompProfile": {"type": "RuntimeDefault"},
}
RESTRICTED_CONTAINER = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
}
