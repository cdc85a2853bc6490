"""The arrays of the built-in data sets, from scikit-learn or through keras.datasets.

Owns which data sets there are and where they come from. Called by `datasets`. Must not
import either package when it is imported: most roles have neither.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elasticdl.data.making.catalog import FROM_KERAS, FROM_SKLEARN, NAMES
from elasticdl.errors import DataError
from elasticdl.job.spec.problems import did_you_mean

Array = NDArray[np.generic]

# In a process of its own: Keras brings TensorFlow, which takes seconds and gigabytes
# and must not be loaded into a role that is only to fetch data.
_FETCH = """
import importlib, sys
import numpy as np
name, out = sys.argv[1:]
keras = importlib.import_module("keras")
(x, y), (test_x, test_y) = getattr(keras.datasets, name).load_data()
np.savez(out, x=x, y=y, test_x=test_x, test_y=test_y)
"""


@dataclass(frozen=True)
class Arrays:
    """A data set: rows [n, ...] and labels int64[n]; maybe with a test part."""

    x: Array
    y: NDArray[np.int64]
    test_x: Array | None = None
    test_y: NDArray[np.int64] | None = None


def load_arrays(name: str, *, python: str = sys.executable) -> Arrays:
    """Return a data set's arrays, fetched by the interpreter `python` if necessary.

    Raises DataError if the name is not known, a package is missing, or there is no
    network.
    """
    if name in FROM_SKLEARN:
        return _from_sklearn(name)
    if name in FROM_KERAS:
        return _from_keras(name, python)
    near = did_you_mean(name, NAMES)
    raise DataError(f"got the data set {name!r}, expected a built-in one; {near}")


def _from_sklearn(name: str) -> Arrays:
    try:
        datasets = importlib.import_module("sklearn.datasets")
    except ImportError as error:
        raise DataError(
            f"the data set {name} comes with scikit-learn, which is not installed; "
            "install it with `pip install 'elasticdl[examples]'`"
        ) from error
    x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    return Arrays(x, y.astype(np.int64))


def _from_keras(name: str, python: str) -> Arrays:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "arrays.npz"
        done = subprocess.run(
            [python, "-P", "-c", _FETCH, name, str(out)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            lines = done.stderr.strip().splitlines() or ["no message"]
            why = lines[-1].removeprefix("Exception: ")
            help_ = (
                "install Keras with `pip install 'elasticdl[worker]'`"
                if "No module named" in why
                else "it needs a network, once: where there is none, copy the folder "
                "~/.keras/datasets from elsewhere, or take digits, which needs none"
            )
            raise DataError(
                f"the data set {name} could not be fetched through keras.datasets: "
                f"{why}; {help_}"
            )
        with np.load(out, allow_pickle=False) as arrays:
            return Arrays(
                arrays["x"],
                arrays["y"].reshape(-1).astype(np.int64),
                arrays["test_x"],
                arrays["test_y"].reshape(-1).astype(np.int64),
            )
