"""Non-trainable state that all workers move: its variables in one flat vector.

Owns the order of the variables and how a step's change of them is put together with
those of other workers. Called by the model's side (which variables, how much of the old
value a step keeps), by the worker (what a step changed) and by PS 0 (what came of all).
Knows nothing of Keras or RPC.

A step on a batch makes `new = keep * old + share`: a moving mean keeps its momentum and
takes a share of the batch's mean, a counter keeps all and adds one. Only the share
travels, as the batch alone decides it: put into the vector of another moment, it moves
that one as the batch would have. So the shares of N workers, one after another, are
what one process does with the same batches in that order, however old the values were
that a worker had. (Differences `new - old` would be added to values that have moved on
meanwhile: with many workers, or a low momentum, that overshoots and grows.)
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from elasticdl.tensor.codec import Array

Floats = NDArray[np.float32]


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

    def share(self, old: Floats, new: Floats) -> StateShare:
        """Return the contribution of a step's batch."""
        moved = np.logical_or.reduceat(new != old, self._starts[:-1])
        still = () if moved.all() else tuple(np.flatnonzero(~moved).tolist())
        return StateShare(new - self.keep * old, still)

    def moved(self, values: Floats, share: StateShare) -> Floats:
        """Return, in a new array, the values with a batch's contribution."""
        after = self.keep * values + share.values
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

    def moved(self, share: StateShare) -> SharedState:
        """Return the state with a batch's contribution."""
        return SharedState(self.layout, self.layout.moved(self.values, share))

    def arrays(self) -> dict[str, Floats]:
        """Return the variables by name."""
        return self.layout.split(self.values)
