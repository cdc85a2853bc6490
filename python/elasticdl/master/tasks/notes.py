"""Facts of a job beside its tasks, by kind; and how much of them is kept.

Of some kinds the newest counts, others add up or are forgotten, as their classes say
(`master.tasks.fact` has the rules): what a master holds, and writes into a snapshot,
does not grow with the job's life. The journal keeps all of them. Held by
`master.tasks.ledger`. Must not know files, nor what is done with facts.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from typing import Any, TypeVar, cast

from elasticdl.master.tasks import facts
from elasticdl.master.tasks.fact import Fact

F = TypeVar("F", bound=Fact)

_REPLICA, _RUN = facts.ReplicaFact.KIND, facts.RunFact.KIND


class Notes:
    """The facts that are kept. Replaying the same facts gives the same state."""

    def __init__(self) -> None:
        """Begin empty."""
        self._named: dict[str, dict[str | None, Fact]] = {}
        self._listed: dict[str, deque[Fact]] = {}
        self._counts: Counter[str] = Counter()

    def add(self, fact: Fact) -> None:
        """Add a fact."""
        kind = fact.KIND
        self._counts[kind] += 1
        if fact.NEWEST:
            named = self._named.setdefault(kind, {})
            named.pop(fact.key, None)
            # Of replicas those that live are kept, all of them: another master adopts
            # them. One that has ended never comes back under the same generation.
            if not (isinstance(fact, facts.ReplicaFact) and fact.ended):
                named[fact.key] = fact
            return
        listed = self._listed.get(kind)
        if listed is None:
            listed = self._listed[kind] = deque(maxlen=fact.KEPT)
        if fact.SUM and listed:
            listed[0] = listed[0].plus(fact)
            return
        listed.append(fact)
        if kind == _RUN:
            # None of an earlier run lives. Not by their times: clocks are set back.
            self._named.pop(_REPLICA, None)

    def of(self, kind: type[F]) -> list[F]:
        """Return the kept facts of a kind, oldest first."""
        if not kind.NEWEST:
            return cast(list[F], list(self._listed.get(kind.KIND, ())))
        named = self._named.get(kind.KIND, {}).values()
        return [fact for fact in named if isinstance(fact, kind)]

    def newest(self, kind: type[F], name: str | None = None) -> F | None:
        """Return the newest fact of a kind, and of a name for kinds kept by name."""
        if kind.NEWEST and (kind.NAME or name):
            named = self._named.get(kind.KIND, {})
            return cast("F | None", named.get(kind.NAME or name))
        kept = self.of(kind) if kind.NEWEST else self._listed.get(kind.KIND)
        return cast(F, kept[-1]) if kept else None

    def count(self, kind: type[Fact]) -> int:
        """Return how many facts there were, including those not kept.

        Of classes that share their stored kind, as those of `state`: of all of them.
        """
        return self._counts[kind.KIND]

    def state(self) -> dict[str, Any]:
        """Return all kept facts, for a snapshot."""
        kept: dict[str, list[dict[str, Any]]] = {}
        for kind, named in self._named.items():
            kept[kind] = [fact.tree() for fact in named.values()]
        for kind, listed in self._listed.items():
            kept[kind] = [fact.tree() for fact in listed]
        return {"kept": kept, "counts": dict(self._counts)}

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned, or a snapshot of the journal's format 1."""
        kept: Mapping[str, list[dict[str, Any]]] = state.get("kept", state)
        # Before the order of facts did, times told which run a replica was of.
        run = kept[_RUN][-1]["time"] if "kept" not in state and kept.get(_RUN) else 0.0
        for kind, trees in kept.items():
            if kind == _RUN:
                continue
            for tree in trees:
                if kind != _REPLICA or tree["time"] >= run or "kept" in state:
                    self.add(facts.read(kind, tree))
        replicas = self._named.pop(_REPLICA, None)
        for tree in kept.get(_RUN, ()):
            self.add(facts.read(_RUN, tree))
        if replicas:
            self._named[_REPLICA] = replicas
        if "counts" in state:
            self._counts = Counter(state["counts"])
