"""Variables to and from flat buffers; state by what happens to it."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from elasticdl.model import state as states
from elasticdl.model import variables
from elasticdl.tensor.placement import GradientKind, place

from tests.integration.model.conftest import CLASSIC


@pytest.mark.parametrize("num_ps", [1, 2, 4])
def test_values_come_back_from_the_buffers_of_any_number_of_ps(built, num_ps):
    model = built(CLASSIC, params={"units": 50}).model
    named = variables.trainable_variables(model)
    kinds = {named[0].name: GradientKind.ROWWISE, named[3].name: GradientKind.FROZEN}
    layout = place(variables.layout_variables(named, kinds), num_ps)
    before = model.get_weights()
    buffers = variables.read(named, layout)
    assert [len(b) for b in buffers] == [layout.size(ps) for ps in range(num_ps)]
    model.set_weights([w * 0 for w in before])
    variables.write(named, layout, buffers)
    for one, other in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_dense_gradient_is_the_prefix_of_the_buffer(built):
    named = variables.trainable_variables(built(CLASSIC).model)
    kinds = {named[0].name: GradientKind.ROWWISE}
    layout = place(variables.layout_variables(named, kinds), 2)
    arrays = [np.full(v.shape, i, np.float32) for i, v in enumerate(named)]
    whole = variables.to_buffers(arrays, layout)
    dense = variables.to_buffers(arrays, layout, dense_only=True)
    for ps in range(2):
        assert len(dense[ps]) == layout.dense_size(ps)
        np.testing.assert_array_equal(dense[ps], whole[ps][: len(dense[ps])])


def test_equal_paths_get_names_of_their_own():
    one, two = (keras.Variable(tf.zeros(2), name="same") for _ in range(2))
    assert [v.name for v in variables.named([one, two])] == ["same", "same#2"]


STATE = CLASSIC.replace(
    "    return keras.Model(",
    "    frozen = keras.layers.Dense(units, trainable=False, name='frozen')\n"
    "    hidden = frozen(keras.layers.BatchNormalization()(hidden))\n"
    "    hidden = keras.layers.Dropout(0.5)(hidden)\n"
    "    return keras.Model(",
)


def test_state_is_sorted_by_what_happens_to_it(built):
    state = states.non_trainable(built(STATE).model)
    assert [v.name.rsplit("/")[-1] for v in state.shared] == [
        "moving_mean",
        "moving_variance",
    ]
    assert [v.name for v in state.frozen] == ["frozen/kernel", "frozen/bias"]
    assert [v.name.rsplit("/")[-1] for v in state.own] == ["seed_generator_state"] * 2
    assert len(state.everything) == 6


def test_workers_drop_out_different_units(built):
    masks = []
    for worker in (0, 0, 1, 2):
        definition = built(STATE)
        states.seed_for_worker(states.non_trainable(definition.model), worker)
        x = {"x": tf.ones([4, 4])}
        dropout = definition.model.layers[-2]
        masks.append(np.asarray(dropout(tf.ones([4, 8]), training=True)))
        del x
    assert np.array_equal(masks[0], masks[1])
    assert not np.array_equal(masks[0], masks[2])
    assert not np.array_equal(masks[2], masks[3])


def test_state_is_read_and_written_by_name(built):
    state = states.non_trainable(built(STATE).model)
    values = states.read_state(state.shared)
    changed = {name: value + 2 for name, value in values.items()}
    assert states.write_state(state.shared, changed) == []
    now = states.read_state(state.shared)
    assert all(np.array_equal(now[name], changed[name]) for name in changed)
    assert states.write_state(state.shared, {}) == list(values)


EMBEDDING = """
import keras
import tensorflow as tf
from elasticdl.python.elasticdl.layers.embedding import Embedding

def custom_model(combiner=None, input_dim=20):
    inputs = keras.Input((3,), name="x", dtype="int64")
    vectors = Embedding(4, input_dim=input_dim, combiner=combiner)(inputs)
    if combiner is None:
        vectors = keras.layers.Flatten()(vectors)
    return keras.Model(inputs, keras.layers.Dense(1)(vectors))

def loss(labels, predictions):
    return tf.reduce_mean(predictions)

def optimizer():
    return keras.optimizers.SGD()
"""


@pytest.mark.parametrize("combiner", [None, "sum", "mean", "sqrtn"])
def test_an_embedding_gives_row_wise_gradients(built, combiner, tmp_path):
    definition = built(EMBEDDING, params={"combiner": combiner})
    ids = tf.constant([[1, 2, 2], [0, 1, 19]], tf.int64)

    @tf.function
    def gradients():
        with tf.GradientTape() as tape:
            loss = definition.training_loss(
                ids, None, definition.call(ids, training=True)
            )
        return tape.gradient(loss, definition.model.trainable_variables)

    first = gradients()[0]
    assert isinstance(first, tf.IndexedSlices)
    table = definition.model.layers[1].embeddings.numpy()
    out = definition.model.layers[1](ids).numpy()
    rows = table[ids.numpy()]
    expected = {
        None: rows,
        "sum": rows.sum(1),
        "mean": rows.mean(1),
        "sqrtn": rows.sum(1) / np.sqrt(3),
    }[combiner]
    np.testing.assert_allclose(out, expected, rtol=1e-5)
    definition.model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    np.testing.assert_allclose(loaded(ids).numpy(), definition.model(ids).numpy())


def test_a_sparse_tensor_of_ids_is_combined():
    from elasticdl.model.embedding import Embedding

    layer = Embedding(2, input_dim=5, combiner="sum")
    layer.build()
    sparse = tf.sparse.from_dense([[1, 2], [3, 0]])
    out = layer.call(sparse).numpy()
    table = layer.embeddings.numpy()
    np.testing.assert_allclose(out[0], table[1] + table[2], rtol=1e-6)
    with pytest.raises(ValueError, match="needs a combiner"):
        Embedding(2, input_dim=5).call(sparse)


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize("places", [[0, 2], [0], []], ids=["middle", "end", "none"])
def test_a_record_without_any_id_is_combined_to_zeros(combiner, places):
    from elasticdl.model.embedding import Embedding

    layer = Embedding(2, input_dim=5, combiner=combiner)
    layer.build()
    indices = np.array([[place, 0] for place in places], np.int64).reshape(-1, 2)
    ids = tf.SparseTensor(indices, tf.constant([3] * len(places), tf.int64), [4, 2])
    expected = np.zeros((4, 2), np.float32)
    expected[places] = layer.embeddings.numpy()[3]
    np.testing.assert_allclose(layer.call(ids).numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "needs input_dim"),
        ({"input_dim": 3, "combiner": "max"}, "combiner is 'max'"),
        ({"input_dim": 3, "combiner": "sum", "mask_zero": True}, "no meaning"),
    ],
)
def test_embeddings_that_cannot_be_are_refused(arguments, message):
    from elasticdl.model.embedding import Embedding

    with pytest.raises(ValueError, match=message):
        Embedding(2, **arguments)


def test_an_embedding_masks_zero_on_request():
    from elasticdl.model.embedding import Embedding

    layer = Embedding(2, input_dim=5, mask_zero=True)
    assert layer.compute_mask(tf.constant([0, 3])).numpy().tolist() == [False, True]
    assert Embedding(2, input_dim=5).compute_mask(tf.constant([0])) is None
    assert layer.compute_output_shape((7, 3)) == (7, 3, 2)
