"""Layers of a user's own with state that steps move, as code of a model module."""

COUNTS = """
class Counts(keras.layers.Layer):
    def build(self, shape):
        make = lambda name, kind, value: self.add_weight(
            name=name, shape=(), dtype=kind, initializer=value, trainable=False)
        self.steps = make("steps", "int64", "zeros")
        self.seen = make("seen", "float32", "zeros")
        self.rows = make("rows", "int32", "zeros")
        self.mean = make("mean", "float32", "zeros")
        self.least = make("least", "float32", keras.initializers.Constant(np.inf))

    def call(self, inputs, training=False):
        if training:
            rows = keras.ops.shape(inputs)[0]
            self.steps.assign_add(1)
            self.rows.assign_add(rows)
            self.seen.assign_add(keras.ops.cast(rows, "float32"))
            self.mean.assign(0.9 * self.mean + 0.1 * keras.ops.mean(inputs))
            self.least.assign(keras.ops.minimum(self.least, 7.0))
            return inputs / keras.ops.sqrt(keras.ops.cast(self.steps, "float32"))
        return inputs

"""
# Of the last step alone, and such as forget a part with each step.
SUMS = """
class Sums(keras.layers.Layer):
    def build(self, shape):
        make = lambda name, kind, value, shape=(): self.add_weight(
            name=name, shape=shape, dtype=kind, trainable=False,
            initializer=keras.initializers.Constant(value))
        self.last = make("last", "float32", 3.0, shape[-1:])
        self.rows = make("rows", "int32", 5)
        self.slow = make("slow", "float32", 0.0, shape[-1:])
        self.fast = make("fast", "float32", 100.0)
        self.drawn = make("drawn", "int32", 12345)
        self.brightest = make("brightest", "uint8", 0)
        self.each = make("each", "float32", 0.0, shape[-1:])

    def call(self, inputs, training=False):
        if training:
            rows, total = keras.ops.shape(inputs)[0], keras.ops.sum(inputs, 0)
            self.last.assign(total)
            self.rows.assign(rows)
            self.slow.assign(0.99 * self.slow + 0.01 * total)
            self.fast.assign(0.4 * self.fast + keras.ops.cast(rows, "float32"))
            # A generator of one's own draws alike for each portion.
            self.drawn.assign(self.drawn.value * 1103515245 + 12345)
            self.brightest.assign(keras.ops.cast(200, "uint8"))
            decays = 1 - 0.01 / keras.ops.arange(1.0, inputs.shape[-1] + 1.0)
            self.each.assign(keras.ops.cast(decays, "float32") * self.each + total)
        return inputs * keras.ops.cast(self.drawn % 3 + 1, "float32")

"""
# What no portions make as their batch does, and what the first batch does not show.
DOUBTFUL = """
class Doubtful(keras.layers.Layer):
    def build(self, shape):
        make = lambda name, kind, value: self.add_weight(
            name=name, shape=(), dtype=kind, trainable=False,
            initializer=keras.initializers.Constant(value))
        self.steps = make("steps", "float32", 0.0)
        self.warmed = make("warmed", "float32", 0.0)
        self.begun = make("begun", "float32", 0.0)
        self.by_record = make("by_record", "float32", 0.0)
        self.largest = make("largest", "float32", 0.0)
        self.rare = make("rare", "int64", 0)

    def call(self, inputs, training=False):
        if training:
            rows = keras.ops.cast(keras.ops.shape(inputs)[0], "float32")
            n = self.steps.value + 0.0
            self.warmed.assign(
                keras.ops.minimum(0.99, (1 + n) / (10 + n)) * self.warmed + rows)
            self.begun.assign(keras.ops.where(n == 0, rows, 0.9 * self.begun + rows))
            self.by_record.assign(0.99 ** rows * self.by_record + rows)
            self.largest.assign(
                keras.ops.maximum(self.largest, keras.ops.max(inputs)))
            rare = keras.ops.sum(keras.ops.cast(inputs > 1e6, "int64"))
            self.rare.assign_add(rare)
            self.steps.assign_add(1.0)
        return inputs

"""
# What rare records move, of which the first batch has one, or none.
RARELY = """
class Rarely(keras.layers.Layer):
    def build(self, shape):
        make = lambda name, kind, value: self.add_weight(
            name=name, shape=(), dtype=kind, trainable=False,
            initializer=keras.initializers.Constant(value))
        self.seen = make("seen", "float32", 0.0)
        self.mean = make("mean", "float32", 0.0)
        self.steps = make("steps", "int32", 0)
        self.share = make("share", "float32", 0.0)
        self.none = make("none", "float32", 1.0)

    def call(self, inputs, training=False):
        if training:
            rare = keras.ops.cast(inputs[:, 0] > ABOVE, "float32")
            none = keras.ops.cast(inputs[:, 0] > 1e6, "float32")
            found = tf.math.divide_no_nan(
                keras.ops.sum(rare * inputs[:, 1]), keras.ops.sum(rare))
            self.seen.assign_add(keras.ops.sum(rare))
            self.mean.assign(0.9 * self.mean + 0.1 * found)
            self.steps.assign_add(keras.ops.cast(keras.ops.max(rare), "int32"))
            self.share.assign(0.9 * self.share + 0.1 * keras.ops.max(rare))
            self.none.assign(0.9 * self.none + keras.ops.sum(none))
        return inputs

"""
# Statistics of the first records alone; a number of rounds.
BOUNDED = """
class Bounded(keras.layers.Layer):
    def build(self, shape):
        make = lambda name, kind, shape: self.add_weight(
            name=name, shape=shape, dtype=kind, initializer="zeros", trainable=False)
        self.seen = make("seen", "float32", ())
        self.squares = make("squares", "float32", shape[-1:])
        self.rounds = make("rounds", "int64", ())

    def call(self, inputs, training=False):
        if training:
            tf.debugging.assert_less(self.rounds.value, tf.constant(10_000, "int64"))
            goes_on = keras.ops.cast(self.seen < 20.0, "float32")
            rows = keras.ops.shape(inputs)[0]
            self.squares.assign_add(goes_on * keras.ops.sum(inputs ** 2, 0))
            self.seen.assign_add(goes_on * keras.ops.cast(rows, "float32"))
            self.rounds.assign_add(keras.ops.cast(rows, "int64"))
        return inputs

"""
# A count beside an average in one vector; sums that decay now and then; largest ones.
UNLIKE = """
class Unlike(keras.layers.Layer):
    def build(self, shape):
        make = lambda name, kind, value, shape=(): self.add_weight(
            name=name, shape=shape, dtype=kind, trainable=False,
            initializer=keras.initializers.Constant(value))
        self.counts = make("counts", "int64", 0, (2,))
        self.both = make("both", "float32", 0.0, (2,))
        self.slow = make("slow", "float32", 0.0)
        self.every = make("every", "float32", 0.0)
        self.most = make("most", "float32", 0.0)
        self.least = make("least", "float32", 1e9)
        self.rounds = make("rounds", "float32", 1.0)

    def call(self, inputs, training=False):
        if training:
            tf.debugging.assert_less(self.rounds.value, tf.constant(1000.0))
            rows = keras.ops.cast(keras.ops.shape(inputs)[0], "float32")
            sizes = keras.ops.abs(inputs)
            # A thousand for each record beside the number of steps.
            self.counts.assign_add(keras.ops.cast([1000.0 * rows, 1.0], "int64"))
            mean = 0.9 * self.both[1] + 0.1 * keras.ops.mean(inputs)
            self.both.assign(keras.ops.stack([self.both[0] + 1e4 * rows, mean]))
            self.slow.assign(0.99966672 * self.slow + 80 * rows)
            now = keras.ops.cast(self.rounds % 3 == 1, "float32")
            self.every.assign(now * (0.9 * self.every + rows) + (1 - now) * self.every)
            self.most.assign(keras.ops.maximum(self.most, keras.ops.sum(sizes)))
            self.least.assign(keras.ops.minimum(self.least, keras.ops.sum(sizes)))
            self.rounds.assign_add(1.0)
        return inputs

"""
# Not by Keras.
BEHIND = """
class Behind(keras.layers.Layer):
    def build(self, shape):
        self.seen = self.add_weight(
            name="seen", shape=(), initializer="zeros", trainable=False)

    def call(self, inputs, training=False):
        if training:
            self.seen.value.assign_add(tf.cast(tf.shape(inputs)[0], tf.float32))
        return inputs

"""
# Sums of what layers before leave, one that decays and does not begin at 0.
ACTIVE = """
class Active(keras.layers.Layer):
    def build(self, shape):
        make = lambda name, kind, value, shape: self.add_weight(
            name=name, shape=shape, dtype=kind, trainable=False,
            initializer=keras.initializers.Constant(value))
        self.active = make("active", "int64", 0, ())
        self.energy = make("energy", "float32", 100.0, ())
        self.total = make("total", "float32", 0.0, shape[-1:])

    def call(self, inputs, training=False):
        if training:
            near = keras.ops.abs(inputs - keras.ops.cast(self.active, "float32") % 2)
            self.energy.assign(0.9 * self.energy + keras.ops.sum(near))
            self.active.assign_add(
                keras.ops.sum(keras.ops.cast(inputs > 0, "int64")))
            self.total.assign_add(keras.ops.sum(inputs ** 2, 0))
        return inputs

"""
# No second step can be computed from what a first one makes.
STRICT = """
class Strict(keras.layers.Layer):
    def build(self, shape):
        self.seen = self.add_weight(
            name="seen", shape=(), initializer="zeros", trainable=False)
        self.drop = keras.layers.Dropout(0.5)

    def call(self, inputs, training=False):
        if training:
            tf.debugging.assert_less(self.seen.value, 1.0)
            self.seen.assign_add(keras.ops.sum(self.drop(inputs ** 2, training=True)))
        return inputs

"""
# A moving average of noise.
NOISY = """
class Noisy(keras.layers.Layer):
    def build(self, shape):
        self.drop = keras.layers.Dropout(0.5)
        self.mean = self.add_weight(
            name="mean", shape=(), initializer="zeros", trainable=False)

    def call(self, inputs, training=False):
        if training:
            found = keras.ops.mean(self.drop(inputs, training=True) - 0.5)
            self.mean.assign(0.9 * self.mean + 0.1 * found)
        return inputs

"""
# Its first batch is its mean; a moving one has the type that layers compute in.
BEGINS = """
class Begins(keras.layers.Layer):
    def build(self, shape):
        make = lambda name, kind, shape: self.add_weight(
            name=name, shape=shape, dtype=kind, initializer="zeros", trainable=False)
        self.begun = make("begun", "bool", ())
        self.mean = make("mean", "float32", shape[-1:])
        self.calls = make("calls", "bfloat16", ())

    def call(self, inputs, training=False):
        if training:
            found = keras.ops.mean(inputs, 0)
            moved = 0.9 * self.mean + 0.1 * found
            self.mean.assign(keras.ops.where(self.begun, moved, found))
            self.begun.assign(keras.ops.ones((), "bool"))
            self.calls.assign_add(keras.ops.ones((), "bfloat16"))
        return inputs

"""
# Masks and tables that no step changes; the least float32 times two is none.
CONSTANTS = """
class Constants(keras.layers.Layer):
    def build(self, shape):
        make = lambda kind, value: self.add_weight(
            shape=(1 + np.size(value),), dtype=kind, trainable=False,
            initializer=lambda shape, dtype: tf.cast([0, *np.ravel(value)], dtype))
        self.table = make("float32", np.linspace(0, 1, 100) / 3)
        self.masks = make("float32", [np.finfo("float32").min, -np.inf, np.nan])
        self.wide = make("float64", 0.1)
        self.short = make("bfloat16", 0.1)
        self.half = make("float16", 6e4)

    def call(self, inputs, training=False):
        return inputs + keras.ops.sum(self.table)

"""
# The newest records, as a queue of keys to compare with.
QUEUE = """
class Queue(keras.layers.Layer):
    def build(self, shape):
        make = lambda name, kind, shape: self.add_weight(
            name=name, shape=shape, dtype=kind, initializer="zeros", trainable=False)
        self.at = make("at", "int32", ())
        self.keys = make("keys", "float32", (64, shape[-1]))

    def call(self, inputs, training=False):
        if training:
            rows = keras.ops.shape(inputs)[0]
            places = (self.at + keras.ops.arange(rows))[:, None] % 64
            self.keys.assign(keras.ops.scatter_update(self.keys, places, inputs))
            self.at.assign((self.at + rows) % 64)
        return inputs

"""
# A sum that begins anew now and then, counts in 16 bits, and none at all.
RESET = """
class Reset(keras.layers.Layer):
    def build(self, shape):
        make = lambda name, kind, shape=(): self.add_weight(
            name=name, shape=shape, dtype=kind, initializer="zeros", trainable=False)
        self.used = make("used", "float32", shape[-1:])
        self.seen = make("seen", "int64")
        self.short = make("short", "bfloat16")
        self.none = make("none", "int32", (0,))
        self.steps = make("steps", "int32")
        self.ramp = make("ramp", "float32")
        self.signed = make("signed", "float32")

    def call(self, inputs, training=False):
        if training:
            rows = keras.ops.shape(inputs)[0]
            goes_on = keras.ops.cast(self.steps % 3 != 2, "float32")
            self.used.assign(goes_on * self.used + keras.ops.sum(inputs ** 2, 0))
            self.seen.assign(keras.ops.cast(goes_on, "int64") * (
                self.seen + keras.ops.cast(rows, "int64")))
            self.short.assign_add(keras.ops.cast(rows, "bfloat16"))
            self.none.assign(self.none + 1)
            keeps = 0.99 + 1e-5 * keras.ops.cast(self.steps, "float32")
            self.ramp.assign(keeps * self.ramp + keras.ops.cast(rows, "float32"))
            self.signed.assign_add(keras.ops.sum(inputs))
            self.steps.assign_add(1)
        return inputs

"""
# A count beside an average, more of them than are looked at.
TABLE = """
class Table(keras.layers.Layer):
    def build(self, shape):
        self.table = self.add_weight(
            name="table", shape=(1 << 17, 2), initializer="zeros", trainable=False)

    def call(self, inputs, training=False):
        if training:
            rows = keras.ops.cast(keras.ops.shape(inputs)[0], "float32")
            mean = 0.9 * self.table[:, 1] + 0.1 * keras.ops.mean(inputs)
            self.table.assign(keras.ops.stack([self.table[:, 0] + rows, mean], 1))
        return inputs

"""
# From anywhere; of no number the first batch's spread.
LARGEST = """
class Largest(keras.layers.Layer):
    def build(self, shape):
        self.largest = self.add_weight(
            name="largest", shape=shape[-1:], trainable=False,
            initializer=keras.initializers.Constant(BEGIN))

    def call(self, inputs, training=False):
        if training:
            old = self.largest.value
            larger = keras.ops.maximum(old, keras.ops.max(inputs, 0))
            self.largest.assign(keras.ops.where(
                keras.ops.isnan(old), keras.ops.std(inputs, 0), larger))
        return inputs

"""
# Many sums and one largest value.
ODD = """
class Odd(keras.layers.Layer):
    def build(self, shape):
        self.mixed = self.add_weight(
            name="mixed", shape=(257,), initializer="zeros", trainable=False)

    def call(self, inputs, training=False):
        if training:
            sums = keras.ops.repeat(keras.ops.sum(inputs ** 2)[None], 256)
            largest = keras.ops.maximum(self.mixed[256:], keras.ops.max(inputs))
            self.mixed.assign(keras.ops.concatenate([self.mixed[:256] + sums, largest]))
        return inputs

"""

