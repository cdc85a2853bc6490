"""DCNClassifier: classes, made by `elasticdl sql`; yours to change."""

# The statement:
#     SELECT * FROM employee TO TRAIN DCNClassifier
#     COLUMN CONCAT(city, BUCKETIZE(age, 4)) AS g, EMBEDDING(g, 6),
#            NULL_INDICATOR(city), NULL_INDICATOR("hours per week"),
#            INDICATOR(SPLIT(skills)), SEQ_CATEGORY_ID(skills, 20), LOG(user_id),
#            EMBEDDING(WEIGHTED_CATEGORY(skills, 20), 4, 'sqrtn'),
#            NULL_INDICATOR(user_id), HASH(user_id, 10) LABEL grade INTO cross
# Numbers are statistics of its 200 training rows.

import keras
import tensorflow as tf
from keras import layers, ops

NULL_INTEGER = -(2**63)  # -9223372036854775808 stands for NULL
NULL_TEXT = "\\N"  # the same for text
# grade: what the model says is a place in here.
CLASSES = [1, 2, 3]
OUTPUTS = 3


def model(hidden_units=(128, 64), dropout=0.0, activation="relu", cross_layers=3):
    """Return the compiled model; it takes the query's columns."""
    inputs = {
        "city": keras.Input((1,), name="city", dtype="string"),
        "age": keras.Input((1,), name="age"),
        "hours_per_week": keras.Input((1,), name="hours_per_week"),
        "skills": keras.Input((1,), name="skills", dtype="string"),
        "user_id": keras.Input((1,), name="user_id", dtype="int64"),
    }
    columns = encode(inputs)
    x = joined(columns["deep"])
    # Each layer multiplies the columns with a mixture of what came before.
    crosses = x
    for _ in range(cross_layers):
        crosses = crosses + x * layers.Dense(x.shape[-1])(crosses)
    deep = x
    for units in hidden_units:
        deep = layers.Dense(units, activation=activation)(deep)
        if dropout:
            deep = layers.Dropout(dropout)(deep)
    logits = layers.Dense(OUTPUTS)(joined([crosses, deep]))
    output = layers.Activation("softmax", dtype="float32")(logits)
    network = keras.Model(inputs, output)
    optimizer = keras.optimizers.Adam(learning_rate=0.001)
    metrics = ["accuracy"]
    network.compile(optimizer, "sparse_categorical_crossentropy", metrics=metrics)
    return network


def encode(inputs):
    """Return the columns as numbers, by the part that takes them."""
    # city: 3 values of 200 training rows, 38 of them NULL, which is an entry of its own
    city_id = looked_up(inputs["city"], ["Aachen", "Bonn", "Köln", "\\N"])

    # age: quantiles of 200 training rows, each value once
    age_bucket = bucketized(inputs["age"], [33.0, 49.0, 66.0])

    # city_id, age_bucket in one space of numbers; 0 is left free
    g = ops.concatenate([city_id + 1, age_bucket + 6], axis=-1)
    g_vector = combined(g, 11, 6, "mean", "g_vector")

    # whether city is NULL
    city_is_null = null_indicator(inputs["city"])

    # whether hours per week is NULL
    hours_per_week_is_null = null_indicator(inputs["hours_per_week"])

    # parts of skills: 4 values of 200 training rows, 46 of them NULL, which is an entry
    # of its own
    skills_id = parts_looked_up(
        Split(",", 3)(inputs["skills"]), ["sql", "python", "c", "go", "\\N"]
    )
    skills_one_hot = one_hot(skills_id, 7)

    # parts of skills: hashed, NULL has an entry of its own
    skills_id_2 = parts_hashed(Split(",", 3)(inputs["skills"]), 20)
    skills_id_2_vector = combined(skills_id_2, 21, 5, "mean", "skills_id_2_vector")

    # ln(1 + user_id) as it is; the mean of 200 training rows for NULL
    user_id = filled(logarithm(as_number(inputs["user_id"])), 26.7573751)

    # parts of skills: hashed, each with its weight
    skills_pairs = Weighted(",", ":", 3)
    skills_parts, skills_weights = skills_pairs(inputs["skills"])
    skills_id_3 = parts_hashed(skills_parts, 20)
    skills_id_3_vector = weighted(
        skills_id_3, skills_weights, 21, 4, "sqrtn", "skills_id_3_vector"
    )

    # whether user_id is NULL
    user_id_is_null = null_indicator(inputs["user_id"])

    # user_id: hashed, NULL has an entry of its own
    user_id_id = hashed(inputs["user_id"], 10)
    user_id_one_hot = one_hot(user_id_id, 11)

    return {
        "deep": [
            g_vector,
            city_is_null,
            hours_per_week_is_null,
            skills_one_hot,
            skills_id_2_vector,
            user_id,
            skills_id_3_vector,
            user_id_is_null,
            user_id_one_hot,
        ],
    }


@keras.saving.register_keras_serializable("elasticdl_sql")
class Split(layers.Layer):
    """Cuts a text at a delimiter into `longest` parts that are not ""; "" fills up."""

    def __init__(self, delimiter, longest, **kwargs):
        super().__init__(**kwargs)
        self.delimiter = delimiter
        self.longest = longest

    def call(self, x):
        parts = tf.strings.split(tf.reshape(x, [-1]), self.delimiter)
        parts = tf.ragged.boolean_mask(parts, tf.not_equal(parts, ""))
        return parts.to_tensor("", shape=[None, self.longest])

    def compute_output_spec(self, x):
        return keras.KerasTensor((x.shape[0], self.longest), dtype="string")

    def get_config(self):
        config = super().get_config()
        return {**config, "delimiter": self.delimiter, "longest": self.longest}


