"""Pieces of text that the modules of the matrix are put together of.

Owns the three forms of a model, feeds, and layers and models with a way of their own.
"""

from __future__ import annotations

HEAD = """
import keras
import numpy as np
import tensorflow as tf
"""
MODEL = {
    "functional": """
def model():
    inputs = keras.Input({shape}, dtype="{dtype}"{options})
    hidden = inputs
    for layer in layers():
        hidden = layer(hidden)
    network = {kind}(inputs, hidden)
    {compile}
    return network
""",
    "sequential": """
def model():
    network = {kind}(
        [keras.Input({shape}, dtype="{dtype}"{options}), *layers()])
    {compile}
    return network
""",
    "subclassed": """
class Net({kind}):
    def __init__(self):
        super().__init__()
        self.parts = layers()

    def call(self, inputs, training=None):  # without it layers do not hear of it
        for layer in self.parts:
            inputs = layer(inputs)
        return inputs


def model():
    network = Net()
    {compile}
    return network
""",
}
LAYERS = """
def layers():
    return [
        keras.layers.Dense(8, activation="tanh"{options}),
        {middle}keras.layers.Dense(3),
    ]
"""
SPARSE_LOSS = "keras.losses.SparseCategoricalCrossentropy(from_logits=True)"
FEEDS = {
    "plain": 'return f["x"], f["y"]',
    "weighted": 'return f["x"], f["y"], f["w"]',
    "words": 'return f["words"], f["y"]',
    "two inputs": 'return {"left": f["x"], "right": f["x"] * 2.0 + 1.0}, f["y"]',
    "two outputs": 'return f["x"], {"kind": f["y"], "size": f["x"][:1]}',
    "two outputs weighted": 'return (f["x"], {"kind": f["y"], "size": f["x"][:1]}, '
    '{"kind": f["w"], "size": 1.0 - f["w"] / 2.0})',
    "listed outputs": 'return f["x"], (f["y"], f["x"][:1])',
    "one hot": 'return f["x"], tf.one_hot(f["y"], 3)',
    "sparse": 'return f["ids"], f["y"]',
    # Rows of a ragged batch: as many words as a record has.
    "ragged": "return tf.RaggedTensor.from_tensor("
    'f["words"][None, :tf.math.count_nonzero(f["words"])]), f["y"]',
}
FEED = """
def feed(dataset, mode, metadata):
    spec = {
        "x": tf.io.FixedLenFeature([6], tf.float32),
        "y": tf.io.FixedLenFeature([], tf.int64),
        "w": tf.io.FixedLenFeature([], tf.float32),
        "words": tf.io.FixedLenFeature([5], tf.int64),
        "ids": tf.io.VarLenFeature(tf.int64),
    }

    def parse(record):
        f = tf.io.parse_single_example(record, spec)
        BODY

    return dataset.map(parse)
"""


