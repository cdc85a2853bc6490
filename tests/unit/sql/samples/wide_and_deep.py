"""WideAndDeepClassifier: two classes, made by `elasticdl sql`; yours to change."""

# The statement:
#     SELECT * FROM employee
#     TO TRAIN WideAndDeepClassifier
#     WITH train.epoch = 5, model.hidden_units = [64, 32], optimizer = adagrad,
#          optimizer.learning_rate = 0.05, validation.metrics = 'AUC,Precision'
#     COLUMN city, CROSS([city, married, BUCKETIZE(age, 5)], 500),
#            HASH(user_id, 100), BUCKETIZE("hours per week", [35, 38.5]) FOR wide
#     COLUMN STANDARDIZE(LOG(pay)), EMBEDDING(SPLIT(skills, ','), 4, 'sum'),
#            EMBEDDING(VOCABULARIZE(name, min_count=1), 8) FOR deep
#     LABEL income INTO wide_and_deep
# Numbers are statistics of its 200 training rows.

from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

NULL_INTEGER = -(2**63)  # -9223372036854775808 stands for NULL
NULL_TEXT = "\\N"  # the same for text
FOLDER = Path(__file__).parent
# income: what the model says is a place in here.
CLASSES = ["<=50K", ">50K"]
OUTPUTS = 1
# Of AUC, in equal steps of the odds: as fine where probabilities are small.
THRESHOLDS = [1 / (1 + 2 ** (step / 8)) for step in range(192, -193, -1)]


def model(hidden_units=(128, 64), dropout=0.0, activation="relu"):
    """Return the compiled model; it takes the query's columns."""
    inputs = {
        "city": keras.Input((1,), name="city", dtype="string"),
        "married": keras.Input((1,), name="married", dtype="int64"),
        "age": keras.Input((1,), name="age"),
        "user_id": keras.Input((1,), name="user_id", dtype="int64"),
        "hours_per_week": keras.Input((1,), name="hours_per_week"),
        "pay": keras.Input((1,), name="pay"),
        "skills": keras.Input((1,), name="skills", dtype="string"),
        "name": keras.Input((1,), name="name", dtype="string"),
    }
    columns = encode(inputs)
    deep = joined(columns["deep"])
    for units in hidden_units:
        deep = layers.Dense(units, activation=activation)(deep)
        if dropout:
            deep = layers.Dropout(dropout)(deep)
    wide = columns["wide"]
    logits = summed([*wide, layers.Dense(OUTPUTS)(deep)])
    output = layers.Activation("sigmoid", dtype="float32")(logits)
    network = keras.Model(inputs, output)
    optimizer = keras.optimizers.Adagrad(learning_rate=0.05)
    metrics = [
        keras.metrics.AUC(name="auc", thresholds=THRESHOLDS),
        keras.metrics.Precision(name="precision"),
    ]
    network.compile(optimizer, "binary_crossentropy", metrics=metrics)
    return network


def encode(inputs):
    """Return the columns as numbers, by the part that takes them."""
    # ln(1 + pay): mean and variance of 200 training rows
    pay = standardized(logarithm(inputs["pay"]), mean=9.90453159, variance=0.810290476)

    # parts of skills: 4 values of 200 training rows, 46 of them NULL, which is an entry
    # of its own
    skills_id = parts_looked_up(
        Split(",", 3)(inputs["skills"]), ["sql", "python", "c", "go", "\\N"]
    )
    skills_vector = combined(skills_id, 7, 4, "sum", "skills_vector")

    # name: 200 values of 200 training rows
    name_id = looked_up(inputs["name"], read_vocabulary(FOLDER / "name_id.txt"))
    name_vector = embedded(name_id, 201, 8, "name_vector")

    # city: 3 values of 200 training rows, 38 of them NULL, which is an entry of its own
    city_id = looked_up(inputs["city"], ["Aachen", "Bonn", "Köln", "\\N"])
    city_weight = embedded(city_id, 5, OUTPUTS, "city_weight")

    # age: quantiles of 200 training rows, each value once
    age_bucket = bucketized(inputs["age"], [29.0, 43.0, 56.0, 70.0])

    # combinations of city, married, age
    city_married_age_cross = crossed(
        [inputs["city"], inputs["married"], age_bucket], 500
    )
    city_married_age_cross_weight = embedded(
        city_married_age_cross, 500, OUTPUTS, "city_married_age_cross_weight"
    )

    # user_id: hashed, NULL has an entry of its own
    user_id_id = hashed(inputs["user_id"], 100)
    user_id_weight = embedded(user_id_id, 101, OUTPUTS, "user_id_weight")

    # hours per week: boundaries of the statement
    hours_per_week_bucket = bucketized(inputs["hours_per_week"], [35.0, 38.5])
    hours_per_week_bucket_weight = embedded(
        hours_per_week_bucket, 4, OUTPUTS, "hours_per_week_bucket_weight"
    )

    return {
        "deep": [pay, skills_vector, name_vector],
        "wide": [
            city_weight,
            city_married_age_cross_weight,
            user_id_weight,
            hours_per_week_bucket_weight,
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


def read_vocabulary(path):
    """Return the lines of a file: one value a line, the most frequent first."""
    text = Path(path).read_bytes().decode()  # "\r" is no end of a line
    # As objects: others would all be as wide as the longest one.
    return np.array(text.removesuffix("\n").split("\n"), dtype=object)


def logarithm(x):
    """Return sign(x) * ln(1 + |x|), which is defined for all numbers."""
    return ops.sign(x) * ops.log1p(ops.abs(x))


def filled(x, mean):
    """Put the mean where a number is NULL (NaN)."""
    return ops.where(ops.isnan(x), mean, x)


def standardized(x, mean, variance):
    """Return (x - mean) / standard deviation; NULL is taken for the mean."""
    return layers.Rescaling(variance**-0.5, dtype="float32")(filled(x, mean) - mean)


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


def crossed(columns, buckets):
    """Return a hash of a combination; the layer takes two at a time."""
    first, *others, last = columns
    for column in others:
        first = layers.HashedCrossing(2**31 - 1)((first, column))
    return layers.HashedCrossing(buckets)((first, last))


def embedded(ids, size, dim, name):
    """Return a trained vector of `dim` numbers for the category."""
    vectors = layers.Embedding(size, dim, name=name)(ids)
    return layers.Reshape((dim,))(vectors)


def combined(ids, size, dim, combiner, name):
    """Return the mean, sum or sum / sqrt(count) of the vectors of several values."""
    vectors = layers.Embedding(size, dim, name=name)(ids)
    there = ops.cast(ops.expand_dims(ops.not_equal(ids, 0), -1), "float32")
    total = ops.sum(vectors * there, axis=1)
    count = ops.maximum(ops.sum(there, axis=1), 1.0)
    if combiner == "sum":
        return total
    return total / (count if combiner == "mean" else ops.sqrt(count))


def joined(columns):
    """Return columns side by side."""
    return layers.Concatenate()(columns) if len(columns) > 1 else columns[0]


def summed(parts):
    """Return the sum of what several parts say."""
    return layers.Add()(parts) if len(parts) > 1 else parts[0]
