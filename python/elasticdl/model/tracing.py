"""Graph functions that run the user's code: traced as Keras's `fit` traces.

Owns whether AutoGraph converts a function. Used wherever a model, a loss or metrics are
called. Knows nothing of what they compute.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import tensorflow as tf

log = logging.getLogger(__name__)


class GraphFunction:
    """A `tf.function` that is converted by AutoGraph only where it has to be.

    Keras's `fit` converts nothing, and for a small model the conversion is half of what
    a worker does until its first step. But a module may have an `if` or a loop on
    tensors, as classic ones had: without conversion TensorFlow refuses to trace that,
    always, so that it is found by trying.
    """

    def __init__(self, function: Callable[..., Any], **options: Any) -> None:
        """Take a Python function, and the options of `tf.function`."""
        self._python, self._options = function, options
        self._function = tf.function(function, autograph=False, **options)
        self._converts = False

    def __call__(self, *arguments: Any) -> Any:
        """Call it; a first call with arguments of a new form traces it."""
        return self._use(lambda function: function(*arguments))

    def get_concrete_function(self, *arguments: Any) -> Any:
        """Trace it for tensors, or specifications of some."""
        return self._use(lambda function: function.get_concrete_function(*arguments))

    def _use(self, how: Callable[[Any], Any]) -> Any:
        if self._converts:
            return how(self._function)
        try:
            return how(self._function)
        except Exception as error:
            if not _may_need_conversion(error):
                raise
            log.debug("traced once more, with AutoGraph: %s", error)
        converted = tf.function(self._python, **self._options)
        result = how(converted)
        self._function, self._converts = converted, True
        return result


def _may_need_conversion(error: BaseException) -> bool:
    """Return whether an error is, or was made of, what Python raises of a tensor.

    Of a tensor as a bool, a range, or to iterate over: always a TypeError. Whoever
    called the user's function may have told it in words of their own, as
    `user_code.running` does of a loss or a train_step.
    """
    found: BaseException | None = error
    while found is not None and not isinstance(found, TypeError):
        found = found.__cause__ or found.__context__
    return found is not None
