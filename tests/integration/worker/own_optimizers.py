"""Optimizers of a user's own that hold others of Keras, as code of a model module."""

HOLDING = """

class Holding(keras.optimizers.Optimizer):
    # Adam for kernels, SGD for biases; where each may have a slot of its own name.

    def __init__(self, rate=0.05):
        super().__init__(learning_rate=rate)
        self.kernels = [keras.optimizers.Adam(rate)]
        self.others = {"biases": keras.optimizers.SGD(rate, momentum=0.9)}
        self.twice = keras.optimizers.SGD(rate / 10, momentum=0.5)

    def build(self, variables):
        if self.built:
            return
        super().build(variables)
        self.kernels[0].build([v for v in variables if len(v.shape) > 1])
        self.others["biases"].build([v for v in variables if len(v.shape) < 2])
        self.twice.build(variables)

    def apply(self, grads, trainable_variables=None):
        variables = trainable_variables or self._trainable_variables
        pairs = list(zip(grads, variables))
        kernels = [(g, v) for g, v in pairs if len(v.shape) > 1]
        self.kernels[0].apply_gradients(kernels)
        biases = [(g, v) for g, v in pairs if len(v.shape) < 2]
        self.others["biases"].apply_gradients(biases)
        self.twice.apply_gradients(pairs)
        self.iterations.assign_add(1)


def optimizer():
    return Holding()
"""

# The rate of the one that it holds is its own.
FORWARDING = """

class Forwarding(keras.optimizers.Optimizer):
    def __init__(self, held):
        super().__init__(learning_rate=float(held.learning_rate.numpy()))
        self.held = held

    @property
    def learning_rate(self):
        return self.held.learning_rate

    @learning_rate.setter
    def learning_rate(self, value):
        self.held.learning_rate = value

    def build(self, variables):
        if self.built:
            return
        super().build(variables)
        self.held.build(variables)
        # By layer.
        self.rates = keras.Variable([0.5, 0.25], name="learning_rate")

    def apply(self, grads, trainable_variables=None):
        self.held.apply(grads, trainable_variables)
        self.rates.assign(self.rates * 0.5)
        self.iterations.assign_add(1)


def optimizer():
    return Forwarding(keras.optimizers.SGD(0.1))
"""

# So are the rates of both.
PASSING_ON = (
    FORWARDING
    + """

class PassingOn(Forwarding):
    def __init__(self, held, others):
        super().__init__(held)
        self.others = others

    @Forwarding.learning_rate.setter
    def learning_rate(self, value):
        self.held.learning_rate = value
        self.others.learning_rate = value

    def build(self, variables):
        super().build(variables)
        self.others.build(variables)

    def apply(self, grads, trainable_variables=None):
        super().apply(grads, trainable_variables)
        self.others.apply(grads, trainable_variables)


def optimizer():
    return PassingOn(keras.optimizers.SGD(0.1), keras.optimizers.Adam(0.1))
"""
)

# Whoever sets its rate changes more, and may come to an error in the middle.
REFUSING = """

class Refusing(keras.optimizers.SGD):
    def __init__(self):
        super().__init__(0.1)
        self.warm = keras.Variable(1.0, trainable=False, name="warm")

    @property
    def learning_rate(self):
        return self._learning_rate

    @learning_rate.setter
    def learning_rate(self, value):
        self._learning_rate.assign(value)
        self.warm.assign(0.0)
        RAISES


def optimizer():
    return Refusing()
"""

# A metric, a schedule and an object of one's own that have variables.
COUNTING = """

class Pace(keras.optimizers.schedules.LearningRateSchedule):
    def __init__(self, rate):
        self.rate = keras.Variable(rate, trainable=False, name="pace")

    def __call__(self, step):
        return self.rate.value

    def get_config(self):
        return {}


class Factor:
    def __init__(self):
        self.value = keras.Variable(1.0, trainable=False, name="factor")


class Counting(keras.optimizers.Optimizer):
    def __init__(self, rate=0.2):
        super().__init__(learning_rate=Pace(rate))
        self.norms = keras.metrics.Mean(name="norms")
        self.factor = Factor()

    def update_step(self, gradient, variable, learning_rate):
        self.norms.update_state(keras.ops.norm(gradient))
        scale = self.factor.value / (1 + self.norms.result())
        self.assign_sub(variable, learning_rate * scale * gradient)

    def apply(self, grads, trainable_variables=None):
        super().apply(grads, trainable_variables)
        self.factor.value.assign(self.factor.value * 0.9)
        self._learning_rate.rate.assign(self._learning_rate.rate * 0.95)


def optimizer():
    return Counting()
"""

# A rate that moves by itself, a state of 16 bits, and random numbers.
MOVING = """

class Moving(keras.optimizers.SGD):
    def __init__(self, rate):
        super().__init__(rate)
        self.held = keras.optimizers.SGD(rate)
        self.drawn = keras.random.SeedGenerator(1)
        self.layer = keras.layers.GaussianNoise(0.1, seed=3)
        self.initial = keras.initializers.RandomNormal(
            seed=keras.random.SeedGenerator(3)
        )

    def build(self, variables):
        if self.built:
            return
        super().build(variables)
        self.held.build(variables)
        self.scale = keras.Variable(0.375, dtype="bfloat16", trainable=False, name="s")

    def apply(self, grads, trainable_variables=None):
        self.held.learning_rate = self.held.learning_rate * 0.9
        noise = keras.random.uniform((), 0.5, 1.5, seed=self.drawn)
        noise = self.layer(noise, training=True) + self.initial(())
        factor = noise * keras.ops.cast(self.scale, "float32")
        self.scale.assign(self.scale * 1.0625)
        self.held.apply([g * factor for g in grads], trainable_variables)
        self.iterations.assign_add(1)


def optimizer():
    return Moving(RATE)
"""

# The first step makes what it needs.
LATE = """

class Late(keras.optimizers.SGD):
    def __init__(self, rate):
        super().__init__(rate)
        self.within = keras.optimizers.SGD(rate, momentum=0.9)

    def apply(self, grads, trainable_variables=None):
        variables = trainable_variables or self._trainable_variables
        self.within.apply(grads, variables)
        self.iterations.assign_add(1)


def optimizer():
    return Late(0.05)
"""

TENSORFLOWS = """
import tensorflow as tf


class Tensorflows(keras.optimizers.SGD):
    def build(self, variables):
        super().build(variables)
        self.seen = tf.Variable(0.0)


def optimizer():
    return Tensorflows(0.05)
"""
