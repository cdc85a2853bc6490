"""DNNClassifier: two classes, made by `elasticdl sql`; yours to change."""

# The statement:
#     SELECT * FROM employee LABEL income INTO original
# Numbers are statistics of its 200 training rows.

import keras
from keras import layers, ops

NULL_INTEGER = -(2**63)  # -9223372036854775808 stands for NULL
NULL_TEXT = "\\N"  # the same for text
# income: what the model says is a place in here.
CLASSES = ["<=50K", ">50K"]
OUTPUTS = 1


def model(hidden_units=(128, 64), dropout=0.0, activation="relu"):
    """Return the compiled model; it takes the query's columns."""
    inputs = {
        "age": keras.Input((1,), name="age"),
        "city": keras.Input((1,), name="city", dtype="string"),
        "hours_per_week": keras.Input((1,), name="hours_per_week"),
        "skills": keras.Input((1,), name="skills", dtype="string"),
        "user_id": keras.Input((1,), name="user_id"),
        "married": keras.Input((1,), name="married", dtype="int64"),
        "name": keras.Input((1,), name="name", dtype="string"),
        "pay": keras.Input((1,), name="pay"),
        "grade": keras.Input((1,), name="grade"),
    }
    columns = encode(inputs)
    x = joined(columns["deep"])
    for units in hidden_units:
        x = layers.Dense(units, activation=activation)(x)
        if dropout:
            x = layers.Dropout(dropout)(x)
    logits = layers.Dense(OUTPUTS)(x)
    output = layers.Activation("sigmoid")(logits)
    network = keras.Model(inputs, output)
    optimizer = keras.optimizers.Adam(learning_rate=0.001)
    metrics = ["accuracy", keras.metrics.AUC(name="auc")]
    network.compile(optimizer, "binary_crossentropy", metrics=metrics)
    return network


def encode(inputs):
    """Return the columns as numbers, by the part that takes them."""
    # age: mean and variance of 200 training rows
    age = standardized(inputs["age"], mean=48.745, variance=367.639975)

    # city: 3 values of 200 training rows, 38 of them NULL, which is an entry of its own
    city_id = looked_up(inputs["city"], ["Aachen", "Bonn", "Köln", "\\N"])
    city_one_hot = one_hot(city_id, 5)

    # hours per week: mean and variance of 147 training rows (53 are NULL)
    hours_per_week = standardized(
        inputs["hours_per_week"], mean=33.5544218, variance=72.1875145
    )

    # skills: 3 values of 200 training rows, 46 of them NULL, which is an entry of its
    # own
    skills_id = looked_up(inputs["skills"], ["sql,python", "go,sql,c", "sql", "\\N"])
    skills_one_hot = one_hot(skills_id, 5)

    # user_id: mean and variance of 200 training rows
    user_id = standardized(inputs["user_id"], mean=5.6570352e11, variance=1.01261579e23)

    # married: 2 values of 200 training rows
    married_id = looked_up(inputs["married"], [0, 1])
    married_one_hot = one_hot(married_id, 3)

    # name: hashed, NULL has an entry of its own
    name_id = hashed(inputs["name"], 4096)
    name_vector = embedded(name_id, 4097, 32, "name_vector")

    # pay: mean and variance of 200 training rows
    pay = standardized(inputs["pay"], mean=26109.3844, variance=198012814.0)

    # grade: mean and variance of 200 training rows
    grade = standardized(inputs["grade"], mean=2.02, variance=0.6496)

    return {
        "deep": [
            age,
            city_one_hot,
            hours_per_week,
            skills_one_hot,
            user_id,
            married_one_hot,
            name_vector,
            pay,
            grade,
        ],
    }


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


def hashed(x, buckets):
    """Return a hash of the value, from 1 to `buckets`; NULL has 0."""
    null = NULL_TEXT if x.dtype == "string" else NULL_INTEGER
    return layers.Hashing(buckets + 1, mask_value=null)(x)


def one_hot(ids, size):
    """Return a vector with 1 at the place of the category, else 0."""
    return layers.CategoryEncoding(size, output_mode="multi_hot")(ids)


def embedded(ids, size, dim, name):
    """Return a trained vector of `dim` numbers for the category."""
    vectors = layers.Embedding(size, dim, name=name)(ids)
    return layers.Reshape((dim,))(vectors)


def joined(columns):
    """Return columns side by side."""
    return layers.Concatenate()(columns) if len(columns) > 1 else columns[0]