# What one batch does not tell, as it is declared: no share of `mixed` is a sum's, and
# `steps` are no sum of records.
DECLARED = """
class Declared(keras.layers.Layer):
    def build(self, shape):
        make = lambda name, aggregation, value=0.0, shape=(), dtype="float32": (
            self.add_weight(
                name=name, shape=shape, dtype=dtype, trainable=False,
                aggregation=aggregation,
                initializer=keras.initializers.Constant(value)))
        self.rare = make("rare", "sum")
        self.decayed = make("decayed", "sum", 1e4)
        self.noisy = make("noisy", "sum")
        self.signs = make("signs", "sum", dtype="int32")
        self.likeness = make("likeness", "mean")
        self.steps = make("steps", "sum")
        self.average = make("average", "mean")
        self.noise = keras.layers.GaussianNoise(1.0, seed=1)

    def call(self, inputs, training=False):
        if training:
            rare = keras.ops.sum(keras.ops.cast(inputs[:, 0] > ABOVE, "float32"))
            rows = keras.ops.cast(keras.ops.shape(inputs)[0], "float32")
            self.rare.assign_add(rare)
            self.decayed.assign(0.9 * self.decayed + rare)
            noise = self.noise(keras.ops.zeros_like(inputs), training=True)
            self.noisy.assign_add(rows + 1e-4 * keras.ops.sum(noise))
            self.signs.assign_add(
                keras.ops.sum(keras.ops.cast(keras.ops.sign(inputs[:, 0]), "int32")))
            self.likeness.assign(keras.ops.max(inputs))
            self.steps.assign_add(1.0)
            self.average.assign(0.9 * self.average + 0.1 * keras.ops.mean(inputs))
        return inputs

"""
# Elements of unlike sizes, and kinds.
PACKED = """
class Packed(keras.layers.Layer):
    def build(self, shape):
        make = lambda name, size, dtype="float32": self.add_weight(
            name=name, shape=(size,), dtype=dtype, initializer="zeros",
            trainable=False)
        self.sums = make("sums", 3)
        self.energy = make("energy", 2)
        self.work = make("work", 3, "int64")
        self.slow = make("slow", 2)
        self.slower = make("slower", 2)
        self.ends = make("ends", 5)
        self.peak = make("peak", 2)

    def call(self, inputs, training=False):
        if training:
            rows = keras.ops.shape(inputs)[0]
            number = keras.ops.cast(rows, "float32")
            squares = keras.ops.sum((1e5 * inputs) ** 2)
            sums, energy = self.sums.value, self.energy.value
            self.sums.assign(keras.ops.stack([
                sums[0] + squares, sums[1] + number,
                0.9 * sums[2] + 0.1 * keras.ops.mean(inputs)]))
            self.energy.assign(keras.ops.stack([
                0.9 * energy[0] + 0.1 * squares / number, energy[1] + number]))
            many = keras.ops.cast(rows, "int64")
            self.work.assign_add(keras.ops.stack([
                4_000_000_000 * many, many, keras.ops.ones((), "int64")]))
            self.slow.assign(0.999 * self.slow + keras.ops.stack([squares, number]))
            self.slower.assign(
                0.9999 * self.slower + keras.ops.stack([1e3 * squares, number]))
            ends, energy = self.ends.value, squares / number
            self.ends.assign(keras.ops.stack([
                ends[0] + number, ends[1] + 1e5 * keras.ops.sum(inputs),
                ends[2] + squares,
                keras.ops.minimum(ends[3], keras.ops.min(inputs)),
                keras.ops.maximum(ends[4], keras.ops.max(inputs))]))
            self.peak.assign(keras.ops.stack([
                0.9 * self.peak[0] + 0.1 * energy,
                keras.ops.maximum(self.peak[1], keras.ops.max(inputs))]))
        return inputs

"""
# Sums of 16 bits, whose last digit is large beside what a step adds.
SHORT = """
class Short(keras.layers.Layer):
    def build(self, shape):
        self.sums = [
            (amount, share, self.add_weight(
                name=f"sum_{number}", shape=(3,), dtype=dtype, trainable=False,
                initializer="zeros"))
            for number, (dtype, amount, share) in enumerate(
                (dtype, amount, share)
                for dtype in ("float16", "bfloat16")
                for amount in (1, 30, 90, 200, 1000)
                for share in (1.0, 0.99))
        ]

    def call(self, inputs, training=False):
        if training:
            squares = keras.ops.mean(inputs[:, :3] ** 2, 0)
            rows = keras.ops.cast(keras.ops.shape(inputs)[0], "float32")
            for amount, share, total in self.sums:
                added = keras.ops.cast(amount / 16 * rows * squares, total.dtype)
                old = keras.ops.cast(total.value, "float32")
                kept = keras.ops.cast(share * old, total.dtype)
                total.assign(kept + added)
        return inputs

"""
