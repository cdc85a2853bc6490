"""Scalar float32 arithmetic as Keras's TensorFlow graph has it.

Owns the functions whose NumPy float32 form differs from it in the last digit. Called by
`ps/optimizers/rules.py` and `ps/optimizers/schedules.py`.
"""

from __future__ import annotations

import numpy as np


def power(base: np.float32, exponent: np.float32 | float) -> np.float32:
    """Return `base ** exponent`, correctly rounded.

    NumPy's float32 power is off by one unit in one of five cases; in Adam's
    `1 - beta_2 ** step` that unit is up to 1e-3 of the result.
    """
    return np.float32(np.power(np.float64(base), np.float64(exponent)))
