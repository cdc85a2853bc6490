"""Non-trainable state: what workers share, what each keeps, what never changes.

Owns the rule (docs/models.md, "State"). Called by the worker, which exchanges the
shared part through PS 0. Knows nothing of how.

    shared   float variables that training changes (moving means of BatchNormalization):
             moved by the batches of all workers (tensor/shared_state.py)
    own      everything else that changes: seed generators (offset per worker, so that
             workers do not drop out the same units), counters
    frozen   weights of layers with trainable=False: the same everywhere, not sent
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
from keras.src.random.seed_generator import global_seed_generator
from numpy.typing import NDArray

from elasticdl.model.variables import NamedVariable, named

_FLOAT32_BYTES = 4  # float32, the only type of trainable variables.
_UNSEEDED = "keras.random/seed_generator_state"
_SEED_STRIDE = 0x9E3779B1  # odd, far from small multiples of itself modulo 2^32


@dataclass(frozen=True)
class ModelState:
    """A model's non-trainable variables, by how they are shared."""

    shared: list[NamedVariable]
    own: list[NamedVariable]
    frozen: list[NamedVariable]

    @property
    def everything(self) -> list[NamedVariable]:
        """All of them, for a checkpoint of strategy local."""
        return [*self.shared, *self.own, *self.frozen]

    @property
    def moved_together(self) -> list[NamedVariable]:
        """What the steps of a group move alike: float state, counters and flags."""
        return [*self.shared, *(v for v in self.own if _is_counted(v))]


def non_trainable(model: keras.Model) -> ModelState:
    """Return the model's non-trainable variables, by how they are shared."""
    frozen_ids = _frozen_ids(model)
    shared: list[NamedVariable] = []
    own: list[NamedVariable] = []
    frozen: list[NamedVariable] = []
    # Seed generators' states are in `variables`, not in `non_trainable_variables`.
    trainable = {id(v) for v in model.trainable_variables}
    rest = [v for v in model.variables if id(v) not in trainable]
    metric_ids = {id(v) for v in getattr(model, "metrics_variables", [])}
    for item in named([v for v in rest if id(v) not in metric_ids]):
        if id(item.variable) in frozen_ids:
            frozen.append(item)
        elif is_float(item.variable) and 0 not in item.shape:
            shared.append(item)
        else:
            own.append(item)
    # No variable of the model, but what unseeded `keras.random` draws from.
    own.append(NamedVariable(_UNSEEDED, global_seed_generator().state))
    return ModelState(shared, own, frozen)


def is_float(variable: Any) -> bool:
    """Return whether a Keras variable has floats, of any number of bits."""
    dtype: str = keras.backend.standardize_dtype(variable.dtype)
    return dtype.startswith(("float", "bfloat"))


def _is_counted(item: NamedVariable) -> bool:
    dtype: str = keras.backend.standardize_dtype(item.variable.dtype)
    return dtype.startswith(("int", "uint", "bool")) and not is_seed(item)


def layers_of(model: keras.Model) -> list[Any]:
    """Return all layers, including nested ones."""
    return list(getattr(model, "_flatten_layers", lambda: model.layers)())


def _frozen_ids(model: keras.Model) -> set[int]:
    found: set[int] = set()
    for layer in layers_of(model):
        if not layer.trainable:
            found.update(id(v) for v in layer.weights)
    return found


def is_seed(item: NamedVariable) -> bool:
    """Return whether a variable is the state of a seed generator."""
    return "seed_generator" in item.name and item.shape == (2,)


def seed_for_worker(state: ModelState, worker: int) -> None:
    """Give the seed generators another stream on each worker; worker 0 keeps its own.

    Call it once, after the model was built.
    """
    for item in state.own:
        if is_seed(item):
            value = item.numpy()
            value[0] = (int(value[0]) + worker * _SEED_STRIDE) % 2**32
            item.variable.assign(value)


def read_state(variables: Sequence[NamedVariable]) -> dict[str, NDArray[Any]]:
    """Return the variables' values by name; 16-bit floats as float32.

    What NumPy itself does not know, such as bfloat16, has no place in a file or frame.
    """
    return {item.name: plain(item.numpy()) for item in variables}


def plain(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array as files and frames have it: 16-bit floats as float32."""
    wide = array.dtype.itemsize >= _FLOAT32_BYTES or array.dtype.kind in "iub"
    return array if wide else array.astype(np.float32)


def write_state(
    variables: Sequence[NamedVariable], arrays: Mapping[str, NDArray[Any]]
) -> list[str]:
    """Set variables by name; return the names missing in `arrays`."""
    missing = []
    for item in variables:
        array = arrays.get(item.name)
        if array is None:
            missing.append(item.name)
        else:
            item.variable.assign(np.asarray(array).reshape(item.shape))
    return missing
