"""The free room of a cluster, node by node, and how much of it may be used.

Owns the sums: what is free on each node now and what will be once those that leave are
gone, what is used in all, and the ceiling. Used by every step of a plan. Must not know
jobs.

The ceiling holds for what is added. It makes room by those that are there only where
pods came: a supply that shrank below what runs is no pressure, be it a device plugin
that restarts, or a node that is cordoned or silent and whose pods are still there.

A shape is what a pod asks for and where it may be. For each shape a heap knows the node
with the most room for it (`slots`: how many such pods fit). The heap is lazy: an entry
is compared with the node as it is when it comes to the top, and a node that became
freer is put in again. So a plan does not look at all nodes for each worker.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from elasticdl.planner.admission import Admission
from elasticdl.planner.view import PODS, Node, Placement, Resources, Settings

NOWHERE = -1
_UNLIMITED = 1 << 62
Needs = tuple[tuple[int, int], ...]  # (resource, amount)


@dataclass(eq=False)
class Shape:
    """A request with its placement; one object for all equal ones."""

    needs: Needs
    nodes: frozenset[int]  # that admit it
    heaps: tuple[_Heap, _Heap] = field(init=False)  # by room soon, by room now
    most: int | None = field(default=None, init=False)  # of them, on empty nodes

    def __post_init__(self) -> None:
        self.heaps = (_Heap(), _Heap())


@dataclass(eq=False)
class _Heap:
    """Nodes by their slots for a shape, most first."""

    entries: list[tuple[int, int]] = field(default_factory=list)  # (-slots, node)
    freer: set[int] = field(default_factory=set)  # to be put in again
    made: bool = False


class Room:
    """The supply of a cluster and what is left of it."""

    def __init__(
        self,
        nodes: Iterable[Node],
        settings: Settings,
        *,
        held: Mapping[str, Mapping[str, int]],
        away: Iterable[Node] = (),
        apart: frozenset[str] = frozenset(),
    ):
        """Begin with empty nodes.

        Of resources those count that a node has, or that are held: any others are words
        of whoever asks, thousands of them if he likes, and no node has room for that.
        `held`: on each node, also those that are `away`: no supply now, and in use.
        `apart`: names of nodes that others may use, and that no sum counts.
        """
        self.nodes = list(nodes)
        self.counts = [node.name not in apart for node in self.nodes]
        self.resources = sorted(
            {PODS}
            | {name for one in self.nodes for name, _ in one.allocatable.items}
            | {name for node in self.nodes for name in held.get(node.name, {})}
        )
        self._number = {name: i for i, name in enumerate(self.resources)}
        self.place_of = {node.name: i for i, node in enumerate(self.nodes)}
        self._empty = [self._free(node) for node in self.nodes]
        self.free = [list(free) for free in self._empty]  # soon
        self.held = [[0] * len(self.resources) for _ in self.nodes]  # by who leaves
        there = [
            (dict(n.allocatable.items), held.get(n.name, {}))
            for n in self.nodes
            if n.name not in apart
        ]
        gone = [(dict(n.allocatable.items), held.get(n.name, {})) for n in away]
        # A device plugin that restarts takes devices away from nobody.
        self.supply = [
            sum(max(has.get(name, 0), holds.get(name, 0)) for has, holds in there)
            for name in self.resources
        ]
        self.limit = [_UNLIMITED] * len(self.resources)  # up to which workers are added
        self.bound = list(self.limit)  # beyond which some have to leave
        for i, name in enumerate(self.resources):
            if name == PODS:
                continue  # of these each node has its own limit, and some say none
            ceiling = settings.ceiling(name)
            self.limit[i] = int(ceiling * self.supply[i] + 1e-6)
            bound = 0.0
            for has, holds in there:
                most, used = has.get(name, 0), holds.get(name, 0)
                bound += used if used > most else ceiling * most
            for has, holds in gone:
                bound += max(0.0, ceiling * has.get(name, 0) - holds.get(name, 0))
            self.bound[i] = max(self.limit[i], int(bound + 1e-6))
        self.used = [0] * len(self.resources)  # soon
        self.leaving = [0] * len(self.resources)
        self._shapes: dict[tuple[Resources, Placement], Shape] = {}
        # Many words are one shape, and each shape looks at each node.
        self._alike: dict[
            tuple[tuple[tuple[int, int], ...], frozenset[int]], Shape
        ] = {}
        self._admission = Admission(self.nodes)
        self._admitted: dict[Placement, frozenset[int]] = {}

    def _free(self, node: Node) -> list[int]:
        has = dict(node.allocatable.items)
        free = [has.get(name, 0) for name in self.resources]
        if PODS not in has:
            free[self._number[PODS]] = _UNLIMITED
        return free

    def shape(self, request: Resources, placement: Placement) -> Shape:
        """Return the shape of a pod."""
        key = (request, placement)
        if (known := self._shapes.get(key)) is None:
            if placement not in self._admitted:
                # In one order, whatever sets it came from: plans repeat exactly.
                admitting = sorted(self._admission.admitting(placement))
                self._admitted[placement] = frozenset(admitting)
            needs = [
                (self._number[name], amount)
                for name, amount in request.items
                if name in self._number
            ]
            has_all = len(needs) == len(request.items)
            needs.append((self._number[PODS], 1))
            nodes = self._admitted[placement] if has_all else frozenset[int]()
            alike = (tuple(needs), nodes)
            if (same := self._alike.get(alike)) is None:
                same = self._alike[alike] = Shape(*alike)
            known = self._shapes[key] = same
        return known

    def amount(self, shape: Shape, resource: str) -> int:
        """Return how much of a resource a shape needs."""
        number = self._number.get(resource)
        return next((need for i, need in shape.needs if i == number), 0)

    # Room on a node.

    def slots(self, shape: Shape, node: int, *, now: bool) -> int:
        """Return how many pods of a shape fit on a node; now, or once others left."""
        free, held = self.free[node], self.held[node]
        least = _UNLIMITED
        for i, need in shape.needs:
            left = free[i] - held[i] if now else free[i]
            if left < need:
                return 0
            if (fits := left // need) < least:
                least = fits
        return least

    def most(self, shape: Shape) -> int:
        """Return how many pods of a shape would fit on empty nodes."""
        if shape.most is None:
            shape.most = sum(
                min(self._empty[node][i] // need for i, need in shape.needs if need)
                for node in shape.nodes
            )
        return shape.most

    def fits(self, shape: Shape, node: int, *, now: bool) -> bool:
        """Return whether a pod of a shape fits on a node."""
        free, held = self.free[node], self.held[node]
        if now:
            return all(free[i] - held[i] >= need for i, need in shape.needs)
        return all(free[i] >= need for i, need in shape.needs)

    def is_free(self, shape: Shape, node: int) -> bool:
        """Return whether nobody that leaves holds room that was taken here."""
        free, held = self.free[node], self.held[node]
        return all(free[i] >= held[i] for i, _ in shape.needs)

    def could_take(self, shape: Shape, kept: Iterable[Shape], node: int) -> bool:
        """Return whether a pod would fit into room that is kept there for others.

        Into that of all of them: several small ones make room for a large one.
        """
        others = [one for one in kept if one.needs != shape.needs]
        if not others:
            return False
        free = list(self.free[node])
        for other in others:
            for i, need in other.needs:
                free[i] += need
        return all(free[i] >= need for i, need in shape.needs)

    def best(self, shape: Shape, *, now: bool) -> int:
        """Return the node with the most room for a shape; NOWHERE if it fits on none.

        That is where a scheduler that spreads its pods is likely to put one.
        """
        heap = shape.heaps[now]
        if not heap.made:
            heap.made = True
            heap.freer.update(shape.nodes)
        for node in heap.freer:
            if slots := self.slots(shape, node, now=now):
                heapq.heappush(heap.entries, (-slots, node))
        heap.freer.clear()
        while heap.entries:
            said, node = heap.entries[0]
            slots = self.slots(shape, node, now=now)
            if slots == -said:
                return node
            if slots and slots < -said:
                heapq.heapreplace(heap.entries, (-slots, node))
            else:
                # Freer than the entry says: there is a newer one.
                heapq.heappop(heap.entries)
        return NOWHERE

    # Who takes it and gives it back.

    def take(self, shape: Shape, node: int) -> None:
        """Give a node's room to a pod."""
        free, counts = self.free[node], self.counts[node]
        for i, need in shape.needs:
            free[i] -= need
            self.used[i] += need * counts

    def leave_alone(self, shape: Shape, node: int) -> None:
        """Keep a node's room from others, though it may never be used."""
        for i, need in shape.needs:
            self.free[node][i] -= need

    def give(self, shape: Shape, node: int, *, held: bool) -> None:
        """Take a pod off a node; held: it is still there and leaves."""
        free, counts = self.free[node], self.counts[node]
        for i, need in shape.needs:
            free[i] += need
            self.used[i] -= need * counts
        if held:
            self.hold(shape, node)
        self._freer(node)

    def hold(self, shape: Shape, node: int) -> None:
        """Note a pod that leaves: soon its room is free, now it is not."""
        held, counts = self.held[node], self.counts[node]
        for i, need in shape.needs:
            held[i] += need
            self.leaving[i] += need * counts

    def hold_on(self, shape: Shape, node: int) -> None:
        """Note a pod that leaves late: its room is not soon free, its part is.

        Nobody else has to leave for the ceiling because it takes so long.
        """
        self.leave_alone(shape, node)
        counts = self.counts[node]
        for i, need in shape.needs:
            self.leaving[i] += need * counts

    def _freer(self, node: int) -> None:
        for shape in self._alike.values():
            if node in shape.nodes:
                shape.heaps[0].freer.add(node)
                shape.heaps[1].freer.add(node)

    # The ceiling.

    def under_ceiling(self, shape: Shape, *, now: bool) -> bool:
        """Return whether one more pod of a shape keeps below the ceiling."""
        for i, need in shape.needs:
            used = self.used[i] + self.leaving[i] if now else self.used[i]
            if used + need > self.limit[i]:
                return False
        return True

    def over(self) -> list[int]:
        """Return the resources of which so much is used that some have to leave."""
        return [i for i, used in enumerate(self.used) if used > self.bound[i]]

    def part(self, resource: int, amount: float) -> float:
        """Return which part of a resource's supply an amount is; 0 if there is none."""
        if resource == self._number[PODS] or not self.supply[resource]:
            return 0.0
        return amount / self.supply[resource]
