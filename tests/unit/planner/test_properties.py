"""What holds of every plan holds over random clusters."""

import pytest

from tests.unit.planner.properties import check

SEEDS = 150
_AT_ONCE = 25


@pytest.mark.parametrize("first", range(0, SEEDS, _AT_ONCE))
def test_plans_of_random_clusters_come_to_rest(first: int) -> None:
    for seed in range(first, first + _AT_ONCE):
        try:
            check(seed)
        except AssertionError as error:
            pytest.fail(f"seed {seed}: {error}")
