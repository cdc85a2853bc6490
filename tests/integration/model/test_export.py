"""Exported models predict what the trained one does; old exports survive failures."""

import functools
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from elasticdl.data.formats import example
from elasticdl.errors import CheckpointError, UserCodeError
from elasticdl.model.export import export_model

from tests.integration.model.conftest import CLASSIC, COMPILED

BOTH = ["savedModel", "keras"]
SUBCLASS = CLASSIC.replace(
    CLASSIC[: CLASSIC.index("def loss")],
    """
import keras
import tensorflow as tf


class Net(keras.Model):
    def __init__(self, units=8, **kwargs):
        super().__init__(**kwargs)
        self.hidden = keras.layers.Dense(units)
        self.out = keras.layers.Dense(3)

    def call(self, inputs):
        return self.out(tf.nn.relu(self.hidden(inputs["x"])))


""",
)


def predict(path, x, key):
    signature = tf.saved_model.load(str(path)).signatures["serving_default"]
    name = next(iter(signature.structured_input_signature[1]))
    assert key in name
    return next(iter(signature(**{name: tf.constant(x)}).values())).numpy()


def test_both_forms_reload_and_predict_the_same(built, tmp_path):
    definition = built(COMPILED, "net.model")
    x = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    expected = definition.model(x).numpy()
    out = tmp_path / "new" / "out"
    paths = export_model(definition.model, out, BOTH)
    assert paths == [out / "saved_model", out / "model.keras"]
    np.testing.assert_allclose(predict(paths[0], x, "x"), expected, rtol=1e-6)
    loaded = keras.models.load_model(paths[1])
    np.testing.assert_allclose(loaded(x).numpy(), expected, rtol=1e-6)
    assert sorted(p.name for p in out.iterdir()) == ["model.keras", "saved_model"]


def test_a_subclassed_model_is_exported_by_its_features(built, tmp_path):
    definition = built(SUBCLASS, "net.Net")
    x = np.ones((3, 4), np.float32)
    paths = export_model(
        definition.model, tmp_path, BOTH, input_signature=definition.input_signature
    )
    expected = definition.model({"x": x}).numpy()
    np.testing.assert_allclose(predict(paths[0], x, "x"), expected, rtol=1e-6)
    loaded = keras.models.load_model(
        paths[1], custom_objects={"Net": type(definition.model)}
    )
    np.testing.assert_allclose(loaded({"x": x}).numpy(), expected, rtol=1e-6)


AUGMENTED = """
import keras


def model():
    image = keras.Input((4, 4, 1), name="x")
    turned = keras.layers.RandomFlip()(image)
    moved = keras.layers.RandomTranslation(0.5, 0.5)(turned)
    network = keras.Model(image, keras.layers.Dense(3)(keras.layers.Flatten()(moved)))
    network.compile("adam", "mse")
    return network
"""


PADDED = (
    SUBCLASS.replace("self.hidden(inputs", "self.words(inputs")
    .replace(
        "self.hidden = keras.layers.Dense(units)",
        "self.words = keras.layers.Embedding(9, units, name='words')",
    )
    .replace("self.out(tf.nn.relu(", "self.out(READ(")
    .replace("FixedLenFeature([4], tf.float32)", "VarLenFeature(tf.int64)")
    .replace('found["x"] * 2.0', 'tf.sparse.to_dense(found["x"])')
    .replace("dataset.map(parse)", "dataset.map(parse).padded_batch(2)")
)


@pytest.mark.parametrize(
    ("read", "width"),
    [
        ("lambda x: tf.reduce_mean(x, 1)", None),
        ("lambda x: sum(tf.unstack(x, axis=1))", 3),
    ],
    ids=["of any length", "of the first one's length alone"],
)
def test_a_model_of_padded_texts_is_served_with_texts_of_other_lengths_if_it_can_be(
    built, tmp_path, read, width
):
    code = PADDED.replace("READ(", f"({read})(")
    ids, label = np.array([1, 2, 3]), np.array([1])
    sample = [example.encode_example({"x": ids, "label": label})] * 2
    definition = built(code, "net.Net", sample=sample)
    signature = definition.input_signature
    assert signature["x"].shape.as_list() == [None, width]
    export_model(definition.model, tmp_path, BOTH[:1], input_signature=signature)
    x = np.ones((2, width or 7), np.int64)
    np.testing.assert_allclose(
        predict(tmp_path / "saved_model", x, "x"),
        definition.model({"x": x}).numpy(),
        rtol=1e-6,
    )


