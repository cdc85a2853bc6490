"""From the API server's objects to what the planner knows of nodes and pods.

Owns the reading. Called by `controller.watching` and by commands that plan. Pure. All
that is not needed is dropped at once: a cluster has many pods.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from elasticdl.job import names
from elasticdl.kube import inventory, pods
from elasticdl.kube.amounts import named_request, quantity
from elasticdl.kube.inventory import Serving
from elasticdl.kube.times import unix_seconds
from elasticdl.planner.view import (
    CPU,
    Expression,
    Holder,
    Node,
    Placement,
    Pod,
    Resources,
    Taint,
    Toleration,
)

Json = dict[str, Any]

# The names of all nodes of a large cluster are some thousands.
_MOST_WORDS = 10_000
_ON_NO_NODE = Placement(affinity=((Expression("", ""),),))
_ROLES = {str(role): role for role in names.Role}


def node_of(item: Json) -> Node:
    """Return a node."""
    metadata, spec = item["metadata"], item.get("spec") or {}
    status = item.get("status") or {}
    conditions = status.get("conditions") or []
    ready: Json = next((c for c in conditions if c["type"] == "Ready"), {})
    amounts = status.get("allocatable") or {}
    return Node(
        name=metadata["name"],
        allocatable=resources({k: quantity(v) for k, v in amounts.items()}, up=False),
        labels=_pairs(metadata.get("labels")),
        taints=tuple(
            Taint(t["key"], t.get("value") or "", t.get("effect") or "NoSchedule")
            for t in spec.get("taints") or []
        ),
        ready=ready.get("status") == "True",
        cordoned=bool(spec.get("unschedulable")),
        ready_since=unix_seconds(ready.get("lastTransitionTime")),
    )


def pod_of(item: Json, serving: Serving) -> Pod | None:
    """Return a pod; None if it has ended."""
    if pods.is_over(item):
        return None
    metadata, spec = item["metadata"], item.get("spec") or {}
    labels = metadata.get("labels") or {}
    node = spec.get("nodeName") or ""
    index = str(labels.get(names.LABEL_INDEX, ""))
    waits = pods.unscheduled(item)
    gated = pods.gated(item)
    return Pod(
        namespace=metadata["namespace"],
        name=metadata["name"],
        request=resources(named_request(spec, item.get("status")), up=True),
        node=node,
        nominated=(item.get("status") or {}).get("nominatedNodeName") or "",
        priority=spec.get("priority") or 0,
        holder=Holder(inventory.holder_of(metadata, spec, serving).kind),
        job=labels.get(names.LABEL_JOB, ""),
        role=_ROLES.get(labels.get(names.LABEL_ROLE, "")),
        index=int(index) if index.isdecimal() else -1,
        leaving=pods.is_going(item),
        running=pods.phase_of(item) == "Running",
        waiting_since=0.0 if node else unix_seconds(metadata["creationTimestamp"]),
        waiting_why="" if node else gated or (waits.message if waits else ""),
        gated=bool(gated),
        placement=placement(spec),
    )


def placement(spec: Json) -> Placement:
    """Return on which nodes a pod of this specification may be.

    None, where it says far more than anybody writes: it is kept as long as the pod.
    """
    node_affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    if _words(spec, required) > _MOST_WORDS:
        return _ON_NO_NODE
    return Placement(
        selector=_pairs(spec.get("nodeSelector")),
        tolerations=tuple(
            Toleration(
                t.get("key") or "",
                t.get("operator") or "Equal",
                t.get("value") or "",
                t.get("effect") or "",
            )
            for t in spec.get("tolerations") or []
        ),
        affinity=tuple(
            tuple(
                Expression(e["key"], e["operator"], tuple(e.get("values") or ()))
                for kind in ("matchExpressions", "matchFields")
                for e in term.get(kind) or []
            )
            for term in required.get("nodeSelectorTerms") or []
        ),
    )


def _words(spec: Json, required: Json) -> int:
    """Return how many labels, taints, conditions and values a pod names."""
    terms = required.get("nodeSelectorTerms") or []
    conditions = [
        one
        for term in terms
        for kind in ("matchExpressions", "matchFields")
        for one in term.get(kind) or []
    ]
    values = sum(len(one.get("values") or ()) for one in conditions)
    alone = len(spec.get("nodeSelector") or ()) + len(spec.get("tolerations") or ())
    return alone + len(terms) + len(conditions) + values


def resources(amounts: Mapping[str, float], *, up: bool) -> Resources:
    """Return whole amounts, rounded `up` for what is asked, else down."""
    whole = math.ceil if up else math.floor
    # A float may be a hair beside what is written: 0.1 of a core are 100 thousandths.
    hair = -1e-6 if up else 1e-6
    return Resources.of(
        {
            name: whole((amount * 1000 if name == CPU else amount) + hair)
            for name, amount in amounts.items()
        }
    )


def _pairs(mapping: Mapping[str, str] | None) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((mapping or {}).items()))
