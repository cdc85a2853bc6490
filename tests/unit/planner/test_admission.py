"""The index of nodes says of each placement what each node would say."""

from __future__ import annotations

from random import Random

from elasticdl.planner.admission import MOST_CONDITIONS, Admission
from elasticdl.planner.matching import admits
from elasticdl.planner.room import Room
from elasticdl.planner.view import (
    Expression,
    Node,
    Placement,
    Settings,
    Taint,
    Toleration,
)

from tests.unit.planner.build import cpus

KEYS = ("zone", "cpus", "metadata.name", "nobody")
VALUES = ("a", "b", "4", "8", "node-1", "node-2")
OPERATORS = (
    "In",
    "NotIn",
    "Exists",
    "DoesNotExist",
    "Gt",
    "Lt",
    "Like",
)  # codespell:ignore
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def some(random: Random, most: int) -> range:
    return range(random.randint(0, most))


def a_node(random: Random, number: int) -> Node:
    labels = {random.choice(KEYS): random.choice(VALUES) for _ in some(random, 3)}
    taints = [Taint(*_pair(random), random.choice(EFFECTS)) for _ in some(random, 1)]
    name = f"node-{number}"
    return Node(name, cpus(1), labels=tuple(labels.items()), taints=tuple(taints))


def _pair(random: Random) -> tuple[str, str]:
    return random.choice(KEYS), random.choice(VALUES)


def a_placement(random: Random) -> Placement:
    def condition() -> Expression:
        values = tuple(random.choice(VALUES) for _ in some(random, 2))
        return Expression(random.choice(KEYS), random.choice(OPERATORS), values)

    return Placement(
        selector=tuple(_pair(random) for _ in some(random, 1)),
        tolerations=tuple(
            Toleration(
                random.choice(("", *KEYS)),
                random.choice(("Equal", "Exists")),
                random.choice(VALUES),
                random.choice(("", *EFFECTS)),
            )
            for _ in some(random, 3)
        ),
        affinity=tuple(
            tuple(condition() for _ in some(random, 2)) for _ in some(random, 2)
        ),
    )


def test_the_index_admits_where_the_nodes_do() -> None:
    random, admitted = Random(1), 0
    for _ in range(100):
        nodes = [a_node(random, number) for number in range(8)]
        index = Admission(nodes)
        for _ in range(30):
            placement = a_placement(random)
            each = {i for i, node in enumerate(nodes) if admits(node, placement)}
            assert index.admitting(placement) == each, placement
            admitted += len(each)
    assert admitted > 1000


def test_no_node_admits_thousands_of_conditions() -> None:
    index = Admission([Node("n", cpus(1))])
    term = (Expression("metadata.name", "Exists"),)
    few, many = MOST_CONDITIONS // 2, MOST_CONDITIONS
    assert index.admitting(Placement(affinity=(term,) * few)) == {0}
    assert index.admitting(Placement(affinity=(term,) * many)) == set()


def test_pods_that_may_be_on_the_same_nodes_are_looked_for_once() -> None:
    room = Room([Node("n", cpus(4)), Node("m", cpus(4))], Settings(), held={})
    anywhere = room.shape(cpus(1), Placement())
    tolerant = Placement(tolerations=(Toleration("spot", "Exists"),))
    assert room.shape(cpus(1), tolerant) is anywhere
    there = Placement(affinity=((Expression("metadata.name", "In", ("n",)),),))
    assert room.shape(cpus(1), there).nodes == {0}


def test_what_no_node_has_is_found_nowhere_and_no_column_of_a_plan() -> None:
    room = Room([Node("n", cpus(4, **{"nvidia.com/gpu": 1}))], Settings(), held={})
    wishes = {f"example.com/{number}": 1 for number in range(3)}
    assert room.shape(cpus(1, **wishes), Placement()).nodes == set()
    assert room.resources == ["cpu", "nvidia.com/gpu", "pods"]
