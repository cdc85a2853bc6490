"""Model modules of both forms are found, checked and used."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from elasticdl.data.reader import Metadata
from elasticdl.errors import UserCodeError
from elasticdl.job.names import JobDir
from elasticdl.job.spec.job import JobSpec
from elasticdl.model.definition import load_definition
from elasticdl.model.user_code import locate, short
from elasticdl.model.variables import trainable_variables
from pydantic import ValidationError

from tests.integration.model.conftest import CLASSIC, COMPILED, add

CLASSIC_MODEL = CLASSIC.split("def loss")[0]


def test_the_classic_form_gives_model_loss_optimizer_and_metrics(built):
    definition = built(CLASSIC)
    assert definition.model.count_params() == 4 * 8 + 8 + 8 * 3 + 3
    assert isinstance(definition.optimizer, keras.optimizers.SGD)
    assert definition.metrics().names() == ["loss", "accuracy"]
    assert json.loads(definition.optimizer_json())["class_name"] == "SGD"


def test_a_schedule_that_keras_cannot_serialize_is_the_models_mistake(built):
    schedule = "keras.optimizers.schedules.LearningRateSchedule()"
    definition = built(CLASSIC.replace("SGD(lr)", f"SGD({schedule})"))
    with pytest.raises(UserCodeError, match=r"optimizer raised .*get_config"):
        definition.optimizer_json()


def test_the_short_form_takes_everything_from_the_compiled_model(built, records):
    definition = built(COMPILED, "net.model", sample=records[:2])
    assert isinstance(definition.optimizer, keras.optimizers.Adam)
    assert definition.metrics().names() == ["loss", "accuracy", "top"]
    predictions = tf.constant([[0.2, 0.5, 0.3], [1.0, 0.0, 0.0]])
    loss = definition.loss(tf.constant([1, 0]), predictions)
    assert float(loss) == pytest.approx(-np.log(0.5) / 2, rel=1e-4)


def test_params_reach_the_model_function(built):
    definition = built(CLASSIC, params={"units": 5})
    assert definition.model.layers[1].units == 5


def test_unknown_params_are_refused_with_what_there_is(define):
    with pytest.raises(UserCodeError, match=r"`unit`.*does not take.*`units`"):
        define(CLASSIC, params={"unit": 5}).build_model()


def test_missing_params_are_named(define):
    text = CLASSIC.replace("units=8", "units")
    with pytest.raises(UserCodeError, match=r"needs `units`.*model\.params"):
        define(text).build_model()


def test_a_model_class_may_be_named_and_is_built_from_the_feed(built, records):
    text = CLASSIC.replace(
        CLASSIC_MODEL,
        """
import keras
import tensorflow as tf

class Net(keras.Model):
    def __init__(self, units=8):
        super().__init__()
        self.hidden = keras.layers.Dense(units)
        self.out = keras.layers.Dense(3)

    def call(self, inputs, training=False):
        return self.out(tf.nn.relu(self.hidden(inputs["x"])))

