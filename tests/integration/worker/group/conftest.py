"""Modules of users, and records, for tests of what portions of a step make of them."""

import pytest
from elasticdl.data.reader import Metadata
from elasticdl.job.names import JobDir
from elasticdl.job.spec.job import JobSpec
from elasticdl.model.definition import load_definition
from elasticdl.model.feeding import Feeder

from tests.integration.worker.matrix import BATCH, records


@pytest.fixture(scope="module")
def data():
    return records()


@pytest.fixture
def module(tmp_path):
    """Makes a built definition and its feeder."""

    def make(case, strategy, portion, data):
        spec = JobSpec.model_validate({
            "name": "portions", "data": {"training": "none"}, "strategy": strategy,
            "training": {"batchSize": portion, **case.job.get("training", {})},
            "model": {"definition": "net.model",
                      "files": {"net.py": case.text(case.forms[0])}},
        })  # fmt: skip
        made = load_definition(spec, JobDir(tmp_path / "job"))
        made.build_model(Metadata(), data[:BATCH])
        feeder = Feeder(made, mode="training", batch_size=portion, metadata=Metadata())
        return made, feeder

    return make
