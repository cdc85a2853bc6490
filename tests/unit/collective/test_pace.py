"""How long members wait for a newcomer that is behind."""

import pytest
from elasticdl.collective.sponsoring import pace_seconds


@pytest.mark.parametrize(
    ("usual", "step", "wait"),
    [
        (0.0, 0.0, 0.0),
        (0.01, 0.01, 0.01),
        (0.1, 0.2, 0.1),
        (0.6, 0.7, 0.6),
        (0.6, 1.1, 0.25),  # the line is shared with the newcomer
        (0.6, 2.0, 0.0),
        (2.0, 2.0, 0.6),
        (10.0, 10.0, 1.5),
    ],
)
def test_a_step_beside_a_newcomer_takes_about_two_at_most(
    usual: float, step: float, wait: float
) -> None:
    assert pace_seconds(usual, step) == pytest.approx(wait)