""",
    )
    definition = built(text, "net.Net")
    assert len(definition.model.weights) == 4
    assert definition.input_signature["x"].shape.as_list() == [None, 4]


def test_names_and_values_are_the_same_however_often_a_model_is_built(define):
    first = define(CLASSIC, job={"training": {"seed": 3}})
    one = [(v.name, v.numpy()) for v in trainable_variables(first.build_model())]
    keras.layers.Dense(2)  # layers of other code do not count
    second = define(CLASSIC, job={"training": {"seed": 3}})
    two = [(v.name, v.numpy()) for v in trainable_variables(second.build_model())]
    assert [n for n, _ in one] == [n for n, _ in two]
    assert all(np.array_equal(a, b) for (_, a), (_, b) in zip(one, two, strict=True))


def test_inline_files_take_the_place_of_the_zoo(tmp_path, define):
    definition = define(
        "", "pkg.net.custom_model", files={"pkg/net.py": CLASSIC}, zoo="nowhere"
    )
    definition.build_model()
    assert (tmp_path / "job" / "model" / "pkg" / "net.py").is_file()


def test_inline_files_stay_inside_their_folder(define):
    with pytest.raises(ValidationError, match="inside the model's folder"):
        define("", files={"../net.py": CLASSIC})


def test_a_relative_zoo_begins_at_the_base_that_is_given(tmp_path):
    (tmp_path / "zoo").mkdir()
    (tmp_path / "zoo" / "net.py").write_text(CLASSIC)
    tree = {
        "name": "test",
        "data": {"training": "somewhere"},
        "model": {"zoo": "zoo", "definition": "net.custom_model"},
    }
    spec, job_dir = JobSpec.model_validate(tree), JobDir(tmp_path / "job")
    load_definition(spec, job_dir, base=tmp_path)
    with pytest.raises(UserCodeError, match="zoo zoo is not a folder"):
        load_definition(spec, job_dir)


def test_dotted_names_take_a_part_from_another_file(tmp_path, built):
    zoo = tmp_path / "zoo"
    zoo.mkdir()
    (zoo / "other.py").write_text(
        "import keras\ndef adam():\n    return keras.optimizers.Adam()\n"
    )
    definition = built(CLASSIC, optimizer="other.adam")
    assert isinstance(definition.optimizer, keras.optimizers.Adam)


@pytest.mark.parametrize("names", [("output", "labels"), ("y_pred", "y_true")])
def test_a_loss_may_name_the_predictions_first(built, names):
    predictions, labels = names
    text = CLASSIC.replace(
        "def loss(labels, predictions)", f"def loss({predictions}, {labels})"
    )
    text = text.replace(
        "with_logits(labels, predictions)", f"with_logits({labels}, {predictions})"
    )
    definition = built(text)
    value = definition.loss(tf.constant([1]), tf.constant([[0.0, 5.0, 0.0]]))
    assert float(value) < 0.1


def test_regularisers_are_part_of_the_training_loss_alone(built):
    text = CLASSIC.replace(
        'activation="relu")', 'activation="relu", kernel_regularizer="l2")'
    )
    definition = built(text)
    features = {"x": tf.ones([2, 4])}
    labels = tf.constant([0, 1])
    predictions = definition.call(features["x"], training=True)
    plain = float(definition.loss(labels, predictions))
    whole = float(definition.training_loss(features, labels, predictions))
    kernel = definition.model.layers[1].kernel.numpy()
    assert whole - plain == pytest.approx(0.01 * np.sum(kernel**2), rel=1e-3)


def test_mixed_precision_keeps_variables_and_losses_in_float32(built, feeder, records):
    definition = built(CLASSIC, mixedPrecision=True)
    batch = next(feeder(definition).batches(records))
    assert definition.model(batch.features).dtype == tf.bfloat16
    predictions = definition.call(batch.features, training=True)
    assert predictions.dtype == tf.float32
    assert definition.loss(batch.labels, predictions).dtype == tf.float32
    assert {v.variable.dtype for v in trainable_variables(definition.model)} == {
        "float32"
    }


POLICIES = {
    "mixed_float16": 'keras.mixed_precision.set_global_policy("mixed_float16")',
    "mixed_bfloat16": 'keras.config.set_dtype_policy("mixed_bfloat16")',
}


@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_that_the_module_sets_holds_for_its_layers_alone(built, policy):
    text = CLASSIC.replace("import keras\n", f"import keras\n{POLICIES[policy]}\n", 1)
    model = built(text).model
    assert {layer.dtype_policy.name for layer in model.layers[1:]} == {policy}
    mixed = built(text, mixedPrecision=True).model
    assert mixed.layers[1].dtype_policy.name == "mixed_bfloat16"
    assert built(CLASSIC).model.layers[1].dtype_policy.name == "float32"


def test_several_outputs_have_losses_and_metrics_of_their_own(built, feeder, records):
    text = """
import keras

