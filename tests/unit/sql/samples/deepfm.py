"""DeepFMRegressor: regression, made by `elasticdl sql`; yours to change."""

# The statement:
#     SELECT * FROM employee TO TRAIN DeepFMRegressor WITH model.embedding_dim = 4
#     COLUMN NORMALIZE(age), RAW("hours per week"), EMBEDDING(city, 4), married,
#            CATEGORY_ID(grade, 4), HASH(user_id, 50) LABEL pay INTO deepfm
# Numbers are statistics of its 200 training rows.

import keras
from keras import layers, ops

NULL_INTEGER = -(2**63)  # -9223372036854775808 stands for NULL
NULL_TEXT = "\\N"  # the same for text
OUTPUTS = 1


def model(hidden_units=(128, 64), dropout=0.0, activation="relu", embedding_dim=8):
    """Return the compiled model; it takes the query's columns."""
    inputs = {
        "age": keras.Input((1,), name="age"),
        "hours_per_week": keras.Input((1,), name="hours_per_week"),
        "city": keras.Input((1,), name="city", dtype="string"),
        "married": keras.Input((1,), name="married", dtype="int64"),
        "grade": keras.Input((1,), name="grade", dtype="int64"),
        "user_id": keras.Input((1,), name="user_id", dtype="int64"),
    }
    columns = encode(inputs, embedding_dim)
    # The first order is a weight for each value, the second the products of all pairs
    # of vectors: half of (sum of vectors)^2 - sum of vectors^2.
    vectors = layers.Reshape((-1, embedding_dim))(joined(columns["vectors"]))
    square_of_sum = ops.square(ops.sum(vectors, axis=1))
    sum_of_squares = ops.sum(ops.square(vectors), axis=1)
    pairs = 0.5 * (square_of_sum - sum_of_squares)
    deep = joined([layers.Flatten()(vectors), *columns["numbers"]])
    for units in hidden_units:
        deep = layers.Dense(units, activation=activation)(deep)
        if dropout:
            deep = layers.Dropout(dropout)(deep)
    parts = [layers.Dense(OUTPUTS)(pairs), layers.Dense(OUTPUTS)(deep)]
    logits = summed([*columns["wide"], *parts])
    # To the label's own scale: its deviation and its mean.
    output = layers.Rescaling(14071.7026, offset=26109.3844, dtype="float32")(logits)
    network = keras.Model(inputs, output)
    optimizer = keras.optimizers.Adam(learning_rate=0.001)
    metrics = [
        keras.metrics.MeanAbsoluteError(name="mean_absolute_error"),
        keras.metrics.RootMeanSquaredError(name="root_mean_squared_error"),
    ]
    # In units of the label's variance: 1 is what the mean alone does.
    weight = 1 / 198012814.0
    network.compile(
        optimizer, "mean_squared_error", metrics=metrics, loss_weights=[weight]
    )
    return network


def encode(inputs, embedding_dim):
    """Return the columns as numbers, by the part that takes them."""
    # age: minimum, maximum and mean of 200 training rows
    age = normalized(inputs["age"], minimum=17.0, maximum=80.0, mean=48.745)

    # hours per week as it is; the mean of 147 training rows (53 are NULL) for NULL
    hours_per_week = filled(inputs["hours_per_week"], 33.5544218)

    # city: 3 values of 200 training rows, 38 of them NULL, which is an entry of its own
    city_id = looked_up(inputs["city"], ["Aachen", "Bonn", "Köln", "\\N"])
    city_vector = embedded(city_id, 5, embedding_dim, "city_vector")

    # married: 2 values of 200 training rows
    married_id = looked_up(inputs["married"], [0, 1])
    married_vector = embedded(married_id, 3, embedding_dim, "married_vector")

    # grade: a number below 4; others are last
    grade_id = identified(inputs["grade"], 4)
    grade_vector = embedded(grade_id, 5, embedding_dim, "grade_vector")

    # user_id: hashed, NULL has an entry of its own
    user_id_id = hashed(inputs["user_id"], 50)
    user_id_vector = embedded(user_id_id, 51, embedding_dim, "user_id_vector")
    city_weight = embedded(city_id, 5, OUTPUTS, "city_weight")
    married_weight = embedded(married_id, 3, OUTPUTS, "married_weight")
    grade_weight = embedded(grade_id, 5, OUTPUTS, "grade_weight")
    user_id_weight = embedded(user_id_id, 51, OUTPUTS, "user_id_weight")

    # a weight for each number, 0 at first
    numbers = [age, hours_per_week]
    numbers = layers.Dense(OUTPUTS, kernel_initializer="zeros")(joined(numbers))

    # a vector for each number
    age_vector = layers.Dense(embedding_dim)(age)
    hours_per_week_vector = layers.Dense(embedding_dim)(hours_per_week)

    return {
        "vectors": [
            city_vector,
            married_vector,
            grade_vector,
            user_id_vector,
            age_vector,
            hours_per_week_vector,
        ],
        "numbers": [age, hours_per_week],
        "wide": [city_weight, married_weight, grade_weight, user_id_weight, numbers],
    }


def filled(x, mean):
    """Put the mean where a number is NULL (NaN)."""
    return ops.where(ops.isnan(x), mean, x)


def normalized(x, minimum, maximum, mean):
    """Return x on the scale from 0 (minimum) to 1; NULL is taken for the mean."""
    scale = 1 / (maximum - minimum)
    return layers.Rescaling(scale, dtype="float32")(filled(x, mean) - minimum)


def looked_up(x, vocabulary):
    """Return the place of a value, from 1; values that are not there have 0."""
    lookup = layers.StringLookup if x.dtype == "string" else layers.IntegerLookup
    # Without a token for unseen values, no value at the front is taken for it.
    return lookup(vocabulary=vocabulary, num_oov_indices=1, oov_token=None)(x)


def identified(x, buckets):
    """Return an integer below `buckets` as it is; all others, and NULL, are last."""
    inside = ops.logical_and(ops.greater_equal(x, 0), ops.less(x, buckets))
    return ops.where(inside, x, ops.full_like(x, buckets))


def hashed(x, buckets):
    """Return a hash of the value, from 1 to `buckets`; NULL has 0."""
    null = NULL_TEXT if x.dtype == "string" else NULL_INTEGER
    return layers.Hashing(buckets + 1, mask_value=null)(x)


def embedded(ids, size, dim, name):
    """Return a trained vector of `dim` numbers for the category."""
    vectors = layers.Embedding(size, dim, name=name)(ids)
    return layers.Reshape((dim,))(vectors)


def joined(columns):
    """Return columns side by side."""
    return layers.Concatenate()(columns) if len(columns) > 1 else columns[0]


def summed(parts):
    """Return the sum of what several parts say."""
    return layers.Add()(parts) if len(parts) > 1 else parts[0]
