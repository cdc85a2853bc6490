"""What the chart renders is what was rendered when somebody last looked at it."""

import pytest

from tests.chart.snapshots import FOLDER, NAMES, file_of, news, snapshot

AGAIN = "if the change is meant: make snapshots"


@pytest.mark.parametrize("name", NAMES)
def test_the_manifests_are_the_ones_in_the_snapshot(name):
    assert file_of(name).exists(), AGAIN
    if changed := news(name):
        pytest.fail(f"not as in {file_of(name)}; {AGAIN}\n\n{changed}", pytrace=False)


@pytest.mark.parametrize("name", NAMES)
def test_a_snapshots_file_is_as_it_is_written(name):
    assert snapshot(name) == file_of(name).read_text(encoding="utf-8"), AGAIN


def test_there_is_no_snapshot_of_an_example_that_is_gone():
    assert {file_of(name) for name in NAMES} == set(FOLDER.iterdir()), AGAIN