def model():
    inputs = keras.Input((4,), name="x")
    a = keras.layers.Dense(3, activation="softmax", name="a")(inputs)
    b = keras.layers.Dense(1, name="b")(inputs)
    network = keras.Model(inputs, {"a": a, "b": b})
    network.compile(
        "sgd",
        loss={"a": "sparse_categorical_crossentropy", "b": "mse"},
        metrics={"a": ["accuracy"], "b": ["mae"]},
    )
    return network

def feed(dataset, mode, metadata):
    import tensorflow as tf
    def parse(r):
        f = tf.io.parse_single_example(r, {
            "x": tf.io.FixedLenFeature([4], tf.float32),
            "label": tf.io.FixedLenFeature([], tf.int64)})
        return f["x"], {"a": f["label"], "b": f["x"][:1]}
    return dataset.map(parse)
"""
    definition = built(text, "net.model")
    metrics = definition.metrics()
    batch = next(feeder(definition).batches(records))
    predictions = definition.call(batch.features, training=False)
    add(metrics, definition, batch.labels, predictions)
    names = {"loss", "a_loss", "b_loss", "a_accuracy", "b_mae"}
    assert set(metrics.results()) == names


# What is wrong is said in one line.


def test_a_missing_file_is_named_with_what_is_there(define):
    with pytest.raises(UserCodeError, match=r"no file .*nett\.py; did you mean `net`"):
        define(CLASSIC, "nett.custom_model")


def test_a_missing_zoo_is_named(define):
    with pytest.raises(UserCodeError, match=r"zoo nowhere is not a folder"):
        define(CLASSIC, zoo="nowhere")


def test_a_definition_without_a_file_is_refused(tmp_path):
    with pytest.raises(UserCodeError, match=r"expected `folder.file.function`"):
        locate(tmp_path, "custom_model")


def test_a_missing_function_is_named_with_what_is_there(define):
    with pytest.raises(UserCodeError, match=r"no function or class `model`.*did you"):
        define(CLASSIC, "net.model")


def test_a_named_symbol_that_is_not_there_is_refused(define):
    with pytest.raises(UserCodeError, match=r"model\.evalMetrics names `metrics`"):
        define(CLASSIC, evalMetrics="metrics")


def test_an_import_error_tells_file_and_line(define):
    with pytest.raises(UserCodeError, match=r"net\.py:1.*No module named 'nothing_h"):
        define("import nothing_here\n")


def test_a_syntax_error_tells_file_and_line(define):
    with pytest.raises(UserCodeError, match=r"SyntaxError at .*net\.py:2"):
        define("x = 1\ndef :\n")


def test_a_model_function_that_raises_tells_file_and_line(define):
    text = "import keras\n\n\ndef custom_model():\n    return 1 / 0\n"
    with pytest.raises(UserCodeError, match=r"net\.py:5 in custom_model: division"):
        define(text).build_model()


def test_a_model_function_that_returns_nothing_is_told_so(define):
    with pytest.raises(UserCodeError, match=r"returned None, expected a keras\.Model"):
        define("def custom_model():\n    pass\n").build_model()


def test_neither_compiled_nor_classic_is_refused_with_both_ways_out(define):
    with pytest.raises(UserCodeError, match=r"no `loss` and no `optimizer`.*compile"):
        define(CLASSIC_MODEL).build_model()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return tf.square(predictions[:, 0])", r"shape \(None,\).*tf\.reduce_mean"),
        ("return None", r"returned None"),
        ("return tf.constant(1)", r"returned int32, expected a floating"),
        ("return tf.reduce_mean(nothing)", r"net\.py:\d+ in loss: .*nothing"),
        ("raise KeyError('gone')", r"raised KeyError at .*net\.py:\d+ in loss"),
    ],
)
def test_a_loss_that_is_no_number_is_refused_before_training(define, body, message):
    start = CLASSIC.index("    return tf.reduce_mean(")
    end = CLASSIC.index("def optimizer")
    text = f"{CLASSIC[:start]}    {body}\n\n\n{CLASSIC[end:]}"
    with pytest.raises(UserCodeError, match=message):
        define(text).build_model()


def test_an_optimizer_of_another_library_is_refused(define):
    text = CLASSIC.replace("keras.optimizers.SGD(lr)", "'sgd'")
    with pytest.raises(UserCodeError, match=r"returned str, expected an optimizer of"):
        define(text).build_model()


CHANGED_OPTIMIZERS = {
    "    made.apply = lambda *_: None": r"SGD\.apply was replaced on the optimizer",
    "    made.update_step = lambda *_: None": r"SGD\.update_step was replaced",
    "    made.iterations.assign(100)": r"begins at step 100 \(iterations\)",
    "    made = Half(made)": "Half is a LossScaleOptimizer of the user's own",
    "    made = keras.optimizers.LossScaleOptimizer(made)\n"
    "    made.inner_optimizer.apply = lambda *_: None": r"SGD\.apply was replaced",
}


@pytest.mark.parametrize("strategy", ["parameterServer", "local"])
@pytest.mark.parametrize("line", CHANGED_OPTIMIZERS)
def test_what_the_ps_are_not_told_of_an_optimizer_is_refused(define, line, strategy):
    text = CLASSIC.replace(
        "    return keras.optimizers.SGD(lr)",
        f"    made = keras.optimizers.SGD(lr)\n{line}\n    return made",
    )
    text += "\n\nclass Half(keras.optimizers.LossScaleOptimizer):\n    pass\n"
    definition = define(text, job={"strategy": strategy})
    if strategy == "local":
        definition.build_model()
        return
    with pytest.raises(UserCodeError, match=CHANGED_OPTIMIZERS[line]):
        definition.build_model()


@pytest.mark.parametrize("kind", ["Adam", "Nadam", "Ftrl", "Lion", "RMSprop"])
def test_keras_own_optimizers_are_not_taken_for_changed_ones(define, kind):
    made = f"keras.optimizers.LossScaleOptimizer(keras.optimizers.{kind}(lr))"
    define(CLASSIC.replace("keras.optimizers.SGD(lr)", made)).build_model()


@pytest.mark.parametrize(
    ("says", "message"),
    [
        ("None", r"learning_rate of the optimizer Own is None; expected a number"),
        ("self.rat", r"the optimizer's learning_rate raised AttributeError at .*:\d+"),
    ],
)
def test_a_learning_rate_that_cannot_be_read_is_the_models_mistake(
    define, says, message
):
    own = (
        "\nclass Own(keras.optimizers.SGD):\n"
        f"    learning_rate = property(lambda self: {says}, lambda self, rate: None)\n"
    )
    text = CLASSIC.replace("keras.optimizers.SGD(lr)", "Own(lr)") + own
    with pytest.raises(UserCodeError, match=message):
        define(text).build_model()


def test_a_model_without_weights_is_refused(define):
    text = CLASSIC.replace("keras.layers.Dense(3)(hidden)", "inputs").replace(
        'keras.layers.Dense(units, activation="relu")(inputs)', "inputs"
    )
    with pytest.raises(UserCodeError, match="without weights"):
        define(text).build_model()


def test_variables_that_no_checkpoint_keeps_are_refused(define):
    """A job would train, and wait for its first checkpoint for ever."""
    filtering = """
