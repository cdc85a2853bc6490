"""Updates that XLA compiles are Keras's."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from elasticdl.model.variables import view
from elasticdl.worker.steps.fused_update import fuse

STEPS = 12
OPTIMIZERS = {
    "adadelta": lambda: keras.optimizers.Adadelta(0.5),
    "adagrad": lambda: keras.optimizers.Adagrad(0.05),
    "adam": lambda: keras.optimizers.Adam(0.01),
    "amsgrad": lambda: keras.optimizers.Adam(0.01, amsgrad=True, clipnorm=0.5),
    "accumulated": lambda: keras.optimizers.Adam(0.01, gradient_accumulation_steps=2),
    "adamax": lambda: keras.optimizers.Adamax(0.01),
    "adamw": lambda: keras.optimizers.AdamW(0.01, weight_decay=0.1, use_ema=True),
    "ftrl": lambda: keras.optimizers.Ftrl(0.05),
    "lion": lambda: keras.optimizers.Lion(0.001, global_clipnorm=1.0),
    "nadam": lambda: keras.optimizers.Nadam(0.01),
    "rmsprop": lambda: keras.optimizers.RMSprop(0.01, momentum=0.9, centered=True),
    "scaled": lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.01)),
    "scheduled": lambda: keras.optimizers.SGD(
        keras.optimizers.schedules.ExponentialDecay(0.1, 4, 0.5), 0.9, nesterov=True
    ),
}


class Trained:
    """Variables, one of them small, with an optimizer that updates them in a graph."""

    def __init__(self, make, *, fused) -> None:
        random = np.random.default_rng(5)
        self.variables = [
            keras.Variable(random.normal(size=size).astype(np.float32))
            for size in ((40, 30), (7,))
        ]
        self.optimizer = make()
        if fused:
            fuse(self.optimizer, self.variables, least_floats=1000)
        self.optimizer.build(self.variables)
        self.step = tf.function(self._step)

    def _step(self, gradients):
        self.optimizer.apply_gradients(zip(gradients, self.variables, strict=True))

    def train(self, seed):
        random = np.random.default_rng(seed)
        self.step(
            [
                tf.constant(random.normal(size=v.shape).astype(np.float32))
                for v in self.variables
            ]
        )


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_compiled_update_is_kerass_own(name) -> None:
    ours, plain = (Trained(OPTIMIZERS[name], fused=fused) for fused in (True, False))
    for seed in range(STEPS):
        ours.train(seed)
        plain.train(seed)
    for mine, theirs in zip(
        (*ours.variables, *ours.optimizer.variables),
        (*plain.variables, *plain.optimizer.variables),
        strict=True,
    ):
        # Ftrl takes differences of numbers as large as its largest.
        scale = max(1.0, float(np.abs(theirs).max()))
        np.testing.assert_allclose(mine, theirs, rtol=2e-6, atol=2e-6 * scale)


def _compiled(trained) -> int:
    """Return how many updates of the traced step XLA compiles."""
    concrete = trained.step.get_concrete_function(
        [tf.TensorSpec(v.shape) for v in trained.variables]
    )
    graph = concrete.graph.as_graph_def()
    nodes = [*graph.node]
    for function in graph.library.function:
        nodes += function.node_def
    return sum(n.attr["_XlaMustCompile"].b for n in nodes)


def test_large_variables_alone_are_compiled() -> None:
    assert _compiled(Trained(keras.optimizers.Adam, fused=True)) == 1
    assert _compiled(Trained(keras.optimizers.Adam, fused=False)) == 0


def test_an_optimizer_of_ones_own_and_one_with_norms_stay_as_they_are() -> None:
    class Own(keras.optimizers.Adam):
        """May do what XLA cannot."""

    for make in (Own, keras.optimizers.Lamb):
        assert _compiled(Trained(make, fused=True)) == 0


def test_what_was_lent_of_a_variable_stays_while_updates_go_on() -> None:
    trained = Trained(keras.optimizers.Adam, fused=True)
    trained.train(0)
    lent = view(trained.variables[0])
    before = lent.copy()
    trained.train(1)
    np.testing.assert_array_equal(lent, before)
    assert not np.array_equal(view(trained.variables[0]), before)


def test_rows_of_gradients_are_applied_by_keras() -> None:
    def rows(fused):
        table = keras.Variable(np.ones((50, 30), np.float32))
        optimizer = keras.optimizers.Adam(0.1)
        if fused:
            fuse(optimizer, [table], least_floats=1000)
        optimizer.build([table])
        part = tf.IndexedSlices(tf.ones((2, 30)), tf.constant([3, 7]), (50, 30))
        tf.function(lambda: optimizer.apply_gradients([(part, table)]))()
        return table.numpy()

    np.testing.assert_array_equal(rows(True), rows(False))
