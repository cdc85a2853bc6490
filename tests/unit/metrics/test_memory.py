"""A container's memory limit is read where the kernel keeps it."""

from elasticdl.metrics.memory import container_limit_bytes


def test_the_limit_of_cgroups_version_2_is_read(tmp_path):
    (tmp_path / "memory.max").write_text("536870912\n")
    assert container_limit_bytes(tmp_path) == 512 * 2**20


def test_the_limit_of_cgroups_version_1_is_read(tmp_path):
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "memory.limit_in_bytes").write_text("1073741824\n")
    assert container_limit_bytes(tmp_path) == 2**30


def test_no_limit_is_0_in_both_ways_of_saying_so(tmp_path):
    assert container_limit_bytes(tmp_path) == 0
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "memory.limit_in_bytes").write_text("9223372036854771712")
    assert container_limit_bytes(tmp_path) == 0
    (tmp_path / "memory.max").write_text("max\n")
    assert container_limit_bytes(tmp_path) == 0
