"""Portions of a step, computed apart, make the step of all its records.

Compared with strategy local's step over the same records at once, which test_matrix.py
compares with `fit`: what cannot be equal is refused before the first step.
"""

import dataclasses
import json
import logging

import numpy as np
import pytest
import tensorflow as tf
from elasticdl.errors import UserCodeError
from elasticdl.model.measures import portions
from elasticdl.model.measures.in_portions import tried_in_portions
from elasticdl.model.measures.moves import MEAN as AVERAGED
from elasticdl.model.state import non_trainable, seed_for_worker
from elasticdl.worker.group.plan import Work
from elasticdl.worker.group.state import MemberState
from elasticdl.worker.group.step import ShareBatches
from elasticdl.worker.steps.variable_step import VariableStep

from tests.integration.worker.group.in_portions import (
    Member,
    assert_equal,
    said_of_state,
    together,
)
from tests.integration.worker.matrix import (
    AS_KERAS,
    BATCH,
    LAYERS,
    MASKED,
    RECORDS,
    SGD,
    Case,
    middle,
)
from tests.integration.worker.matrix_optimizers import USUAL
from tests.integration.worker.matrix_product import cross
from tests.integration.worker.matrix_texts import FEEDS, PER_WORD, SPARSE_LOSS
from tests.integration.worker.own_layers import (
    ACTIVE,
    BEGINS,
    CONSTANTS,
    COUNTS,
    DOUBTFUL,
    NOISY,
    QUEUE,
    STRICT,
    SUMS,
)

BY_NAME = {case.name: case for case in AS_KERAS}
LOSS = "keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction='{}')"
WORDS = {"layers": MASKED, "shape": "(5,)", "dtype": "int32", "optimizer": SGD}
FEEDS["one word masked"] = PER_WORD + ', tf.one_hot(0, 5) * f["w"]'
FEEDS["pictures without the thing"] = 'return f["x"], tf.zeros([3])'
FEEDS["nothing but gaps"] = 'return f["words"] * 0, f["words"] % 3'
FEEDS["words without gaps"] = 'return tf.maximum(f["words"], 1), f["words"] % 3'
FEEDS["two kinds of words"] = 'return f["words"], (f["words"] % 3, f["words"] % 3)'
BEGINNING = Case("a flag", before=BEGINS, layers=middle("Begins()"))
COUNTING = Case("counters", before=COUNTS, layers=middle("Counts()"))
SUMMING = Case("sums", before=SUMS, layers=middle("Sums()"))
# What a module may do with a count: it begins anew.
STARTS_ANEW = SUMS.replace(
    'rows, "float32"))', 'rows, "float32") - 1000.0 * tf.floor(self.fast / 1000))'
).replace("0.4 *", "")
WEIGHTED_FUNCTION = """
def loss(labels, predictions, weights):
    each = keras.losses.sparse_categorical_crossentropy(
        labels, predictions, from_logits=True)
    return tf.reduce_sum(each * weights) / tf.reduce_sum(weights)

"""
# As pixels or words without a label are marked; in some records there are none.
UNLABELLED = """
        labels = tf.where(f["words"] % 4 > 0, f["words"] % 3, tf.constant(-5, tf.int64))
        return f["words"], labels"""
FEEDS["words without labels"] = UNLABELLED
FEEDS["words without labels weighted"] = UNLABELLED + ', tf.fill([5], f["w"])'
IGNORING = LOSS[:-1] + ", ignore_class=-5)"
# As `loss` of the module, not of compile: divisors of Keras's are known all the same.
OWN_LOSS = "\nloss = {}\n\n".format
MASKED_FUNCTION = f"""
def loss(labels, predictions):
    return {SPARSE_LOSS}(labels, predictions)

"""
PLAIN_WORDS = {**WORDS, "layers": MASKED.replace(", mask_zero=True", "")}
TWO_MASKED = {
    "functional": """
def model():
    inputs = keras.Input((5,), dtype="int32")
    hidden = keras.layers.Embedding(9, 4, mask_zero=True)(inputs)
    network = keras.Model(inputs, [
        keras.layers.Dense(3)(hidden), keras.layers.Dense(3)(hidden)])
    {compile}
    return network
"""
}

ADDS = """
class Adds(keras.layers.Layer):
    def call(self, inputs, training=False):
        if training:
            self.add_loss(0.1 * {})
        return inputs

"""
CENTERS = """
class Centers(keras.layers.Layer):
    def call(self, inputs, training=False):
        if training:
            return inputs - keras.ops.mean(inputs, axis=0, keepdims=True)
        return inputs

"""
SUM, MEAN = "keras.ops.sum(inputs ** 2)", "keras.ops.mean(inputs ** 2)"
PRODUCT = "keras.ops.mean(inputs[:, 0]) * keras.ops.mean(inputs[:, 1])"


