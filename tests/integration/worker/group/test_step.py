"""Members of a group, one step after another: equal to plain Keras, whoever they are.

What a member adds up is what the wire carries; here it is added in this process.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf
from elasticdl.collective.lent_vectors import aligned_zeros
from elasticdl.errors import UserCodeError
from elasticdl.model.feeding import Batch
from elasticdl.model.optimizers import inner_optimizer
from elasticdl.model.variables import assign, view
from elasticdl.worker.group.plan import Outcome, StepPlan, Work
from elasticdl.worker.group.step import ShareBatches
from elasticdl.worker.steps.learning_rate import LearningRate

from tests.integration.worker.group.members import Member, together, with_optimizer
from tests.integration.worker.own_optimizers import HOLDING, LATE

BATCH_NORMALIZED = (
    "keras.layers.Dense(",
    "keras.layers.BatchNormalization(momentum=0.5), keras.layers.Dense(",
)
OPTIMIZERS = {
    "momentum": "SGD(0.05, momentum=0.9)",
    "adam": "Adam(0.05)",
    "adamw, global clipping": "AdamW(0.05, global_clipnorm=0.5)",
    "loss scale": "LossScaleOptimizer(keras.optimizers.Adam(0.05))",
    "loss scale factor": "SGD(0.05, loss_scale_factor=8.0)",
    "ema": "Adam(0.05, use_ema=True, ema_momentum=0.9)",
    "accumulated": "Adam(0.05, gradient_accumulation_steps=2)",
}


class Vector:
    """Where a member's sums are, step after step, as its group has them."""

    def __init__(self, member):
        self.member = member
        self.whole = aligned_zeros(member.step.size)

    def step(self, features, labels):
        records = len(labels)
        share = self.member.share(features, labels)
        self.whole[:] = self.member.step.compute(share, lambda *_: None, of=records)
        self.member.step.apply(self.whole, of=records)


def weights(module):
    return [v.numpy() for v in module.model.trainable_variables]


def assert_equal(mine, theirs, **bounds):
    for a, b in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(a, b, **{"rtol": 1e-5, "atol": 1e-6, **bounds})


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_one_member_is_plain_keras_over_the_same_batches(
    members, batches_of, definition, mlp, name
):
    (one,) = members(1, optimizer=OPTIMIZERS[name])
    module = definition(with_optimizer(mlp, OPTIMIZERS[name]))
    module.model.set_weights(one.module.model.get_weights())
    optimizer = module.optimizer
    for features, labels in batches_of(12):
        with tf.GradientTape() as tape:
            out = module.model(features, training=True)
            loss = optimizer.scale_loss(module.loss(tf.constant(labels), out))
        variables = module.model.trainable_variables
        optimizer.apply_gradients(
            zip(tape.gradient(loss, variables), variables, strict=True)
        )
        together([one], features, labels)
        assert_equal(weights(one.module), weights(module))
    steps = [inner_optimizer(o).iterations for o in (one.module.optimizer, optimizer)]
    assert int(steps[0]) == int(steps[1])


def test_one_member_with_batch_normalization_is_plain_keras(
    members, batches_of, definition, mlp
):
    text = mlp.replace(*BATCH_NORMALIZED, 1)
    (one,) = members(1, text=text)
    module = definition(text)
    module.model.set_weights(one.module.model.get_weights())
    for number, (features, labels) in enumerate(batches_of(12)):
        with tf.GradientTape() as tape:
            out = module.model(features, training=True)
            loss = module.loss(tf.constant(labels), out)
        variables = module.model.trainable_variables
        module.optimizer.apply_gradients(
            zip(tape.gradient(loss, variables), variables, strict=True)
        )
        if number % 2:
            one.alone(features, labels)
        else:
            together([one], features, labels)
        assert_equal(one.module.model.get_weights(), module.model.get_weights())


# Each optimizer, and each number of members; the others of the product in `make soak`.
TOGETHER = [
    pytest.param(
        number,
        name,
        marks=()
        if number == 2 or (number, name) in {(3, "loss scale"), (4, "momentum")}
        else pytest.mark.soak,
    )
    for number in (2, 3, 4)
    for name in OPTIMIZERS
]


@pytest.mark.parametrize(("number", "name"), TOGETHER)
def test_members_together_are_one_member_and_equal_to_the_last_bit(
    members, batches_of, number, name
):
    alone, *several = members(1 + number, optimizer=OPTIMIZERS[name])
    for features, labels in batches_of(8):
        (one,) = together([alone], features, labels)
        outcomes = together(several, features, labels, portion=5)
        assert {o.records for o in outcomes} == {one.records} == {len(labels)}
        assert outcomes[0].loss == pytest.approx(one.loss, rel=1e-5)
    assert_equal(weights(several[0].module), weights(alone.module), rtol=1e-4)
    for other in several[1:]:
        for a, b in zip(weights(other.module), weights(several[0].module), strict=True):
            np.testing.assert_array_equal(a, b)


