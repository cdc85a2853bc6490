"""State of own layers that is tried before the first step: what is found of it."""

from __future__ import annotations

import json

import numpy as np
import pytest
from elasticdl.model.measures.moves import (
    Doubt,
    lift,
    may_add,
    movement,
)
from elasticdl.model.measures.passes import Grown, Pass, Tried

from tests.integration.worker.group.in_portions import (
    Member,
    assert_equal,
    said_of_state,
    together,
)
from tests.integration.worker.matrix import BATCH, RECORDS, Case
from tests.integration.worker.own_layers import (
    BEHIND,
    BOUNDED,
    DECLARED,
    LARGEST,
    ODD,
    PACKED,
    RARELY,
    RESET,
    SHORT,
    TABLE,
    UNLIKE,
)

FIRST = "def layers():\n    return [{layer}(), keras.layers.Dense(3)]\n"


def beginning_with(layer, text):
    return Case(layer, before=text, layers=FIRST.format(layer=layer))


def found_of(member):
    moves = member.step.moved
    found = zip(moves.variables, json.loads(moves.described()), strict=True)
    return {variable.path.rpartition("/")[2]: tuple(one) for variable, one in found}


def told(caplog):
    words = [one.split(" ", 2)[1:] for one in said_of_state(caplog)]
    return {path.rpartition("/")[2]: rest for path, rest in words}


def assert_same_steps(one, others, data, names):
    """Make the same steps alone and in a group; the state is equal after each."""
    for start in range(0, RECORDS - BATCH, BATCH):
        together([one], data[start : start + BATCH])
        together(others, data[start : start + BATCH])
        mine, theirs = (
            {w.path.rpartition("/")[2]: w.numpy() for w in m.module.model.weights}
            for m in (one, others[0])
        )
        for name in names:
            np.testing.assert_allclose(mine[name], theirs[name], rtol=1e-5)


def test_what_one_record_of_the_first_batch_moves_is_taken_for_no_sum(
    module, data, caplog
):
    """One portion alone moves it, so that the other one's nothing fits a sum."""
    feeder = module(Case("plain"), "allReduce", BATCH, data)[1]
    second, first = np.sort(next(feeder.batches(data[:BATCH])).features[:, 0])[-2:]
    text = RARELY.replace("ABOVE", str((first + second) / 2))
    case = beginning_with("Rarely", text)
    member = Member(module(case, "allReduce", BATCH, data), data, None)
    adds = {name for name, (is_sum, *_) in found_of(member).items() if is_sum}
    assert adds == {"seen"}
    doubts = {name: text.split(" ", 1)[0] for name, text in told(caplog).items()}
    # Neither an average nor a sum; of the last the batch has none.
    assert doubts == {"mean": "is", "steps": "is", "share": "is", "none": "was"}


def test_sums_that_end_at_a_bound_are_those_of_all_records(module, data, caplog):
    """A state that is tried from beyond its bound keeps all of it, too."""
    case = beginning_with("Bounded", BOUNDED)
    one = Member(module(case, "allReduce", BATCH, data), data, None)
    begun = one.module.model.get_weights()
    others = [Member(module(case, "allReduce", 2, data), data, begun) for _ in range(2)]
    assert found_of(one) == {
        "seen": (True, 1, True, True),
        "squares": (True, 1, True, True),
        "rounds": (True, 1, True, True),
    }
    for start in range(0, RECORDS, BATCH):
        together([one], data[start : start + BATCH])
        together(others, data[start : start + BATCH])
    assert_equal(one.module.model, others[0].module.model, case)
    assert not told(caplog)


def test_elements_of_a_state_move_each_in_their_own_way(module, data, caplog):
    """Beside a large sum a number of steps is little; it may be one of rounds, too."""
    case = beginning_with("Unlike", UNLIKE)
    one = Member(module(case, "allReduce", BATCH, data), data, None)
    begun = one.module.model.get_weights()
    found = found_of(one)
    assert found["counts"][0] == [True, False]
    assert found["both"][0] == [True, False]
    assert found["slow"][:2] == (True, pytest.approx(0.99966672, abs=2e-7))
    assert not any(found[name][0] for name in ("every", "most", "least"))
    doubts = {name: text.split(" ", 1)[0] for name, text in told(caplog).items()}
    assert doubts == dict.fromkeys(("every", "most", "least"), "adds")
    others = [Member(module(case, "allReduce", 2, data), data, begun) for _ in range(2)]
    assert_same_steps(one, others, data, ("counts", "both", "slow", "rounds"))


def test_small_elements_beside_very_large_ones_move_in_their_own_way(
    module, data, caplog
):
    case = beginning_with("Packed", PACKED)
    one = Member(module(case, "allReduce", BATCH, data), data, None)
    begun = one.module.model.get_weights()
    others = [Member(module(case, "allReduce", 2, data), data, begun) for _ in range(3)]
    found = found_of(one)
    adds = {name: is_sum for name, (is_sum, *_) in found.items()}
    assert adds["sums"] == adds["work"] == [True, True, False]
    assert adds["energy"] == [False, True]
    assert found["slow"][:2] == (True, 0.999)
    assert found["slower"][:2] == (True, 0.9999)
    # Nothing hides what is neither.
    assert set(told(caplog)) == {"ends", "peak"}
    assert not adds["ends"]
    names = ("sums", "energy", "work", "slow", "slower")
    assert_same_steps(one, others, data, names)