class Filter(keras.layers.Layer):
    def build(self, shape):
        self.phase = self.add_weight(
            name="phase", shape=(2,), dtype="complex64", initializer="zeros",
            trainable=False)

    def call(self, inputs):
        return inputs
"""
    head, rest = CLASSIC.replace("(inputs)", "(Filter()(inputs))", 1).split("def ", 1)
    with pytest.raises(UserCodeError, match=r"/phase` is complex64, .* kept in a"):
        define(head + filtering + "\n\ndef " + rest).build_model()


def test_variables_that_are_not_float32_are_refused(built):
    definition = built(CLASSIC.replace("Dense(3)", "Dense(3, dtype='float64')"))
    with pytest.raises(UserCodeError, match=r"float64, expected float32"):
        trainable_variables(definition.model)


def test_the_message_is_one_line_and_the_cause_is_kept(define):
    text = "def custom_model():\n    raise ValueError('first\\nsecond')\n"
    with pytest.raises(UserCodeError) as caught:
        define(text).build_model()
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value.__cause__, ValueError)


# The module's other parts.


def test_a_reader_of_the_module_reads_ranges(define):
    text = (
        CLASSIC
        + """
from elasticdl.python.data.reader.data_reader import AbstractDataReader, Metadata

class Reader(AbstractDataReader):
    def create_shards(self):
        return {"table": (0, 10), "more": (5, 3)}

    def read_records(self, task):
        for i in range(task.start, task.end):
            yield f"{task.shard_name}-{task.shard.name}-{i}".encode()

    @property
    def metadata(self):
        return Metadata(column_names=("a", "b"))

