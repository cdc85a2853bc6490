"""Members take of a step what they are fast enough for, and that changes little."""

from __future__ import annotations

import itertools
import random

import pytest
from elasticdl.worker.group.plan import StepPlan, shares
from elasticdl.worker.group.speeds import Speeds
from elasticdl.worker.group.word import HeaderWord

MEMBERS = (3, 5, 8)


def member(records_a_second: float) -> Speeds:
    made = Speeds(follow=True)
    made.computed(100, 100 / records_a_second)
    return made


def word(one: Speeds) -> bytes:
    return HeaderWord(one.own).encoded()


def weights(*speeds: float) -> tuple[float, ...]:
    """Of members 3, 5, 8; the first one leads."""
    leader, *others = (member(speed) for speed in speeds)
    words = {n: word(one) for n, one in zip(MEMBERS[1:], others, strict=True)}
    return leader.weights(3, MEMBERS, words)


def test_all_take_the_same_unless_it_is_asked_for() -> None:
    even = Speeds(follow=False)
    even.computed(100, 1.0)
    assert even.own == 0.0
    assert even.weights(3, MEMBERS, {5: word(member(1)), 8: word(member(9))}) == ()


def test_a_slower_one_takes_fewer() -> None:
    assert weights(200, 100, 50) == (1.0, 0.5, 0.25)
    assert weights(50, 100, 200) == (0.25, 0.5, 1.0)


def test_a_very_slow_one_takes_some_so_that_it_is_seen_when_it_is_fast_again() -> None:
    assert weights(1000, 1000, 1) == (1.0, 1.0, 0.05)


def test_all_take_the_same_until_a_speed_is_known_and_others_pass_for_fast() -> None:
    one = member(100)
    assert one.weights(3, MEMBERS, {5: word(member(50))}) == (1.0, 0.5, 1.1)
    fresh = Speeds(follow=True)  # it has made no step yet
    assert one.weights(3, MEMBERS, {5: word(fresh), 8: word(member(50))}) == (
        1.0,
        1.1,
        0.5,
    )
    assert fresh.weights(3, MEMBERS, {}) == ()
    assert one.weights(3, (3,), {}) == ()


@pytest.mark.parametrize("word", [b"", b"1234567", b"\xff" * 8, b"\x7f\xf0" + bytes(6)])
def test_a_word_that_is_no_speed_is_none(word: bytes) -> None:
    assert member(100).weights(3, (3, 5), {5: word}) == (1.0, 1.1)


def test_weights_stay_while_speeds_change_a_little() -> None:
    """What was read ahead is of the share that was expected."""
    leader = member(100)
    first = leader.weights(3, (3, 5), {5: word(member(50))})
    assert leader.weights(3, (3, 5), {5: word(member(53))}) == first
    assert leader.weights(3, (3, 5), {5: word(member(80))}) == (1.0, 0.8)
    # Another round has other members.
    assert leader.weights(3, (3, 8), {8: word(member(81))}) == (1.0, 0.81)


@pytest.mark.parametrize("cost", [0.0, 0.01])
def test_members_come_to_need_the_same_time(cost: float) -> None:
    """Also where each share costs `cost` seconds, and times are noisy."""
    rng = random.Random(5)
    per_record = {3: 0.0005, 5: 0.001, 8: 0.002}
    speeds = {n: Speeds(follow=True) for n in MEMBERS}
    seconds: dict[int, float] = {}
    for _ in range(200):
        words = {n: word(speeds[n]) for n in MEMBERS[1:]}
        plan = StepPlan(1, 0, 400, weights=speeds[3].weights(3, MEMBERS, words))
        for n, records in shares(plan, MEMBERS):
            seconds[n] = cost + records * per_record[n]
            speeds[n].computed(records, seconds[n] * rng.uniform(0.97, 1.03))
    assert max(seconds.values()) <= 1.25 * min(seconds.values())


@pytest.mark.parametrize(
    ("records", "unit", "least"), [(32, 16, 16), (48, 16, 16), (8, 1, 3)]
)
def test_one_that_got_nothing_is_seen_too_when_it_is_fast_again(
    records: int, unit: int, least: int
) -> None:
    """Of whole batches, or few records, a slow one's part may be none at all."""
    speeds = {3: Speeds(follow=True), 5: Speeds(follow=True)}

    def steps(number: int, *, slow: float) -> list[int]:
        took = []
        for _ in range(number):
            words = {5: word(speeds[5])}
            weights = speeds[3].weights(3, (3, 5), words)
            plan = StepPlan(1, 0, records, weights=weights, unit=unit)
            shared = dict(shares(plan, (3, 5)))
            speeds[3].computed(shared.get(3, 0), shared.get(3, 0) * 0.001)
            speeds[5].computed(shared.get(5, 0), shared.get(5, 0) * 0.001 * slow)
            took.append(shared.get(5, 0))
        return took

    while_slow = steps(400, slow=30.0)
    assert while_slow[-1] == 0
    # To look costs little.
    assert sum(1 for n in while_slow[100:] if n) <= 15
    assert steps(800, slow=1.0)[-1] >= least


def test_weights_change_seldom_where_a_processor_is_shared() -> None:
    """Shares of 16 ms, of which one member's take half as long or twice, by chance."""
    rng = random.Random(7)
    speeds = {3: Speeds(follow=True), 5: Speeds(follow=True)}
    found = []
    for _ in range(400):
        weights = speeds[3].weights(3, (3, 5), {5: word(speeds[5])})
        found.append(weights)
        plan = StepPlan(1, 0, 256, weights=weights)
        for n, records in shares(plan, (3, 5)):
            slow = rng.choice((1.0, 3.0)) if n == 5 else 1.0
            speeds[n].computed(records, records * 0.0001 * slow)
    changes = sum(a != b for a, b in itertools.pairwise(found[50:]))
    # About 170 with a mean of the last five shares: what was read ahead is lost then.
    assert changes <= 40


def test_the_first_share_tells_the_speed_also_after_steps_without_records() -> None:
    speeds = Speeds(follow=True)
    speeds.computed(0, 0.0)
    speeds.computed(100, 1.0)
    assert speeds.own == 100
    speeds.computed(300, 1.0)
    assert speeds.own == 200


def test_one_that_got_no_batch_in_even_shares_is_tried() -> None:
    """Four whole batches for five members; the last one's speed is not known."""
    leader = member(100)
    words = {n: word(member(1000)) for n in (5, 6, 7)}
    words[8] = word(Speeds(follow=True))
    weights = leader.weights(3, (3, 5, 6, 7, 8), words)
    assert weights == (0.1, 1.0, 1.0, 1.0, 1.1)
    plan = StepPlan(1, 0, 256, weights=weights, unit=64)
    assert dict(shares(plan, (3, 5, 6, 7, 8)))[8] == 64


def test_a_newcomer_gets_the_only_batch_of_a_step_once_to_see_what_it_can() -> None:
    speeds = {3: Speeds(follow=True), 5: Speeds(follow=True)}
    records_a_second = {3: 20.0, 5: 100.0}
    took = {3: 0, 5: 0}
    for _ in range(50):
        weights = speeds[3].weights(3, (3, 5), {5: word(speeds[5])})
        plan = StepPlan(1, 0, 32, weights=weights, unit=32)
        shared = dict(shares(plan, (3, 5)))
        for n in (3, 5):
            took[n] += shared.get(n, 0)
            speeds[n].computed(shared.get(n, 0), shared.get(n, 0) / records_a_second[n])
    assert took[5] >= 45 * 32
