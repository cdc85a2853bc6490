"""Names of metrics are an interface: dashboards and alerts are written against them."""

import re

import pytest
from elasticdl.job.spec.job import JobType, Strategy
from elasticdl.job.words import ExitReason, JobState, end_cause_of
from elasticdl.metrics.catalogue import Catalogue
from elasticdl.metrics.registry import ROLES, MasterMetrics, WorkerMetrics
from elasticdl.worker.progress import WorkerProgress
from prometheus_client.exposition import generate_latest

ALL = sorted(ROLES.items())
DECLARED = [(role, made) for role, kind in ALL for made in kind().declared]


@pytest.mark.parametrize(
    ("role", "made"), DECLARED, ids=[f"{r}-{d.name}" for r, d in DECLARED]
)
def test_a_name_says_what_it_counts_and_in_which_unit(role, made):
    assert re.fullmatch(r"elasticdl_[a-z_]+", made.name)
    assert made.unit, "a name without a unit's ending has to tell its unit"
    assert re.match(r"[A-Z0-9].*\.$", made.help), "help is a sentence"
    assert made.name.endswith("_total") == (made.kind == "counter")
    stem = made.name.removesuffix("_total")
    for unit in ("seconds", "bytes"):
        assert (made.unit in (unit, f"Unix {unit}")) == stem.endswith(f"_{unit}")
    assert stem.endswith("_timestamp_seconds") == (made.unit == "Unix seconds")
    # Reserved for the series of histograms, and for one that Prometheus adds.
    assert not re.search(r"_(count|sum|bucket|info_info)$", made.name)
    if role in ("ps", "worker"):
        assert made.name.startswith(f"elasticdl_{role}_")
    if role == "exporter":
        assert made.name.startswith("elasticdl_cluster_")
    for label, values in made.labels.items():
        assert re.fullmatch(r"[a-z_]+", label)
        assert values, "a label says which values it has"
        # Those of the target, which Prometheus adds: it would rename ours.
        assert label not in ("namespace", "index", "job", "instance")


def test_no_name_is_declared_twice():
    names = [made.name for _, made in DECLARED]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("kind", [kind for _, kind in ALL])
def test_what_a_role_registers_is_what_it_declares(kind):
    metrics = kind()
    shown = {
        family.name + ("_total" if family.type == "counter" else ""): family.type
        for family in metrics.registry.collect()
    }
    assert shown == {made.name: made.kind for made in metrics.declared}


@pytest.mark.parametrize("kind", [kind for _, kind in ALL])
def test_a_process_may_make_several(kind):
    assert kind().registry is not kind().registry


def labels_of(name):
    (made,) = [made for _, made in DECLARED if made.name == name]
    return made.labels


def test_documented_values_of_labels_are_those_of_the_code():
    state = labels_of("elasticdl_job_state")["state"]
    assert state.split(", ") == [one.value for one in JobState]
    info = labels_of("elasticdl_job_info")
    assert info["type"].split(", ") == [one.value for one in JobType]
    assert set(info["strategy"].split(", ")) == {one.value for one in Strategy}
    causes = labels_of("elasticdl_membership_changes_total")["cause"].split(", ")
    for reason in ExitReason:
        known = end_cause_of(reason.value) in causes
        assert known
    assert end_cause_of("exit code 137") == "crashed"
    assert end_cause_of("stopped from outside") == "deleted"


def test_goodput_shows_the_ledgers_seconds():
    metrics = WorkerMetrics()
    metrics.goodput.set_by({"train": 3.5, "waitPs": 0.5})
    text = generate_latest(metrics.registry).decode()
    assert 'elasticdl_worker_goodput_seconds_total{cause="train"} 3.5' in text


def test_series_that_are_left_out_are_gone():
    metrics = MasterMetrics()
    metrics.replicas.set({("worker", "running"): 2, ("worker", "pending"): 1})
    metrics.replicas.set({("worker", "running"): 3})
    text = generate_latest(metrics.registry).decode()
    assert 'elasticdl_replicas{replica_role="worker",state="running"} 3.0' in text
    assert 'state="pending"' not in text


def test_what_is_not_known_is_absent_and_not_zero():
    metrics = MasterMetrics()
    metrics.eta.set_one(12.0)
    assert (
        "\nelasticdl_job_eta_seconds 12.0" in generate_latest(metrics.registry).decode()
    )
    metrics.eta.set_one(None)
    assert (
        "\nelasticdl_job_eta_seconds" not in generate_latest(metrics.registry).decode()
    )


def test_steps_that_were_noted_are_counted_when_somebody_asks():
    metrics = WorkerMetrics()
    progress = WorkerProgress(lambda: 0.0, counted=metrics.count_steps)
    for step in range(1, 601):  # more than are noted without being counted
        progress.stepped(version=step + 7, loss=1.0 / step, records=32, seconds=0.02)
    progress.count()
    progress.count()
    text = generate_latest(metrics.registry).decode()
    for line in (
        "elasticdl_worker_steps_total 600.0",
        'elasticdl_worker_records_total{task="training"} 19200.0',
        "elasticdl_worker_model_version 607.0",
        "elasticdl_worker_step_seconds_count 600.0",
        'elasticdl_worker_step_seconds_bucket{le="0.01"} 0.0',
    ):
        assert f"\n{line}\n" in text


def test_no_series_tells_when_another_one_was_made():
    class One(Catalogue):
        pass

    one = One()
    one.counter("elasticdl_things_total", "Things.", unit="things").inc()
    assert "_created" not in generate_latest(one.registry).decode()


@pytest.mark.parametrize("role", ["master", "ps", "worker"])
def test_no_metric_of_a_job_has_a_label_of_its_target(role):
    """Prometheus would rename it, and panels and alerts would find nothing by it."""
    of_targets = {
        "namespace", "training_job", "role", "index", "cluster", "job", "instance",
        "pod", "container", "endpoint",
    }  # fmt: skip
    for metric in ROLES[role]().declared:
        assert not of_targets & set(metric.labels), metric.name
