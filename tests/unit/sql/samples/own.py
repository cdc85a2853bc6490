"""tabular.net.towers: two classes, made by `elasticdl sql`; yours to change."""

# The statement:
#     SELECT * FROM employee TO TRAIN tabular.net.towers WITH model.units = 8
#     COLUMN age, city FOR person COLUMN pay FOR job LABEL income INTO own
# Numbers are statistics of its 200 training rows.

import keras
from keras import layers, ops
from tabular.net import towers as own

# income: what the model says is a place in here.
CLASSES = ["<=50K", ">50K"]
OUTPUTS = 1
# Of AUC, in equal steps of the odds: as fine where probabilities are small.
THRESHOLDS = [1 / (1 + 2 ** (step / 8)) for step in range(192, -193, -1)]


def model(**params):
    """Return the compiled model; it takes the query's columns."""
    inputs = {
        "age": keras.Input((1,), name="age"),
        "city": keras.Input((1,), name="city", dtype="string"),
        "pay": keras.Input((1,), name="pay"),
    }
    columns = encode(inputs)
    groups = {name: joined(parts) for name, parts in columns.items()}
    output = checked(own(groups, **params))
    network = keras.Model(inputs, output)
    refuse_logits(network)
    optimizer = keras.optimizers.Adam(learning_rate=0.001)
    metrics = ["accuracy", keras.metrics.AUC(name="auc", thresholds=THRESHOLDS)]
    network.compile(optimizer, "binary_crossentropy", metrics=metrics)
    return network


def encode(inputs):
    """Return the columns as numbers, by the part that takes them."""
    # age: mean and variance of 200 training rows
    age = standardized(inputs["age"], mean=48.745, variance=367.639975)

    # city: 3 values of 200 training rows, 38 of them NULL, which is an entry of its own
    city_id = looked_up(inputs["city"], ["Aachen", "Bonn", "Köln", "\\N"])
    city_one_hot = one_hot(city_id, 5)

    # pay: mean and variance of 200 training rows
    pay = standardized(inputs["pay"], mean=26109.3844, variance=198012814.0)

    return {"person": [age, city_one_hot], "job": [pay]}


def filled(x, mean):
    """Put the mean where a number is NULL (NaN)."""
    return ops.where(ops.isnan(x), mean, x)


def standardized(x, mean, variance):
    """Return (x - mean) / standard deviation; NULL is taken for the mean."""
    return layers.Rescaling(variance**-0.5, dtype="float32")(filled(x, mean) - mean)


def looked_up(x, vocabulary):
    """Return the place of a value, from 1; values that are not there have 0."""
    lookup = layers.StringLookup if x.dtype == "string" else layers.IntegerLookup
    # Without a token for unseen values, no value at the front is taken for it.
    return lookup(vocabulary=vocabulary, num_oov_indices=1, oov_token=None)(x)


def one_hot(ids, size):
    """Return a vector with 1 at the place of the category, else 0."""
    return layers.CategoryEncoding(size, output_mode="multi_hot")(ids)


def joined(columns):
    """Return columns side by side."""
    return layers.Concatenate()(columns) if len(columns) > 1 else columns[0]


def checked(output):
    """Return the output; a loss would take one of another shape without a word."""
    found = getattr(output, "shape", output)
    if found != (None, OUTPUTS):
        raise ValueError(
            f"the function returned {found}, expected a tensor of shape "
            f"(None, {OUTPUTS}): one number, which of two classes is the probability "
            "of the second, or a probability for each class"
        )
    return output


def refuse_logits(network):
    """Raise where the last layer gives any number: the loss takes probabilities."""
    if getattr(network.layers[-1], "activation", None) is keras.activations.linear:
        raise ValueError(
            "the function ends in a layer without activation, expected probabilities: "
            "a sigmoid for two classes, a softmax for more"
        )