def custom_data_reader(data_origin, records_per_task=None, **kwargs):
    assert data_origin == "origin" and records_per_task == 64 * 8
    return Reader(**kwargs)
"""
    )
    reader = define(text).custom_reader("origin")
    assert [(s.source, s.start, s.end) for s in reader.shards()] == [
        ("table", 0, 10),
        ("more", 5, 8),
    ]
    assert reader.read("more", 6, 8, skip_bad=False).values == [
        b"more-more-6",
        b"more-more-7",
    ]
    assert reader.metadata.column_names == ("a", "b")


def test_what_a_reader_of_the_module_does_not_take_is_refused(define):
    text = (
        CLASSIC
        + """
from elasticdl.python.data.reader.data_reader import AbstractDataReader

class Reader(AbstractDataReader):
    def create_shards(self):
        return {}

    def read_records(self, task):
        return []

def custom_data_reader(origin, columns="all"):
    return Reader()
"""
    )

    def reading(**params):
        return {"data": {"training": "somewhere", "readerParams": params}}

    taken = define(text, job=reading(columns="one"))
    assert taken.custom_reader("here") is not None
    wrong = define(text, job=reading(column="one"))
    with pytest.raises(UserCodeError, match=r"has `column`, .* did you mean `columns`"):
        wrong.custom_reader("here")


def test_a_reader_may_give_lists_of_values(built, feeder):
    text = CLASSIC.replace(
        CLASSIC[CLASSIC.index("def feed") : CLASSIC.index("def eval_metrics_fn")],
        """
def feed(dataset, mode, metadata):
    def parse(row):
        values = tf.strings.to_number(row)
        return {"x": values[:4]}, tf.cast(values[4], tf.int32)
    return dataset.map(parse)

class Rows:
    records_output_types = tf.string
    def create_shards(self):
        return {"rows": (0, 20)}
    def read_records(self, task):
        for i in range(task.shard.start, task.shard.end):
            yield [str(i), "1", "2", "3", str(i % 3)]

def custom_data_reader(data_origin):
    return Rows()

""",
    )
    definition = built(text, metadata=Metadata(extra={"record_dtype": "string"}))
    reader = definition.custom_reader("here")
    batches = list(
        feeder(definition, metadata=reader.metadata).batches(
            reader.read("rows", 0, 20, skip_bad=False).values
        )
    )
    assert sum(b.num_records for b in batches) == 20
    assert batches[0].features[1].numpy().tolist() == [1.0, 1.0, 2.0, 3.0]


def test_an_outputs_processor_is_made_and_checked(define):
    text = (
        CLASSIC
        + """
from elasticdl.python.worker.prediction_outputs_processor import (
    BasePredictionOutputsProcessor,
)

class PredictionOutputsProcessor(BasePredictionOutputsProcessor):
    def process(self, predictions, worker_id):
        return worker_id
