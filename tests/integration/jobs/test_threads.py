"""`worker.threads`: how much of a machine a worker takes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from elasticdl.worker.cpus import bound_threads


def compute_threads(pid):
    """The names of the threads in which TensorFlow computes."""
    names = [
        (task / "comm").read_text().strip()
        for task in Path(f"/proc/{pid}/task").iterdir()
    ]
    return [name for name in names if name == "tf_Compute"]


def test_a_worker_with_one_thread_computes_in_one(job):
    # The backward pass took a second one, so that a second worker on two cores
    # brought 1.3 times the speed of one; 1.7 times since.
    one = job("threads", worker={"replicas": 1, "threads": 1})
    one.wait_for_step(5)
    worker = one.victim("worker")
    assert len(compute_threads(worker.pid)) == 1


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
