"""A second node that takes no pods: with one node alone, Kubernetes evicts nothing.

Owns the Node object and the thread that tells its condition, as a kubelet does.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from tests.e2e.kube import Kube, KubectlError

NAME = "elasticdl-e2e-spare"
_PERIOD_SECONDS = 5.0


@contextmanager
def spare_node(kube: Kube) -> Iterator[None]:
    """Have the node while this is open; it counts as healthy."""
    taint = {"key": "elasticdl.org/e2e", "effect": "NoSchedule"}
    kube.apply(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": NAME},
            "spec": {"taints": [taint], "unschedulable": True},
        }
    )
    ended = threading.Event()
    teller = threading.Thread(target=_tell, args=(kube, ended), name="spare node")
    teller.start()
    try:
        yield
    finally:
        ended.set()
        teller.join()
        kube.delete("node", NAME)


def _tell(kube: Kube, ended: threading.Event) -> None:
    while not ended.is_set():
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "Told",
            "message": "by a test",
            "lastHeartbeatTime": now,
        }
        change = json.dumps({"status": {"conditions": [ready]}})
        words = ["--subresource=status", "--type=strategic", f"--patch={change}"]
        try:
            kube.run("patch", "node", NAME, *words)
        except KubectlError as error:
            print(f"spare node: {error}")  # the next try is soon
        ended.wait(_PERIOD_SECONDS)
