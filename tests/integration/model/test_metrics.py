"""Metric states of parts of the data add up to those of the whole."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from elasticdl.errors import UserCodeError
from elasticdl.model.measures.metric_parts import parts_of
from elasticdl.tensor.codec import decode, encode, join
from keras.src.utils.python_utils import pythonify_logs

from tests.integration.model.conftest import CLASSIC, COMPILED, add, make_records

METRICS = """
def eval_metrics_fn():
    def right(labels, predictions):
        return tf.equal(tf.argmax(predictions, 1), labels)

    def older(predictions, labels):
        return right(labels, predictions)

    return {
        "accuracy": keras.metrics.SparseCategoricalAccuracy(),
        "top": keras.metrics.SparseTopKCategoricalAccuracy(k=2),
        "right": right,
        "older": older,
        "crossentropy": keras.metrics.SparseCategoricalCrossentropy(from_logits=True),
        "iou": keras.metrics.MeanIoU(3, sparse_y_pred=False),
    }
"""
BINARY = """
def eval_metrics_fn():
    class First:
        def __init__(self, metric):
            self.metric = metric
    return {
        "auc": keras.metrics.AUC(),
        "precision": keras.metrics.Precision(),
        "recall": keras.metrics.Recall(thresholds=0.3),
        "mae": keras.metrics.MeanAbsoluteError(),
        "r2": keras.metrics.R2Score(),
        "f1": keras.metrics.F1Score(threshold=0.5),
    }
"""
START = CLASSIC[: CLASSIC.index("def eval_metrics_fn")]


def batches(count, width, *, binary=False):
    random = np.random.default_rng(1)
    for size in (8, 8, 8, 5, 1)[:count]:
        predictions = random.uniform(size=(size, width)).astype(np.float32)
        if binary:
            labels = random.integers(0, 2, (size, width)).astype(np.float32)
        else:
            labels = random.integers(0, width, size)
        yield tf.constant(labels), tf.constant(predictions)


def summed(states):
    total = {}
    for state in states:
        # As on the wire: frames of named arrays.
        for name, array in decode(join(encode(b"", state))).tensors.items():
            total[name] = total.get(name, 0) + array
    return total


@pytest.mark.parametrize(
    ("metrics", "binary", "width"),
    [(METRICS, False, 3), (BINARY.replace("class First", "class Any"), True, 1)],
)
def test_the_sum_of_states_is_the_state_of_one_process(built, metrics, binary, width):
    text = START + metrics
    if binary:
        text = text.replace("keras.layers.Dense(3)", "keras.layers.Dense(1)").replace(
            "tf.nn.sparse_softmax_cross_entropy_with_logits(labels, predictions)",
            "tf.square(tf.cast(labels, tf.float32) - predictions)",
        )
        text = text.replace(
            '(features, found["label"])',
            '(features, tf.cast(tf.reshape(found["label"], [1]), tf.float32))',
        )
    definition = built(text)
    whole = definition.metrics()
    for labels, predictions in batches(5, width, binary=binary):
        add(whole, definition, labels, predictions)

    worker = definition.metrics()
    states = []
    for part in batches(5, width, binary=binary):
        worker.reset()
        add(worker, definition, *part)
        states.append(worker.state())
    summary = definition.metrics()
    summary.load_state(summed(states))

    assert set(summary.results()) == set(whole.names())
    for name, value in whole.results().items():
        assert summary.results()[name] == pytest.approx(value, rel=1e-5), name


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_the_sums_of_a_metric_of_16_bits_travel_as_numbers(built, kind):
    text = (
        START
        + f'''
def eval_metrics_fn():
    return {{"right": keras.metrics.SparseCategoricalAccuracy(dtype="{kind}")}}
'''
    )
    definition = built(text)
    states = []
    for part in batches(4, 3):
        worker = definition.metrics()
        add(worker, definition, *part)
        states.append(worker.state())
    whole = keras.metrics.SparseCategoricalAccuracy()
    for labels, predictions in batches(4, 3):
        whole.update_state(labels, predictions)
    summary = definition.metrics()
    summary.load_state(summed(states))
    expected = pytest.approx(float(whole.result()), rel=1e-2)
    assert summary.results()["right"] == expected


def test_results_are_those_of_keras_evaluate(built, records):
    definition = built(COMPILED, "net.model", sample=records[:2])
    data = list(batches(4, 4))
    x = np.concatenate([p.numpy() for _, p in data])
    y = np.concatenate([labels.numpy() for labels, _ in data]) % 3
    expected = definition.model.evaluate(
        x, y, batch_size=8, verbose=0, return_dict=True
    )
    metrics = definition.metrics()
    for start in range(0, len(x), 8):
        part = slice(start, start + 8)
        predictions = definition.call(tf.constant(x[part]), training=False)
        add(metrics, definition, tf.constant(y[part]), predictions)
    results = metrics.results()
    assert set(results) == {"loss", "accuracy", "top"}
    for name, value in results.items():
        assert value == pytest.approx(expected[name], rel=1e-5), name


def test_nested_metrics_are_named_after_their_output(built, records, feeder):
    text = """
