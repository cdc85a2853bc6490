"""How portions of a step move a model's state, tried before the first step.

Owns the passes from other values of state, and what is told of the outcome. Called by
`measures.portions`; `measures.moves` decides. Changes no variable.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from elasticdl.model.measures.in_portions import (
    computed,
    cut_in_two,
    num_rows,
    repeated,
    rows_of,
    tried_in_portions,
)
from elasticdl.model.measures.moves import (
    MEAN,
    Doubt,
    Movement,
    declared_sum,
    growing,
    lift,
    may_add,
    movement,
    share_kept,
    shifts,
)
from elasticdl.model.measures.passes import Array, Grown, Pass, Tried
from elasticdl.model.measures.state_words import (
    is_mean,
    is_sum,
    tell_doubt,
    tell_found,
)
from elasticdl.model.state import layers_of

# Of a larger variable so many elements are looked at, those that move among them.
_MOST_ELEMENTS = 1 << 17
# Other random numbers are drawn so often: what they leave of a mean shrinks.
_DRAWS = 4
# Where they are, some records come so often: an eighth of the batch makes two of it.
_FEW, _TIMES = 8, 16
# So many records are tried one by one, to see whether a sum only grows.
_SINGLE = 8
# Variables that are shifted alone, at most: each takes passes of its own.
_MOST_ALONE = 16

_Few = list[dict[int, Array]]  # by variable, of some batches: one and its portions


class StateTrial:
    """Passes over a batch and its portions that begin with other values of state."""

    def __init__(
        self,
        variables: Sequence[Any],
        traced: Callable[..., Any],
        batch: tuple[Any, Any],
        reached: Sequence[Sequence[Any]],
        counts: tuple[int, int, int],
    ) -> None:
        """Take a batch, and what it and its portions made of all variables."""
        self._variables = variables
        self._traced, self._batch = traced, batch
        self._first, self._counts = counts[1] / counts[0], counts
        self._begins = [v.numpy() for v in variables]
        self._reached = reached
        self._places: dict[int, NDArray[np.int64] | None] = {}

    def movements(
        self, assigned: Collection[int], model: keras.Model
    ) -> list[Movement]:
        """Return by variable how portions move it; what is in doubt is told."""
        found = [MEAN] * len(self._variables)
        asked = _asked(self._variables, assigned, model)
        if asked:
            self._try(asked, found)
        means = [at for at in sorted(assigned) if is_mean(self._variables[at])]
        tell_found([(self._variables[at], found[at]) for at in (*asked, *means)])
        return found

    def _try(self, asked: Sequence[int], found: list[Movement]) -> None:
        """Note of these how portions move them; what is in doubt is told."""
        whole = [np.asarray(value) for value in self._reached[0]]
        for at in asked:
            self._places[at] = _places(self._begins[at], whole[at])
        before, reached = self._begins, self._few(self._reached)
        drawn = self._drawn(before, reached)
        later = [self._from(whole)]
        if len(drawn) > 1 and later[0]:
            later = self._drawn(whole, later[0])
        # Of a largest value one portion makes less than the other one does of that.
        portions = [[np.asarray(v) for v in one] for one in self._reached[1:]]
        more = [] if len(drawn) > 1 else [(one, self._from(one)) for one in portions]
        others = self._others(reached)
        few, many = self._grown() if len(drawn) > 1 else ([], [])
        tried = {}
        for at in asked:
            is_drawn = self._is_drawn(at, drawn)
            after = self._mean(at, whole, later)
            tried[at] = Tried(
                self._pass(at, before, reached),
                tuple(self._pass(at, before, made, share) for made, share in others),
                (
                    *(() if after is None else (after,)),
                    *(self._pass(at, *one) for one in more if one[1]),
                ),
                drawn=tuple(self._passes(at, before, drawn)) if is_drawn else (),
                grown=self._grown_of(at, few, many) if is_drawn else None,
            )
        # A sum may be begun otherwise: what a step keeps is seen in the next one.
        usual = whole if later[0] else before
        self._look_closer(tried, whole, usual)
        for at in asked:
            found[at], doubt = self._movement(at, tried[at])
            if doubt:
                tell_doubt(
                    self._variables[at], doubt, adds=bool(np.any(found[at].adds))
                )
        self._note_growth(asked, found)

    def _movement(self, at: int, tried: Tried) -> tuple[Movement, Doubt]:
        dtype = self._variables[at].dtype
        found, doubt = movement(tried, dtype=dtype)
        if is_sum(self._variables[at]):
            found, doubt = declared_sum(tried, found, doubt, dtype=dtype)
        differ = np.ndim(found.keeps) or np.ndim(found.adds)
        if differ and self._places[at] is not None:
            # Those that are not looked at are not known.
            return (
                (Movement(adds=True), Doubt.UNKEPT)
                if is_sum(self._variables[at])
                else (MEAN, Doubt.UNSTEADY)
            )
        return found, doubt

    def _note_growth(self, asked: Sequence[int], found: list[Movement]) -> None:
        """Note of which sums no single record makes less."""
        adding = [at for at in asked if np.any(found[at].adds)]
        singles = self._of_single_records() if adding else []
        for at in adding:
            made = [one[at] for one in singles]
            begin = self._elements(at, self._begins[at])
            dtype = self._variables[at].dtype
            grown = growing(found[at], begin, made, dtype)
            some = np.ndim(grown.grows) or np.ndim(grown.surely)
            # Where a part is looked at alone, of others it is not known.
            if self._places[at] is None or not some:
                found[at] = grown

    def _look_closer(
        self, tried: dict[int, Tried], whole: list[Any], usual: list[Any]
    ) -> None:
        """Add passes from other values, of the variables alone that need them.

        Others stay as they are: a number of steps may be one of rounds. What is kept of
        values is seen from the usual ones on.
        """
        dtypes = {at: self._variables[at].dtype for at in tried}
        adding = [
            at
            for at in tried
            if is_sum(self._variables[at]) or may_add(tried[at], dtype=dtypes[at])
        ]
        if adding:
            self._look_at_adding(adding, tried, whole, usual)
        rest = set(tried) - set(adding)
        decaying = [a for a in rest if tried[a].first.alike and "float" in dtypes[a]]
        by = {at: lift(tried[at].first.before) for at in decaying}
        begins = self._with(decaying, lambda at: _higher(self._begins[at], by[at]))
        function = partial(self._traced, begins=begins)
        for lifted in self._few_of(function, [self._batch] if decaying else []):
            for at in decaying:
                tried[at] = replace(tried[at], lifted=(by[at], lifted[at]))

    def _look_at_adding(
        self,
        adding: Sequence[int],
        tried: dict[int, Tried],
        whole: list[Any],
        usual: list[Any],
    ) -> None:
        # A largest or smallest sum is found from a value that the next one exceeds.
        between = [
            self._with(adding, lambda at: _between(self._begins[at], whole[at])),
            self._with(
                adding, lambda at: _between(np.zeros_like(whole[at]), whole[at])
            ),
        ]
        halfway = [(begins, self._from(begins)) for begins in between]
        farthest = {at: tried[at].first.farthest for at in adding}
        together = self._shifted(farthest, usual)
        alone = 0
        for at in adding:
            one = replace(tried[at], shifted=self._of_shifted(at, together))
            if not one.drawn:
                more = tuple(self._pass(at, *of) for of in halfway if of[1])
                one = replace(one, later=(*one.later, *more))
            steady = share_kept(one, dtype=self._variables[at].dtype)[1]
            if not steady.all() and alone < _MOST_ALONE:
                # What it adds may follow from other state, as from a codebook.
                alone += 1
                by_itself = self._shifted({at: farthest[at]}, usual)
                one = replace(one, shifted=self._of_shifted(at, by_itself))
            tried[at] = one

    def _with(self, places: Sequence[int], value: Callable[[int], Any]) -> list[Any]:
        """Return the values that the model begins with, but others at some places."""
        begins = list(self._begins)
        for at in places:
            begins[at] = value(at)
        return begins

    def _others(self, reached: _Few) -> list[tuple[_Few, float]]:
        """Return what is made with portions of other records, and the first's share.

        Each record is in both portions; or one record is a portion.
        """
        rows = num_rows(self._batch)
        if rows == 1:
            return [(reached, self._first)]  # it is in both already
        function = partial(self._traced, begins=self._begins)
        twice = self._few_of(function, [repeated(self._batch, 2)])
        if not twice:
            return []
        found = [([*twice, reached[0], reached[0]], 0.5)]
        if self._counts[1] > 1:
            parts = self._few_of(function, cut_in_two(self._batch, 1, rows))
            found += [([reached[0], *parts], 1 / rows)] if parts else []
        return found

    def _grown(self) -> tuple[_Few, _Few]:
        """Return what draws make of a few records, and of these so many times."""
        rows = num_rows(self._batch)
        few = next(cut_in_two(self._batch, max(1, rows // _FEW), rows))
        batches = (few, repeated(few, _TIMES))
        found: tuple[_Few, _Few] = ([], [])
        for draw in range(1 + _DRAWS):
            function = partial(self._traced, draw=draw, begins=self._begins)
            made = self._few_of(function, batches)
            if not made:
                return [], []
            for one, kept in zip(made, found, strict=True):
                kept.append(one)
        return found

    def _grown_of(self, at: int, few: _Few, many: _Few) -> Grown | None:
        if not few:
            return None
        before = self._elements(at, self._begins[at])
        each = [tuple(made[at] for made in some) for some in (few, many)]
        return Grown(before, _TIMES, each[0], each[1])

    def _few_of(self, function: Callable[..., Any], batches: Iterable[Any]) -> _Few:
        """Return what is made of each of these batches; nothing if one fails."""
        return self._few([one[0] for one in computed(function, batches)])

    def _of_single_records(self) -> _Few:
        """Return what some records make one by one, also with features negated."""
        features, labels = self._batch
        function = partial(self._traced, begins=self._begins)
        found = []
        for changed in (features, tf.nest.map_structure(_negated, features)):
            for row in range(min(num_rows(self._batch), _SINGLE)):
                one = rows_of((changed, labels), row, row + 1)
                made = self._few_of(function, [one])
                if not made:
                    return []
                found += made
        return found

    def _shifted(
        self, farthest: Mapping[int, float], usual: list[Any]
    ) -> list[tuple[list[Any], _Few]]:
        """Return values with some made higher, twice, and what is made of them.

        From the usual ones on, and from those that the model begins with.

        Args:
            farthest: Of the places of these, how far a value is from zero, or moves.
            usual: Values that a step has made.
        """
        found = []
        for others in (usual, self._begins):
            pair = []
            for number in range(2):
                begins = list(others)
                for at in farthest:
                    by = shifts(self._variables[at].dtype, farthest[at])[number]
                    begins[at] = _higher(begins[at], by)
                pair.append((begins, self._from(begins)))
            if all(made for _, made in pair):
                found += pair
        return found

    def _of_shifted(
        self, at: int, shifted: Sequence[tuple[list[Any], _Few]]
    ) -> tuple[Pass, ...]:
        return tuple(self._pass(at, begins, made) for begins, made in shifted)

    def _drawn(self, begins: Sequence[Any], usual: _Few) -> list[_Few]:
        """Return what several draws make of these values; one if all make the same.

        `usual`: what the first one makes.
        """
        other = self._from(begins, draw=1)
        found = [made for made in (usual, other) if made]
        if not any(self._is_drawn(at, found) for at in self._places):
            return found[:1]
        draws = range(2, 1 + _DRAWS)
        return found + [m for n in draws if (m := self._from(begins, draw=n))]

    def _is_drawn(self, at: int, drawn: Sequence[_Few]) -> bool:
        first, *others = (made[0][at] for made in drawn)
        return not all(
            np.allclose(one, first, rtol=1e-5, equal_nan=True) for one in others
        )

    def _mean(
        self, at: int, begins: Sequence[Any], drawn: Sequence[_Few]
    ) -> Pass | None:
        """Return the mean of what several draws make of a variable."""
        passes = self._passes(at, begins, drawn)
        if not passes:
            return None
        whole, *parts = (
            np.mean(np.stack(values), axis=0)
            for values in zip(*(one.made for one in passes), strict=True)
        )
        return replace(passes[0], whole=whole, parts=(parts[0], parts[1]))

    def _passes(
        self, at: int, begins: Sequence[Any], drawn: Sequence[_Few]
    ) -> list[Pass]:
        return [self._pass(at, begins, made) for made in drawn if made]

    def _from(self, begins: Sequence[Any], *, draw: int = 0) -> _Few:
        """Return what is made of these values; nothing if that cannot be computed."""
        function = partial(self._traced, draw=draw, begins=begins)
        tried = tried_in_portions(function, *self._batch)
        return self._few([one[0] for one in tried[0]]) if tried else []

    def _few(self, reached: Sequence[Sequence[Any]]) -> _Few:
        return [
            {at: self._elements(at, one[at]) for at in self._places} for one in reached
        ]

    def _elements(self, at: int, value: Any) -> Array:
        places = self._places[at]
        flat = np.asarray(value).reshape(-1)
        return (flat if places is None else flat[places]).astype(np.float64)

    def _pass(
        self,
        at: int,
        begins: Sequence[Any],
        reached: _Few,
        first: float | None = None,
    ) -> Pass:
        whole, *parts = (one[at] for one in reached)
        begin = self._elements(at, begins[at])
        return Pass(begin, whole, (parts[0], parts[1]), first or self._first)


def untried(
    variables: Sequence[Any], assigned: Collection[int], model: keras.Model
) -> list[Movement]:
    """Return how portions move variables where none could be tried; that is told."""
    found = [MEAN] * len(variables)
    for at in _asked(variables, assigned, model):
        declared = is_sum(variables[at])
        found[at] = Movement(adds=True) if declared else MEAN
        tell_doubt(variables[at], Doubt.UNKEPT if declared else Doubt.UNTRIED)
    return found


def _asked(
    variables: Sequence[Any], assigned: Collection[int], model: keras.Model
) -> list[int]:
    """Return the places of variables of which it is not known how portions move them.

    Of flags it is, and of the statistics of Keras's own layer, which portions average,
    as what is declared so.
    """
    known = {id(variable) for variable in _averages(model)}
    return [
        at
        for at in sorted(assigned)
        if variables[at].dtype != "bool"
        and id(variables[at]) not in known
        and not is_mean(variables[at])
        and 0 not in variables[at].shape
    ]


def _places(before: Any, whole: Any) -> NDArray[np.int64] | None:
    """Return which elements are looked at; None: all of them."""
    size = before.size
    if size <= _MOST_ELEMENTS:
        return None
    half = _MOST_ELEMENTS // 2
    moved = np.flatnonzero(before.reshape(-1) != whole.reshape(-1))
    # The same for all members; at random, or a step might meet some columns alone.
    drawn = np.random.default_rng(0)
    if moved.size > half:
        moved = drawn.choice(moved, half, replace=False)
    return np.union1d(moved, drawn.choice(size, half, replace=False))


def _negated(tensor: Any) -> Any:
    dense = isinstance(tensor, tf.Tensor) and tensor.dtype.is_floating
    return -tensor if dense else tensor


def _between(value: Any, other: Any) -> Any:
    """Return what lies halfway; of integers rounded down."""
    with np.errstate(over="ignore", invalid="ignore"):
        half = (
            value / 2 + other / 2
            if value.dtype.kind not in "iu"
            else (value // 2 + other // 2)
        )
    return np.asarray(half).astype(value.dtype)


def _higher(value: Any, by: float) -> Any:
    with np.errstate(over="ignore"):
        return (value + value.dtype.type(by)).astype(value.dtype)


def _averages(model: keras.Model) -> list[Any]:
    """Return the statistics of Keras's own layer: portions average them, as told."""
    return [
        variable
        for layer in layers_of(model)
        if isinstance(layer, keras.layers.BatchNormalization)
        for variable in (layer.moving_mean, layer.moving_variance)
    ]
