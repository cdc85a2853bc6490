"""Kills by the kernel, told from those by anybody else."""

from pathlib import Path

import pytest
from elasticdl.runner.oom import OomKills, counters


def test_each_kill_of_the_kernel_explains_one_end(tmp_path: Path) -> None:
    events = tmp_path / "memory.events"
    events.write_text("oom 7\noom_kill 3\noom_group_kill 9\n")
    kills = OomKills([events])
    assert not kills.explain_one()  # those of before are others'
    events.write_text("oom 9\noom_kill 5\noom_group_kill 9\n")
    assert [kills.explain_one() for _ in range(3)] == [True, True, False]


def test_the_own_group_is_believed_before_the_machine(tmp_path: Path) -> None:
    group, machine = tmp_path / "memory.events", tmp_path / "vmstat"
    group.write_text("oom_kill 0\n")
    machine.write_text("nr_free_pages 5\noom_kill 4\n")
    kills = OomKills([group, machine])
    machine.write_text("nr_free_pages 5\noom_kill 5\n")
    assert not kills.explain_one()
    alone = OomKills([tmp_path / "none", machine])
    machine.write_text("nr_free_pages 5\noom_kill 6\n")
    assert alone.explain_one()


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("4:memory:/a\n0::/user.slice/b.scope\n", "user.slice/b.scope/memory.events"),
        ("0::/\n", "memory.events"),
    ],
)
def test_the_counter_of_the_own_group_is_found(
    tmp_path: Path, text: str, first: str
) -> None:
    own = tmp_path / "cgroup"
    own.write_text(text)
    found = counters(own, tmp_path)
    assert found == [tmp_path / first, Path("/proc/vmstat")]
    assert counters(tmp_path / "none", tmp_path) == []
