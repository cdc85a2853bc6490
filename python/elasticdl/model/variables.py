"""The model's variables under unique names, and flat buffers to and from them.

Owns the naming that workers, PS and checkpoints share, and the copies between Keras
variables and the PS's buffers. Called by the worker. Knows nothing of wires.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from elasticdl.errors import UserCodeError
from elasticdl.tensor.codec import DTYPES
from elasticdl.tensor.placement import GradientKind, Layout, Variable

Floats = NDArray[np.float32]
_CACHE_LINE = 64  # bytes; TensorFlow takes an array that begins at one uncopied
_LARGE = 1 << 20  # bytes that are copied in about a millisecond


@dataclass(frozen=True)
class NamedVariable:
    """A Keras variable and its name, which is the same in all processes."""

    name: str
    variable: Any  # keras.Variable

    @property
    def shape(self) -> tuple[int, ...]:
        """The variable's shape."""
        return tuple(int(extent) for extent in self.variable.shape)

    def numpy(self) -> NDArray[Any]:
        """Return a copy of the value."""
        return np.array(keras.ops.convert_to_numpy(self.variable.value))


def view(variable: Any) -> NDArray[Any]:
    """Return a Keras variable's value as it is now, uncopied.

    It stays: while somebody has it, TensorFlow writes new values elsewhere.
    """
    tensor = tf.convert_to_tensor(variable.value)
    # A single number of some types is none that NumPy takes over.
    return np.asarray(tensor if tensor.shape.rank else tensor.numpy())


def mismatches(
    expected: Sequence[NamedVariable],
    needed: Sequence[NamedVariable],
    arrays: Mapping[str, NDArray[Any]],
) -> list[str]:
    """Return by name and shape what arrays have in another shape, or lack.

    Args:
        expected: Those that have to fit where they are there.
        needed: Those of them that have to be there.
        arrays: What is there, by the variables' names.
    """
    wrong = [
        f"{v.name}: got {arrays[v.name].shape}, expected {v.shape}"
        for v in expected
        if v.name in arrays and arrays[v.name].shape != v.shape
    ]
    return wrong + [
        f"{v.name}: got none, expected {v.shape}"
        for v in needed
        if v.name not in arrays
    ]


def assign(variable: Any, array: NDArray[Any]) -> None:
    """Set a Keras variable.

    TensorFlow copies an array while no other thread of Python runs, for a second where
    it is some hundred megabytes large; here others run. Heartbeats are among them.
    """
    if array.nbytes < _LARGE or array.dtype != np.float32:
        variable.assign(array)
        return
    raw = np.empty(array.size + _CACHE_LINE // array.itemsize, array.dtype)
    begin = -raw.ctypes.data // array.itemsize % (_CACHE_LINE // array.itemsize)
    own = raw[begin : begin + array.size].reshape(array.shape)
    np.copyto(own, array)
    variable.assign(tf.experimental.dlpack.from_dlpack(own.__dlpack__()))


def named(variables: Sequence[Any]) -> list[NamedVariable]:
    """Return the variables by Keras path; a path's second use gets `#2`, and so on.

    The same model code gives the same names in every process.
    """
    seen: Counter[str] = Counter()
    result = []
    for variable in variables:
        path = variable.path.replace("|", "_")  # checkpoints part names by `|`
        seen[path] += 1
        suffix = f"#{seen[path]}" if seen[path] > 1 else ""
        result.append(NamedVariable(path + suffix, variable))
    return result


def refuse_unkept(model: keras.Model) -> None:
    """Raise UserCodeError for a variable of a type that no checkpoint could keep."""
    for variable in model.variables:
        dtype = keras.backend.standardize_dtype(variable.dtype)
        if dtype not in DTYPES:
            raise UserCodeError(
                f"variable `{variable.path}` is {dtype}, which cannot be kept in a "
                f"checkpoint; expected one of {', '.join(DTYPES)}: keep, say, the real "
                "and the imaginary part of complex numbers in a variable each"
            )


def trainable_variables(model: keras.Model) -> list[NamedVariable]:
    """Return the trainable variables in Keras's order, names unique.

    Raises UserCodeError for one that is not float32: the PS keep nothing else.
    """
    result = named(model.trainable_variables)
    for item in result:
        if keras.backend.standardize_dtype(item.variable.dtype) != "float32":
            raise UserCodeError(
                f"variable `{item.name}` is {item.variable.dtype}, expected float32; "
                "leave the layers' dtype at float32 (model.mixedPrecision computes in "
                "16 bits and keeps variables in float32)"
            )
    return result


def trained_variables(model: keras.Model) -> list[Any]:
    """Return Keras's trainable variables, of which a step has the gradients.

    Raises UserCodeError for one that is not float32, before anything is traced for it:
    what Keras says of such a variable names no variable.
    """
    return [item.variable for item in trainable_variables(model)]


def layout_variables(
    variables: Sequence[NamedVariable], kinds: Mapping[str, GradientKind]
) -> list[Variable]:
    """Return the input of `placement.place`; names not in `kinds` are dense."""
    return [
        Variable(v.name, v.shape, kinds.get(v.name, GradientKind.DENSE))
        for v in variables
    ]


def to_buffers(
    arrays: Sequence[NDArray[Any]], layout: Layout, *, dense_only: bool = False
) -> list[Floats]:
    """Return each PS's flat buffer from arrays in the order of layout.variables.

    With `dense_only` the buffers end after the dense pieces (a dense gradient);
    entries of `arrays` for other kinds are not looked at then.
    """
    buffers = []
    for ps, pieces in enumerate(layout.pieces):
        size = layout.dense_size(ps) if dense_only else layout.size(ps)
        buffer = np.empty(size, np.float32)
        for piece in pieces:
            if piece.offset >= size:
                break
            rows = _rows(arrays[piece.variable], layout.variables[piece.variable])
            part = rows[piece.start : piece.end].reshape(-1)
            buffer[piece.offset : piece.offset + piece.size] = part
        buffers.append(buffer)
    return buffers


def from_buffers(buffers: Sequence[Floats], layout: Layout) -> list[Floats]:
    """Return the arrays of layout.variables from the PS's buffers.

    A variable that lies on one PS is a view of its buffer; one that was cut is a copy.
    """
    parts: list[list[tuple[int, Floats]]] = [[] for _ in layout.variables]
    for buffer, pieces in zip(buffers, layout.pieces, strict=True):
        for piece in pieces:
            flat = buffer[piece.offset : piece.offset + piece.size]
            parts[piece.variable].append((piece.start, flat))
    arrays = []
    for variable, found in zip(layout.variables, parts, strict=True):
        found.sort(key=lambda item: item[0])
        flats = [flat for _, flat in found]
        whole = flats[0] if len(flats) == 1 else np.concatenate(flats or [_EMPTY])
        arrays.append(whole.reshape(variable.shape))
    return arrays


_EMPTY = np.empty(0, np.float32)


def read(variables: Sequence[NamedVariable], layout: Layout) -> list[Floats]:
    """Return the variables' values as the PS's flat buffers."""
    return to_buffers([v.numpy() for v in variables], layout)


def write(
    variables: Sequence[NamedVariable], layout: Layout, buffers: Sequence[Floats]
) -> None:
    """Set the variables from the PS's flat buffers."""
    arrays = from_buffers(buffers, layout)
    for item, array in zip(variables, arrays, strict=True):
        item.variable.value.assign(tf.convert_to_tensor(array))


def _rows(array: NDArray[Any], variable: Variable) -> NDArray[Any]:
    return np.asarray(array).reshape(variable.num_rows, variable.row_size)
