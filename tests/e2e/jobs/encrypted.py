"""Figures of a pod that shows them by TLS alone, read as the job's PodMonitor says."""

from __future__ import annotations

import base64
import re
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse

from tests.e2e.jobs.job import JobInCluster


def read_metrics(job: JobInCluster, pod: str, token: str | None) -> tuple[int, str]:
    """Return status and text that a reader gets who knows the job's authority."""
    host = f"metrics.{job.name}.{job.kube.namespace}.elasticdl"
    authority = secret(job, "ca", "tls.crt")
    context = ssl.create_default_context(cadata=authority)
    bearer = {} if token is None else {"Authorization": f"Bearer {token}"}
    with (
        _forwarded(job, pod) as port,
        socket.create_connection(("127.0.0.1", port), timeout=30) as plain,
        context.wrap_socket(plain, server_hostname=host) as encrypted,
    ):
        connection = HTTPConnection("127.0.0.1", port)
        connection.sock = encrypted
        connection.request("GET", "/metrics", headers=bearer)
        answer: HTTPResponse = connection.getresponse()
        return answer.status, answer.read().decode()


def secret(job: JobInCluster, name: str, key: str) -> str:
    """Return what a Secret of the job's release holds."""
    found = job.kube.get("secret", f"elasticdl-{job.name}-{name}")
    assert found, f"no Secret {name}"
    return base64.b64decode(found["data"][key]).decode()


@contextmanager
def _forwarded(job: JobInCluster, pod: str) -> Iterator[int]:
    """Give a port of this machine that leads to the pod's port of metrics."""
    words = ("port-forward", f"pod/elasticdl-{job.name}-{pod}", ":8080")
    process = subprocess.Popen(
        job.kube.command(*words),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout
        said = process.stdout.readline()
        found = re.search(r"127\.0\.0\.1:(\d+)", said)
        assert found, f"kubectl port-forward said {said!r}"
        yield int(found[1])
    finally:
        process.terminate()
        process.wait(30)
        assert process.stdout
        process.stdout.close()