KEEPING = """
class Keeping(keras.optimizers.SGD):
    # Goes by the gradient of the step before.

    def build(self, variables):
        super().build(variables)
        self.before = [
            self.add_variable_from_reference(v, name="before") for v in variables
        ]

    def update_step(self, gradient, variable, learning_rate):
        before = self.before[self._get_variable_index(variable)]
        self.assign_sub(variable, learning_rate * before)
        self.assign(before, gradient)


def optimizer():
    return Keeping(0.1)
"""


@pytest.mark.parametrize("text", ["", KEEPING])
def test_an_optimizer_may_keep_a_gradient_whose_memory_is_written_again(
    members, batches_of, mlp, text
):
    one, alone = members(2, text=mlp + text)
    vector = Vector(one)
    for features, labels in batches_of(6):
        alone.alone(features, labels)
        vector.step(features, labels)
        assert_equal(weights(one.module), weights(alone.module))


BY_PLACE = """
class ByPlace(keras.optimizers.SGD):
    # Each variable goes half as far as the one before it.

    def build(self, variables):
        super().build(variables)
        self.far = self.add_variable((), initializer="ones", name="far")

    def apply(self, grads, trainable_variables=None):
        self.assign(self.far, 1.0)
        super().apply(grads, trainable_variables)

    def update_step(self, gradient, variable, learning_rate):
        super().update_step(gradient, variable, learning_rate * self.far)
        self.assign(self.far, self.far / 2)


def optimizer():
    return ByPlace(0.1)
"""


def test_an_optimizer_of_ones_own_gets_the_variables_in_the_models_order(
    members, batches_of, mlp
):
    alone, halves = members(2, optimizer="SGD(0.1)", text=mlp + BY_PLACE)
    for features, labels in batches_of(4):
        alone.alone(features, labels)
        together([halves], features, labels)
    assert_equal(weights(alone.module), weights(halves.module))


OWN_RATE = """

class OwnRate(keras.optimizers.SGD):
    def apply(self, grads, trainable_variables=None):
        super().apply(grads, trainable_variables)
        self.learning_rate = self.learning_rate * 0.9


def optimizer():
    return OwnRate(0.5)
"""