NOISE = """
class Noise(keras.layers.Layer):
    def call(self, inputs, training=False):
        if training:
            return inputs + 0.3 * keras.random.normal(keras.ops.shape(inputs))
        return inputs

"""
ELSEWHERE = """
class Counting(keras.layers.Layer):
    def call(self, inputs, training=False):
        if training:
            seen = KEPT["seen"]
            seen.assign(seen + 1.0)
            return inputs * keras.ops.cast(1.0 / (1.0 + seen), inputs.dtype)
        return inputs

KEPT = {"seen": keras.Variable(0.0, trainable=False, name="seen")}

"""
OWN_STEP = """
class Doubled(keras.Model):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x=x, y=y, y_pred=self(x, training=True)) * 2.0
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        return {"loss": loss}

"""
OWN_TEST = """
class Tested(keras.Model):
    def __init__(self, *args, **keywords):
        super().__init__(*args, **keywords)
        self.far = keras.metrics.Mean(name="far")

    def test_step(self, data):
        x, y = data
        self.far.update_state(keras.ops.abs(self(x, training=False)))
        return {"far": self.far.result()}

"""
OWN_METRICS = """
class Counted(keras.Model):
    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        return {**super().compute_metrics(x, y, y_pred, sample_weight)}

"""
OWN_LOSS = """
class Squared(keras.Model):
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None,
                     training=True):
        factor = 2.0 if training else 1.0
        loss = super().compute_loss(x, y, y_pred, sample_weight)
        return factor * loss + 0.01 * keras.ops.mean(y_pred ** 2 * abs(x[:, :1]))

"""
TWO_OUTPUTS = {
    "functional": """
def model():
    inputs = keras.Input((6,))
    hidden = keras.layers.Dense(8, activation="tanh")(inputs)
    network = keras.Model(inputs, {{
        "kind": keras.layers.Dense(3, name="kind")(hidden),
        "size": keras.layers.Dense(1, name="size")(hidden)}})
    {compile}
    return network
""",
    "subclassed": """
class Net({kind}):
    def __init__(self):
        super().__init__()
        self.hidden = keras.layers.Dense(8, activation="tanh")
        self.heads = [keras.layers.Dense(3), keras.layers.Dense(1)]

    def call(self, inputs):
        hidden = self.hidden(inputs)
        return {{"kind": self.heads[0](hidden), "size": self.heads[1](hidden)}}


def model():
    network = Net()
    {compile}
    return network
""",
}
LISTED_OUTPUTS = {
    "functional": """
def model():
    inputs = keras.Input((6,))
    hidden = keras.layers.Dense(8, activation="tanh")(inputs)
    network = keras.Model(inputs, [
        keras.layers.Dense(3)(hidden), keras.layers.Dense(1)(hidden)])
    {compile}
    return network
""",
    "subclassed": """
class Net({kind}):
    def __init__(self):
        super().__init__()
        self.hidden = keras.layers.Dense(8, activation="tanh")
        self.heads = [keras.layers.Dense(3), keras.layers.Dense(1)]

    def call(self, inputs):
        hidden = self.hidden(inputs)
        return [head(hidden) for head in self.heads]


def model():
    network = Net()
    {compile}
    return network
""",
}
TWO_LOSSES = f'{{"kind": {SPARSE_LOSS}, "size": "mse"}}'
TWO_INPUTS = {
    "functional": """
def model():
    left, right = keras.Input((6,), name="left"), keras.Input((6,), name="right")
    hidden = keras.layers.Dense(8, activation="tanh")(
        keras.layers.Concatenate()([left, right]))
    network = keras.Model({{"left": left, "right": right}},
                          keras.layers.Dense(3)(hidden))
    {compile}
    return network
""",
    "subclassed": """
class Net({kind}):
    def __init__(self):
        super().__init__()
        self.hidden = keras.layers.Dense(8, activation="tanh")
        self.head = keras.layers.Dense(3)

    def call(self, inputs):
        both = keras.ops.concatenate([inputs["left"], inputs["right"]], axis=-1)
        return self.head(self.hidden(both))


def model():
    network = Net()
    {compile}
    return network
""",
}
MASKED = """
def layers():
    return [
        keras.layers.Embedding(9, 4, mask_zero=True),
        keras.layers.LSTM(4, return_sequences=True),
        keras.layers.Dense(3),
    ]
"""
FEEDS["sparse numbers"] = 'return tf.sparse.from_dense(tf.nn.relu(f["x"])), f["y"]'
FEEDS["ragged labels"] = (
    FEEDS["ragged"].replace("return ", 'return f["x"], ').replace(', f["y"]', "")
)
PER_WORD = 'return f["words"], f["words"] % 3'
FEEDS["per word"] = PER_WORD
FEEDS["per word weighted"] = PER_WORD + ', tf.fill([5], f["w"])'
ADDS = """
class Adds(keras.layers.Layer):
    def call(self, inputs):
        self.add_loss(0.1 * keras.ops.mean(keras.ops.abs(inputs)))
        return inputs

"""
SEES = """
class Sees(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.mean = keras.metrics.Mean(name="activation")

    def call(self, inputs):
        self.mean.update_state(inputs)
        return inputs

"""
SPARSE_IDS = """
def layers():
    from elasticdl.python.elasticdl.layers.embedding import Embedding
    return [Embedding(4, input_dim=20, combiner="sum"), keras.layers.Dense(3)]
"""
RAGGED_IDS = """
class Words(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        from elasticdl.python.elasticdl.layers.embedding import Embedding
        self.table = Embedding(4, input_dim=20, combiner="COMBINER")

    def build(self, shape):
        self.table.build((None, None))

    def call(self, words):
        return self.table(words.merge_dims(1, 2))

    def compute_output_shape(self, shape):  # Keras would try the call with dense ids
        return (shape[0], 4)


def layers():
    return [Words(), keras.layers.Dense(3)]
"""
OWN_SCHEDULE = """
class Falling(keras.optimizers.schedules.LearningRateSchedule):
    def __call__(self, step):
        return 0.1 / (1.0 + tf.cast(step, tf.float32))

    def get_config(self):
        return {}

"""
STATEFUL = """
def layers():
    return [
        keras.layers.Reshape((3, 2)),
        keras.layers.LSTM(4, stateful=True),
        keras.layers.Dense(3),
    ]
"""
DECAY = """
def decaying():
    made = keras.optimizers.AdamW(0.05, weight_decay=0.3)
    made.exclude_from_weight_decay(var_names=["bias"])
    return made

"""
MOVES = """
class Moves(keras.layers.Layer):
    def build(self, shape):
        self.mean = self.add_weight(shape=(shape[-1],), initializer="zeros",
                                    trainable=False, name="mean")

    def call(self, inputs, training=False):
        if training:
            self.mean.assign(0.8 * self.mean + 0.2 * keras.ops.mean(inputs, axis=0))
        return inputs - self.mean

"""
ANNEALED = """
class Annealed(keras.Model):
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None,
                     training=True):
        loss = super().compute_loss(x, y, y_pred, sample_weight)
        steps = keras.ops.cast(self.optimizer.iterations, "float32")
        return loss + 0.3 * steps * keras.ops.mean(y_pred ** 2)

"""
RATED = """
class Rated(keras.Model):
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None,
                     training=True):
        loss = super().compute_loss(x, y, y_pred, sample_weight)
        return loss + self.optimizer.learning_rate * keras.ops.mean(y_pred ** 2)

"""
OWN_AVERAGE = """
class Averaged(keras.Model):
    def __init__(self, *args, **keywords):
        super().__init__(*args, **keywords)
        self.average = self.add_weight(shape=(), initializer="zeros",
                                       trainable=False, name="average")

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None,
                     training=True):
        loss = super().compute_loss(x, y, y_pred, sample_weight)
        if training:
            self.average.assign(0.7 * self.average + 0.3 * loss)
        return loss * (1.0 + self.average)

"""
# A metric of one's own beside a function that is made one.
OWN_METRIC = """
class Farthest(keras.metrics.Metric):
    def __init__(self):
        super().__init__(name="farthest")
        self.total = self.add_weight(shape=(), initializer="zeros", name="total")
        self.rows = self.add_weight(shape=(), initializer="zeros", name="rows")

    def update_state(self, labels, predictions, sample_weight=None):
        far = keras.ops.max(keras.ops.abs(predictions), axis=-1)
        self.total.assign_add(keras.ops.sum(far))
        self.rows.assign_add(keras.ops.cast(keras.ops.shape(far)[0], "float32"))

    def result(self):
        return self.total / keras.ops.maximum(self.rows, 1.0)


def spread(labels, predictions):
    return keras.ops.max(predictions, axis=-1) - keras.ops.min(predictions, axis=-1)

"""
# Several results by their names, of whole numbers under a name that others have too.
SEVERAL_RESULTS = """
class Hits(keras.metrics.Metric):
    def __init__(self):
        super().__init__(name="hits")
        self.hits = self.add_weight(
            shape=(), initializer="zeros", name="seeded_hits", dtype="int32")
        self.rows = self.add_weight(shape=(), initializer="zeros", name="rows")

    def update_state(self, labels, predictions, sample_weight=None):
        best = keras.ops.argmax(predictions, axis=-1)
        hit = keras.ops.equal(keras.ops.cast(labels, best.dtype), best)
        self.hits.assign_add(keras.ops.sum(keras.ops.cast(hit, "int32")))
        self.rows.assign_add(keras.ops.cast(keras.ops.shape(hit)[0], "float32"))

    def result(self):
        hits = keras.ops.cast(self.hits, "float32")
        return {"hits": hits, "share": hits / keras.ops.maximum(self.rows, 1.0)}

"""
# Keras calls it without a mode, so that its layers are as in inference.
KEYWORDS = {
    "subclassed": MODEL["subclassed"].replace(
        "training=None):  # without it layers do not hear of it", "**keywords):"
    )
}
TRACED_APART = {
    "subclassed": MODEL["subclassed"].replace(
        "    def call", "    @tf.function\n    def call"
    )
}
# As one wraps a method to look at what it gets.
REPLACED = {
    "subclassed": MODEL["subclassed"].replace(
        "network = Net()\n",
        "network = Net()\n    first = network.call\n"
        "    network.call = lambda inputs, **keywords: first(inputs, **keywords)\n",
    )
}
HEADED = """
class Headed(keras.Model):
    @property
    def trainable_weights(self):
        return super().trainable_weights[2:]

"""
# The labels of a record are as many as it has words.
RAGGED_LOSS = """
def off(labels, predictions):
    words = tf.cast(labels.merge_dims(1, 2), tf.float32) / 8.0
    return (predictions[:, 0] - tf.reduce_mean(words, axis=1)) ** 2

"""
