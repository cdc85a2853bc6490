"""Which pushes are part of a PS's values: the last one of each worker.

Owns what counts as a repeat. Called by the updaters through ps/parameters.py, under the
PS's lock, and by checkpoints, which store it. Knows nothing of gradients or RPC.

A worker sends one push after another, each with a number larger than the one before
(rpc/ps_tensors.PushId), and repeats the last one until it is answered. So one number
per worker is exact, however long a repeat was under way and whatever others pushed in
between. What holds across losses:

- A worker's process that takes the place of another has a new source, so nothing that
  it sends passes for a repeat.
- After a rewind, numbers go on from where they were, while those remembered come from
  the checkpoint and are smaller; repeats from before are fenced by the rewind.
- A PS that comes back alone (async) has those of its shard: a repeat of what is in the
  shard is known, of what was lost with the PS is applied, as it has to be.
- Values handed back by a worker come without them: what another worker had pushed, and
  heard no answer to, is applied once more at worst.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

from elasticdl.rpc.ps.tensors import PushId

# Sources come and go with the workers' processes. One that so many others have pushed
# after is gone: a live worker repeats its push within seconds.
MOST_SOURCES = 4096


class LastPushes:
    """The number of each source's last push, least recently used first."""

    def __init__(self, known: Mapping[str, int] | None = None) -> None:
        """Start with those of a checkpoint, in its order."""
        self._numbers: OrderedDict[str, int] = OrderedDict(known or {})

    def __contains__(self, push_id: object) -> bool:
        """Whether this push was applied, or abandoned by its worker for a newer one."""
        if not isinstance(push_id, PushId):
            return False
        last = self._numbers.get(push_id.source)
        if last is None or push_id.number > last:
            return False
        self._numbers.move_to_end(push_id.source)
        return True

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, push_id: PushId) -> None:
        """Remember an applied push."""
        last = self._numbers.get(push_id.source, 0)
        self._numbers[push_id.source] = max(last, push_id.number)
        self._numbers.move_to_end(push_id.source)
        while len(self._numbers) > MOST_SOURCES:
            self._numbers.popitem(last=False)

    def by_source(self) -> dict[str, int]:
        """Return a copy, for a checkpoint."""
        return dict(self._numbers)
