"""Losses that layers add have to divide by what the loss beside them divides by.

A portion of a step has one weight: with a mask what it leaves, without one the records.
"""

from dataclasses import replace

import pytest
from elasticdl.errors import UserCodeError

from tests.integration.worker.group.in_portions import Member
from tests.integration.worker.group.test_portions import IGNORING, LOSS, WORDS
from tests.integration.worker.matrix import BATCH, MASKED, Case, middle

ADDS = """
class Adds(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.supports_masking = True

    def build(self, shape):
        self.scale = self.add_weight(shape=shape[-1:], initializer="uniform")

    def call(self, inputs, training=False):
        if WHEN:
            self.add_loss(0.1 * LOSS)
        return inputs * self.scale

"""
OF_RECORDS = "keras.ops.mean(inputs ** 2)"
OF_WEIGHTS = "keras.ops.sum(self.scale ** 2)"
IGNORES = IGNORING.format("sum_over_batch_size")
BY_WEIGHTS = LOSS.format("mean_with_sample_weight")
REGULARISED = {
    **WORDS,
    "layers": MASKED.replace("Dense(3", 'Dense(3, activity_regularizer="l2"'),
}
SAID = "layers add a loss that depends on the records .*kernel_regularizer"


def adding(added, when="training", before="", masks=False, **more):
    text = ADDS.replace("LOSS", added).replace("WHEN", when)
    layers = middle(f"{before}Adds()")
    if masks:
        layers = MASKED.replace("True),\n", f"True), {before}Adds(),\n", 1)
        more = {**WORDS, **more}
    return Case("added", **{**more, "before": text, "layers": layers})


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(Case("mask", **REGULARISED, feed="per word"), id="activity"),
        pytest.param(adding(OF_RECORDS, masks=True, feed="per word"), id="mask"),
        pytest.param(adding(OF_RECORDS, "True", masks=True, feed="per word"),
                     id="mask, in each mode"),
        pytest.param(adding(OF_RECORDS, masks=True, feed="per word",
                            before="keras.layers.Dropout(0.5), "),
                     id="mask, behind random numbers"),
        pytest.param(adding(OF_RECORDS, loss=IGNORES), id="ignore_class"),
        pytest.param(adding(OF_RECORDS, loss=IGNORES,
                            before="keras.layers.BatchNormalization(), "),
                     id="ignore_class, behind a layer that looks at the portion"),
        pytest.param(adding(OF_RECORDS, loss=BY_WEIGHTS, feed="weighted"),
                     id="sum of weights"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("records", [BATCH, pytest.param(1, marks=pytest.mark.soak)])
def test_an_added_loss_of_records_is_refused_where_the_loss_divides_by_others(
    module, data, case, records
):
    with pytest.raises(UserCodeError, match=SAID):
        Member(module(case, "allReduce", records, data), data, None)


@pytest.mark.parametrize("when", ["training", "True"])
@pytest.mark.parametrize("records", [1, BATCH])
def test_an_added_loss_of_weights_may_stand_beside_a_mask(module, data, when, records):
    case = adding(OF_WEIGHTS, when, masks=True, feed="per word")
    Member(module(case, "allReduce", records, data), data, None)


def test_an_added_loss_that_is_always_zero_may_stand_beside_a_mask(module, data):
    case = adding(f"0.0 * {OF_RECORDS}", masks=True, feed="per word")
    Member(module(case, "allReduce", BATCH, data), data, None)


def test_an_added_loss_of_records_may_stand_beside_a_loss_that_divides_by_them(
    module, data
):
    case = adding(OF_RECORDS, feed="weighted", loss=LOSS.format("sum_over_batch_size"))
    Member(module(case, "allReduce", BATCH, data), data, None)


GROWS = """
class Grows(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.supports_masking = True

    def build(self, shape):
        self.steps = self.add_weight(
            shape=(), dtype=KIND, initializer="zeros", trainable=False)

    def call(self, inputs, training=False):
        if training:
            self.steps.assign_add(1)
            share = 0.001 * keras.ops.cast(self.steps, "float32")
            self.add_loss(share * LOSS)
        return inputs

"""


@pytest.mark.parametrize("kind", ["int32", "float32"])
@pytest.mark.parametrize("mask", [True, False])
def test_an_added_loss_that_grows_with_the_steps_is_tried_as_it_is_later(
    module, data, kind, mask
):
    loss = OF_RECORDS if mask else "keras.ops.sum(inputs ** 2)"
    text = GROWS.replace("KIND", repr(kind)).replace("LOSS", loss)
    more, layers = {}, middle("Grows()")
    if mask:
        more = {**WORDS, "feed": "per word"}
        layers = MASKED.replace("True),\n", "True), Grows(),\n", 1)
    case = Case("grows", **{**more, "before": text, "layers": layers})
    said = SAID if mask else "expected their mean"
    with pytest.raises(UserCodeError, match=said):
        Member(module(case, "allReduce", BATCH, data), data, None)


def test_a_mean_that_makes_up_for_a_constant_but_for_rounding_is_a_mean(module, data):
    """What a softmax of a new model lacks of the largest entropy, say."""
    case = adding("(1.3862944 + 1e-7 * keras.ops.mean(inputs) - 1.3862944)")
    Member(module(case, "allReduce", BATCH, data), data, None)


NOISE = "keras.random.normal(keras.ops.shape(inputs), seed=self.seeds)"
EVENTS = "keras.random.uniform(keras.ops.shape(inputs)[:1], seed=self.seeds) < 0.05"


def seeded(case):
    seeds = "        self.seeds = keras.random.SeedGenerator(3)\n"
    text = case.before.replace("True\n\n", f"True\n{seeds}\n", 1)
    assert text != case.before
    return replace(case, before=text)


@pytest.mark.parametrize("before", ["", "keras.layers.Dropout(0.1), "])
@pytest.mark.parametrize(
    "added",
    [f"keras.ops.mean(({NOISE} + inputs) ** 2)",
     f"keras.ops.mean(keras.ops.where({EVENTS}, 1.0, 0.0) * inputs[:, 0] ** 2)"],
    ids=["noise", "rare events"],
)  # fmt: skip
def test_a_mean_of_random_numbers_is_a_mean_though_portions_draw_others(
    module, data, added, before
):
    case = seeded(adding(added, before=before))
    Member(module(case, "allReduce", BATCH, data), data, None)


def test_a_sum_of_random_numbers_is_refused_where_no_output_depends_on_them(
    module, data
):
    case = seeded(adding(f"keras.ops.sum(({NOISE} + inputs) ** 2)"))
    made = module(case, "allReduce", BATCH, data)
    with pytest.raises(UserCodeError, match="does not grow with the records"):
        Member(made, data, None)


def test_random_numbers_of_a_thousandth_excuse_no_square_of_a_mean(module, data):
    share = "keras.random.uniform((), 0.999, 1.001, seed=self.seeds)"
    loss = f"keras.ops.sum(keras.ops.mean(inputs, 0) ** 2) * {share}"
    made = module(seeded(adding(loss)), "allReduce", BATCH, data)
    with pytest.raises(UserCodeError, match="expected their mean"):
        Member(made, data, None)
