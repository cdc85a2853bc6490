"""The table's rows of a cluster are of figures that the end-to-end tests take."""

import importlib.util
import re
import sys

import pytest

from tests.e2e.own_cluster import ROLES, ROOT


@pytest.fixture
def cluster(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    spec = importlib.util.spec_from_file_location(
        "bench_cluster", ROOT / "bench" / "cluster.py"
    )
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.modules.pop("frame", None)


def test_every_row_of_a_cluster_has_a_figure_that_a_test_records(cluster):
    recorded = {f"image_{role}_mb" for role in ROLES}
    for file in (ROOT / "tests" / "e2e").rglob("test_*.py"):
        recorded |= set(re.findall(r'figures\.record\("(\w+)"', file.read_text()))
    wanted = {key for key, *_ in (*cluster._SECONDS, *cluster._MEGABYTES)}
    assert wanted <= recorded
