"""The chart that a job is submitted with, and what its manifests need of a cluster.

Owns where the chart is, and the reading of rendered manifests. Called by
`client.cluster.submit`. Must not make calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import elasticdl
from elasticdl.client.cluster.api import Object
from elasticdl.errors import PlatformError
from elasticdl.job.names import (
    ENV_PRIORITY_HIGH,
    ENV_PRIORITY_LOW,
    Role,
    template_key,
)

_PACKAGE = Path(elasticdl.__file__).parent
# In a wheel inside the package, in a checkout beside it.
_PLACES = (_PACKAGE / "chart", _PACKAGE.parents[1] / "charts" / "elasticdl")
_TEMPLATES = (template_key(Role.PS), template_key(Role.WORKER))


@dataclass(frozen=True)
class Needs:
    """Objects that a job's pods refer to and its own release does not create."""

    service_accounts: frozenset[str]
    claims: frozenset[str]
    priority_classes: frozenset[str]
    pull_secrets: frozenset[str]
    split_classes: frozenset[str]  # of workers of which a share is `high`


def find_chart(given: Path | None = None) -> Path:
    """Return the path of the given chart, or of the chart in the package.

    Raises PlatformError where there is none.
    """
    if given is not None:
        if given.is_file() or (given / "Chart.yaml").is_file():
            return given
        raise PlatformError(
            f"--chart {given}: got no chart, expected a folder with Chart.yaml or a "
            "packaged chart (.tgz)"
        )
    for place in _PLACES:
        if (place / "Chart.yaml").is_file():
            return place
    raise PlatformError(
        f"the chart is not there ({' or '.join(map(str, _PLACES))}); name it with "
        "--chart DIR, or install a package that has it"
    )


def manifests(text: str) -> list[Object]:
    """Return the objects of rendered manifests."""
    from ruamel.yaml import YAML

    return [one for one in YAML(typ="safe").load_all(text) if isinstance(one, dict)]


def needs(objects: list[Object]) -> Needs:
    """Return what the pods of a release refer to and the release does not contain."""
    made = {(str(one.get("kind")), str(one["metadata"]["name"])) for one in objects}
    accounts, claims, classes, secrets = set(), set(), set(), set()
    split = {ENV_PRIORITY_HIGH: "high", ENV_PRIORITY_LOW: "low"}
    for spec in _pod_specs(objects):
        accounts.add(str(spec.get("serviceAccountName") or "default"))
        classes.add(str(spec.get("priorityClassName") or ""))
        for volume in spec.get("volumes") or []:
            claim = volume.get("persistentVolumeClaim") or {}
            claims.add(str(claim.get("claimName") or ""))
        for one in _environment(spec):
            if one.get("name") in split and one.get("value"):
                split[one["name"]] = str(one["value"])
        for secret in spec.get("imagePullSecrets") or []:
            secrets.add(str(secret.get("name") or ""))

    def outside(kind: str, names: set[str]) -> frozenset[str]:
        return frozenset(name for name in names if name and (kind, name) not in made)

    return Needs(
        service_accounts=outside("ServiceAccount", accounts) - {"default"},
        claims=outside("PersistentVolumeClaim", claims),
        priority_classes=outside("PriorityClass", classes),
        pull_secrets=outside("Secret", secrets),
        split_classes=frozenset(split.values()),
    )


def _pod_specs(objects: list[Object]) -> Iterator[Object]:
    """Yield the specs of all pods: in Jobs, and in the ConfigMap's templates."""
    from ruamel.yaml import YAML

    for one in objects:
        if one.get("kind") == "Job":
            yield one["spec"]["template"]["spec"]
        if one.get("kind") != "ConfigMap":
            continue
        for key in _TEMPLATES:
            template = YAML(typ="safe").load((one.get("data") or {}).get(key, ""))
            if isinstance(template, dict):
                yield template.get("spec") or {}


def _environment(spec: Object) -> list[Object]:
    return [one for box in spec.get("containers") or [] for one in box.get("env") or []]
