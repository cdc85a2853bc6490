"""What the product names of TensorFlow and Keras, without doing anything.

Owns two empty modules: any name in them is a class that can be inherited, raised,
called and asked for more names.
"""

from __future__ import annotations

import types
from typing import Any

import numpy as np


class _Names(type(Exception)):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = _Names(name, (Exception,), {"__init__": _take_anything})
        setattr(cls, name, made)
        return made


def _take_anything(self: Any, *args: Any, **kwargs: Any) -> None:
    pass


def _module(name: str) -> types.ModuleType:
    module = types.ModuleType(name)

    def find(attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        made = _Names(attribute, (Exception,), {"__init__": _take_anything})
        setattr(module, attribute, made)
        return made

    module.__getattr__ = find  # type: ignore[method-assign]
    return module


class _Optimizers:
    class Optimizer:
        pass

    class LossScaleOptimizer(Optimizer):
        pass

    class Adam(Optimizer):
        pass

    class Nadam(Adam):
        pass

    class schedules:
        class LearningRateSchedule:
            pass


class _SeedState:
    """The variable that unseeded noise draws from; a toy draws none."""

    path = name = "seed_generator_state"
    dtype = "int64"
    shape = (2,)

    def __init__(self) -> None:
        self.value = np.zeros(2, np.int64)

    def assign(self, array: Any) -> None:
        self.value = np.array(array, np.int64)


class _SeedGenerator:
    def __init__(self) -> None:
        self.state = _SeedState()


tensorflow = _module("tensorflow")
keras = _module("keras")
keras.backend.standardize_dtype = str  # type: ignore[attr-defined]
keras.ops.convert_to_numpy = np.asarray  # type: ignore[attr-defined]
keras.optimizers = _Optimizers  # type: ignore[attr-defined]
keras.global_seed_generator = _SeedGenerator  # type: ignore[attr-defined]