def test_a_newcomer_has_the_rate_that_an_optimizer_moves_by_itself(
    members, batches_of, mlp
):
    one, other = members(2, optimizer="SGD(0.1)", text=mlp + OWN_RATE)
    for features, labels in batches_of(5):
        together([one], features, labels)
    other.state.take(b"".join(one.state.copied(Work(), one.step.state_before)))
    other.step.begin()
    for features, labels in batches_of(3):
        together([one, other], features, labels)
    for mine, theirs in zip(weights(one.module), weights(other.module), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert float(other.module.optimizer.learning_rate) == pytest.approx(0.5 * 0.9**8)


def test_a_newcomer_goes_by_the_plans_rate_also_where_it_was_another_one(
    members, batches_of
):
    """The leader's was lowered, and is its first one again with the next plan."""
    one, other = members(2, optimizer="SGD(0.5)")
    rates = [
        LearningRate(member.module.optimizer, lambda version, epoch: None, lambda: 1.0)
        for member in (one, other)
    ]
    work = Work(rate=rates[0].last)
    work.made(StepPlan(1, 0, 8, rate=0.25), Outcome(records=8, rows=8, loss=1.0))
    rates[0].set(0.25)
    raw = b"".join(one.state.copied(work, one.step.state_before))
    rates[1].took(other.state.take(raw).rate)
    for rate in rates:
        rate.set(0.5)
    for member in (one, other):
        assert float(member.module.optimizer.learning_rate) == 0.5


@pytest.mark.parametrize("name", [n for n in OPTIMIZERS if n != "loss scale factor"])
def test_a_step_in_one_go_is_the_same_as_one_in_two_halves(members, batches_of, name):
    alone, halves = members(2, optimizer=OPTIMIZERS[name])
    for number, (features, labels) in enumerate(batches_of(9)):
        if number % 3 == 2:
            together([alone], features, labels)
        else:
            outcome = alone.alone(features, labels)
            assert (outcome.records, outcome.rows) == (len(labels), len(labels))
        together([halves], features, labels)
        assert_equal(weights(alone.module), weights(halves.module))


def test_a_step_in_one_go_moves_the_statistics_as_the_halves_do(
    members, batches_of, mlp
):
    alone, halves = members(2, text=mlp.replace(*BATCH_NORMALIZED, 1))
    for features, labels in batches_of(6):
        # An attempt of two that was given up before.
        alone.part(features, labels, 0, 3, portion=1000)
        alone.alone(features, labels)
        together([halves], features, labels)
    assert_equal(alone.module.model.get_weights(), halves.module.model.get_weights())


def test_a_scale_that_rows_of_gradients_cannot_lose_needs_the_halves(
    members, batches_of
):
    (features, labels), *_ = batches_of(1)
    batch = Batch(tf.constant(features), tf.constant(labels), len(labels))
    found = [
        one.step.can_be_alone(ShareBatches([batch], len(labels)))
        for name in ("loss scale factor", "adam")
        for one in members(1, optimizer=OPTIMIZERS[name])
    ]
    assert found == [False, True]


@pytest.mark.parametrize(
    "optimizer",
    [
        "LossScaleOptimizer(keras.optimizers.Nadam(0.05))",
        "ScheduleFreeAdamW(0.05)",
        "MultiOptimizer(keras.optimizers.OptimizerMap(keras.optimizers.Adam(0.05), "
        "{'.*kernel': keras.optimizers.Nadam(0.03)}))",
        pytest.param("", id="of the user's own, which hold others"),
    ],
)
def test_a_newcomer_makes_the_same_steps_to_the_last_bit(
    members, batches_of, mlp, optimizer
):
    made = {"optimizer": optimizer} if optimizer else {"text": mlp + HOLDING}
    one, other = members(2, **made)
    for features, labels in batches_of(7):
        together([one], features, labels)
    other.state.take(b"".join(one.state.copied(Work(), one.step.state_before)))
    other.step.begin()
    for features, labels in batches_of(3):
        together([one, other], features, labels)
    for a, b in zip(weights(one.module), weights(other.module), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("alone", [False, True])
def test_an_optimizer_that_makes_variables_in_its_first_step_is_refused(
    members, batches_of, mlp, alone
):
    (one,) = members(1, text=mlp + LATE)
    ((features, labels),) = batches_of(1)
    with pytest.raises(UserCodeError, match="Late made variables in its first step"):
        one.alone(features, labels) if alone else together([one], features, labels)


def test_members_that_come_and_go_change_nothing_but_rounding(members, batches_of):
    alone, *several = members(5)
    for step, (features, labels) in enumerate(batches_of(12)):
        together([alone], features, labels)
        here = several[: (4, 1, 4)[step // 4]]
        raw = b"".join(several[0].state.copied(Work(), several[0].step.state_before))
        for newcomer in here[1:]:
            newcomer.state.take(raw)
            newcomer.step.begin()
        together(here, features, labels)
    assert_equal(weights(several[3].module), weights(alone.module), rtol=1e-4)


def test_moving_statistics_are_those_of_all_members_and_equal(members, batches_of, mlp):
    text = mlp.replace(*BATCH_NORMALIZED, 1)
    alone, *several = members(4, text=text)
    for features, labels in batches_of(20):
        together([alone], features, labels)
        together(several, features, labels)
    found = [m.module.model.non_trainable_variables[0].numpy() for m in several]
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
    expected = alone.module.model.non_trainable_variables[0].numpy()
    assert np.abs(expected).max() > 0.01
    np.testing.assert_allclose(found[0], expected, rtol=0.05, atol=0.01)


def test_a_step_that_is_tried_again_moves_the_statistics_once(members, batches_of, mlp):
    text = mlp.replace(*BATCH_NORMALIZED, 1)
    alone, lost, left = members(3, text=text)
    (features, labels), *_ = batches_of(1)
    # The step of two was never made: one is lost, the other one makes it alone.
    for member in (lost, left):
        member.part(features, labels, 0, 7, portion=1000)
    together([alone], features, labels)
    together([left], features, labels)
    for a, b in zip(
        left.module.model.get_weights(), alone.module.model.get_weights(), strict=True
    ):
        np.testing.assert_array_equal(a, b)


def test_a_loss_that_is_no_number_in_one_member_changes_none(members, batches_of, mlp):
    several = members(3, text=mlp.replace(*BATCH_NORMALIZED, 1))
    (features, labels), *_ = batches_of(1)
    together(several, features, labels)
    before = [v.copy() for v in several[0].module.model.get_weights()]
    bad = features.copy()
    bad[0] = np.nan
    outcomes = together(several, bad, labels)
    assert all(outcome.skipped for outcome in outcomes)
    for member in several:
        for a, b in zip(member.module.model.get_weights(), before, strict=True):
            np.testing.assert_array_equal(a, b)
    assert not together(several, features, labels)[0].skipped


def test_a_member_without_records_counts_for_nothing(members, batches_of):
    several = members(3)
    (features, labels), *_ = batches_of(1)
    outcomes = together(several, features[:2], labels[:2])
    assert {(o.records, o.rows) for o in outcomes} == {(2, 2)}


def test_a_model_with_other_variables_is_refused_by_name(
    members, definition, mlp, batches_of
):
    (one,) = members(1)
    (features, labels), *_ = batches_of(1)
    wide = mlp.replace("keras.layers.Dense(", "keras.layers.Dense(1 + ", 1)
    assert wide != mlp
    other = Member(definition(with_optimizer(wide, "Adam(0.05)"))).trace(
        features, labels
    )
    raw = b"".join(one.state.copied(Work(), one.step.state_before))
    with pytest.raises(UserCodeError, match=r"variables differ between workers: `"):
        other.state.take(raw)


def test_the_position_in_the_data_goes_with_the_state(members):
    one, other = members(2)
    work = Work(version=7, rate=0.25)
    taken = other.state.take(b"".join(one.state.copied(work, one.step.state_before)))
    assert taken == work


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_state_is_handed_out_uncopied_and_stays_while_steps_go_on(
    members, batches_of, name
):
    (one,) = members(1, optimizer=OPTIMIZERS[name])

    def state():
        return one.state.copied(Work(), one.step.state_before)

    given, again = state(), state()
    first = 6  # what is before the variables
    assert np.shares_memory(*(np.frombuffer(s[first], "u1") for s in (given, again)))
    before = b"".join(given)
    for features, labels in batches_of(3):
        together([one], features, labels)
        if one.step.can_be_alone(ShareBatches((None,), 0)):
            one.alone(features, labels)
    assert b"".join(given) == before
    assert b"".join(state()) != before


def test_a_large_variable_is_set_to_values_wherever_these_are_in_memory():
    values = np.arange(1 << 19, dtype=np.float32).reshape(512, 1024)
    raw = b"abc" + values.tobytes()
    variable = keras.Variable(np.zeros_like(values))
    given = np.frombuffer(raw, np.uint8)[3:].view(np.float32).reshape(values.shape)
    assign(variable, given)
    np.testing.assert_array_equal(view(variable), values)
    kept = view(variable)
    variable.assign_add(np.ones_like(values))
    np.testing.assert_array_equal(kept, values)
    np.testing.assert_array_equal(view(variable), values + 1)
    assert bytes(raw[3:]) == values.tobytes()


def test_random_generators_are_each_members_own(members, mlp):
    text = mlp.replace(
        "keras.layers.Dense(", "keras.layers.Dropout(0.5), keras.layers.Dense(", 1
    )
    one, other = members(2, text=text)
    seeds = [
        v
        for v in other.module.model.variables
        if "seed_generator" in v.path and v.shape == (2,)
    ]
    assert seeds
    seeds[0].assign([5, 6])
    other.state.take(b"".join(one.state.copied(Work(), one.step.state_before)))
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(seeds[0]), [5, 6])


@pytest.mark.parametrize("taps", [True, False])
@pytest.mark.parametrize("portion", [1000, 4])
def test_each_bucket_is_handed_out_once_and_only_when_nothing_more_comes_to_it(
    definition, mlp, batches_of, portion, taps
):
    (features, labels), *_ = batches_of(1)
    one = Member(definition(mlp), taps=taps).trace(features, labels)
    vector = one.part(features, labels, 0, len(labels), portion=portion)
    ends = one.step.ends
    assert len(ends) > 1
    assert [bucket for bucket, _ in one.handed] == list(range(len(ends)))
    for (_, had), begin, end in zip(one.handed, [0, *ends], ends, strict=False):
        np.testing.assert_array_equal(had, vector[begin:end])


def test_a_member_whose_taps_come_after_the_step_hands_out_the_same(
    definition, mlp, batches_of
):
    (features, labels), *_ = batches_of(1)
    made = [
        Member(definition(mlp), taps=taps).trace(features, labels)
        for taps in (True, False)
    ]
    made[1].module.model.set_weights(made[0].module.model.get_weights())
    vectors = [
        one.part(features, labels, 0, len(labels), portion=8).copy() for one in made
    ]
    assert made[0].step.ends == made[1].step.ends
    np.testing.assert_allclose(*vectors, rtol=1e-5, atol=1e-6)
