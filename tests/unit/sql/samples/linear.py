"""LinearRegressor: regression, made by `elasticdl sql`; yours to change."""

# The statement:
#     SELECT * FROM employee TO TRAIN LinearRegressor COLUMN age, city, married
#     LABEL pay INTO linear
# Numbers are statistics of its 200 training rows.

import keras
from keras import layers, ops

OUTPUTS = 1


def model():
    """Return the compiled model; it takes the query's columns."""
    inputs = {
        "age": keras.Input((1,), name="age"),
        "city": keras.Input((1,), name="city", dtype="string"),
        "married": keras.Input((1,), name="married", dtype="int64"),
    }
    columns = encode(inputs)
    logits = summed(columns["wide"])
    # To the label's own scale: its deviation and its mean.
    output = layers.Rescaling(14071.7026, offset=26109.3844)(logits)
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


def encode(inputs):
    """Return the columns as numbers, by the part that takes them."""
    # age: mean and variance of 200 training rows
    age = standardized(inputs["age"], mean=48.745, variance=367.639975)

    # city: 3 values of 200 training rows, 38 of them NULL, which is an entry of its own
    city_id = looked_up(inputs["city"], ["Aachen", "Bonn", "Köln", "\\N"])
    city_weight = embedded(city_id, 5, OUTPUTS, "city_weight")

    # married: 2 values of 200 training rows
    married_id = looked_up(inputs["married"], [0, 1])
    married_weight = embedded(married_id, 3, OUTPUTS, "married_weight")

    # a weight for each number
    numbers = [age]
    numbers = layers.Dense(OUTPUTS)(joined(numbers))

    return {"wide": [city_weight, married_weight, numbers]}


def filled(x, mean):
    """Put the mean where a number is NULL (NaN)."""
    return ops.where(ops.isnan(x), mean, x)


def standardized(x, mean, variance):
    """Return (x - mean) / standard deviation; NULL is taken for the mean."""
    x = filled(x, mean)
    return layers.Normalization(axis=None, mean=mean, variance=variance)(x)


def looked_up(x, vocabulary):
    """Return the place of a value, from 1; values that are not there have 0."""
    lookup = layers.StringLookup if x.dtype == "string" else layers.IntegerLookup
    return lookup(vocabulary=vocabulary, num_oov_indices=1)(x)


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
