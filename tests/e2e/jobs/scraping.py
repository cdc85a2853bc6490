"""A Prometheus outside of the cluster that scrapes pods as docs/metrics.md has it.

It reaches them through `kubectl proxy`, and hears of them from a file: Debian's build
cannot ask Kubernetes. All else is what the page says, relabelling included.
"""

from __future__ import annotations

import json
import re
import subprocess
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.kube import Json, Kube
from tests.e2e.own_cluster import ROOT
from tests.prometheus.server import Prometheus

META = "__meta_kubernetes"
# Of a target, once the page's own rules have made it one: the way through the proxy.
_POD = [f"{META}_namespace", f"{META}_pod_name", "__address__", "__metrics_path__"]
_SERVICE = re.compile(r"([\w-]+)\.([\w-]+)\.svc:(\d+)")


class Proxy:
    """`kubectl proxy` on loopback, ended by its process number; a context manager."""

    def __init__(self, kube: Kube) -> None:
        self.kube = kube

    def __enter__(self) -> Proxy:
        self.process = subprocess.Popen(
            self.kube.command("proxy", "--port=0"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout
        said = self.process.stdout.readline()
        found = re.search(r"127\.0\.0\.1:\d+", said)
        assert found, f"kubectl proxy said {said!r}"
        self.address = found[0]
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(30)
        assert self.process.stdout
        self.process.stdout.close()

    def path(self, service: str, port: str) -> str:
        return (
            f"/api/v1/namespaces/{self.kube.namespace}/services/{service}:{port}/proxy"
        )

    def get(self, path: str) -> Any:
        """Return what JSON a path has; None while nothing there answers."""
        try:
            with urllib.request.urlopen(
                f"http://{self.address}{path}", timeout=30
            ) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code not in (500, 502, 503):  # no endpoint yet, or not listening
                raise
            return None


class Targets:
    """The file in which Prometheus finds the pods, told anew when they change."""

    def __init__(self, kube: Kube, file: Path) -> None:
        self.kube, self.file = kube, file

    def write(self) -> None:
        """Tell it of the pods that are there now, as Kubernetes would."""
        found = [target for pod in self.kube.list("pods") for target in targets(pod)]
        aside = self.file.with_suffix(".new")
        aside.write_text(json.dumps(found))
        aside.replace(self.file)


def targets(pod: Json) -> list[Json]:
    """Return one for each port of a pod, with the labels of kubernetes_sd_configs."""
    metadata, address = pod["metadata"], pod["status"].get("podIP")
    labels = {
        f"{META}_namespace": metadata["namespace"],
        f"{META}_pod_name": metadata["name"],
        f"{META}_pod_ip": address,
        f"{META}_pod_phase": pod["status"].get("phase", ""),
    }
    for kind in ("label", "annotation"):
        for key, value in metadata.get(f"{kind}s", {}).items():
            labels[f"{META}_pod_{kind}_{re.sub(r'[^A-Za-z0-9_]', '_', key)}"] = value
    return [
        {"targets": [f"{address}:{port['containerPort']}"], "labels": labels}
        for container in pod["spec"]["containers"]
        for port in container.get("ports", [])
        if address
    ]


@dataclass
class Monitor:
    """A Prometheus that is told of the namespace's pods, and the way to them."""

    proxy: Proxy
    targets: Targets
    prometheus: Prometheus

    def wait_for(self, query: str) -> None:
        """Wait until a query has an answer."""
        self.prometheus.wait_until(lambda: self.prometheus.series(query), query)


def scrapes(proxy: Proxy, file: Path) -> list[Json]:
    """Return the page's scrape_configs of jobs and exporter, led through the proxy."""
    page = (ROOT / "docs" / "metrics.md").read_text()
    blocks = re.findall(r"^```yaml\n(scrape_configs:.*?)^```", page, re.M | re.S)
    (block,) = (one for one in blocks if "kubernetes_sd_configs" in one)
    named = {one["job_name"]: one for one in yaml.safe_load(block)["scrape_configs"]}
    of_pods, of_exporter = named["elasticdl"], named["elasticdl-exporter"]
    assert of_pods.pop("kubernetes_sd_configs") == [{"role": "pod"}]
    of_pods["file_sd_configs"] = [{"files": [str(file)], "refresh_interval": "1s"}]
    of_pods["relabel_configs"] += [
        {"source_labels": ["__address__"], "target_label": "instance"},
        {
            "source_labels": _POD,
            "regex": r"(.+);(.+);.+:(\d+);(.+)",
            "replacement": "/api/v1/namespaces/$1/pods/$2:$3/proxy$4",
            "target_label": "__metrics_path__",
        },
        {"target_label": "__address__", "replacement": proxy.address},
    ]
    ((target,),) = (one["targets"] for one in of_exporter["static_configs"])
    service = _SERVICE.fullmatch(target)
    assert service, target
    of_exporter["metrics_path"] = proxy.path(service[1], service[3]) + "/metrics"
    of_exporter["static_configs"] = [{"targets": [proxy.address]}]
    return [of_pods, of_exporter]
