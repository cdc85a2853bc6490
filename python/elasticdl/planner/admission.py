"""Which nodes admit a pod, where there are many of both.

Owns an index of nodes by labels and taints: what each node would be asked for each pod
(`matching.admits`) is looked up. Each pod of a DaemonSet may be on a node of its own,
so that there are as many placements as such pods. Made by `planner.room`. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from elasticdl.planner.matching import NAME_FIELD, compares, keeps_out, tolerates
from elasticdl.planner.view import Expression, Node, Placement

# Nobody writes so many; each of them costs time that is everybody's.
MOST_CONDITIONS = 1000
_Nodes = frozenset[int]
_NONE: _Nodes = frozenset()


class Admission:
    """The nodes of a plan by what placements ask of them; nodes are their numbers."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        """Sort the nodes by labels and taints."""
        labels: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
        tainted: dict[object, set[int]] = defaultdict(set)
        for number, node in enumerate(nodes):
            for key, value in node.labels:
                labels[key][value].add(number)
            tainted[keeps_out(node)].add(number)
        self._labels = _frozen(labels)
        self._known = {**self._labels}  # what affinity may ask for: the name, too
        self._known[NAME_FIELD] = {
            n.name: _NONE.union((i,)) for i, n in enumerate(nodes)
        }
        self._has = {key: _NONE.union(*by.values()) for key, by in self._known.items()}
        # Nodes with equal taints; one of them stands for all.
        self._alike = [(nodes[min(all_)], frozenset(all_)) for all_ in tainted.values()]

    def admitting(self, placement: Placement) -> _Nodes:
        """Return the nodes that a pod with this placement may be on.

        None, where it has far more conditions than anybody writes.
        """
        if sum(1 + len(term) for term in placement.affinity) > MOST_CONDITIONS:
            return _NONE
        found = _NONE.union(
            *(
                all_
                for one, all_ in self._alike
                if tolerates(one, placement.tolerations)
            )
        )
        for key, value in placement.selector:
            found &= self._labels.get(key, {}).get(value, _NONE)
        if not placement.affinity:
            return found
        # A term that says nothing admits no node, as in Kubernetes.
        return _NONE.union(
            *(self._holding(term, found) for term in placement.affinity if term)
        )

    def _holding(self, term: Sequence[Expression], among: _Nodes) -> _Nodes:
        for condition in term:
            among = self._where(condition, among)
        return among

    def _where(self, condition: Expression, among: _Nodes) -> _Nodes:
        by = self._known.get(condition.key, {})
        match condition.operator:
            case "In":
                return among & self._one_of(condition)
            case "NotIn":  # codespell:ignore
                return among - self._one_of(condition)
            case "Exists":
                return among & self._has.get(condition.key, _NONE)
            case "DoesNotExist":
                return among - self._has.get(condition.key, _NONE)
            case "Gt" | "Lt":
                good = (all_ for v, all_ in by.items() if compares(condition, v))
                return among & _NONE.union(*good)
        return _NONE  # an operator that nobody knows admits nothing, as in Kubernetes

    def _one_of(self, condition: Expression) -> _Nodes:
        by = self._known.get(condition.key, {})
        return _NONE.union(*(by[one] for one in condition.values if one in by))


def _frozen(
    labels: dict[str, dict[str, set[int]]],
) -> dict[str, dict[str, _Nodes]]:
    return {
        key: {value: frozenset(all_) for value, all_ in by.items()}
        for key, by in labels.items()
    }
