"""How gradients are cut: into buckets, and these into a part for each member."""

from itertools import pairwise

import pytest
from elasticdl.collective.buffers import part_bounds
from elasticdl.worker.group.buckets import LEAST_FLOATS, buckets


def test_a_small_model_is_one_bucket():
    (only,) = buckets([100, 20, 3])
    assert (only.first, only.last, only.begin, only.end) == (0, 3, 0, 123)


def test_buckets_end_with_variables_and_follow_each_other():
    sizes = [LEAST_FLOATS, 5, 7, 3 * LEAST_FLOATS, 1]
    made = buckets(sizes)
    assert [(b.first, b.last) for b in made] == [(0, 1), (1, 4), (4, 5)]
    assert [b.end for b in made] == [b.begin for b in made[1:]] + [sum(sizes)]


def test_a_large_model_has_few_buckets():
    assert len(buckets([LEAST_FLOATS] * 100)) <= 8


@pytest.mark.parametrize("members", [1, 2, 3, 7, 40])
@pytest.mark.parametrize("ends", [(10,), (100, 101, 500), (64, 1000)])
def test_the_parts_cover_each_float_once_and_stay_in_their_bucket(ends, members):
    bounds = part_bounds(ends, members)
    assert len(bounds) == len(ends) * members
    assert bounds[0][0] == 0
    assert all(one[1] == following[0] for one, following in pairwise(bounds))
    last = [bounds[(i + 1) * members - 1][1] for i in range(len(ends))]
    assert last == list(ends)
