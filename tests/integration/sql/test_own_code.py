"""Claims about errors in a module of one's own that a job's `data.prepare` wrote."""

from pathlib import Path

import pytest
import tensorflow as tf
import yaml
from elasticdl.errors import UserCodeError
from elasticdl.job.names import JobDir
from elasticdl.job.spec.job import JobSpec
from elasticdl.model.definition import ModelDefinition, load_definition
from elasticdl.sql.remote import module

_FOLDER = "models/mine/.runs/job"
_NET = """\
import keras
import tensorflow as tf
{top}

def custom_model():
    {model}
    x = keras.Input((1,), name="x")
    return keras.Model({{"x": x}}, keras.layers.Dense(1, activation="sigmoid")(x))


def loss(labels, predictions):
    {loss}
    return tf.reduce_mean(tf.square(labels - predictions))


def optimizer():
    return keras.optimizers.SGD(1.0)
"""


def _definition(
    volume: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    top: str = "",
    model: str = "pass",
    loss: str = "pass",
) -> ModelDefinition:
    """Return the definition of a job with the stub, beside what the step wrote."""
    file = volume / _FOLDER / module.ZOO / "faulty" / "net.py"
    file.parent.mkdir(parents=True)
    file.write_text(_NET.format(top=top, model=model, loss=loss))
    tree = {
        "name": "job",
        "strategy": "local",
        "data": {"training": "none"},
        "model": {"definition": "faulty.net.custom_model"},
    }
    (volume / _FOLDER / "job.yaml").write_text(
        yaml.safe_dump({"kind": "job", "job": tree})
    )
    monkeypatch.chdir(volume)
    stub = {"definition": module.STUB_DEFINITION, "files": module.stub(_FOLDER)}
    return load_definition(
        JobSpec.model_validate({**tree, "model": stub}), JobDir(volume / "jobs" / "job")
    )


def test_what_ends_the_import_has_its_line_and_is_no_missing_part(
    tmp_path, monkeypatch
):
    """An AttributeError there told of a module without loss and optimizer."""
    with pytest.raises(UserCodeError, match=r"AttributeError at .*faulty/net\.py:3 in"):
        _definition(tmp_path, monkeypatch, top="BEST = keras.layers.Denser")


def test_what_the_model_raises_has_its_line(tmp_path, monkeypatch):
    made = _definition(tmp_path, monkeypatch, model="raise KeyError('units')")
    with pytest.raises(UserCodeError, match=r"KeyError at .*faulty/net\.py:6 in"):
        made.build_model()


def test_what_a_part_raises_has_its_line(tmp_path, monkeypatch):
    made = _definition(tmp_path, monkeypatch, loss="raise ValueError('no labels')")
    made.build_model()
    with pytest.raises(UserCodeError, match=r"ValueError at .*faulty/net\.py:12 in"):
        made.loss(tf.constant([1.0]), tf.constant([0.5]))
