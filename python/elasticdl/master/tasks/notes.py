"""Facts of a job beside its tasks, by kind; and how much of them is kept.

Owns which kinds replace each other, add up or are forgotten, so that what a master
holds, and writes into a snapshot, does not grow with the job's life. The journal keeps
all of them. Held by `master.tasks.ledger`. Must not know files, nor what is done with
facts.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from typing import Any

Note = dict[str, Any]

# The newest of each name counts; of kinds whose facts have no name, the newest at all.
_LATEST_ONLY = frozenset(
    {"replica", "state", "checkpoint", "rewind", "rewound", "missing", "launch"}
)
# Of these kinds one number is kept, the sum.
_SUMS = {"lostUpdates": "count", "skipped": "batches"}
# The newest of kinds that become many.
_KEPT = {"relaunch": 1_000, "recovered": 1_000, "badRecord": 1_000}
MOST = 10_000

_REPLICA = "replica"
_RUN = "run"


class Notes:
    """What was noted and still counts. Replaying the same notes gives the same."""

    def __init__(self) -> None:
        """Begin with none."""
        self._named: dict[str, dict[Any, Note]] = {}
        self._listed: dict[str, deque[Note]] = {}
        self._counts: Counter[str] = Counter()

    def add(self, kind: str, data: Note) -> None:
        """Take a fact."""
        self._counts[kind] += 1
        if kind in _LATEST_ONLY:
            named = self._named.setdefault(kind, {})
            named.pop(data.get("name"), None)
            # Of replicas those that live are kept, all of them: another master adopts
            # them. One that has ended never comes back under the same generation.
            if not (kind == _REPLICA and data.get("ended")):
                named[data.get("name")] = data
            return
        listed = self._listed.get(kind)
        if listed is None:
            listed = self._listed[kind] = deque(maxlen=_KEPT.get(kind, MOST))
        if kind in _SUMS and listed:
            listed[0] = {_SUMS[kind]: listed[0][_SUMS[kind]] + data[_SUMS[kind]]}
            return
        listed.append(data)
        if kind == _RUN:
            # None of an earlier run lives. Not by their times: clocks are set back.
            self._named.pop(_REPLICA, None)

    def of(self, kind: str) -> list[Note]:
        """Return what is kept of a kind, oldest first."""
        if kind in _LATEST_ONLY:
            return list(self._named.get(kind, {}).values())
        return list(self._listed.get(kind, ()))

    def newest(self, kind: str, name: str | None = None) -> Note | None:
        """Return the newest fact of a kind, and of a name if its facts have names."""
        if kind in _LATEST_ONLY:
            return self._named.get(kind, {}).get(name)
        listed = self._listed.get(kind)
        return listed[-1] if listed else None

    def count(self, kind: str) -> int:
        """Return how many there were, also of those that are not kept."""
        return self._counts[kind]

    def state(self) -> dict[str, Any]:
        """Return all that is kept, for a snapshot."""
        kinds = [*self._named, *self._listed]
        return {
            "kept": {kind: self.of(kind) for kind in kinds},
            "counts": dict(self._counts),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Take up what `state` returned, or a snapshot of the journal's format 1."""
        kept: Mapping[str, list[Note]] = state.get("kept", state)
        # Before the order of notes did, times told which run a replica was of.
        run = kept[_RUN][-1]["time"] if "kept" not in state and kept.get(_RUN) else 0.0
        for kind, notes in kept.items():
            if kind == _RUN:
                continue
            for note in notes:
                if kind != _REPLICA or note["time"] >= run or "kept" in state:
                    self.add(kind, note)
        replicas = self._named.pop(_REPLICA, None)
        for note in kept.get(_RUN, ()):
            self.add(_RUN, note)
        if replicas:
            self._named[_REPLICA] = replicas
        if "counts" in state:
            self._counts = Counter(state["counts"])