def adding(name, loss, before="Adds()", **more):
    return Case(name, before=ADDS.format(loss), layers=middle(before), **more)


EQUAL = [
    Case("add_loss in training alone", before=ADDS.format(MEAN),
         layers=middle("Adds()")),
    *(
        BY_NAME[name]
        for name in (
            "mask",
            "mask and sample weights",
            "weight regulariser",
            "activity regulariser",
            "add_loss",
            "sample weights",
            "class weights",
            "two outputs with sample weights",
            "sparse ids, a batch without any",
            "ragged ids, mean",
            "constraint MaxNorm",
            "own compute_loss",
            "mixed precision",
        )
    ),
    Case("mean by sample weights", feed="weighted",
         loss=LOSS.format("mean_with_sample_weight")),
    Case("a module's loss, mean by sample weights", feed="weighted",
         before=OWN_LOSS(LOSS.format("mean_with_sample_weight"))),
    Case("a module's loss, mask, ignore_class", **WORDS, feed="words without labels",
         before=OWN_LOSS(IGNORING.format("sum_over_batch_size"))),
    Case("mean by class weights", loss=LOSS.format("mean_with_sample_weight"),
         job={"training": {"classWeight": {0: 1.0, 2: 4.0}}}),
    Case("mask, mean by sample weights", **WORDS, feed="per word weighted",
         loss=LOSS.format("mean_with_sample_weight")),
    *(Case(f"ignore_class, {kind}, {feed}, {reduction}", **words, feed=feed,
           loss=IGNORING.format(reduction))
      for kind, words in (("no mask", PLAIN_WORDS), ("mask", WORDS))
      for feed, reduction in (
          ("words without labels", "sum_over_batch_size"),
          ("words without labels weighted", "sum_over_batch_size"),
          ("words without labels weighted", "mean_with_sample_weight"))),
    Case("mask, regulariser", **{**WORDS, "layers": MASKED.replace(
         "Dense(3", 'Dense(3, kernel_regularizer="l2"')}, feed="per word"),
    Case("records that are masked altogether", **{**WORDS, "layers": MASKED.replace(
         "Dense(3", 'Dense(3, kernel_regularizer="l2"')}, feed="nothing but gaps"),
    Case("labels that are all 0", feed="pictures without the thing",
         loss="keras.losses.BinaryCrossentropy(from_logits=True)"),
    BEGINNING,
    COUNTING,
    SUMMING,
    *(cross(BY_NAME["mask"], optimizer) for optimizer in USUAL
      if optimizer.name in {"Adam(0.05)", "SGD(0.1, global_clipnorm=0.1)"}),
]  # fmt: skip
# Others claim the greater part of what these do.
MORE = {
    "weight regulariser",
    "sample weights",
    "mask and sample weights",
    "mask, regulariser",
    "mask with Adam(0.05)",
    "mask with SGD(0.1, global_clipnorm=0.1)",
    "ignore_class, no mask, words without labels, sum_over_batch_size",
    "ignore_class, mask, words without labels, sum_over_batch_size",
    "ignore_class, no mask, words without labels weighted, sum_over_batch_size",
    "ignore_class, no mask, words without labels weighted, mean_with_sample_weight",
    "ignore_class, mask, words without labels weighted, sum_over_batch_size",
    "mean by class weights",
}
RANDOM = """
class Sampled(keras.layers.Layer):
    def call(self, inputs):  # in each mode, as autoencoders do
        drawn = inputs + 0.3 * keras.random.normal(keras.ops.shape(inputs))
        self.add_loss(0.1 * keras.ops.mean(drawn ** 2))
        return drawn

"""
ALIKE = LAYERS.format(options="", middle="").replace(
    "Dense(3", 'Dense(3, kernel_initializer="zeros"'
)
REFUSED = [
    (adding("a sum in training alone", SUM), "loss 1 of 1 that layers add"),
    (adding("a product of means in training alone", PRODUCT), "expected their mean"),
    (BY_NAME["loss of sums"], 'reduction="sum", expected a mean over records'),
    (Case("synchronized", layers=middle(
          "keras.layers.BatchNormalization(synchronized=True)")),
     "has synchronized=True"),
    (BY_NAME["SpectralNormalization"], "would do to another portion"),
    (Case("sum of the user's own", loss="lambda y, p: keras.ops.sum((p[:, 0] - "
          "keras.ops.cast(y, 'float32')) ** 2)"), "the loss of a batch of .* expected "
     "their mean"),
    (Case("root of a mean", loss="lambda y, p: keras.ops.sqrt(keras.ops.mean((p[:, 0] "
          "- keras.ops.cast(y, 'float32')) ** 2))"), "set strategy: local"),
    (Case("pairs of predictions that are all alike at first", layers=ALIKE,
          loss="lambda y, p: keras.ops.mean((p[:, 0] - keras.ops.cast(y, 'float32')) "
          "** 2) + keras.ops.mean((p[:, None, 0] - p[None, :, 0]) ** 2)"),
     "the loss of a batch of .* expected their mean"),
    (Case("Dice, of labels that are all 0", feed="pictures without the thing",
          loss="keras.losses.Dice()"), "the loss of a batch of .* expected their mean"),
    (Case("weighted function", before=WEIGHTED_FUNCTION, feed="weighted"),
     "set strategy: local"),
    (Case("function of a masked loss, no gaps", **WORDS, feed="words without gaps",
          before=MASKED_FUNCTION), "the loss of a batch of .* expected their mean"),
    (Case("two masked outputs", models=TWO_MASKED, forms=("functional",),
          shape="(5,)", dtype="int32", feed="two kinds of words",
          loss=f"[{SPARSE_LOSS}, {SPARSE_LOSS}]"), "several outputs have losses"),
    (Case("nothing trained", layers=LAYERS.format(options=", trainable=False",
          middle="").replace("Dense(3", "Dense(3, trainable=False")),
     "nothing to train"),
]  # fmt: skip


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            case, id=case.name, marks=pytest.mark.soak if case.name in MORE else ()
        )
        for case in EQUAL
    ],
)
def test_portions_train_what_all_records_at_once_train(module, data, case):
    local, feeder = module(case, "local", BATCH, data)
    initial = local.model.get_weights()
    members = [
        Member(module(case, "allReduce", portion, data), data, initial)
        for portion in (2, 3)
    ]
    if case.summed:  # a member adds the rows of an id up (docs/allreduce.md)
        apply = local.optimizer.apply
        local.optimizer.apply = lambda gradients, variables=None: apply(
            [tf.convert_to_tensor(g) for g in gradients], variables
        )
    whole = VariableStep(local, optimizer=local.optimizer)
    for start in range(0, RECORDS, BATCH):
        (batch,) = feeder.batches(data[start : start + BATCH])
        loss = whole.apply(batch.features, batch.labels)
        outcomes = together(members, data[start : start + BATCH])
        assert outcomes[0].loss == pytest.approx(loss, rel=case.rtol, abs=case.atol)
    for member in members:
        assert_equal(member.module.model, local.model, case)


