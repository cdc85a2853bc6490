"""`checkpoint.initFrom`: another number of PS, or another strategy, same model."""

import numpy as np
import pytest
from elasticdl.checkpoint.reshard import load_all
from elasticdl.testing.claims import check_whole


@pytest.fixture
def begun(job):
    """Starts a job that stands still from its first moment."""

    def begin(name, path, **changes):
        changes.setdefault("worker", {"replicas": 1})
        return job(
            name,
            limit_seconds=60.0,
            paused=True,
            checkpoint={"initFrom": str(path), "everySeconds": 0},
            **changes,
        )

    return begin


def first_checkpoint(one):
    """What a job that stands still has; it is stopped."""
    one.wait_until(lambda s: s.checkpoint_version is not None, "a first checkpoint")
    one.handle.stop()
    return load_all(one.finish(expected=130).checkpoint)


def assert_same(mine, theirs):
    assert mine.values.keys() == theirs.values.keys()
    for name, value in theirs.values.items():
        np.testing.assert_array_equal(mine.values[name].ravel(), value.ravel())
    assert mine.slots.keys() == theirs.slots.keys()
    for slot, by_name in theirs.slots.items():
        assert mine.slots[slot].keys() == by_name.keys()
        for name, value in by_name.items():
            np.testing.assert_array_equal(
                mine.slots[slot][name].ravel(), value.ravel(), f"{slot} of {name}"
            )


def test_a_checkpoint_starts_jobs_with_other_ps_and_the_other_strategy(job, begun):
    origin = job("origin", training={"epochs": 3})
    trained = load_all(origin.finish().checkpoint)
    assert any(
        np.any(a) for by_name in trained.slots.values() for a in by_name.values()
    )
    path = origin.job_dir.checkpoints_dir

    jobs = {
        "one-ps": begun("one-ps", path, ps={"replicas": 1}),
        "three-ps": begun("three-ps", path, ps={"replicas": 3}),
        "local": begun("local", path, strategy="local"),
    }
    for one in jobs.values():
        assert_same(first_checkpoint(one), trained)

    again = begun("ps-again", jobs["local"].job_dir.checkpoints_dir)
    assert_same(first_checkpoint(again), trained)


def test_a_job_goes_on_training_from_a_local_checkpoint(job):
    origin = job(
        "local-origin",
        strategy="local",
        training={"epochs": 15},
        worker={"replicas": 1},
    )
    trained = origin.finish()
    further = job(
        "further",
        training={"epochs": 1},
        checkpoint={"initFrom": trained.checkpoint},
    )
    report = further.finish()
    check_whole(further, report)
    # One epoch from scratch comes nowhere near.
    assert report.metrics["accuracy"] > 0.9


def test_a_checkpoint_of_another_model_is_refused_by_name(job):
    origin = job("small-origin", training={"epochs": 1})
    path = origin.finish().checkpoint
    other = origin.values.job.model.files["net.py"].replace("Dense(64", "Dense(32")
    one = job(
        "other-model",
        model={"files": {"net.py": other}},
        checkpoint={"initFrom": path},
        limit_seconds=60.0,
    )
    assert one.wait_for_exit() != 0
    assert "kernel" in one.output
    assert "Traceback" not in one.output
