"""How fast members compute, and what each one takes of a step for it.

Owns the own speed and the weights that the leader divides a step by. Written by
`worker.group.stepping` in the main thread; `own` and `weights` are asked for by the
group. Must not know what is computed.

Each takes records in proportion to the records a second of its last shares: whoever was
late takes fewer, until all need the same time; also where a share costs something of
its own, and each has the update to make that no share changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from elasticdl.worker.group.word import HeaderWord

# The mean speed is that of about a second, but of so many shares. A processor that is
# shared comes and goes within milliseconds: few short shares tell its times, not its
# part, and what was read ahead is lost with each change of the weights.
_SECONDS = 1.0
_FEWEST, _MOST = 5, 20
# Weights stay until one is so far off: records that were read ahead are of the share
# that was expected.
_CHANGE = 0.1
_LEAST = 0.05  # of the fastest one's
_HOPE = 1.004  # with each step without records


class Speeds:
    """The own speed, and weights by rank. One thread writes, any may read."""

    def __init__(self, *, follow: bool) -> None:
        """Begin without a speed. `follow`: else all members take the same."""
        self._follow = follow
        self._own = 0.0
        self._weight = 1.0  # of the next share in the mean, at least
        self._last: tuple[tuple[int, ...], tuple[float, ...]] = (), ()

    def computed(self, records: int, seconds: float) -> None:
        """Note that a share of so many records, and an update, took so long."""
        if records <= 0:
            self._own *= _HOPE
            self._weight = max(self._weight, 0.5)  # what is known grows old
        if records <= 0 or seconds <= 0:
            return
        weight = max(self._weight, min(1 / _FEWEST, seconds / _SECONDS))
        self._own += (records / seconds - self._own) * weight
        # The mean of the first ones is that of all so far.
        self._weight = max(1 / _MOST, self._weight / (1 + self._weight))

    @property
    def own(self) -> float:
        """Records a second of this member; 0: not known, or nobody asks."""
        return self._own if self._follow else 0.0

    def weights(
        self, me: int, members: Sequence[int], words: Mapping[int, bytes]
    ) -> tuple[float, ...]:
        """Return by rank what members take; () is the same for all.

        So it is until a speed is known. Whose is not, as after few whole batches of
        which it got none, passes for somewhat faster than the fastest one: so it is
        tried, also where one batch is all there is.
        """
        if not self._follow or len(members) < 2:
            return ()
        said = {m: HeaderWord.decoded(word).speed for m, word in words.items()}
        said[me] = self._own
        speeds = [said.get(member, 0.0) for member in members]
        fastest = max(speeds)
        if fastest <= 0:
            return ()
        unknown = (1 + _CHANGE) * fastest
        fresh = tuple(max(_LEAST, round((s or unknown) / fastest, 2)) for s in speeds)
        before, last = self._last
        near = before == tuple(members) and all(
            abs(new - old) <= _CHANGE * old
            for new, old in zip(fresh, last, strict=True)
        )
        if not near:
            self._last = tuple(members), fresh
        return self._last[1]
