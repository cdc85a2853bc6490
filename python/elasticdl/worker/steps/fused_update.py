"""The optimizer's update of a large variable in one pass over memory.

Owns which updates of Keras XLA compiles. Called by whoever traces a step that applies
gradients, before it does. Must not know the step, nor any optimizer's formula.

Keras writes an update as one operation of TensorFlow after another, each of which
reads and writes memory as large as the variable: a dozen for Adam. XLA makes one loop
of them: 6 million parameters take 6 ms instead of 18 on one core, and 8 instead of 23
with Nadam (2026-11-28). Results differ by rounding; and where a gradient or its square
is no number, which is the end of a model either way. A variable that fits the cache
gains little, and each takes 0.1 s to compile.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from elasticdl.model.optimizers import inner_optimizer

log = logging.getLogger(__name__)

_LEAST_FLOATS = 1 << 20
_MOST_VARIABLES = 32  # what compiles in some 3 s
# Those of Keras whose update is element by element.
_COMPILED = (
    *("Adadelta", "Adagrad", "Adam", "Adamax", "AdamW"),
    *("Ftrl", "Lion", "Nadam", "RMSprop", "SGD"),
)


def fuse(
    optimizer: keras.optimizers.Optimizer,
    variables: Sequence[Any],
    *,
    least_floats: int = _LEAST_FLOATS,
) -> None:
    """Have XLA compile an optimizer's update of the large ones among variables.

    Everything else of the optimizer stays as it is: clipping, decay, averages,
    accumulation; and so do gradients that come as rows.
    """
    inner = inner_optimizer(optimizer)
    if not _is_known(type(inner)) or "update_step" in vars(inner):
        return  # it is the user's own, or it has been done
    large = _largest(variables, least_floats)
    if not large or not _xla_compiles():
        return
    of_keras = inner.update_step

    def update_step(gradient: Any, variable: Any, learning_rate: Any) -> None:
        dense = not isinstance(gradient, tf.IndexedSlices)
        if dense and id(_of_tensorflow(variable)) in large:
            compiled = tf.function(
                lambda part, rate: of_keras(part, variable, rate),
                jit_compile=True,
                autograph=False,
            )
            compiled(gradient, tf.convert_to_tensor(learning_rate))
        else:
            of_keras(gradient, variable, learning_rate)

    inner.update_step = update_step


def _is_known(kind: type) -> bool:
    """Whether this is one of Keras's; a subclass may do what XLA cannot."""
    return kind.__module__.startswith("keras.") and kind.__name__ in _COMPILED


def _largest(variables: Sequence[Any], least_floats: int) -> set[int]:
    def size(variable: Any) -> int:
        return int(variable.shape.num_elements())

    found = sorted(map(_of_tensorflow, variables), key=size, reverse=True)
    return {id(v) for v in found[:_MOST_VARIABLES] if size(v) >= least_floats}


def _of_tensorflow(variable: Any) -> Any:
    """Return the variable that Keras's own holds; its updates get either."""
    return variable.value if isinstance(variable, keras.Variable) else variable


@functools.cache
def _xla_compiles() -> bool:
    """Return whether XLA is there; on a GPU its kernels would not be the fewer."""
    if tf.config.list_logical_devices("GPU"):
        return False
    try:
        tf.function(lambda x: x + 1.0, jit_compile=True, autograph=False)(
            tf.constant(1.0)
        )
    except tf.errors.OpError as error:
        log.info("Updates of variables are not compiled: %s", error)
        return False
    return True