import keras
import tensorflow as tf

def custom_model():
    inputs = keras.Input((4,), name="x")
    return keras.Model(inputs, {
        "one": keras.layers.Dense(3, name="one")(inputs),
        "two": keras.layers.Dense(1, name="two")(inputs)})

def loss(labels, predictions):
    return tf.reduce_mean(predictions["two"]) + tf.reduce_mean(predictions["one"])

def optimizer():
    return keras.optimizers.SGD()

def feed(dataset, mode, metadata):
    def parse(r):
        f = tf.io.parse_single_example(r, {
            "x": tf.io.FixedLenFeature([4], tf.float32),
            "label": tf.io.FixedLenFeature([], tf.int64)})
        return f["x"], {"one": f["label"], "two": f["x"][:1]}
    return dataset.map(parse)

def eval_metrics_fn():
    return {
        "one": {"accuracy": "sparse_categorical_accuracy"},
        "two": {"error": lambda labels, predictions: tf.abs(labels - predictions)},
    }
"""
    definition = built(text)
    metrics = definition.metrics()
    assert metrics.names() == ["loss", "one/accuracy", "two/error"]
    batch = next(feeder(definition).batches(records))
    predictions = definition.call(batch.features, training=False)
    add(metrics, definition, batch.labels, predictions)
    error = np.abs(batch.labels["two"].numpy() - predictions["two"].numpy()).mean()
    assert metrics.results()["two/error"] == pytest.approx(float(error), rel=1e-5)
    with pytest.raises(UserCodeError, match=r"output `one`.*only \['two'\]"):
        metrics.update(
            {"two": batch.labels["two"]}, {"two": predictions["two"]}, 0.0, 8
        )


MAXIMUM = """
class Maximum(keras.metrics.Metric):
    def __init__(self):
        super().__init__(name="maximum")
        self.most = self.add_weight(name="most", initializer="zeros")
    def update_state(self, y_true, y_pred, sample_weight=None):
        self.most.assign(tf.maximum(self.most.value, tf.reduce_max(y_pred)))
    def result(self):
        return self.most.value

def eval_metrics_fn():
    return {"maximum": Maximum()}
"""
IN_PYTHON = """
class Listed(keras.metrics.Metric):
    def __init__(self):
        super().__init__(name="listed")
        self.seen = []
    def update_state(self, y_true, y_pred, sample_weight=None):
        self.seen.append(y_true)
    def result(self):
        return len(self.seen)

def eval_metrics_fn():
    return {"listed": Listed()}
