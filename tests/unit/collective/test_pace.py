"""How long members wait for a newcomer that is behind."""

import pytest
from elasticdl.collective.sponsoring import pace_seconds


@pytest.mark.parametrize(
    ("step", "wait"), [(0.0, 0.0), (0.01, 0.01), (0.1, 0.1), (1.0, 0.15), (10.0, 1.5)]
)
def test_a_newcomer_costs_short_steps_one_more_and_long_ones_a_part(
    step: float, wait: float
) -> None:
    assert pace_seconds(step) == pytest.approx(wait)
