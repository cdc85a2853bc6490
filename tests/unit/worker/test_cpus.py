"""A worker computes in as many threads as its container has CPUs."""

import os

import pytest
from elasticdl.worker.cpus import bound_threads, cpu_limit


@pytest.fixture
def sixteen(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(16)))


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("200000 100000\n", 2),
        ("250000 100000\n", 3),
        ("10000 100000\n", 1),
        ("max 100000\n", None),
        ("1600000 100000\n", None),  # all there are
        ("", None),
        ("something else\n", None),
    ],
)
@pytest.mark.usefixtures("sixteen")
def test_the_limit_of_a_container_is_read(tmp_path, text, cpus):
    (tmp_path / "cpu.max").write_text(text)
    assert cpu_limit(tmp_path) == cpus


@pytest.mark.parametrize(("quota", "cpus"), [("150000", 2), ("-1", None)])
@pytest.mark.usefixtures("sixteen")
def test_the_limit_of_an_older_kernel_is_read(tmp_path, quota, cpus):
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu/cpu.cfs_quota_us").write_text(f"{quota}\n")
    (tmp_path / "cpu/cpu.cfs_period_us").write_text("100000\n")
    assert cpu_limit(tmp_path) == cpus


def test_without_control_groups_there_is_no_limit(tmp_path):
    assert cpu_limit(tmp_path / "none") is None


INTRA, INTER = "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"


@pytest.fixture
def two(tmp_path, monkeypatch, sixteen):
    (tmp_path / "cpu.max").write_text("200000 100000")
    monkeypatch.setattr(cpu_limit, "__defaults__", (tmp_path,))


@pytest.mark.usefixtures("two")
def test_the_job_goes_before_the_environment_and_that_before_the_limit():
    environ = {INTRA: "5"}
    bound_threads(0, environ)
    assert environ == {INTRA: "5", INTER: "2"}
    bound_threads(3, environ)
    assert environ == {INTRA: "3", INTER: "3"}
