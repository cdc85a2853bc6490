"""The whole state of a member, as it goes to a newcomer.

Owns its bytes: a line that says what they are, the position in the data, then all
variables of model and optimizer. Called by `worker.group.loop`. Must not know rounds.

Not in it: the states of random generators, which are each worker's own. The optimizer's
learning rate is: an optimizer of one's own may move it beside what plans say.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from elasticdl.errors import UserCodeError
from elasticdl.model.optimizer_variables import variables_of
from elasticdl.model.state import is_seed, non_trainable
from elasticdl.model.variables import assign, trainable_variables, view
from elasticdl.worker.group.moved import MovedState
from elasticdl.worker.group.plan import Work
from elasticdl.worker.steps.learning_rate import LearningRate

_LENGTH = 8  # bytes of the number before each of the texts


class MemberState:
    """All variables of a model and its optimizer."""

    def __init__(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        moved: MovedState,
        rate: LearningRate | None = None,
    ) -> None:
        """Take a built model, its built optimizer, and how steps move the state.

        `rate`: who sets the optimizer's learning rate, also for a step under way.
        """
        self._moves = moved
        self._rate = rate
        state = non_trainable(model)
        self._moved = {id(item.variable) for item in state.moved_together}
        # Each member's own, but for counters, which steps move alike.
        self._own = {id(item.variable) for item in state.own} - self._moved
        self._variables: list[tuple[str, Any]] = [
            *((v.name, v.variable) for v in trainable_variables(model)),
            *((v.name, v.variable) for v in state.everything if not is_seed(v)),
        ]
        known = {id(variable) for _, variable in self._variables}
        self._variables += [
            (f"optimizer/{number}/{variable.name}", variable)
            for number, variable in enumerate(variables_of(optimizer))
            if id(variable) not in known
        ]

    @property
    def num_bytes(self) -> int:
        """Bytes of all variables."""
        return sum(_plain(variable).nbytes for _, variable in self._variables)

    def copied(self, work: Work, moved: Sequence[NDArray[Any]]) -> list[memoryview]:
        """Return buffers of the state, which stay as they are while steps go on.

        `moved`: the model's float state and counters, in the order of `moved_together`,
        which a step under way has changed already, as it may have the learning rate.
        """
        arrays = self._arrays(moved)
        said = json.dumps(
            [
                [name, str(array.dtype), list(array.shape)]
                for (name, _), array in zip(self._variables, arrays, strict=True)
            ]
        ).encode()
        return [
            *(memoryview(text) for text in _with_length(said)),
            *(memoryview(text) for text in _with_length(work.encoded())),
            *(memoryview(text) for text in _with_length(self._moves.described())),
            *(array.data.cast("B") for array in arrays if array.size),
        ]

    def digest(self, moved: Sequence[NDArray[Any]]) -> int:
        """Return the CRC-32 of what members have alike; `moved`: as for `copied`."""
        digest = 0
        arrays = self._arrays(moved)
        for (_, variable), array in zip(self._variables, arrays, strict=True):
            if array.size and id(variable) not in self._own:
                digest = zlib.crc32(array.data.cast("B"), digest)
        return digest

    def _arrays(self, moved: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        before = map(_known, moved)
        return [
            np.asarray(
                next(before) if id(variable) in self._moved else self._value(variable),
                order="C",
            )
            for _, variable in self._variables
        ]

    def _value(self, variable: Any) -> NDArray[Any]:
        value = _plain(variable)
        rate = None if self._rate is None else self._rate.value_of(variable)
        return value if rate is None else np.asarray(rate, value.dtype)

    def take(self, raw: bytes | bytearray) -> Work:
        """Take another member's state; return its position in the data.

        Raises UserCodeError if its model has other variables.
        """
        said, at = _text(raw, 0)
        position, at = _text(raw, at)
        moves, at = _text(raw, at)
        theirs = [
            (name, dtype, tuple(shape)) for name, dtype, shape in json.loads(said)
        ]
        mine = [
            (name, str(array.dtype), array.shape)
            for name, array in (
                (name, _plain(variable)) for name, variable in self._variables
            )
        ]
        _compare(mine, theirs)
        for (_, variable), (_, dtype, shape) in zip(
            self._variables, theirs, strict=True
        ):
            array = np.frombuffer(raw, dtype, int(np.prod(shape, dtype=int)), at)
            assign(variable, array.reshape(shape))
            at += array.nbytes
        self._moves.take(moves)
        return Work.decoded(position)


_Named = tuple[str, str, tuple[int, ...]]


def _compare(mine: Sequence[_Named], theirs: Sequence[_Named]) -> None:
    for here, there in zip(mine, theirs, strict=False):
        if here != there:
            break
    else:
        if len(mine) == len(theirs):
            return
        longer = max(mine, theirs, key=len)
        here = there = longer[min(len(mine), len(theirs))]
    raise UserCodeError(
        f"the model's variables differ between workers: `{here[0]}` {here[1:]} here, "
        f"`{there[0]}` {there[1:]} in the group; expected the same model everywhere: "
        "it must not depend on the worker, the time or a random number"
    )


def _plain(variable: Any) -> NDArray[Any]:
    return _known(view(variable))


def _known(array: NDArray[Any]) -> NDArray[Any]:
    # What NumPy has no type of its own for, such as bfloat16.
    return array if array.dtype.kind in "fiub" else array.astype(np.float32)


def _with_length(text: bytes) -> tuple[bytes, bytes]:
    return len(text).to_bytes(_LENGTH, "little"), text


def _text(raw: bytes | bytearray, at: int) -> tuple[bytes, int]:
    length = int.from_bytes(raw[at : at + _LENGTH], "little")
    begin = at + _LENGTH
    return bytes(raw[begin : begin + length]), begin + length