@keras.saving.register_keras_serializable("elasticdl_sql")
class Weighted(layers.Layer):
    """Cuts a text as "a:0.5,b" into `longest` parts and weights (1 where none is)."""

    def __init__(self, delimiter, pair, longest, **kwargs):
        super().__init__(**kwargs)
        self.delimiter = delimiter
        self.pair = pair
        self.longest = longest

    def call(self, x):
        pairs = tf.strings.split(tf.reshape(x, [-1]), self.delimiter)
        pairs = tf.ragged.boolean_mask(pairs, tf.not_equal(pairs, ""))
        pairs = tf.reshape(pairs.to_tensor("", shape=[None, self.longest]), [-1])
        cut = tf.strings.split(pairs, self.pair, maxsplit=1)
        cut = cut.to_tensor("", shape=[None, 2])
        weights = tf.where(tf.equal(cut[:, 1], ""), "1", cut[:, 1])
        shape = [-1, self.longest]
        numbers = tf.strings.to_number(weights)
        return tf.reshape(cut[:, 0], shape), tf.reshape(numbers, shape)

    def compute_output_spec(self, x):
        shape = (x.shape[0], self.longest)
        return keras.KerasTensor(shape, dtype="string"), keras.KerasTensor(shape)

    def get_config(self):
        signs = {"delimiter": self.delimiter, "pair": self.pair}
        return {**super().get_config(), **signs, "longest": self.longest}


def as_number(x):
    """Return an integer column as float; NULL is NaN."""
    is_null = ops.equal(x, NULL_INTEGER)
    return ops.where(is_null, float("nan"), ops.cast(x, "float32"))


def logarithm(x):
    """Return sign(x) * ln(1 + |x|), which is defined for all numbers."""
    return ops.sign(x) * ops.log1p(ops.abs(x))


def filled(x, mean):
    """Put the mean where a number is NULL (NaN)."""
    return ops.where(ops.isnan(x), mean, x)


def bucketized(x, boundaries):
    """Return the bucket of a number; NULL has the one after the last."""
    buckets = layers.Discretization(bin_boundaries=boundaries)(x)
    null_bucket = ops.full_like(buckets, len(boundaries) + 1)
    return ops.where(ops.isnan(x), null_bucket, buckets)


def looked_up(x, vocabulary):
    """Return the place of a value, from 1; values that are not there have 0."""
    lookup = layers.StringLookup if x.dtype == "string" else layers.IntegerLookup
    # Without a token for unseen values, no value at the front is taken for it.
    return lookup(vocabulary=vocabulary, num_oov_indices=1, oov_token=None)(x)


def parts_looked_up(x, vocabulary):
    """Return the places of parts, from 2; parts not there have 1, no part has 0."""
    lookup = layers.StringLookup(vocabulary=vocabulary, mask_token="")
    return lookup(x)


def hashed(x, buckets):
    """Return a hash of the value, from 1 to `buckets`; NULL has 0."""
    null = NULL_TEXT if x.dtype == "string" else NULL_INTEGER
    return layers.Hashing(buckets + 1, mask_value=null)(x)


def parts_hashed(x, buckets):
    """Return a hash of each part, from 1 to `buckets`; no part has 0."""
    return layers.Hashing(buckets + 1, mask_value="")(x)


def null_indicator(x):
    """Return 1 where a value is NULL, else 0."""
    if x.dtype == "float32":
        return ops.cast(ops.isnan(x), "float32")
    null = NULL_TEXT if x.dtype == "string" else NULL_INTEGER
    lookup = layers.StringLookup if x.dtype == "string" else layers.IntegerLookup
    return ops.cast(lookup(vocabulary=[null])(x), "float32")


def one_hot(ids, size):
    """Return a vector with 1 at the place of the category, else 0."""
    return layers.CategoryEncoding(size, output_mode="multi_hot")(ids)


def combined(ids, size, dim, combiner, name):
    """Return the mean, sum or sum / sqrt(count) of the vectors of several values."""
    vectors = layers.Embedding(size, dim, name=name)(ids)
    there = ops.cast(ops.expand_dims(ops.not_equal(ids, 0), -1), "float32")
    total = ops.sum(vectors * there, axis=1)
    count = ops.maximum(ops.sum(there, axis=1), 1.0)
    if combiner == "sum":
        return total
    return total / (count if combiner == "mean" else ops.sqrt(count))


def weighted(ids, weights, size, dim, combiner, name):
    """Return the mean, sum or sum / norm of the vectors of values with weights."""
    vectors = layers.Embedding(size, dim, name=name)(ids)
    weights = ops.where(ops.not_equal(ids, 0), weights, 0.0)
    total = ops.sum(vectors * ops.expand_dims(weights, -1), axis=1)
    if combiner == "sum":
        return total
    whole = ops.sum(weights, axis=1, keepdims=True)
    if combiner == "sqrtn":
        whole = ops.sqrt(ops.sum(ops.square(weights), axis=1, keepdims=True))
    return total / ops.where(ops.equal(whole, 0), 1.0, whole)


def joined(columns):
    """Return columns side by side."""
    return layers.Concatenate()(columns) if len(columns) > 1 else columns[0]
