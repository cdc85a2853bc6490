"""Which code AutoGraph converts: that which needs it, and no other."""

import pytest
import tensorflow as tf
from elasticdl.model.tracing import GraphFunction

ENABLED = tf.__internal__.autograph.control_status_ctx().status.ENABLED


def status():
    return tf.__internal__.autograph.control_status_ctx().status


def test_what_a_graph_can_have_as_it_is_is_not_converted_as_in_fit():
    seen = []

    def doubled(x):
        seen.append(status())
        return 2 * x

    function = GraphFunction(doubled)
    assert function(tf.constant(2.0)) == 4
    assert seen
    assert ENABLED not in seen


def test_an_if_and_a_loop_on_tensors_are_converted():
    seen = []

    def clipped(x):
        seen.append(status())
        total = tf.constant(0.0)
        for one in x:
            if one > 0:
                total += one
        return total

    function = GraphFunction(clipped, reduce_retracing=True)
    assert function(tf.constant([1.0, -2.0, 3.0])) == 4
    concrete = function.get_concrete_function(tf.TensorSpec([None], tf.float32))
    assert concrete(tf.constant([5.0])) == 5
    # Once found out, it is not tried again.
    assert seen[0] != ENABLED
    assert set(seen[1:]) == {ENABLED}


def test_an_if_that_another_form_alone_meets_is_converted_then():
    def either(x):
        if x.shape.rank == 1 and x[0] > 0:
            return -x
        return x

    function = GraphFunction(either)
    assert function(tf.constant(1.0)) == 1
    assert function(tf.constant([2.0])) == -2
    assert function(tf.constant([-2.0])) == -2
    assert function(tf.constant(1.0)) == 1


def test_a_mistake_of_the_users_is_told_as_it_is():
    def wrong(x):
        return len(7) + x

    with pytest.raises(TypeError, match="has no len"):
        GraphFunction(wrong)(tf.constant(1.0))
