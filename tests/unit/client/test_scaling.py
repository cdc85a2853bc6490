"""What `scale` may change of a job, and what it leaves alone."""

import pytest
from elasticdl.client.scaling import Scaling
from elasticdl.errors import SpecError
from elasticdl.job.spec.job import JobSpec


def spec(**fields):
    return JobSpec.model_validate(
        {
            "name": "digits",
            "model": {"definition": "digits.cnn.custom_model"},
            "data": {"training": "d"},
            **fields,
        }
    )


def test_each_flag_is_one_field_of_the_values_file():
    wanted = Scaling(workers=3, min_workers=2, max_workers=5, paused=True)
    assert wanted.edits(spec()) == {
        "job.worker.replicas": 3,
        "job.worker.min": 2,
        "job.worker.max": 5,
        "job.paused": True,
    }


def test_a_fixed_size_leaves_nothing_to_decide():
    here = spec(worker={"replicas": 3, "min": 2, "max": 9})
    assert Scaling(workers=5, fixed=True).edits(here) == {
        "job.worker.replicas": 5,
        "job.worker.min": 5,
        "job.worker.max": 5,
    }


def test_what_is_not_named_or_there_already_stays():
    here = spec(worker={"replicas": 3, "max": 5}, paused=True)
    assert Scaling(workers=3, max_workers=6).edits(here) == {"job.worker.max": 6}
    assert Scaling(max_workers=0).edits(here) == {"job.worker.max": 0}
    assert Scaling(paused=False).edits(here) == {"job.paused": False}
    assert Scaling(paused=True).edits(here) == {}


def test_no_workers_is_no_number_but_a_pause_or_the_end():
    with pytest.raises(SpecError, match=r"got 0, expected 1 or more.*--pause.*stop"):
        Scaling(workers=0).edits(spec())


@pytest.mark.parametrize("name", ["workers", "min_workers", "max_workers"])
def test_a_job_of_strategy_local_is_paused_but_not_scaled(name):
    local = spec(strategy="local")
    assert Scaling(paused=True).edits(local) == {"job.paused": True}
    with pytest.raises(SpecError, match="strategy local has one worker"):
        Scaling(**{name: 1}).edits(local)
