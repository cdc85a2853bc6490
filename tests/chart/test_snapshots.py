"""What the chart renders is what was rendered when somebody last looked at it."""

import pytest

from tests.chart.snapshots import FOLDER, snapshots

AGAIN = "if the change is meant: python -m tests.chart.snapshots"


@pytest.mark.parametrize(
    ("file", "text"), list(snapshots()), ids=lambda part: getattr(part, "stem", "")
)
def test_the_manifests_are_the_ones_in_the_snapshot(file, text):
    assert file.exists(), AGAIN
    assert text == file.read_text(encoding="utf-8"), AGAIN


def test_there_is_no_snapshot_of_an_example_that_is_gone():
    assert {file for file, _ in snapshots()} == set(FOLDER.glob("*.yaml")), AGAIN