@pytest.mark.parametrize(
    ("case", "said"), REFUSED, ids=[case.name for case, _ in REFUSED]
)
def test_what_portions_train_otherwise_is_refused_before_the_first_step(
    module, data, case, said
):
    with pytest.raises(UserCodeError, match=said):
        Member(module(case, "allReduce", 3, data), data, None)


def test_state_that_no_portion_moves_stays_to_the_last_bit(module, data):
    case = Case("constants", before=CONSTANTS, layers=middle("Constants()"))
    members = [Member(module(case, "allReduce", 3, data), data, None) for _ in "123"]
    variables = members[0].module.model.non_trainable_variables
    before = [v.numpy() for v in variables]
    for start in range(0, RECORDS, BATCH):
        together(members, data[start : start + BATCH])
    for variable, value in zip(variables, before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value, err_msg=variable.path)


STACKED = """
class Stacked(keras.layers.Layer):
    def call(self, x):
        return keras.ops.stack([x, 2 * x])  # heads, then records

"""


def test_pairs_are_found_of_a_batch_of_one_record_too(module, data):
    pairs = "lambda y, p: keras.ops.mean((p[:, None, 0] - p[None, :, 0]) ** 2)"
    case = Case("pairs", layers=ALIKE, loss=pairs)
    with pytest.raises(UserCodeError, match="the loss of a batch of 6 records"):
        Member(module(case, "allReduce", 1, data), data, None)


def test_an_output_whose_first_dimension_is_another_one_is_left_as_it_is(module, data):
    case = Case(
        "stacked heads", before=STACKED,
        layers=LAYERS.format(options="", middle="").replace("(3)", "(3), Stacked()"),
        loss="lambda y, p: keras.ops.mean((p[..., 0] - keras.ops.cast(y, 'float32')) "
        "** 2)",
    )  # fmt: skip
    Member(module(case, "allReduce", 3, data), data, None)


