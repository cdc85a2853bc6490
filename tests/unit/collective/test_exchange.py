"""Members on real sockets: all of them have the same sums, to the last bit."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from elasticdl.collective.encoding import Encoding, GradientForm
from elasticdl.collective.group import Group
from elasticdl.collective.lent_vectors import Vectors
from elasticdl.collective.links import Door
from elasticdl.collective.messages import (
    Apply,
    Begin,
    Broken,
    Compute,
    Round,
    Take,
)
from elasticdl.job.spec.kinds import Compression
from elasticdl.tensor.lent_memory import can_lend

SIZE = 100_003
ROUNDED = 100_000  # gradients; the rest are counts
ENDS = (SIZE // 3, SIZE // 3 + 1, SIZE)  # of the buckets
STEPS = 4
MANY_STEPS = 40


class Nothing:
    """The state is empty: all begin with zeros."""

    def plan(self, step: int) -> bytes:
        del step
        return b"plan"

    def state(self):
        return [b""]


def member_of(
    number: int,
    vectors: Vectors | None = None,
    form: GradientForm | None = None,
    **more,
) -> Group:
    return Group(
        number,
        Nothing(),
        form=form or GradientForm(ENDS),
        door=Door("secret", vectors=vectors or Vectors()),
        most_state_bytes=100,
        **more,
    )


def gradient(member: int, step: int):
    drawn = np.random.default_rng([member, step]).standard_normal(SIZE)
    made = drawn.astype(np.float32)
    made[ROUNDED:] = [257 + member, 4097, 65537]  # more than 16 bits hold
    return made


def test_the_leader_hears_the_words_of_the_others() -> None:
    numbers = (1, 5, 6)
    said = {number: f"of {number}".encode() for number in numbers}
    groups = {
        number: member_of(number, word=lambda number=number: said[number])
        for number in numbers
    }
    addresses = {n: f"127.0.0.1:{group.port}" for n, group in groups.items()}
    for group in groups.values():
        group.enter(Round(1, numbers, (1, 1, 1), begins=True), addresses)
    threads = [threading.Thread(target=run, args=(groups[n], n, [])) for n in numbers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    heard = dict(groups[1].words)
    for group in groups.values():
        group.close()
    assert heard == {5: b"of 5", 6: b"of 6"}


def run(
    group: Group,
    member: int,
    sums: list,
    vectors: Vectors | None = None,
    *,
    steps: int = STEPS,
) -> None:
    vectors = vectors or Vectors()
    turns = 2 if vectors.lends else 1
    in_turn = [vectors.new(SIZE) for _ in range(turns)]
    while len(sums) < steps:
        match group.next(20):
            case Compute(step, _, number):
                mine = in_turn[step % turns]
                vectors.rewrite(mine)
                mine[:] = gradient(member, step)
                # The members have their buckets ready in different orders.
                for bucket in range(len(ENDS))[:: 1 if member % 2 else -1]:
                    group.has_bucket(step, number, bucket, mine)
            case Apply(_, _, (whole,)):
                sums.append(whole.copy())
                group.applied()
            case Begin():
                group.began()
            case Take():
                group.applied()
            case None:
                raise AssertionError("nothing to do for 20 s")


@pytest.mark.parametrize("members", [2, 3, 5])
@pytest.mark.parametrize("form", list(Compression))
@pytest.mark.parametrize("lends", [False, True])
def test_all_members_have_the_same_sums(
    form: Compression, members: int, lends: bool
) -> None:
    numbers = tuple(range(10, 10 + members))
    vectors = {number: Vectors(lends=lends) for number in numbers}
    gradient_form = GradientForm(ENDS, Encoding(form, ROUNDED))
    groups = {
        number: member_of(number, vectors[number], gradient_form) for number in numbers
    }
    addresses = {n: f"127.0.0.1:{group.port}" for n, group in groups.items()}
    sums: dict[int, list] = {number: [] for number in numbers}
    threads = [
        threading.Thread(target=run, args=(groups[n], n, sums[n], vectors[n]))
        for n in numbers
    ]
    for group in groups.values():
        group.enter(Round(1, numbers, (1,) * members, begins=True), addresses)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for group in groups.values():
        group.close()
    first = sums[numbers[0]]
    for others in sums.values():
        assert [s.tobytes() for s in others] == [s.tobytes() for s in first]
    for step, summed in enumerate(first):
        exact = sum(gradient(n, step).astype(np.float64) for n in numbers)
        rounding = {"none": 1e-6, "bfloat16": 2.0**-7, "float16": 2.0**-10}[form]
        size = sum(np.abs(gradient(n, step)) for n in numbers)
        assert (np.abs(summed - exact) <= rounding * size).all()
        assert (summed[ROUNDED:] == exact[ROUNDED:].astype(np.float32)).all()


@pytest.mark.parametrize("lends", [False, True])
def test_two_members_have_the_sums_of_small_gradients_without_a_second_message(
    lends: bool,
) -> None:
    numbers = (3, 8)
    vectors = {number: Vectors(lends=lends) for number in numbers}
    groups = {n: member_of(n, vectors[n]) for n in numbers}
    addresses = {n: f"127.0.0.1:{group.port}" for n, group in groups.items()}
    sums: dict[int, list] = {number: [] for number in numbers}
    threads = [
        threading.Thread(
            target=run,
            args=(groups[n], n, sums[n], vectors[n]),
            kwargs={"steps": MANY_STEPS},
        )
        for n in numbers
    ]
    for group in groups.values():
        group.enter(Round(1, numbers, (1, 1), begins=True), addresses)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sent = [group.sent_bytes for group in groups.values()]
    for group in groups.values():
        group.close()
    for step in range(MANY_STEPS):
        expected = gradient(3, step) + gradient(8, step)
        assert sums[3][step].tobytes() == expected.tobytes()
        assert sums[8][step].tobytes() == expected.tobytes()
    assert sent == [4 * SIZE * MANY_STEPS] * 2


@pytest.mark.skipif(not can_lend(), reason="anonymous memory files")
def test_a_piece_that_its_member_wrote_over_ends_the_round() -> None:
    vectors = {number: Vectors(lends=True) for number in (0, 1)}
    groups = {number: member_of(number, vectors[number]) for number in (0, 1)}
    addresses = {n: f"127.0.0.1:{group.port}" for n, group in groups.items()}
    for group in groups.values():
        group.enter(Round(1, (0, 1), (1, 1), begins=True), addresses)
    begun = {number: until_compute(group) for number, group in groups.items()}
    mine = vectors[0].new(SIZE)
    groups[0].computed(begun[0].step, begun[0].round, mine)
    vectors[0].rewrite(mine)
    groups[1].computed(begun[1].step, begun[1].round, gradient(1, 0))
    told = groups[1].next(20)
    for group in groups.values():
        group.close()
    assert told == Broken(1, 0)


def until_compute(group: Group) -> Compute:
    while True:
        match group.next(20):
            case Compute() as order:
                return order
            case Begin():
                group.began()
            case Take():
                group.applied()
            case None:
                raise AssertionError("nothing to do for 20 s")