OF_IDS = (
    SUBCLASS.replace("self.hidden(inputs", "self.words(inputs")
    .replace(
        "self.hidden = keras.layers.Dense(units)",
        "from elasticdl.model.embedding import Embedding\n"
        "        self.words = Embedding(units, input_dim=9, combiner='mean')",
    )
    .replace("FixedLenFeature([4], tf.float32)", "VarLenFeature(tf.int64)")
)
# A batch of ragged rows has the words of a record in one row of its own.
RAGGED = 'tf.RaggedTensor.from_tensor(tf.sparse.to_dense(found["x"])[None])'


@pytest.mark.parametrize("kind", ["ragged", "sparse"])
def test_a_subclassed_model_of_ragged_or_sparse_ids_is_a_saved_model_too(
    built, tmp_path, kind
):
    features = tf.ragged.constant([[1, 2], [3]], tf.int64)
    if kind == "sparse":
        code = OF_IDS.replace('found["x"] * 2.0', 'found["x"]')
        features = features.to_sparse()
    else:
        code = OF_IDS.replace('found["x"] * 2.0', RAGGED)
        code = code.replace('inputs["x"]', 'inputs["x"].merge_dims(1, 2)')
        features = tf.expand_dims(features, 1)
    sample = [
        example.encode_example({"x": np.array(x), "label": np.array([1])})
        for x in ([1, 2], [3])
    ]
    definition = built(code, "net.Net", sample=sample)
    signature = definition.input_signature
    export_model(definition.model, tmp_path, BOTH[:1], input_signature=signature)
    loaded = tf.saved_model.load(str(tmp_path / "saved_model"))
    np.testing.assert_allclose(
        loaded.serve({"x": features}), definition.model({"x": features}), rtol=1e-6
    )


def test_a_served_model_does_not_augment_what_it_is_asked(built, tmp_path):
    definition = built(AUGMENTED, "net.model")
    x = np.random.default_rng(0).normal(size=(20, 4, 4, 1)).astype(np.float32)
    expected = definition.model(x, training=False).numpy()
    (path,) = export_model(definition.model, tmp_path, ["savedModel"])
    np.testing.assert_allclose(predict(path, x, "x"), expected, rtol=1e-5, atol=1e-6)


NAMES = ["user id", "Temp °C", "A", "a", "2i", "ü"]


@pytest.mark.parametrize("functional", [False, True])
def test_features_of_any_name_are_served(tmp_path, functional):
    """Their job failed at its end, or had no SavedModel and only a log said so."""
    features = {name: np.full((2, 1), i, np.float32) for i, name in enumerate(NAMES)}
    dense = keras.layers.Dense(3)
    if functional:
        inputs = {name: keras.Input((1,), name=name) for name in NAMES}
        outputs = dense(keras.layers.Concatenate()(list(inputs.values())))
        model, signature = keras.Model(inputs, outputs), None
    else:

        class Net(keras.Model):
            def call(self, inputs):
                return dense(tf.concat(list(inputs.values()), 1))

        model = Net()
        signature = {name: tf.TensorSpec((None, 1), name=name) for name in NAMES}
    expected = model(features)
    (path,) = export_model(model, tmp_path, ["savedModel"], input_signature=signature)
    loaded = tf.saved_model.load(str(path))
    np.testing.assert_allclose(loaded.serve(features), expected, rtol=1e-6)
    served = ["user_id", "Temp__C", "A", "a_1", "arg_2i", "arg__"]
    named = dict(zip(served, map(tf.constant, features.values()), strict=True))
    (found,) = loaded.signatures["serving_default"](**named).values()
    np.testing.assert_allclose(found, expected, rtol=1e-6)


CLOSED = SUBCLASS.replace(
    'inputs["x"]', 'tf.reshape(inputs["x"], [len(inputs["x"]), 4])'
)


