"""TensorFlow computes in as many threads as it is told to."""

import os
import subprocess
import sys

import pytest
from elasticdl.worker.cpus import bound_threads


@pytest.mark.soak
def test_tensorflow_goes_by_these_variables():
    """In a process of its own: the number of threads cannot be changed."""
    code = (
        "import os, tensorflow as tf; tf.random.normal((64, 64)).numpy();"
        "print(len(os.listdir('/proc/self/task')))"
    )

    def threads(number):
        environ = dict(os.environ)
        bound_threads(number, environ)
        found = subprocess.run(
            [sys.executable, "-c", code],
            env=environ,
            check=True,
            capture_output=True,
            text=True,
        )
        return int(found.stdout)

    assert threads(9) - threads(1) == 16  # eight more of each kind
