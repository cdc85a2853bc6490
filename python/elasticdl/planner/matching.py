"""Whether a node admits a pod: selectors, taints, affinity to nodes.

Owns Kubernetes' rules for that. Called by `planner.room`. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from elasticdl.planner.view import Expression, Node, Placement, Taint, Toleration

_KEEPS_OUT = ("NoSchedule", "NoExecute")
NAME_FIELD = "metadata.name"  # the field of a node that `matchFields` may ask for


def admits(node: Node, placement: Placement) -> bool:
    """Return whether a pod with this placement may be on a node."""
    labels = dict(node.labels)
    if any(labels.get(key) != value for key, value in placement.selector):
        return False
    known = {**labels, NAME_FIELD: node.name}
    # A term that says nothing admits no node, as in Kubernetes.
    if placement.affinity and not any(
        term and all(_holds(one, known) for one in term) for term in placement.affinity
    ):
        return False
    return tolerates(node, placement.tolerations)


def tolerates(node: Node, tolerations: Iterable[Toleration]) -> bool:
    """Return whether no taint of a node keeps out a pod with these tolerations."""
    return all(
        any(_tolerates(one, taint) for one in tolerations) for taint in keeps_out(node)
    )


def keeps_out(node: Node) -> tuple[Taint, ...]:
    """Return the taints of a node that keep pods out."""
    return tuple(taint for taint in node.taints if taint.effect in _KEEPS_OUT)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if not toleration.key:
        return toleration.operator == "Exists"
    if toleration.key != taint.key:
        return False
    return toleration.operator == "Exists" or toleration.value == taint.value


def _holds(condition: Expression, labels: Mapping[str, str]) -> bool:
    value = labels.get(condition.key)
    match condition.operator:
        case "In":
            return value in condition.values
        case "NotIn":  # codespell:ignore
            return value not in condition.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return compares(condition, value)
    return False  # an operator that nobody knows admits nothing, as in Kubernetes


def compares(condition: Expression, value: str | None) -> bool:
    """Return whether a label is greater, or less, than a condition says."""
    try:
        number, bound = int(value or ""), int(condition.values[0])
    except (ValueError, IndexError):
        return False
    return number > bound if condition.operator == "Gt" else number < bound