def test_a_loss_with_random_numbers_is_not_held_to_its_digits(module, data):
    case = Case("random", before=RANDOM, layers=middle("Sampled()"))
    Member(module(case, "allReduce", BATCH, data), data, None)
    case = dataclasses.replace(case, loss=LOSS.format("sum"))
    with pytest.raises(UserCodeError, match='reduction="sum"'):
        Member(module(case, "allReduce", BATCH, data), data, None)


@pytest.mark.parametrize(
    "before", ["keras.layers.BatchNormalization()", "keras.layers.Dropout(0.5)"]
)
def test_a_sum_is_told_from_a_mean_where_layers_look_at_the_portion(
    module, data, before
):
    case = adding("mean", MEAN, f"{before},\n        Adds()")
    Member(module(case, "allReduce", BATCH, data), data, None)
    case = adding("sum", SUM, f"{before},\n        Adds()")
    with pytest.raises(UserCodeError, match="not grow with"):
        Member(module(case, "allReduce", BATCH, data), data, None)


def test_state_that_is_written_by_place_is_named(module, data, caplog):
    case = Case("queue", before=QUEUE, layers=middle("Queue()"))
    Member(module(case, "allReduce", BATCH, data), data, None)
    said = said_of_state(caplog)
    assert len(said) == 2
    assert "/keys is neither an average nor a sum" in "".join(said)
    assert "/at adds up over records, but not always" in "".join(said)  # at the end