"""
    )
    assert define(text).outputs_processor().process([], 3) == 3
    assert define(CLASSIC).outputs_processor() is None
    with pytest.raises(UserCodeError, match="no method `process"):
        define(
            CLASSIC + "class PredictionOutputsProcessor:\n    pass\n"
        ).outputs_processor()


def test_an_error_out_of_a_py_function_is_told_without_its_trace():
    text = (
        "{{function_node __wrapped__IteratorGetNext}} ValueError: feed broke\n"
        "Traceback (most recent call last):\n\n    return func(device, token, args)\n"
    )
    assert short(RuntimeError(text)) == "ValueError: feed broke"


# Labels and weights as Keras's fit takes them.

RAGGED = CLASSIC.replace(
    '(features, found["label"])',
    "(features, tf.RaggedTensor.from_row_lengths(tf.ones([3]), [1, 2]))",
).replace(
    "tf.nn.sparse_softmax_cross_entropy_with_logits(labels, predictions)",
    "tf.reduce_sum(labels.to_tensor(), [1, 2]) - predictions[:, 0]",
)
WEIGHTED = CLASSIC.replace(
    '(features, found["label"])', '(features, found["label"], 2.0)'
)


def test_a_loss_of_ragged_labels_is_traced_with_ragged_labels(built, records):
    definition = built(RAGGED, sample=records[:2])
    assert definition.model.built


def test_a_feed_may_pad_batches_smaller_than_the_jobs(built, feeder, records):
    text = CLASSIC.replace(
        "return dataset.map(parse)",
        "return dataset.map(parse).map(lambda x, y: (x, tf.repeat(y, y + 1)))"
        ".padded_batch(2)",
    ).replace(
        "tf.nn.sparse_softmax_cross_entropy_with_logits(labels, predictions)",
        "tf.cast(tf.reduce_sum(labels, 1), tf.float32) * predictions[:, 0]",
    )
    definition = built(text, sample=records[:8])
    sizes = [batch.num_records for batch in feeder(definition).batches(records)]
    assert sizes == [2] * 25


def test_weights_go_to_a_loss_function_with_a_third_parameter(built, records, feeder):
    text = WEIGHTED.replace("loss(labels, predictions)", "loss(labels, p, weights)")
    text = text.replace("(labels, predictions)\n    )", "(labels, p) * weights\n    )")
    definition = built(text, sample=records[:8])
    batch = next(feeder(definition).batches(records))
    predictions = definition.call(batch.features, training=False)
    weighted = definition.loss(batch.labels, predictions)
    plain = definition.loss(
        batch.labels._replace(weights=tf.ones_like(batch.labels.weights)), predictions
    )
    assert float(weighted) == pytest.approx(2 * float(plain), rel=1e-5)


def test_weights_that_nothing_takes_are_refused(built, records):
    with pytest.raises(UserCodeError, match="give it a third parameter `weights`"):
        built(WEIGHTED, sample=records[:8])


def test_class_weights_beside_sample_weights_are_refused(built, records):
    job = {"training": {"classWeight": {0: 2.0}}}
    with pytest.raises(UserCodeError, match="expected one of the two"):
        built(WEIGHTED, sample=records[:8], job=job)


OWN_WAYS = {
    "def compute_loss(self, **_):\n        return 0.0": (
        "compute_loss of its own, and the module has the loss function `loss` too"
    ),
    "def test_step(self, data):\n        return {}": (
        "test_step of its own, which does not use `eval_metrics_fn`"
    ),
    "def compute_metrics(self, x, y, y_pred, sample_weight=None):\n        return {}": (
        "compute_metrics of its own, which does not use `eval_metrics_fn`"
    ),
}


@pytest.mark.parametrize("method", OWN_WAYS)
def test_a_function_of_the_module_that_a_method_of_the_model_passes_over_is_refused(
    define, method
):
    own = f"class Own(keras.Model):\n    {method}\n\n\ndef custom_model"
    text = CLASSIC.replace("def custom_model", own, 1)
    text = text.replace("return keras.Model(", "return Own(")
    with pytest.raises(UserCodeError, match=OWN_WAYS[method]):
        define(text, job={"strategy": "local"}).build_model()
