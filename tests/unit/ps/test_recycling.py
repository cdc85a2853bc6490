"""Memory of copies that serves again, and never while somebody looks at it."""

import numpy as np
import pytest
from elasticdl.ps.recycling import Recycler

SIZE = 1 << 19  # 2 MiB of float32


@pytest.fixture
def now():
    return [0.0]


@pytest.fixture
def recycler(now):
    return Recycler(clock=lambda: now[0])


def numbers(first: float) -> np.ndarray:
    return np.arange(SIZE, dtype=np.float32) + np.float32(first)


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def test_a_copy_is_equal_and_its_memory_serves_again(recycler):
    copy = recycler.copy(numbers(1))
    np.testing.assert_array_equal(copy, numbers(1))
    where = address(copy)
    del copy
    assert recycler.spare_bytes == SIZE * 4
    again = recycler.copy(numbers(2))
    assert address(again) == where
    assert recycler.spare_bytes == 0
    np.testing.assert_array_equal(again, numbers(2))


@pytest.mark.parametrize(
    "look",
    [
        lambda copy: copy[1:],
        lambda copy: copy.reshape(-1, 4)[3],
        lambda copy: copy.view(np.uint8)[1:],
        lambda copy: np.frombuffer(copy.data.cast("B")[4:], np.uint8),
        memoryview,
    ],
    ids=["slice", "row", "bytes", "frame", "memoryview"],
)
@pytest.mark.parametrize("shape", [(SIZE,), (2, SIZE // 2)])
def test_no_memory_serves_again_while_a_view_of_it_lives(recycler, look, shape):
    copy = recycler.copy(numbers(1).reshape(shape))
    copy.flags.writeable = False
    view = look(copy)
    before = bytes(view)
    del copy
    other = recycler.copy(numbers(2))
    assert bytes(view) == before
    del view
    assert recycler.spare_bytes == SIZE * 4
    del other
    assert recycler.spare_bytes == 2 * SIZE * 4


def test_a_copy_of_another_size_gets_memory_of_its_own(recycler):
    del_me = recycler.copy(numbers(1))
    del del_me
    small = recycler.copy(numbers(1)[: SIZE // 2])
    assert small.nbytes == SIZE * 2
    assert recycler.spare_bytes == SIZE * 4


def test_memory_that_nobody_needed_for_a_while_is_returned(recycler, now):
    copies = [recycler.copy(numbers(n)) for n in range(3)]
    del copies
    for second in range(0, 120, 10):  # one of three goes on being used
        now[0] = float(second)
        copy = recycler.copy(numbers(1))
        del copy
    assert recycler.spare_bytes == SIZE * 4


def test_small_arrays_are_left_to_the_allocator(recycler):
    copy = recycler.copy(np.ones((3, 2), np.float32))
    assert copy.shape == (3, 2)
    del copy
    assert recycler.spare_bytes == 0
