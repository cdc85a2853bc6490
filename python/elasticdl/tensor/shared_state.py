"""Non-trainable state that all workers move: its variables in one flat vector.

Owns the order of the variables and how a step's change of them is put together with
those of other workers. Called by the model's side (which variables, how much of the old
value a step keeps), by the worker (what a step changed) and by PS 0 (what came of all).
Knows nothing of Keras or RPC.

A step on a batch makes `new = keep * old + share`: a moving mean keeps its momentum and
takes a share of the batch's mean, a counter keeps all and adds one. Only the share
travels, as the batch alone decides it: put into the vector of another moment, it moves
that one as the batch would have, however old the values were that the worker had.

But a share that comes k versions late tells of weights k versions old. An average that
keeps m is behind what it averages by m / (1 - m) steps in one process, and would be by
k more. How far it went itself in those k versions is known, and `1 - m` times that is
added: so a steady drift leaves it no further behind than in one process. (That makes
`values + new - old`, the worker's own change. Without a bound it overshoots and grows
where (1 - m) k is large, and what it adds is noise where nothing drifts; so of k, only
a tenth of the average's memory of 1 / (1 - m) steps counts: 5 % more noise. Then an
average of positive numbers also stays positive.)
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from elasticdl.tensor.codec import Array

Floats = NDArray[np.float32]

# Of an average's memory: the versions that it is led over at most. With a quarter it is
# noisier by up to 14 %. What remembers less than ten batches is not led at all.
_LED_PART = 0.1
_PAST_BYTES = 64 << 20  # earlier values of a large state


@dataclass(frozen=True)
class StateVariable:
    """One variable of the shared state."""

    name: str
    shape: tuple[int, ...]
    keep: float = 1.0  # share of the old value that is in the new one

    @property
    def size(self) -> int:
        """Number of floats."""
        return int(np.prod(self.shape, dtype=np.int64))


@dataclass(frozen=True)
class StateShare:
    """The contribution of one step's batch to the state."""

    values: Floats
    still: tuple[int, ...] = ()  # numbers of variables that the step did not move


@dataclass(frozen=True)
class StateLayout:
    """All variables of the state, in the order of the vector."""

    variables: tuple[StateVariable, ...] = ()

    @cached_property
    def size(self) -> int:
        """Floats of the vector."""
        return sum(variable.size for variable in self.variables)

    @cached_property
    def keep(self) -> Floats:
        """By float, the share of the old value that a step keeps."""
        parts = [np.full(v.size, v.keep, np.float32) for v in self.variables]
        return np.concatenate([np.empty(0, np.float32), *parts])

    @cached_property
    def _starts(self) -> list[int]:
        return list(itertools.accumulate((v.size for v in self.variables), initial=0))

    @cached_property
    def _averages(self) -> list[tuple[slice, float, int]]:
        """Neighbours that are averages: floats, what a batch has in them, led over."""
        found, start = [], 0
        for keep, group in itertools.groupby(self.variables, lambda v: v.keep):
            end = start + sum(variable.size for variable in group)
            if keep < 1.0:
                most = int(_LED_PART / (1.0 - keep) + 1e-6)
                found.append((slice(start, end), 1.0 - keep, most))
            start = end
        return [average for average in found if average[2]]

    @property
    def past(self) -> int:
        """Number of earlier versions whose values `moved` has a use for."""
        most = max((most for _, _, most in self._averages), default=0)
        return min(most, _PAST_BYTES // max(1, 4 * self.size))

    def share(self, old: Floats, new: Floats) -> StateShare:
        """Return the contribution of a step's batch."""
        differs = new != old
        if differs.all():
            return StateShare(new - self.keep * old)
        places = enumerate(itertools.pairwise(self._starts))
        still = tuple(n for n, (at, end) in places if not differs[at:end].any())
        return StateShare(new - self.keep * old, still)

    def moved(
        self, values: Floats, share: StateShare, since: Sequence[Floats] = ()
    ) -> Floats:
        """Return, in a new array, the values with a batch's contribution.

        `since`: the values at the batch's version and at each one after it, as far as
        they are known; without them, what came late has no lead.
        """
        after = self.keep * values + share.values
        for part, rest, most in self._averages if since else ():
            led = min(most, len(since))
            after[part] += rest * (values[part] - since[-led][part])
        for index in share.still:
            part = slice(self._starts[index], self._starts[index + 1])
            after[part] = values[part]
        return after

    def split(self, values: Floats) -> dict[str, Floats]:
        """Return the variables by name, as views."""
        return {
            v.name: values[start : start + v.size].reshape(v.shape)
            for v, start in zip(self.variables, self._starts, strict=False)
        }

    def joined(self, arrays: Mapping[str, Array], initial: Floats) -> Floats:
        """Return the vector of arrays by name; `initial` where there is none.

        Raises ValueError for one of another shape.
        """
        values = initial.copy()
        for name, mine in self.split(values).items():
            array = arrays.get(name)
            if array is None:
                continue
            if array.shape != mine.shape:
                raise ValueError(
                    f"state {name!r}: got shape {array.shape}, expected {mine.shape}"
                )
            mine[...] = array
        return values

    def to_json(self) -> str:
        """Return the layout as text; equal layouts give equal text."""
        return json.dumps([[v.name, list(v.shape), v.keep] for v in self.variables])

    @staticmethod
    def from_json(text: str) -> StateLayout:
        """Return what `to_json` wrote; "" is an empty one. Raises ValueError."""
        try:
            tree = json.loads(text or "[]")
            return StateLayout(
                tuple(
                    StateVariable(str(name), tuple(map(int, shape)), float(keep))
                    for name, shape, keep in tree
                )
            )
        except (TypeError, json.JSONDecodeError) as error:
            raise ValueError(f"the state's layout cannot be read: {error}") from error

    @staticmethod
    def of_arrays(arrays: Mapping[str, Array]) -> StateLayout:
        """Return the layout of arrays from an older checkpoint."""
        return StateLayout(
            tuple(
                StateVariable(name, array.shape)
                for name, array in arrays.items()
                if array.size and np.issubdtype(array.dtype, np.floating)
            )
        )


@dataclass(frozen=True)
class SharedState:
    """The shared state at one version. The vector is never written in place."""

    layout: StateLayout = StateLayout()
    values: Floats = field(default_factory=lambda: np.empty(0, np.float32))

    def takes(self, share: StateShare) -> bool:
        """Return whether a contribution has this state's layout."""
        return (
            share.values.shape == self.values.shape
            and share.values.dtype == np.float32
            and all(0 <= n < len(self.layout.variables) for n in share.still)
        )

    def moved(self, share: StateShare, since: Sequence[Floats] = ()) -> SharedState:
        """Return the state with a batch's contribution; see StateLayout.moved."""
        return SharedState(self.layout, self.layout.moved(self.values, share, since))

    def arrays(self) -> dict[str, Floats]:
        """Return the variables by name."""
        return self.layout.split(self.values)