"""


def test_a_compiled_metric_that_does_not_add_up_is_named_itself(built):
    metric, _, _ = MAXIMUM.partition("def eval")
    text = COMPILED.replace("def model(", metric + "\ndef model(")
    text = text.replace("import keras\n", "import keras\nimport tensorflow as tf\n", 1)
    text = text.replace("metrics=[", "metrics=[Maximum(), ")
    definition = built(text, "net.model")
    with pytest.raises(UserCodeError, match=r"`maximum` .Maximum. does not add up"):
        add(definition.metrics(), definition, *next(batches(1, 3)))


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        (MAXIMUM, "`maximum` .Maximum. does not add up: its `most`"),
        (IN_PYTHON, "`listed` .Listed. keeps its state in Python"),
    ],
)
def test_a_metric_that_does_not_add_up_is_refused(built, metrics, message):
    definition = built(START + metrics)
    with pytest.raises(UserCodeError, match=message):
        add(definition.metrics(), definition, *next(batches(1, 3)))


def test_a_metric_of_nan_is_a_sum_as_any_other(built):
    text = (
        START
        + """
def eval_metrics_fn():
    return {"nan": lambda labels, predictions: predictions[:, 0] * float("nan")}
"""
    )
    definition = built(text)
    metrics = definition.metrics()
    for labels, predictions in batches(2, 3):
        add(metrics, definition, labels, predictions)
    assert np.isnan(metrics.results()["nan"])


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return [keras.metrics.AUC()]", "returned list, expected a dict"),
        ("return {'a': 3}", "metric `a` is 3, expected"),
        ("return {'a': keras.metrics.AUC}", "metric `a` is .*expected"),
        ("raise OSError('gone')", r"eval_metrics_fn\(\) raised OSError at .*gone"),
        (
            "return {'a': lambda labels, predictions: 1 / 0}",
            r"the metrics raised ZeroDivisionError at .*net\.py",
        ),
    ],
)
def test_metrics_that_are_none_are_refused(built, body, message):
    definition = built(f"{START}\ndef eval_metrics_fn():\n    {body}\n")
    with pytest.raises(UserCodeError, match=message):
        definition.metrics()


def test_a_metric_in_numpy_runs_as_it_is(built):
    text = (
        START
        + """
def eval_metrics_fn():
    import numpy as np
    return {
        "right": lambda labels, predictions: np.equal(
            np.argmax(predictions.numpy(), 1), labels.numpy())
    }
"""
    )
    definition = built(text)
    metrics = definition.metrics()
    for labels, predictions in batches(2, 3):
        add(metrics, definition, labels, predictions)
    assert 0 <= metrics.results()["right"] <= 1


def test_a_state_of_other_metrics_is_refused(built):
    metrics = built(CLASSIC).metrics()
    with pytest.raises(UserCodeError, match="all workers must run the same"):
        metrics.load_state({"loss/sum": np.zeros(2)})


def test_no_records_give_a_loss_of_zero(built):
    assert built(CLASSIC).metrics().results()["loss"] == 0.0
    assert keras.backend.backend() == "tensorflow"


def test_a_test_step_that_is_tried_before_the_job_changes_nothing_of_the_model(built):
    own = """
class Tested(keras.Model):
    def __init__(self, *args, **keywords):
        super().__init__(*args, **keywords)
        self.far = keras.metrics.Mean(name="far")
        self.seen = self.add_weight(initializer="zeros", trainable=False, name="seen")

    def test_step(self, data):
        x, y = data
        self.seen.assign_add(1.0)
        self.far.update_state(keras.ops.abs(self(x, training=False)))
        return {"far": self.far.result()}


"""
    text = START.replace("def custom_model", own + "def custom_model").replace(
        "keras.Model(inputs", "Tested(inputs"
    )
    definition = built(text, sample=make_records(), job={"strategy": "local"})
    metrics = definition.metrics()
    assert metrics.names() == ["far"]
    assert float(definition.model.seen) == 0.0
    assert float(definition.model.far.count) == 0.0


def test_of_two_results_of_one_name_keras_order_decides():
    results = {"second": {"share": 2.0, "b": {"a": 1.0}}, "first": {"share": 1.0}}
    named = dict(parts_of("compiled", results))
    assert named == pythonify_logs(results) == {"a": 1.0, "share": 2.0}
