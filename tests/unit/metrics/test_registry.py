"""Names of metrics are an interface: dashboards and alerts are written against them."""

import re

import pytest
from elasticdl.metrics.registry import MasterMetrics, PsMetrics, WorkerMetrics
from prometheus_client.exposition import generate_latest


@pytest.mark.parametrize("kind", [MasterMetrics, PsMetrics, WorkerMetrics])
def test_every_metric_has_prefix_help_and_unit(kind):
    metrics = kind()
    families = list(metrics.registry.collect())
    assert families
    for family in families:
        assert re.fullmatch(r"elasticdl_[a-z_]+", family.name)
        assert family.documentation.endswith(".")
        if family.type == "histogram":
            assert re.search(r"_(seconds|bytes|versions)$", family.name)


@pytest.mark.parametrize("kind", [MasterMetrics, PsMetrics, WorkerMetrics])
def test_a_process_may_make_several(kind):
    assert kind().registry is not kind().registry


def test_goodput_shows_the_ledgers_seconds():
    metrics = WorkerMetrics()
    metrics.goodput.set({"train": 3.5, "waitPs": 0.5})
    text = generate_latest(metrics.registry).decode()
    assert 'elasticdl_worker_goodput_seconds_total{cause="train"} 3.5' in text
