"""The network behind the encoded columns, and its head, as lines of Python.

Owns how each family of models looks in Keras. Called by `sql.generate`.
"""

from __future__ import annotations

from elasticdl.sql.plan import Category, Embedding, FeaturePlan, Head, Indicator
from elasticdl.sql.writing.encodings import CATEGORIES, EncodingWriter
from elasticdl.sql.writing.text import listing

SIGNATURES = {
    "dnn": 'hidden_units=(128, 64), dropout=0.0, activation="relu"',
    "linear": "",
    "wide_and_deep": 'hidden_units=(128, 64), dropout=0.0, activation="relu"',
    "deepfm": 'hidden_units=(128, 64), dropout=0.0, activation="relu", embedding_dim=8',
    "dcn": 'hidden_units=(128, 64), dropout=0.0, activation="relu", cross_layers=3',
    "own": "**params",
}
_DEEP = """\
    for units in hidden_units:
        {x} = layers.Dense(units, activation=activation)({x})
        if dropout:
            {x} = layers.Dropout(dropout)({x})
"""
NETWORKS = {
    "dnn": '    x = joined(columns["deep"])\n' + _DEEP.format(x="x")
    + "    logits = layers.Dense(OUTPUTS)(x)\n",
    "linear": '    logits = summed(columns["wide"])\n',
    "wide_and_deep": '    deep = joined(columns["deep"])\n' + _DEEP.format(x="deep")
    + '    wide = columns["wide"]\n'
    "    logits = summed([*wide, layers.Dense(OUTPUTS)(deep)])\n",
    "deepfm": """\
    # The first order is a weight for each value, the second the products of all pairs
    # of vectors: half of (sum of vectors)^2 - sum of vectors^2.
    vectors = layers.Reshape((-1, embedding_dim))(joined(columns["vectors"]))
    square_of_sum = ops.square(ops.sum(vectors, axis=1))
    sum_of_squares = ops.sum(ops.square(vectors), axis=1)
    pairs = 0.5 * (square_of_sum - sum_of_squares)
    deep = joined([layers.Flatten()(vectors), *columns["numbers"]])
""" + _DEEP.format(x="deep") + """\
    parts = [layers.Dense(OUTPUTS)(pairs), layers.Dense(OUTPUTS)(deep)]
    logits = summed([*columns["wide"], *parts])
""",
    "dcn": """\
    x = joined(columns["deep"])
    # Each layer multiplies the columns with a mixture of what came before.
    crosses = x
    for _ in range(cross_layers):
        crosses = crosses + x * layers.Dense(x.shape[-1])(crosses)
    deep = x
""" + _DEEP.format(x="deep") + """\
    logits = layers.Dense(OUTPUTS)(joined([crosses, deep]))
""",
}  # fmt: skip
SUMMED = '''\
def summed(parts):
    """Return the sum of what several parts say."""
    return layers.Add()(parts) if len(parts) > 1 else parts[0]
'''
CHECKED = '''\
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
'''
REFUSE_LOGITS = '''\
def refuse_logits(network):
    """Raise where the last layer gives any number: the loss takes probabilities."""
    if getattr(network.layers[-1], "activation", None) is keras.activations.linear:
        raise ValueError(
            "the function ends in a layer without activation, expected probabilities: "
            "a sigmoid for two classes, a softmax for more"
        )
'''


def write_columns(
    writer: EncodingWriter, family: str, features: tuple[FeaturePlan, ...]
) -> dict[str, list[str]]:
    """Write the encodings as a family takes them; return the variables by part."""
    if family == "own":
        parts: dict[str, list[str]] = {}
        for feature in features:
            group = feature.group or "features"
            parts.setdefault(group, []).append(writer.dense(feature.encoding))
        return parts
    if family == "deepfm":
        return _deepfm(writer, features)
    found: dict[str, list[str]] = {}
    deep = [f for f in features if f.group != "wide"]
    wide = [f for f in features if f.group != "deep"]
    if family != "linear":
        found["deep"] = [writer.dense(f.encoding) for f in (deep or features)]
    if family in ("linear", "wide_and_deep"):
        found["wide"] = _wide(writer, wide or list(features))
    return found


def learning_rate(family: str) -> float:
    """Return the rate that a family has where a statement says none.

    A weight of a linear model has to come to its place, by at most the rate a step, in
    the few hundred steps that a small table has.
    """
    return 0.01 if family == "linear" else 0.001


def _wide(writer: EncodingWriter, features: list[FeaturePlan]) -> list[str]:
    """Write a weight for each value of a category, and for each number."""
    numbers = []
    found = []
    for feature in features:
        category = _category_of(feature)
        if category is None:
            numbers.append(writer.dense(feature.encoding))
        else:
            ids = writer.ids(category)
            found.append(writer.embedding(ids, "OUTPUTS", "weight", "sum"))
    if numbers:
        writer.helpers.add("joined")
        # Keras's own begin up to 1 beside 0: few steps take none of them back.
        writer.note("a weight for each number, 0 at first")
        writer.lines.append(listing("numbers = ", numbers, indent=4))
        taken = '    numbers = layers.Dense(OUTPUTS, kernel_initializer="zeros")'
        writer.lines.append(f"{taken}(joined(numbers))")
        found.append("numbers")
    return found


def _deepfm(
    writer: EncodingWriter, features: tuple[FeaturePlan, ...]
) -> dict[str, list[str]]:
    vectors: list[str] = []
    numbers: list[str] = []
    for feature in features:
        category = _category_of(feature)
        if category is None:
            numbers.append(writer.dense(feature.encoding))
            continue
        of = feature.encoding
        combiner = of.combiner if isinstance(of, Embedding) else "mean"
        ids = writer.ids(category)
        vectors.append(writer.embedding(ids, "embedding_dim", "vector", combiner))
    wide = _wide(writer, list(features))
    if numbers:
        writer.note("a vector for each number")
        for name in numbers:
            vector = writer.name(f"{name}_vector")
            writer.lines.append(f"    {vector} = layers.Dense(embedding_dim)({name})")
            vectors.append(vector)
    return {"vectors": vectors, "numbers": numbers, "wide": wide}


def _category_of(feature: FeaturePlan) -> Category | None:
    encoding = feature.encoding
    if isinstance(encoding, Indicator | Embedding):
        return encoding.of
    return encoding if isinstance(encoding, CATEGORIES) else None


LOSSES = {
    Head.BINARY: "binary_crossentropy",
    Head.CLASSES: "sparse_categorical_crossentropy",
    Head.NUMBER: "mean_squared_error",
}
