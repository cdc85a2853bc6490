"""Memory lent between processes of one machine."""

import gc
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from elasticdl.rpc.ps.lent_calls import Lender
from elasticdl.tensor.lent_memory import Borrowed, Pool, Segment, can_lend

pytestmark = pytest.mark.skipif(not can_lend(), reason="anonymous memory files")


def test_both_sides_see_the_same_bytes():
    segment = Segment(1000)
    segment.data()[:3] = (1, 2, 3)
    other = Borrowed().data(segment.lent)
    assert list(other[:3]) == [1, 2, 3]
    other[0] = 9
    assert segment.data()[0] == 9
    assert segment.data().ctypes.data % 64 == 0


def test_what_was_not_lent_cannot_be_borrowed():
    segment = Segment(100)
    borrowed = Borrowed()
    for change in ({"token": b"x" * 16}, {"bytes": 50}, {"fd": 10_000}, {"pid": -1}):
        wrong = replace(segment.lent, **change)
        with pytest.raises(OSError, match=r"lent|No such file"):
            borrowed.data(wrong)


def test_the_number_of_another_process_opens_nothing_of_it(tmp_path):
    # In another pod the same number is another process: here, one with such a file.
    segment, other = Segment(100), Segment(100)
    pipe, _ = os.pipe()
    file = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    os.ftruncate(file, segment.lent.bytes)
    os.write(file, segment.lent.token)  # even if it begins like that
    for fd in (pipe, file, other.lent.fd):
        wrong = replace(segment.lent, fd=fd)
        with pytest.raises(OSError, match="than the one that was lent"):
            Borrowed().data(wrong)


def test_memory_is_lent_within_one_machine_alone():
    def never(*_, **__):
        raise AssertionError("called")

    for address in ("10.244.0.7:50002", "[fd00::7]:50002", "ps-0.ml.svc:50002", ""):
        assert Lender(never, address).call("Push", [], room=0, timeout=1.0) is None


def test_memory_of_a_process_that_ended_is_let_go():
    living = True
    borrowed = Borrowed(alive=lambda _: living)
    first, second = Segment(100), Segment(1)
    assert borrowed.data(first.lent) is borrowed.data(first.lent)
    assert len(borrowed._open) == 1
    living = False
    borrowed.data(second.lent)
    assert len(borrowed._open) == 1  # the newest is looked at the next time


def test_another_process_borrows_and_its_owner_may_end():
    segment = Segment(8)
    code = (
        "import sys\n"
        "from elasticdl.tensor.lent_memory import Borrowed, Lent\n"
        "lent = Lent(*map(int, sys.argv[1:4]), bytes.fromhex(sys.argv[4]))\n"
        "Borrowed().data(lent)[:4] = 5\n"
    )
    lent = segment.lent
    told = [str(lent.pid), str(lent.fd), str(lent.bytes), lent.token.hex()]
    subprocess.run([sys.executable, "-c", code, *told], check=True)
    np.testing.assert_array_equal(segment.data()[:4], 5)


def test_a_segment_is_used_again_once_no_view_of_it_is_left():
    pool = Pool()
    taken = [pool.take(10) for _ in range(6)]
    assert all(taken)
    assert pool.take(10) is None
    data = taken[0].data()
    view = np.frombuffer(data.data[2:6], np.uint8)
    pool.give_back_after(taken[0], data)
    del data
    gc.collect()
    assert pool.take(10) is None
    del view
    gc.collect()
    assert pool.take(10) is taken[0]
    pool.give_back(taken[1])
    larger = pool.take(200_000)
    assert larger.size == 262_144
    assert larger not in taken


def test_requests_of_varying_sizes_find_memory_that_fits():
    pool = Pool()
    made = set()
    for number in range(20_000):
        segment = pool.take(100_000 + 7919 * number % 100_000)
        made.add(segment.lent.token)
        pool.give_back(segment)
    assert len(made) <= 2  # one for each power of two


def test_a_ps_lets_go_what_its_owner_lends_no_longer():
    pool, borrowed = Pool(), Borrowed()
    replaced = pool.take(10)
    borrowed.data(replaced.lent)
    pool.give_back(replaced)
    given_up = pool.take(1 << 20)  # in the place of the first
    borrowed.data(given_up.lent)
    pool.abandon(given_up)
    assert len(borrowed._open) == 2
    borrowed.forget(pool.dropped())
    assert not borrowed._open
    assert not pool.dropped()