@pytest.mark.parametrize("formats", [["savedModel"], BOTH])
def test_a_model_that_cannot_be_served_says_so_before_it_is_trained(
    built, records, tmp_path, caplog, formats
):
    export = {"dir": str(tmp_path / "out"), "formats": formats}
    make = functools.partial(built, CLOSED, "net.Net", sample=records[:2])
    if formats == BOTH:
        make(job={"export": export})
        assert "Net cannot be exported as savedModel" in caplog.text
        assert "model.keras alone" in caplog.text
        return
    with pytest.raises(UserCodeError, match=r"Net cannot be exported.*export\.formats"):
        make(job={"export": export})
    make(job={"export": {"formats": formats}})


NEEDS = SUBCLASS.replace("def call(self, inputs):", "def call(self, inputs, training):")


@pytest.mark.filterwarnings("ignore:Model 'net.*' had a build config")
@pytest.mark.parametrize(
    ("text", "told"), [(SUBCLASS, False), (NEEDS, True)], ids=["alone", "not alone"]
)
def test_an_archive_that_keras_would_give_new_values_is_told_of_before_training(
    built, records, tmp_path, caplog, text, told
):
    export = {"dir": str(tmp_path / "out")}
    definition = built(text, "net.Net", sample=records[:2], job={"export": export})
    assert ("load_weights" in caplog.text) == told
    (path,) = export_model(definition.model, tmp_path, ["keras"])
    features = {"x": np.ones((2, 4), np.float32)}
    expected = definition.model(features, training=False)
    net = type(definition.model)
    loaded = keras.models.load_model(path, custom_objects={"Net": net})
    same = np.allclose(loaded(features, training=False), expected, rtol=1e-6)
    assert same != told
    # As it says.
    again = net()
    again(features, training=False)
    again.load_weights(path)
    np.testing.assert_allclose(again(features, training=False), expected, rtol=1e-6)


def test_a_second_export_takes_the_place_of_the_first(built, tmp_path):
    model = built(COMPILED, "net.model").model
    (tmp_path / "mine.txt").write_text("kept")
    export_model(model, tmp_path, BOTH)
    model.set_weights([w + 1 for w in model.get_weights()])
    paths = export_model(model, tmp_path, BOTH)
    x = np.ones((1, 4), np.float32)
    np.testing.assert_allclose(
        keras.models.load_model(paths[1])(x).numpy(), model(x).numpy(), rtol=1e-6
    )
    assert (tmp_path / "mine.txt").read_text() == "kept"


def test_what_a_killed_exporter_left_is_removed_and_a_living_ones_folder_stays(
    built, tmp_path
):
    exporter = """
import os, pathlib, sys
from elasticdl.model.export import _work_folder
with _work_folder(pathlib.Path(sys.argv[1])) as folder:
    (folder / "model.keras").write_bytes(b"half")
    print(folder, flush=True)
    sys.stdin.read()
"""

    out = tmp_path / "out"
    out.mkdir()

    def exporting():
        process = subprocess.Popen(
            [sys.executable, "-c", exporter, str(out)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return process, Path(process.stdout.readline().strip())

    killed, left = exporting()
    killed.kill()
    killed.communicate()
    assert (left / "model.keras").exists()
    living, used = exporting()
    assert not left.exists()
    export_model(built(COMPILED, "net.model").model, out, ["keras"])
    assert (used / "model.keras").read_bytes() == b"half"
    living.communicate()
    assert [p.name for p in out.iterdir()] == ["model.keras"]


def test_what_keras_cannot_archive_is_left_out_with_a_warning(built, tmp_path, caplog):
    text = SUBCLASS.replace(
        "    def call(",
        "    def get_config(self):\n        raise KeyError('x')\n\n    def call(",
    )
    definition = built(text, "net.Net")
    signature = definition.input_signature
    earlier = tmp_path / "model.keras"
    earlier.write_text("of an earlier job")
    paths = export_model(definition.model, tmp_path, BOTH, input_signature=signature)
    assert [p.name for p in paths] == ["saved_model"]
    assert not earlier.exists()
    assert "cannot be exported as keras" in caplog.text
    with pytest.raises(UserCodeError, match="get_config"):
        export_model(definition.model, tmp_path, ["keras"])


def test_a_folder_that_cannot_be_made_is_named(built, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match=r"file/out: .*export\.dir"):
        export_model(built(CLASSIC).model, tmp_path / "file" / "out", BOTH)