def test_state_of_which_portions_make_something_else_is_named(module, data, caplog):
    """And never adds up by a share of the old value that holds for one step alone."""
    case = Case("doubtful", before=DOUBTFUL, layers=middle("Doubtful()"))
    member = Member(module(case, "allReduce", 3, data), data, None)
    said = dict(one.split(" ")[1:3] for one in said_of_state(caplog))
    assert {name.rpartition("/")[2]: word for name, word in said.items()} == {
        "warmed": "adds",
        "begun": "adds",
        "by_record": "adds",
        "largest": "is",
        "rare": "was",
    }
    for start in range(0, RECORDS, BATCH):
        together([member], data[start : start + BATCH])
    moved = non_trainable(member.module.model).moved_together
    values = {item.name.rpartition("/")[2]: item.numpy() for item in moved}
    assert values["steps"] == -(-RECORDS // BATCH)
    assert 0 < values["begun"] < 10 * BATCH


@pytest.mark.parametrize("drop", ["", "keras.layers.Dropout(0.3), "])
def test_sums_of_what_random_layers_leave_add_up(module, data, drop, caplog):
    """So do decayed ones that begin with anything, and follow from other state."""
    case = Case("active", before=ACTIVE, layers=middle(f"{drop}Active()"))
    member = Member(module(case, "allReduce", BATCH, data), data, None)
    moves = member.step.moved
    found = {
        variable.path.rpartition("/")[2]: tuple(one[:2])
        for variable, one in zip(
            moves.variables, json.loads(moves.described()), strict=True
        )
    }
    assert found == {"active": (True, 1), "energy": (True, 0.9), "total": (True, 1)}
    assert not said_of_state(caplog)


def test_state_of_which_no_second_step_can_be_tried_refuses_no_model(module, data):
    """Beside random numbers: it may have to be what it is in the first step."""
    case = Case("strict", before=STRICT, layers=middle("Strict()"))
    assert Member(module(case, "allReduce", BATCH, data), data, None).step.moved.size


def test_a_newcomer_moves_state_as_the_member_does_whose_state_it_takes(module, data):
    """Its own trial may have had another batch, or other random numbers."""
    one, other = [
        Member(module(SUMMING, "allReduce", BATCH, data), data, None) for _ in range(2)
    ]
    other.step.moved.moves_by([AVERAGED] * len(other.step.moved.variables))
    states = [
        MemberState(m.module.model, m.module.optimizer, m.step.moved)
        for m in (one, other)
    ]
    states[1].take(b"".join(states[0].copied(Work(), one.step.state_before)))
    other.step.begin()
    for start in range(0, RECORDS - BATCH, BATCH):
        together([one, other], data[start : start + BATCH])
    assert_equal(one.module.model, other.module.model, SUMMING)


def test_state_of_a_model_that_takes_one_size_of_batches_is_named(module, data, caplog):
    text = COUNTS.replace(
        "        if training:", "        inputs = tf.ensure_shape(inputs, (8, None))\n"
        "        if training:", 1
    )  # fmt: skip
    case = Case("of one size", before=text, layers=middle("Counts()"))
    Member(module(case, "allReduce", BATCH, data), data, None)
    said = said_of_state(caplog)
    assert [one for one in said if "/seen was not tried" in one]


@pytest.mark.parametrize("batch", range(3))
def test_members_find_the_same_whatever_their_own_random_numbers_are(
    module, data, batch
):
    case = Case("noisy", before=NOISY, layers=middle("Noisy()"))
    found = set()
    for worker in range(4):
        made, feeder = module(case, "allReduce", BATCH, data)
        seed_for_worker(non_trainable(made.model), worker)
        few = next(feeder.batches(data[batch * BATCH : (batch + 1) * BATCH]))
        moved = [v.variable for v in non_trainable(made.model).moved_together]
        (one,) = portions.try_training(made, moved, few.features, few.labels)
        found.add(one.adds)
    assert found == {False}


def test_a_count_that_begins_anew_beyond_a_number_is_named(module, data, caplog):
    assert "floor" in STARTS_ANEW
    case = Case("anew", before=STARTS_ANEW, layers=middle("Sums()"))
    Member(module(case, "allReduce", BATCH, data), data, None)
    (said,) = said_of_state(caplog)
    assert "/fast adds up over records, but not always" in said


@pytest.mark.parametrize("before", ["", "keras.layers.Dropout(0.5),\n        "])
def test_a_layer_that_looks_at_several_records_in_training_is_told(
    module, data, before, caplog
):
    case = Case("centered", before=CENTERS, layers=middle(f"{before}Centers()"))
    Member(module(case, "allReduce", BATCH, data), data, None)
    said = [one for one in caplog.records if "several records at once" in one.message]
    assert bool(said) is not bool(before)  # with random numbers it is not known


@pytest.mark.parametrize(
    "case",
    [BEGINNING, COUNTING, SUMMING, BY_NAME["BatchNormalization"]],
    ids=lambda case: case.name,
)
def test_averages_counts_and_flags_are_not_named(module, data, case, caplog):
    Member(module(case, "allReduce", BATCH, data), data, None)
    assert not said_of_state(caplog)
    said = [one.message for one in caplog.records]
    assert not [one for one in said if "at once" in one]
    found = [one for one in said if one.startswith("State of own layers")]
    # Of what nobody declares; Keras's own layer says it by its kind.
    assert len(found) == (case.name != "BatchNormalization")


def test_it_does_not_matter_whose_portion_it_is(module, data):
    case = BY_NAME["BatchNormalization"]
    three = [Member(module(case, "allReduce", 2, data), data, None) for _ in range(3)]
    initial = three[0].module.model.get_weights()
    one = Member(module(case, "allReduce", 2, data), data, initial)
    for start in range(0, 24, 6):  # three portions of two
        together(three, data[start : start + 6])
        together([one], data[start : start + 6])
    assert_equal(one.module.model, three[0].module.model, case)


def test_state_of_any_type_is_told_apart_and_goes_to_a_newcomer(module, data):
    one, other = [
        Member(module(BEGINNING, "allReduce", 4, data), data, None) for _ in range(2)
    ]
    together([one], data[:BATCH])
    states = [
        (MemberState(m.module.model, m.module.optimizer, m.step.moved), m.step)
        for m in (one, other)
    ]

    def digests():
        return {state.digest(step.state_before) for state, step in states}

    assert len(digests()) == 2
    raw = b"".join(states[0][0].copied(Work(), one.step.state_before))
    states[1][0].take(raw)
    other.step.begin()
    assert len(digests()) == 1
    together([one, other], data[:BATCH])
    assert len(digests()) == 1


def test_alone_rows_of_gradients_are_added_up_as_in_a_group(module, data):
    case = dataclasses.replace(
        BY_NAME["ragged ids, sum"], optimizer="keras.optimizers.Adam(0.05)"
    )
    member = Member(module(case, "allReduce", BATCH, data), data, None)
    batches = tuple(member.feeder.batches(data[:BATCH]))
    assert not member.step.can_be_alone(ShareBatches(batches, BATCH))
    plain = Member(module(AS_KERAS[0], "allReduce", BATCH, data), data, None)
    batches = tuple(plain.feeder.batches(data[:BATCH]))
    assert plain.step.can_be_alone(ShareBatches(batches, BATCH))


def test_a_batch_that_cannot_be_cut_is_told_also_where_its_error_has_no_text(caplog):
    def refuses(features, labels):
        raise ValueError

    rows = tf.zeros([4, 2])
    assert tried_in_portions(refuses, rows, rows, told=logging.WARNING) is None
    assert "could not be computed in portions" in caplog.text