def test_sums_of_16_bits_keep_what_they_do_to_two_digits(module, data):
    """With a digit too few or too many, one grew exponentially in a group."""
    case = beginning_with("Short", SHORT)
    found = found_of(Member(module(case, "allReduce", BATCH, data), data, None))
    kept = [found[f"sum_{number}"][:2] for number in range(20)]
    assert kept == [(True, 1), (True, 0.99)] * 10


def test_a_sum_that_begins_anew_in_some_step_does_so_in_a_group(module, data, caplog):
    """No trial sees it before; counts in 16 bits and ramps are seen there."""
    case = beginning_with("Reset", RESET)
    one = Member(module(case, "allReduce", BATCH, data), data, None)
    begun = one.module.model.get_weights()
    found = found_of(one)
    assert found["short"][:2] == (True, 1)
    grow = {name for name, (*_, surely) in found.items() if surely}
    assert grow == {"used", "seen", "short"}
    doubts = {name: text.split(" ", 1)[0] for name, text in told(caplog).items()}
    assert doubts == {"ramp": "adds"}
    caplog.clear()
    others = [Member(module(case, "allReduce", 2, data), data, begun) for _ in range(2)]
    names = ("used", "seen", "short", "steps", "signed")
    assert_same_steps(one, others, data, names)
    got_smaller = [one for one in caplog.messages if "got smaller in this" in one]
    assert len(got_smaller) >= 2


def test_a_large_state_whose_columns_differ_is_named(module, data, caplog):
    case = beginning_with("Table", TABLE)
    member = Member(module(case, "allReduce", BATCH, data), data, None)
    assert not found_of(member)["table"][0]
    assert told(caplog)["table"].startswith("adds up")


def test_one_odd_element_among_many_is_named(module, data, caplog):
    case = beginning_with("Odd", ODD)
    member = Member(module(case, "allReduce", BATCH, data), data, None)
    assert not found_of(member)["mixed"][0]
    assert told(caplog)["mixed"].startswith("is neither")


@pytest.mark.parametrize("begin", ["-np.inf", "-1e9", "-3e38", "np.nan"])
def test_a_largest_value_is_named_wherever_it_begins(module, data, caplog, begin):
    case = beginning_with("Largest", LARGEST.replace("BEGIN", begin))
    Member(module(case, "allReduce", BATCH, data), data, None)
    assert told(caplog)["largest"].startswith("is neither")


def test_state_that_is_assigned_behind_keras_is_named(module, data, caplog):
    case = beginning_with("Behind", BEHIND)
    member = Member(module(case, "allReduce", BATCH, data), data, None)
    together([member], data[:BATCH])
    assert told(caplog)["seen"].startswith("was not tried")


def test_what_is_declared_of_a_state_decides(module, data, caplog):
    """What one batch does not tell is known then; what it contradicts is told."""
    feeder = module(Case("plain"), "allReduce", BATCH, data)[1]
    largest = np.max(next(feeder.batches(data[:BATCH])).features[:, 0])
    text = DECLARED.replace("ABOVE", str(largest))
    case = beginning_with("Declared", text)
    one = Member(module(case, "allReduce", BATCH, data), data, None)
    begun = one.module.model.get_weights()
    others = [Member(module(case, "allReduce", 2, data), data, begun) for _ in range(2)]
    found = found_of(one)
    sums = {name for name, (is_sum, *_) in found.items() if is_sum}
    assert sums == {"rare", "decayed", "noisy", "signs", "steps"}
    kept = {name: found[name][1] for name in sums}
    assert kept == {**dict.fromkeys(sums, 1), "decayed": 0.9}
    assert set(told(caplog)) == {"steps"}
    names = ("rare", "decayed", "signs", "average")
    assert_same_steps(one, others, data, names)
    seen = {w.path.rpartition("/")[2]: w.numpy() for w in one.module.model.weights}
    assert seen["rare"] > 0


@pytest.mark.parametrize("keeps", [0.5, 0.9, 0.99])
def test_what_decays_without_a_record_may_be_a_sum(keeps):
    """What is kept of it is the mean of portions, and their sum, but for digits."""

    def kept(value):
        return np.array([np.float64(np.float32(keeps) * np.float32(value))])

    def passed(begin):
        made = kept(begin)
        return Pass(np.array([np.float64(begin)]), made, (made, made), 0.3)

    drawn = np.random.default_rng(0)
    begins = drawn.normal(size=200) * 10 ** drawn.uniform(0, 5, 200)
    for begin in begins.astype(np.float32):
        by = lift(np.array([begin]))
        tried = Tried(
            passed(begin),
            others=(passed(begin),),
            later=(passed(kept(begin)[0]),),
            lifted=(by, kept(begin + np.float32(by))),
        )
        assert not may_add(tried, dtype="float32")
        found, doubt = movement(tried, dtype="float32")
        assert not found.adds
        assert doubt is Doubt.UNMOVED


def test_of_what_is_not_met_behind_random_numbers_nothing_is_known():
    """A few records have none of what is counted; that is no average."""

    def drawn(*counts):
        whole, first, rest = (np.array([float(count)]) for count in counts)
        return Pass(np.zeros(1), whole, (first, rest), 0.5)

    none = (np.zeros(1),) * 5
    tried = Tried(
        drawn(1, 1, 0),
        drawn=(drawn(1, 1, 0), drawn(0, 0, 0), drawn(1, 0, 1)),
        grown=Grown(np.zeros(1), 16, none, none),
    )
    found, doubt = movement(tried, dtype="float32")
    assert not found.adds
    assert doubt is Doubt.RANDOM
