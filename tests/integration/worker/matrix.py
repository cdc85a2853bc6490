"""Features of the matrix against plain Keras: what a module may say.

A case is a module's text: three forms of a model, an optimizer, what compile is told,
a feed. matrix_product.py crosses them with the optimizers; test_matrix.py runs them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import tensorflow as tf

from tests.integration.worker.matrix_texts import (
    ADDS,
    ANNEALED,
    ELSEWHERE,
    FEED,
    FEEDS,
    HEAD,
    HEADED,
    KEYWORDS,
    LAYERS,
    LISTED_OUTPUTS,
    MASKED,
    MODEL,
    MOVES,
    NOISE,
    OWN_AVERAGE,
    OWN_LOSS,
    OWN_METRIC,
    OWN_METRICS,
    OWN_STEP,
    OWN_TEST,
    RAGGED_IDS,
    RAGGED_LOSS,
    RATED,
    REPLACED,
    SEES,
    SEVERAL_RESULTS,
    SPARSE_IDS,
    SPARSE_LOSS,
    STATEFUL,
    TRACED_APART,
    TWO_INPUTS,
    TWO_LOSSES,
    TWO_OUTPUTS,
)

STRATEGIES = ("local", "sync", "async")
FORMS = ("functional", "sequential", "subclassed")

RECORDS = 29  # three batches of 8, and a short one
BATCH = 8


@dataclass(frozen=True)
class Case:
    """A module, and what is said where it is refused."""

    name: str
    layers: str = LAYERS.format(options="", middle="")
    before: str = ""  # text before the layers
    models: dict = field(default_factory=dict)  # form -> in place of its usual text
    kind: str = "keras.Model"
    forms: tuple[str, ...] = FORMS  # those that Keras has of it
    shape: str = "(6,)"
    dtype: str = "float32"
    input_options: str = ""
    optimizer: str = "keras.optimizers.Adam(0.05)"
    loss: str = SPARSE_LOSS
    compile: str = ""
    feed: str = "plain"
    job: dict = field(default_factory=dict)
    fit: dict = field(default_factory=dict)
    refused: dict = field(default_factory=dict)  # strategy -> what the sentence has
    rows: bool = False  # gradients come as rows, an id perhaps more than once
    crossed: str = ""  # the feature's name, where the optimizer is not its own
    summed: bool = False  # PS are compared with Keras on the sum of these rows
    rtol: float = 2e-4
    atol: float = 2e-5

    @property
    def feature(self) -> str:
        """Return what it is called without its optimizer."""
        return self.crossed or self.name

    def text(self, form: str) -> str:
        """Return the module."""
        compiled = f"network.compile({self.optimizer}, loss={self.loss}{self.compile})"
        made = {**MODEL, **self.models}[form].format(
            shape=self.shape,
            dtype=self.dtype,
            options=self.input_options,
            compile=compiled,
            kind=self.kind,
        )
        own = self.before + self.layers + made
        if form == "sequential":  # own classes of models too
            own = own.replace("keras.Model", "keras.Sequential")
        return HEAD + own + FEED.replace("BODY", FEEDS[self.feed])


def middle(layer: str, **options: object) -> str:
    """Return the layers with one between them."""
    return LAYERS.format(
        middle=f"{layer},\n        ", options=options.get("options", "")
    )


def records() -> list[bytes]:
    """Return the data of all cells: the same numbers each time."""
    rng = np.random.default_rng(7)
    made = []
    for number in range(RECORDS):
        x = rng.normal(size=6).astype(np.float32)
        words = rng.integers(1, 9, 5)
        words[rng.integers(1, 6) :] = 0
        ids = rng.integers(0, 20, rng.integers(0, 4)) if number >= BATCH else []
        made.append(_example(x=x, y=[int(rng.integers(0, 3))],
                             w=np.float32(rng.uniform(0.2, 3, 1)),
                             words=words, ids=np.asarray(ids, np.int64)))  # fmt: skip
    return made


def _example(**features: object) -> bytes:
    found = {}
    for name, value in features.items():
        array = np.asarray(value)
        if array.dtype.kind == "f":
            found[name] = tf.train.Feature(float_list=tf.train.FloatList(value=array))
        else:
            found[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=array))
    return tf.train.Example(
        features=tf.train.Features(feature=found)
    ).SerializeToString()


ON_PS = ("sync", "async")


def refused_on_ps(sentence: str) -> dict:
    """Return what a case has where parameter servers refuse it."""
    return dict.fromkeys(ON_PS, sentence)


ACCURACY = ', metrics=["accuracy"]'
GRAPHS = ("functional", "subclassed")  # a Sequential has one input and one output
WITH_INPUT = ("functional", "sequential")  # a subclassed model says no keras.Input
OWN_CALL = ("subclassed",)  # it may take what is no dense tensor
# Repeated ids: the parameter servers take the gradient of a row, Keras's Adam that of
# each occurrence (docs/models.md, "Repeated rows"); with SGD there is no difference.
SGD = "keras.optimizers.SGD(0.5)"
AS_KERAS = (
    Case("plain", compile=ACCURACY),
    Case("dropout", layers=middle("keras.layers.Dropout(0.4)")),
    Case("dropout with a seed", layers=middle("keras.layers.Dropout(0.4, seed=3)")),
    Case("unseeded keras.random", before=NOISE, layers=middle("Noise()")),
    Case(
        "a variable that the model does not list",
        before=ELSEWHERE,
        layers=middle("Counting()"),
    ),
    Case(
        "BatchNormalization",
        layers=middle("keras.layers.BatchNormalization(momentum=0.8)"),
    ),
    Case("LayerNormalization", layers=middle("keras.layers.LayerNormalization()")),
    Case(
        "SpectralNormalization",
        layers=middle("keras.layers.SpectralNormalization(keras.layers.Dense(8))"),
        refused=refused_on_ps("assigns its trainable variable"),
    ),
    Case(
        "constraint NonNeg",
        layers=LAYERS.format(options=', kernel_constraint="non_neg"', middle=""),
        refused=refused_on_ps("has the constraint NonNeg"),
    ),
    Case(
        "constraint MaxNorm",
        layers=LAYERS.format(
            options=", kernel_constraint=keras.constraints.MaxNorm(0.5)", middle=""
        ),
        refused=refused_on_ps("has the constraint MaxNorm"),
    ),
    Case(
        "weight regulariser",
        layers=LAYERS.format(options=', kernel_regularizer="l2"', middle=""),
    ),
    Case(
        "activity regulariser",
        layers=LAYERS.format(options=', activity_regularizer="l1"', middle=""),
    ),
    Case("add_loss", before=ADDS, layers=middle("Adds()")),
    Case("metric of a layer", before=SEES, layers=middle("Sees()"), compile=ACCURACY),
    Case("frozen layer", layers=middle("keras.layers.Dense(8, trainable=False)")),
    Case("state that its own step reads", before=MOVES, layers=middle("Moves()")),
    Case("frozen layer that moves", before=MOVES,
         layers=middle("Moves(trainable=False)"),
         refused=refused_on_ps("layer with trainable=False assigns its variable")),
    Case("mask", layers=MASKED, rows=True, optimizer=SGD, shape="(5,)",
         dtype="int32", feed="per word",  compile=ACCURACY),
    Case("mask and mixed precision", layers=MASKED, rows=True, optimizer=SGD,
         shape="(5,)", dtype="int32",
         feed="per word", compile=ACCURACY, job={"model": {"mixedPrecision": True}},
         rtol=3e-2, atol=3e-3),
    Case("mask and sample weights", layers=MASKED, rows=True, optimizer=SGD,
         shape="(5,)", dtype="int32",
         feed="per word weighted",
         compile=', weighted_metrics=["accuracy"], metrics=["accuracy"]'),
    Case("mixed precision", job={"model": {"mixedPrecision": True}},
         rtol=3e-2, atol=3e-3),
    Case("sample weights", feed="weighted",
         compile=', metrics=["accuracy"], weighted_metrics=["accuracy"]'),
    Case("class weights", job={"training": {"classWeight": {0: 1.0, 2: 4.0}}},
         fit={"class_weight": {0: 1.0, 2: 4.0}}, compile=ACCURACY),
    Case("class weights of one-hot labels", feed="one hot",
         loss="keras.losses.CategoricalCrossentropy(from_logits=True)",
         job={"training": {"classWeight": {1: 0.5, 2: 4.0}}},
         fit={"class_weight": {0: 1.0, 1: 0.5, 2: 4.0}}, compile=ACCURACY),
    Case("two inputs", models=TWO_INPUTS, forms=GRAPHS, feed="two inputs"),
    Case("two outputs with weights of losses", models=TWO_OUTPUTS,
         forms=GRAPHS, feed="two outputs", loss=TWO_LOSSES,
         compile=', loss_weights={"kind": 0.3, "size": 2.0}, '
         'metrics={"kind": ["accuracy"], "size": ["mae"]}'),
    Case("two outputs with sample weights", models=TWO_OUTPUTS, forms=GRAPHS,
         feed="two outputs weighted", loss=TWO_LOSSES,
         compile=', weighted_metrics={"kind": ["accuracy"], "size": ["mae"]}'),
    Case("a list of outputs", models=LISTED_OUTPUTS, forms=GRAPHS,
         feed="listed outputs",
         loss=f'[{SPARSE_LOSS}, "mse"]', compile=", loss_weights=[1.0, 0.5]"),
    Case("sparse ids, a batch without any", layers=SPARSE_IDS, shape="(20,)",
         dtype="int64", forms=OWN_CALL, rows=True, feed="sparse",
         optimizer="keras.optimizers.SGD(0.5)"),
    *(
        Case(f"ragged ids, {combiner}", layers=RAGGED_IDS.replace("COMBINER", combiner),
             dtype="int64", forms=OWN_CALL, rows=True, feed="ragged",
             optimizer="keras.optimizers.SGD(0.5)")
        for combiner in ("sum", "mean", "sqrtn")
    ),
    Case("own loss function", loss="lambda y, p: keras.ops.mean((p[:, 0] - "
         "keras.ops.cast(y, 'float32')) ** 2)"),
    Case("loss of sums", loss="keras.losses.SparseCategoricalCrossentropy("
         "from_logits=True, reduction='sum')"),
    Case("own compute_loss", before=OWN_LOSS, kind="Squared",
         compile=ACCURACY),
    Case("own compute_loss with state", before=OWN_AVERAGE, kind="Averaged"),
    Case("own compute_loss that reads the steps", before=ANNEALED, kind="Annealed",
         refused=refused_on_ps("reads `iteration` of the optimizer")),
    Case("own compute_loss that reads the rate", before=RATED, kind="Rated",
         # The rate of a schedule is computed of the step.
         refused=refused_on_ps("reads `(learning_rate|iteration)` of the optimizer")),
    Case("own train_step", before=OWN_STEP, kind="Doubled",
         refused=refused_on_ps(r"\.train_step runs with strategy: local alone")),
    Case("own test_step", before=OWN_TEST, kind="Tested",
         refused=refused_on_ps(r"\.test_step runs with strategy: local alone")),
    Case("own compute_metrics", before=OWN_METRICS, kind="Counted", compile=ACCURACY,
         refused=refused_on_ps(r"\.compute_metrics runs with strategy: local")),
    Case("run_eagerly", compile=", run_eagerly=True",
         refused=dict.fromkeys(STRATEGIES, "run_eagerly=True is not supported")),
    Case("steps_per_execution", compile=", steps_per_execution=1"),
    Case("jit_compile", compile=", jit_compile=True"),
    Case("stateful RNN", layers=STATEFUL,
         input_options=", batch_size=8",
         refused=dict.fromkeys(STRATEGIES, "is a stateful RNN")),
    Case("float16 layer",
         layers=LAYERS.format(options=', dtype="mixed_float16"', middle=""),
         optimizer="keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.05))",
         rtol=2e-2, atol=2e-3),
    Case("bfloat16 variables",
         layers=LAYERS.format(options=', dtype="bfloat16"', middle=""),
         refused=dict.fromkeys(STRATEGIES, "expected float32")),
    Case("own metric", before=OWN_METRIC, compile=", metrics=[Farthest(), spread]"),
    Case("metric of several results", before=SEVERAL_RESULTS,
         compile=", metrics=[Hits()]"),
    Case("call with **kwargs alone", models=KEYWORDS, forms=OWN_CALL,
         layers=middle("keras.layers.BatchNormalization(momentum=0.8),"
                       "keras.layers.Dropout(0.4)")),
    Case("call under tf.function", models=TRACED_APART, forms=OWN_CALL,
         layers=middle("keras.layers.BatchNormalization(momentum=0.8),"
                       "keras.layers.Dropout(0.4)")),
    Case("call replaced on the model", models=REPLACED, forms=OWN_CALL,
         layers=middle("keras.layers.Dropout(0.4)")),
    Case("own trainable_weights", before=HEADED, kind="Headed",
         refused=dict.fromkeys(STRATEGIES, "trainable_weights is never asked")),
    Case("floatx", before="keras.config.set_floatx('float64')\n",
         refused=dict.fromkeys(STRATEGIES, "set_floatx")),
    Case("ragged labels", before=RAGGED_LOSS, loss="off", feed="ragged labels",
         compile=", metrics=[off]"),
    # Keras looks up the rows of a kernel for sparse numbers, each row once.
    Case("Input(sparse=True)", input_options=", sparse=True", forms=WITH_INPUT,
         rows=True, feed="sparse numbers", compile=ACCURACY),
    Case("Input(ragged=True)", layers=RAGGED_IDS.replace("COMBINER", "sum"),
         shape="(1, None)", dtype="int64", input_options=", ragged=True",
         forms=WITH_INPUT, rows=True, feed="ragged", optimizer=SGD),
)  # fmt: skip
