"""`checkpoint.initFrom`: another number of PS, or another strategy, same model."""

from pathlib import Path

import numpy as np
import pytest
from elasticdl.checkpoint.reshard import load_all
from elasticdl.errors import ExitCode
from elasticdl.job.values.file import edit_values
from elasticdl.testing.claims import check_whole

# Five jobs, one after the other, take a minute alone.
pytestmark = [pytest.mark.usefixtures("unmeasured"), pytest.mark.timeout(400)]


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


@pytest.mark.soak
def test_a_checkpoint_starts_jobs_with_other_ps_and_the_other_strategy_or_is_refused(
    job, begun
):
    origin = job("origin", training={"epochs": 10})
    trained = load_all(origin.finish().checkpoint)
    assert any(
        np.any(a) for by_name in trained.slots.values() for a in by_name.values()
    )
    path = origin.job_dir.checkpoints_dir

    jobs = {
        "three-ps": begun("three-ps", path, ps={"replicas": 3}),
        "local": begun("local", path, strategy="local"),
    }
    for one in jobs.values():
        assert_same(first_checkpoint(one), trained)

    again = begun(
        "ps-again",
        jobs["local"].job_dir.checkpoints_dir,
        ps={"replicas": 1},
        training={"epochs": 1},
    )
    again.wait_until(lambda s: s.checkpoint_version is not None, "a first checkpoint")
    assert_same(load_all(again.job_dir.checkpoints_dir), trained)
    # It goes on training from there: one epoch from scratch comes nowhere near.
    edit_values(again.job_dir.spec_file, {"job.paused": False})
    report = again.finish()
    check_whole(again, report)
    assert report.metrics["accuracy"] > 0.9

    check_refused(job, origin, path)


def test_a_job_that_goes_on_from_a_checkpoint_applies_each_of_its_gradients(job):
    # Workers of both jobs have the same indices and generations.
    steps = {"training": {"maxSteps": 16}, "worker": {"replicas": 1}}
    origin = job("origin", **steps)
    before = load_all(origin.finish().checkpoint)
    path = origin.job_dir.checkpoints_dir
    later = job("later", checkpoint={"initFrom": str(path)}, **steps)
    after = load_all(later.finish().checkpoint)
    assert after.version == before.version + 16
    assert f"running: it begins with version {before.version}, {path}" in later.output
    assert "finishing: training.maxSteps (16) are made; last" in later.output


@pytest.mark.parametrize("strategy", ["allReduce", "local", "parameterServer"])
def test_an_edit_of_the_model_costs_a_job_none_of_its_checkpoints(job, strategy):
    """All are of another model than the edited one; they are whole."""
    values = {
        "strategy": strategy,
        "worker": {"replicas": 1},
        "training": {"epochs": 500},
        "checkpoint": {"everySeconds": 0.5, "keep": 3},
    }
    one = job("edited", **values)
    one.wait_until(lambda s: s.checkpoint_version, "a checkpoint")
    one.handle.stop()
    stopped = one.finish(expected=ExitCode.STOPPED)
    kept = sorted(path.name for path in one.job_dir.checkpoints_dir.iterdir())

    text = one.values.job.model.files["net.py"]
    changed = text.replace("Dense(64,", 'Dense(64, name="other",')
    assert changed != text
    other = job("edited", model={"files": {"net.py": changed}}, **values)
    assert other.wait_for_exit() in (ExitCode.STORAGE, ExitCode.USER_CODE)
    assert "other/kernel: got none, expected (64, 64)" in other.output
    assert kept == sorted(path.name for path in one.job_dir.checkpoints_dir.iterdir())

    again = job("edited", **values)
    again.wait_for_step(stopped.version + 10)
    again.end_after_this_epoch()
    check_whole(again, again.finish())


def with_optimizer(one):
    """The model of these jobs with another optimizer."""
    text = (Path(__file__).parents[1] / "models" / "net.py").read_text()
    return {"files": {"net.py": text.replace("Adam(lr)", one)}}


def test_ps_begin_with_a_checkpoint_whose_optimizer_they_cannot_run_or_say_why_not(
    job, begun
):
    origin = job(
        "origin",
        strategy="local",
        model=with_optimizer("Muon(lr)"),
        training={"maxSteps": 16},
        worker={"replicas": 1},
    )
    trained = load_all(origin.finish().checkpoint)
    path = origin.job_dir.checkpoints_dir

    one = begun("ps", path, ps={"replicas": 2}, training={"maxSteps": 16})
    one.wait_until(lambda s: s.checkpoint_version is not None, "a first checkpoint")
    begins = load_all(one.job_dir.checkpoints_dir)
    for name, value in trained.values.items():
        np.testing.assert_array_equal(begins.values[name].ravel(), value.ravel())
    assert not any(
        np.any(a) for by_name in begins.slots.values() for a in by_name.values()
    )
    for index in range(2):
        said = one.log_text("ps", index)
        assert "written with Muon, the job's optimizer is Adam" in said
    edit_values(one.job_dir.spec_file, {"job.paused": False})
    assert load_all(one.finish().checkpoint).version == trained.version + 16
    assert one.audit().ok

    refused = job(
        "refused",
        model=with_optimizer("Muon(lr)"),
        checkpoint={"initFrom": str(path)},
        limit_seconds=60.0,
    )
    assert refused.wait_for_exit() != 0
    assert "optimizer Muon: its update needs a whole variable" in refused.output


def check_refused(job, origin, path):
    """A checkpoint of another model is refused by name."""
    other = origin.values.job.model.files["net.py"].replace("Dense(64", "Dense(32")
    one = job(
        "other-model",
        model={"files": {"net.py": other}},
        checkpoint={"initFrom": str(path)},
        worker={"replicas": 1},
        limit_seconds=60.0,
    )
    assert one.wait_for_exit() != 0
    assert "kernel" in one.output
    assert "Traceback" not in one.output
