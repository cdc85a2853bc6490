"""What the platform of a namespace says for jobs, read for commands.

Owns the call, and the words in which it is told. Called by `client.cluster.submit` and
`cli.files.validate`. What is merged and what is refused is in `job.values.defaults`.
"""

from __future__ import annotations

import json

from elasticdl.client.cluster.api import ClusterClient, ClusterError
from elasticdl.job.values.defaults import (
    CONFIG_MAP,
    KEY,
    Line,
    PlatformDefaults,
    ValueOrigin,
)


def platform_of(cluster: ClusterClient) -> PlatformDefaults:
    """Return the platform's defaults; empty if there are none, or not readable.

    Raises ClusterError where the cluster does not answer, SpecError where the
    ConfigMap holds something else.
    """
    try:
        found = cluster.find(cluster.path("configmaps", CONFIG_MAP))
    except ClusterError as error:
        if error.forbidden:
            return PlatformDefaults()
        raise
    text = ((found or {}).get("data") or {}).get(KEY) or ""
    source = f"ConfigMap {CONFIG_MAP} in namespace {cluster.namespace}"
    return PlatformDefaults.parse(str(text), source=source)


def told(lines: list[Line]) -> list[str]:
    """Return a line for each value: `images.registry: "r"  (platform)`."""
    shown = [f"{one.path}: {json.dumps(one.value, sort_keys=True)}" for one in lines]
    width = min(max(map(len, shown), default=0), 72)
    pairs = zip(shown, lines, strict=True)
    return [f"{text:<{width}}  ({one.origin})" for text, one in pairs]


def notice(lines: list[Line], namespace: str) -> list[str]:
    """Return the lines about platform defaults to show when a job is submitted."""
    paths = [
        one.path
        for one in lines
        if one.origin in (ValueOrigin.PLATFORM, ValueOrigin.BOTH)
    ]
    if not paths:
        return []
    return [f"the platform of namespace {namespace} says: {', '.join(paths)}"]
