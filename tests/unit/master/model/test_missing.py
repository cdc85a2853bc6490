"""Updates that died with a PS are counted once, however old handed values are."""

import pytest
from elasticdl.master.model.missing import after_loss, after_rewind


@pytest.mark.parametrize(
    ("before", "began_at", "lost_at", "after", "count"),
    [
        ([], 4, 4, [], 0),
        ([], 3, 10, [(3, 10)], 7),
        # The first four were lost, and counted, with the PS before.
        ([(0, 4)], 0, 12, [(0, 12)], 8),
        ([(0, 4)], 6, 12, [(0, 4), (6, 12)], 6),
        # Values older than the first loss bring some of its updates back.
        ([(0, 4)], 2, 12, [(2, 12)], 6),
        ([(2, 4)], 3, 12, [(3, 12)], 7),
        ([(3, 9)], 3, 9, [(3, 9)], 0),
    ],
)
def test_no_update_counts_as_lost_twice(before, began_at, lost_at, after, count):
    assert after_loss(before, began_at=began_at, lost_at=lost_at) == (after, count)


def test_a_checkpoint_lacks_what_was_lost_before_it_was_written():
    assert after_rewind([(0, 4), (6, 12)], version=8) == [(0, 4)]
