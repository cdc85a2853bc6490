"""The TrainingJob that a job in a cluster belongs to, where there is one.

Owns how that is seen, and what has to be written into it: its specification is the
job's, and its controller takes back what is written into the ConfigMap. Called by
`client.cluster.job`, `client.cluster.submit` and the controller. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elasticdl.client.cluster.api import Object
from elasticdl.job.values.training_job import API_VERSION, KIND, PLURAL

GROUP_PATH = f"/apis/{API_VERSION}"


def owner_of(thing: Mapping[str, Any]) -> Object | None:
    """Return the reference to the TrainingJob that an object belongs to."""
    for owner in thing.get("metadata", {}).get("ownerReferences") or []:
        if owner.get("kind") == KIND and owner.get("controller"):
            return dict(owner)
    return None


def path_of(namespace: str, name: str) -> str:
    """Return the path of a TrainingJob."""
    return f"{GROUP_PATH}/namespaces/{namespace}/{PLURAL}/{name}"


def patch_of(edits: Mapping[str, Any]) -> Object:
    """Return the merge patch that makes edits of a values file, by dotted path."""
    spec: Object = {}
    for dotted, value in edits.items():
        *above, last = dotted.split(".")
        inner = spec
        for key in above:
            inner = inner.setdefault(key, {})
        inner[last] = value
    return {"spec": spec}
