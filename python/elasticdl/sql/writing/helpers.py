"""The small functions that generated modules begin with, each where it is used.

Owns their texts: this is the one place where a function of COLUMN meets Keras. Must
not know plans.
"""

from __future__ import annotations

HELPERS = {
    "read_vocabulary": '''\
def read_vocabulary(path):
    """Return the lines of a file: one value a line, the most frequent first."""
    text = Path(path).read_bytes().decode()  # "\\r" is no end of a line
    # As objects: others would all be as wide as the longest one.
    return np.array(text.removesuffix("\\n").split("\\n"), dtype=object)
''',
    "read_integers": '''\
def read_integers(path):
    """Return the lines of a file as integers."""
    lines = read_vocabulary(path)
    return [NULL_INTEGER if line == NULL_TEXT else int(line) for line in lines]
''',
    "read_numbers": '''\
def read_numbers(path):
    """Return the lines of a file as numbers."""
    return [float(line) for line in read_vocabulary(path)]
''',
    "as_number": '''\
def as_number(x):
    """Return an integer column as float; NULL is NaN."""
    is_null = ops.equal(x, NULL_INTEGER)
    return ops.where(is_null, float("nan"), ops.cast(x, "float32"))
''',
    "logarithm": '''\
def logarithm(x):
    """Return sign(x) * ln(1 + |x|), which is defined for all numbers."""
    return ops.sign(x) * ops.log1p(ops.abs(x))
''',
    "filled": '''\
def filled(x, mean):
    """Put the mean where a number is NULL (NaN)."""
    return ops.where(ops.isnan(x), mean, x)
''',
    "standardized": '''\
def standardized(x, mean, variance):
    """Return (x - mean) / standard deviation; NULL is taken for the mean."""
    return layers.Rescaling(variance**-0.5, dtype="float32")(filled(x, mean) - mean)
''',
    "normalized": '''\
def normalized(x, minimum, maximum, mean):
    """Return x on the scale from 0 (minimum) to 1; NULL is taken for the mean."""
    scale = 1 / (maximum - minimum)
    return layers.Rescaling(scale, dtype="float32")(filled(x, mean) - minimum)
''',
    "bucketized": '''\
def bucketized(x, boundaries):
    """Return the bucket of a number; NULL has the one after the last."""
    buckets = layers.Discretization(bin_boundaries=boundaries)(x)
    null_bucket = ops.full_like(buckets, len(boundaries) + 1)
    return ops.where(ops.isnan(x), null_bucket, buckets)
''',
    "looked_up": '''\
def looked_up(x, vocabulary):
    """Return the place of a value, from 1; values that are not there have 0."""
    lookup = layers.StringLookup if x.dtype == "string" else layers.IntegerLookup
    # Without a token for unseen values, no value at the front is taken for it.
    return lookup(vocabulary=vocabulary, num_oov_indices=1, oov_token=None)(x)
''',
    "parts_looked_up": '''\
def parts_looked_up(x, vocabulary):
    """Return the places of parts, from 2; parts not there have 1, no part has 0."""
    lookup = layers.StringLookup(vocabulary=vocabulary, mask_token="")
    return lookup(x)
''',
    "items_looked_up": '''\
def items_looked_up(x, vocabulary):
    """Return the places of items, from 2; items not there have 1, no item has 0."""
    if x.dtype == "string":
        return layers.StringLookup(vocabulary=vocabulary, mask_token=NULL_TEXT)(x)
    return layers.IntegerLookup(vocabulary=vocabulary, mask_token=NULL_INTEGER)(x)
''',
    "identified": '''\
def identified(x, buckets):
    """Return an integer below `buckets` as it is; all others, and NULL, are last."""
    inside = ops.logical_and(ops.greater_equal(x, 0), ops.less(x, buckets))
    return ops.where(inside, x, ops.full_like(x, buckets))
''',
    "hashed": '''\
def hashed(x, buckets):
    """Return a hash of the value, from 1 to `buckets`; NULL has 0."""
    null = NULL_TEXT if x.dtype == "string" else NULL_INTEGER
    return layers.Hashing(buckets + 1, mask_value=null)(x)
''',
    "parts_hashed": '''\
def parts_hashed(x, buckets):
    """Return a hash of each part, from 1 to `buckets`; no part has 0."""
    return layers.Hashing(buckets + 1, mask_value="")(x)
''',
    "crossed": '''\
def crossed(columns, buckets):
    """Return a hash of a combination; the layer takes two at a time."""
    first, *others, last = columns
    for column in others:
        first = layers.HashedCrossing(2**31 - 1)((first, column))
    return layers.HashedCrossing(buckets)((first, last))
''',
    "null_indicator": '''\
def null_indicator(x):
    """Return 1 where a value is NULL, else 0."""
    if x.dtype == "float32":
        return ops.cast(ops.isnan(x), "float32")
    null = NULL_TEXT if x.dtype == "string" else NULL_INTEGER
    lookup = layers.StringLookup if x.dtype == "string" else layers.IntegerLookup
    return ops.cast(lookup(vocabulary=[null])(x), "float32")
''',
    "one_hot": '''\
def one_hot(ids, size):
    """Return a vector with 1 at the place of the category, else 0."""
    return layers.CategoryEncoding(size, output_mode="multi_hot")(ids)
''',
    "embedded": '''\
def embedded(ids, size, dim, name):
    """Return a trained vector of `dim` numbers for the category."""
    vectors = layers.Embedding(size, dim, name=name)(ids)
    return layers.Reshape((dim,))(vectors)
''',
    "combined": '''\
def combined(ids, size, dim, combiner, name):
    """Return the mean, sum or sum / sqrt(count) of the vectors of several values."""
    vectors = layers.Embedding(size, dim, name=name)(ids)
    there = ops.cast(ops.expand_dims(ops.not_equal(ids, 0), -1), "float32")
    total = ops.sum(vectors * there, axis=1)
    count = ops.maximum(ops.sum(there, axis=1), 1.0)
    if combiner == "sum":
        return total
    return total / (count if combiner == "mean" else ops.sqrt(count))
''',
    "weighted_one_hot": '''\
def weighted_one_hot(ids, weights, size):
    """Return a vector with the weight of each value at its place, else 0."""
    weights = ops.where(ops.not_equal(ids, 0), weights, 0.0)
    return ops.sum(ops.one_hot(ids, size) * ops.expand_dims(weights, -1), axis=1)
''',
    "weighted": '''\
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
''',
    "joined": '''\
def joined(columns):
    """Return columns side by side."""
    return layers.Concatenate()(columns) if len(columns) > 1 else columns[0]
''',
}
SPLIT = '''\
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
'''
WEIGHTED = '''\
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
'''
NUMBERED = '''\
@keras.saving.register_keras_serializable("elasticdl_sql")
class Numbered(layers.Layer):
    """Reads parts as numbers below `buckets`, from 1; others are last, "" is 0."""

    def __init__(self, buckets, **kwargs):
        super().__init__(**kwargs)
        self.buckets = buckets

    def call(self, x):
        x = tf.strings.strip(x)
        is_number = tf.strings.regex_full_match(x, "[0-9]{1,18}")
        numbers = tf.strings.to_number(tf.where(is_number, x, "-1"), tf.int64)
        inside = tf.logical_and(numbers >= 0, numbers < self.buckets)
        numbers = tf.where(inside, numbers + 1, self.buckets + 1)
        return tf.where(tf.equal(x, ""), tf.zeros_like(numbers), numbers)

    def compute_output_spec(self, x):
        return keras.KerasTensor(x.shape, dtype="int64")

    def get_config(self):
        return {**super().get_config(), "buckets": self.buckets}
'''
NUMBERS = '''\
@keras.saving.register_keras_serializable("elasticdl_sql")
class Numbers(layers.Layer):
    """Reads a text as "1.5,2"; one with other than `means` numbers has the means."""

    def __init__(self, delimiter, means, **kwargs):
        super().__init__(**kwargs)
        self.delimiter = delimiter
        self.means = means

    def call(self, x):
        parts = tf.strings.split(tf.reshape(x, [-1]), self.delimiter)
        count = len(self.means)
        is_right = tf.equal(parts.row_lengths(), count)
        parts = tf.strings.strip(parts.to_tensor("", shape=[None, count]))
        is_number = tf.strings.regex_full_match(parts, NUMBER)
        numbers = tf.strings.to_number(tf.where(is_number, parts, "0"))
        is_number = tf.logical_and(is_number, tf.math.is_finite(numbers))
        is_right = tf.logical_and(is_right, tf.reduce_all(is_number, axis=1))
        return tf.where(is_right[:, None], numbers, tf.constant(self.means))

    def compute_output_spec(self, x):
        return keras.KerasTensor((x.shape[0], len(self.means)))

    def get_config(self):
        config = super().get_config()
        return {**config, "delimiter": self.delimiter, "means": self.means}
'''
LAYERS = {
    "Split": SPLIT,
    "Weighted": WEIGHTED,
    "Numbered": NUMBERED,
    "Numbers": NUMBERS,
}
# What a helper is made of besides Keras.
NEEDS = {
    "read_integers": ("read_vocabulary",),
    "read_numbers": ("read_vocabulary",),
    "standardized": ("filled",),
    "normalized": ("filled",),
}
OF_NULL_INTEGER = (
    "as_number",
    "hashed",
    "items_looked_up",
    "null_indicator",
    "read_integers",
)
OF_NULL_TEXT = ("hashed", "items_looked_up", "null_indicator", "read_integers")


def texts(used: set[str]) -> list[str]:
    """Return the texts of the helpers in use and of those that they need."""
    every = used | {need for name in used for need in NEEDS.get(name, ())}
    found = [text for name, text in LAYERS.items() if name in used]
    return found + [text for name, text in HELPERS.items() if name in every]
