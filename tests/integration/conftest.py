"""Jobs on real processes: the data, a small model, and a job to be put under test."""

import contextlib
import os
from pathlib import Path

import pytest
from elasticdl.data.making.datasets import make_dataset
from elasticdl.job.values.document import ValuesFile
from elasticdl.testing.job import JobUnderTest

from tests.prometheus.server import RULES, Prometheus, at_once, with_thresholds

# Quiet, and the same threads whatever the machine: workers share few cores.
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

MLP = (Path(__file__).parent / "models" / "net.py").read_text()
# The same model with steps of `seconds`, for what has to keep pace with them: a fast
# machine makes a step of it in less than a millisecond.
_UNHURRIED = """

import time

class Unhurried(keras.layers.Layer):
    def call(self, inputs, training=False):
        if {alone} and not training:
            return inputs
        wait = tf.numpy_function(lambda: time.sleep({seconds}) or 0.0, [], tf.double)
        with tf.control_dependencies([wait]):
            return tf.identity(inputs)

quick_model = custom_model

def custom_model():
    network = quick_model()
    network.add(Unhurried())
    return network
"""


@pytest.fixture(scope="session")
def digits(tmp_path_factory):
    """A folder with data/digits/{train,test}; the current folder of jobs."""
    root = tmp_path_factory.mktemp("work")
    make_dataset("digits", root / "data")
    return root


def merged(base, changes):
    for key, value in changes.items():
        if isinstance(value, dict) and isinstance(base.get(key), dict):
            merged(base[key], value)
        else:
            base[key] = value
    return base


@pytest.fixture(scope="session")
def digits_values():
    """Makes the values of a small digits job; arguments are parts of the job tree."""

    def make(name, **changes):
        job = {
            "name": name,
            "model": {"definition": "net.custom_model", "files": {"net.py": MLP}},
            "data": {
                "training": "data/digits/train",
                "validation": "data/digits/test",
            },
            "training": {"epochs": 40, "batchSize": 16, "batchesPerTask": 10},
            "evaluation": {"atEpochEnd": False},
            "checkpoint": {"everySeconds": 2.0},
            "ps": {"replicas": 2},
            "worker": {"replicas": 2, "threads": 1},
        }
        if changes.get("strategy", "parameterServer") != "parameterServer":
            del job["ps"]
        return ValuesFile.model_validate({"kind": "job", "job": merged(job, changes)})

    return make


@pytest.fixture(scope="session")
def unhurried():
    """Makes the model of a digits job whose steps take so many seconds at least.

    With `training_alone` they do so where it is trained, and not where it is tried.
    """

    def make(seconds, *, training_alone=False):
        text = _UNHURRIED.replace("{seconds}", str(seconds))
        text = MLP + text.replace("{alone}", str(training_alone))
        return {"definition": "net.custom_model", "files": {"net.py": text}}

    return make


@pytest.fixture
def job(digits, digits_values, tmp_path):
    """Makes a JobUnderTest; none of them outlives the test."""
    jobs = []

    def make(name, *, verb="train", options=(), limit_seconds=150.0, **changes):
        one = JobUnderTest(
            values=digits_values(name, **changes),
            jobs_dir=tmp_path / "jobs",
            cwd=digits,
            verb=verb,
            options=options,
            limit_seconds=limit_seconds,
        )
        jobs.append(one)
        return one.start()

    yield make
    for one in jobs:
        one.__exit__(None, None, None)


@pytest.fixture
def unmeasured(monkeypatch):
    """Role processes run without a tracer for coverage, which slows TensorFlow's start.

    For jobs whose code others cover too.
    """
    monkeypatch.delenv("COVERAGE_PROCESS_CONFIG", raising=False)
    monkeypatch.delenv("COVERAGE_PROCESS_START", raising=False)


@pytest.fixture
def alerts(tmp_path):
    """Makes a Prometheus with our alerts that scrapes a job; none waits to fire.

    `thresholds` are those of the chart, where the usual ones take too long.
    """
    with contextlib.ExitStack() as running:

        def watch(job, **thresholds):
            rules = at_once(with_thresholds(RULES.read_text(), **thresholds))
            targets = [job.job_dir.targets_file]
            folder = tmp_path / f"prometheus-{job.values.job.name}"
            return running.enter_context(Prometheus(folder, targets, rules=rules))

        yield watch
