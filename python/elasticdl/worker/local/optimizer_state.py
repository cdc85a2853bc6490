"""What a checkpoint of strategy local keeps of an optimizer, by which names.

Owns which variables are slots, as PS have them too, and which are kept by themselves,
how these are stored, and what becomes of rates. Called by `worker.local.checkpoint`.
Knows nothing of files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from elasticdl.model.optimizer_variables import variables_of
from elasticdl.model.optimizers import base_learning_rate, inner_optimizer
from elasticdl.model.state import is_float, plain
from elasticdl.model.variables import NamedVariable

_BFLOAT16 = "bfloat16"
# Keras's name of a slot -> that of the PS, so that a checkpoint of one strategy starts
# a job of the other. Only Adam and its kin differ.
_ADAM_SLOTS = {"momentum": "m", "velocity": "v", "velocity_hat": "vhat"}


def value_of(variable: Any) -> NDArray[Any]:
    """Return a copy of a Keras variable's value."""
    return np.array(keras.ops.convert_to_numpy(variable.value))


def as_stored(variable: Any) -> NDArray[Any]:
    """Return a variable's value as a checkpoint has it; `restored` takes it back."""
    return plain(value_of(variable))


def restored(array: NDArray[Any], variable: Any) -> NDArray[Any]:
    """Return a stored value; checkpoints of before have the bits of bfloat16."""
    is_bits = array.dtype == np.uint16
    if is_bits and keras.backend.standardize_dtype(variable.dtype) == _BFLOAT16:
        wide: NDArray[Any] = array.astype(np.uint32) << 16
        return wide.view(np.float32)
    return array


class HeldRate:
    """The learning rate of an optimizer that another one holds, and its first value.

    What the module says now is only followed where it says another rate than it did.
    """

    def __init__(self, variable: Any) -> None:
        """Take a rate that is as the module said it."""
        self.variable = variable
        self._first = float(value_of(variable))

    def stored(self) -> NDArray[Any]:
        """Return what the module said, and what the rate is now."""
        return np.array([self._first, float(value_of(self.variable))], np.float64)

    @property
    def moved(self) -> bool:
        """Whether it is another one than the module said."""
        return float(value_of(self.variable)) != self._first

    def restore(self, stored: NDArray[Any] | None) -> None:
        """Go on with a stored rate, unless the module says another one by now."""
        if stored is not None and stored[0] == self._first:
            self.variable.assign(stored[1])

    def halve(self) -> None:
        """Set another rate, to see what follows it."""
        self.variable.assign(self._first / 2 or 0.5)


def held_rates(
    optimizer: keras.optimizers.Optimizer,
    beside: Sequence[keras.optimizers.Optimizer],
) -> dict[str, HeldRate]:
    """Return the rates that nobody sets, by a name: of optimizers that the job's holds.

    And those of `beside`, the further ones of a training step of the model's own.
    """
    # That of the job's optimizer is `LearningRate`'s.
    own = {
        id(getattr(one, "_learning_rate", None))
        for one in (optimizer, inner_optimizer(optimizer))
    }
    return {
        f"optimizer {number}/held rate/{place}": HeldRate(variable)
        for number, one in enumerate((optimizer, *beside))
        for place, variable in enumerate(filter(_is_rate, variables_of(one)))
        if id(variable) not in own
    }


def passed_on(
    optimizer: keras.optimizers.Optimizer, held: Mapping[str, HeldRate]
) -> list[str]:
    """Return which held rates are an optimizer's own: set with it, or read as it.

    Tried with other rates; all numbers of the optimizer are as before afterwards.
    """
    said = base_learning_rate(optimizer)
    if said is None:
        return []
    # A setter may change more than rates, and stop in the middle.
    small = [v for v in variables_of(optimizer) if not tuple(v.shape)]
    small += [rate.variable for rate in held.values()]  # of further optimizers, too
    before = [(variable, value_of(variable)) for variable in small]
    found = []
    for name, rate in held.items():
        rate.halve()
        if base_learning_rate(optimizer) != said:
            found.append(name)
        _put_back(before)
    try:
        optimizer.learning_rate = said / 2 or 0.5
        found += [name for name, rate in held.items() if rate.moved]
    except Exception:  # noqa: BLE001 - the user's own setter; nobody may set this rate
        return found
    finally:
        _put_back(before)
    return found


def _put_back(before: Sequence[tuple[Any, NDArray[Any]]]) -> None:
    for variable, value in before:
        variable.assign(value)


def _is_rate(variable: Any) -> bool:
    # One of several numbers is the user's own, and kept as any variable.
    # TensorFlow's shape is true, also of a single number.
    is_one = not tuple(variable.shape) and is_float(variable)
    return bool(variable.name == "learning_rate" and is_one)


def _is_kept_as_slot(variable: Any) -> bool:
    # Slots are float32, in which neither long integers nor float64 have room.
    dtype = keras.backend.standardize_dtype(variable.dtype)
    return is_float(variable) and dtype != "float64"


def nadam_product(beta_1: float, updates: int) -> np.float32:
    """Return Keras's `u_product`, in float32 as it multiplies it up."""
    product, half = np.float32(1), np.float32(0.5)
    for step in range(1, updates + 1):
        power = np.float32(float(np.float32(0.96)) ** step)
        product = product * np.float32(beta_1) * (1 - half * power)
        if not product:
            break
    return product


def slots_of(
    optimizer: keras.optimizers.Optimizer,
    trainable: Sequence[NamedVariable],
    count: Any,
) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """Return the optimizer's variables without step count and rate.

    They come as slot -> variable name -> it, and as others by a name.

    Slots are those that a PS has too. Keras names one `<path of the variable with _ for
    />_<slot>`. What is not named so, has another shape than its variable (the factors
    of Adafactor) or a name that two variables share is among the others, as are
    counters and scales: by its own name and how many of that name came before.
    """
    inner = inner_optimizer(optimizer)
    common = _ADAM_SLOTS if isinstance(inner, keras.optimizers.Adam) else {}
    prefixes = sorted(
        ((v.variable.path.replace("/", "_") + "_", v) for v in trainable),
        key=lambda item: -len(item[0]),
    )
    shared = Counter(prefix for prefix, _ in prefixes)
    slots: dict[str, dict[str, Any]] = {}
    others: dict[str, Any] = {}
    seen: Counter[str] = Counter()
    for variable in variables_of(optimizer):
        if variable is count or _is_rate(variable):
            continue
        fitting = ((p, v) for p, v in prefixes if variable.name.startswith(p))
        prefix, item = next(fitting, ("", None))
        fits = item is not None and variable.shape == item.shape
        if (
            item is not None
            and fits
            and shared[prefix] == 1
            and _is_kept_as_slot(variable)
        ):
            slot = variable.name.removeprefix(prefix)
            of_slot = slots.setdefault(common.get(slot, slot), {})
            # Two optimizers within one may have a slot of a variable each.
            if of_slot.setdefault(item.name, variable) is variable:
                continue
        others[f"optimizer/{variable.name}/{seen[variable.name]}"] = variable
        seen[variable.name] += 1
    return slots, others


def variables_beside(
    optimizers: Sequence[keras.optimizers.Optimizer],
) -> dict[str, Any]:
    """Return all variables of further optimizers by name, without their rates."""
    return {
        f"optimizer {number}/{variable.name}/{place}": variable
        for number, optimizer in enumerate(optimizers, 1)
        for place, variable in enumerate(variables_of(optimizer))
        if not _is_rate(variable)
    }
