"""Which PS owns which rows of which variable, agreed once per job.

Owns the layout of the parameters: every worker computes the same one from the model,
every PS keeps the one it was given. Pure. Knows nothing of wires or optimizers.

Greedy by bytes: the largest piece goes to the PS with the least; a variable larger
than a fair share is cut by rows first, so no PS gets twice the load of another.
"""

from __future__ import annotations

import enum
import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property

FLOAT_BYTES = 4  # float32, the only type on a PS.


class GradientKind(enum.StrEnum):
    """The form of a variable's gradient."""

    DENSE = "dense"
    ROWWISE = "rowwise"  # IndexedSlices: row numbers and rows
    FROZEN = "frozen"  # no gradient reaches it; never updated, still exported


@dataclass(frozen=True)
class Variable:
    """A trainable variable of the model: float32, `name` is its unique Keras path."""

    name: str
    shape: tuple[int, ...]
    kind: GradientKind = GradientKind.DENSE

    @property
    def row_size(self) -> int:
        """Floats in one row (of axis 0); the whole variable if it is a scalar."""
        size = 1
        for extent in self.shape[1:]:
            size *= extent
        return size

    @property
    def num_rows(self) -> int:
        """Rows of axis 0; 1 for a scalar."""
        return self.shape[0] if self.shape else 1


@dataclass(frozen=True)
class Piece:
    """Rows [start, end) of a variable on one PS, at `offset` floats of its buffer."""

    variable: int  # index into Layout.variables
    start: int
    end: int
    offset: int
    size: int  # floats


@dataclass(frozen=True)
class Layout:
    """All variables and, per PS, its pieces in the order of its flat buffer.

    In each buffer the dense pieces come first, so a dense gradient is the prefix
    `[0, dense_size(ps))` of it; then row-wise, then frozen ones.
    """

    variables: tuple[Variable, ...]
    pieces: tuple[tuple[Piece, ...], ...]

    @property
    def num_ps(self) -> int:
        """Number of PS."""
        return len(self.pieces)

    def size(self, ps: int) -> int:
        """Return the floats in the buffer of one PS."""
        return sum(piece.size for piece in self.pieces[ps])

    def dense_size(self, ps: int) -> int:
        """Return the floats of the dense prefix of that buffer."""
        return sum(
            piece.size
            for piece in self.pieces[ps]
            if self.variables[piece.variable].kind is GradientKind.DENSE
        )

    @cached_property
    def cut(self) -> frozenset[str]:
        """Names of the variables with more than one piece."""
        held = Counter(piece.variable for ps in self.pieces for piece in ps)
        return frozenset(self.variables[v].name for v, n in held.items() if n > 1)

    @cached_property
    def digest(self) -> str:
        """Hash by which two sides compare layouts."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:16]

    def to_json(self) -> str:
        """Return the layout as JSON; `from_json` reads it."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> Layout:
        """Return the layout that `to_json` wrote."""
        tree = json.loads(text)
        return Layout(
            variables=tuple(
                Variable(v["name"], tuple(v["shape"]), GradientKind(v["kind"]))
                for v in tree["variables"]
            ),
            pieces=tuple(
                tuple(Piece(**piece) for piece in ps) for ps in tree["pieces"]
            ),
        )


_ORDER = {GradientKind.DENSE: 0, GradientKind.ROWWISE: 1, GradientKind.FROZEN: 2}


def place(variables: Sequence[Variable], num_ps: int) -> Layout:
    """Distribute the variables over `num_ps` PS, deterministically."""
    total = sum(v.num_rows * v.row_size for v in variables)
    fair = -(-total // num_ps) if total else 1
    cuts: list[tuple[int, int, int, int]] = []  # size, variable, start row, end row
    for index, variable in enumerate(variables):
        size = variable.num_rows * variable.row_size
        parts = min(variable.num_rows, -(-size // fair)) if num_ps > 1 and size else 1
        for part in range(parts):
            start = variable.num_rows * part // parts
            end = variable.num_rows * (part + 1) // parts
            cuts.append(((end - start) * variable.row_size, index, start, end))
    loads = [0] * num_ps
    chosen: list[list[tuple[int, int, int, int]]] = [[] for _ in range(num_ps)]
    for cut in sorted(cuts, key=lambda c: (-c[0], c[1], c[2])):
        target = min(range(num_ps), key=lambda ps: (loads[ps], ps))
        loads[target] += cut[0]
        chosen[target].append(cut)
    pieces = []
    for mine in chosen:
        mine.sort(key=lambda c: (_ORDER[variables[c[1]].kind], c[1], c[2]))
        offset = 0
        laid = []
        for size, index, start, end in mine:
            laid.append(Piece(index, start, end, offset, size))
            offset += size
        pieces.append(tuple(laid))
    return Layout(tuple(variables), tuple(pieces))
