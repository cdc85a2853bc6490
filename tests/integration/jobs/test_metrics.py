"""What the processes of a running job show under /metrics, /healthz and /readyz."""

import json
import time
import urllib.request

import psutil
import pytest
from elasticdl.job.values.file import edit_values
from elasticdl.metrics.registry import MasterMetrics, PsMetrics, WorkerMetrics
from prometheus_client.parser import text_string_to_metric_families

pytestmark = pytest.mark.usefixtures("unmeasured")

# A process lives a moment before its ledger begins, and after it was asked.
SLACK_SECONDS = 1.5


def fetch(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        return answer.status, answer.read().decode()


class Shown:
    """The samples of one process."""

    def __init__(self, port):
        self.families = {
            family.name: family.samples
            for family in text_string_to_metric_families(fetch(port, "/metrics")[1])
        }

    def value(self, name, **labels):
        """The sum of a sample's values over the labels that are not named."""
        found = [
            sample.value
            for samples in self.families.values()
            for sample in samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]
        assert found, f"no sample {name} {labels}"
        return sum(found)

    def without_sample(self, metrics):
        return {
            made.name
            for made in metrics.declared
            if not made.optional
            and not self.families.get(made.name.removesuffix("_total"))
        }

    def undeclared(self, metrics):
        declared = {made.name.removesuffix("_total") for made in metrics.declared}
        return set(self.families) - declared


def running_workers(status):
    return [r for r in status.replicas if r.role == "worker" and r.state == "running"]


@pytest.fixture
def quiet(job):
    """A job that lost a worker, replaced it, went on, and now stands still."""
    one = job(
        "metrics",
        limit_seconds=60.0,
        training={"epochs": 0, "maxSteps": 100_000},
        evaluation={"everySteps": 40, "atEpochEnd": False},
        worker={"pauseSeconds": 600.0},  # they stay to be looked at
    )
    one.fault("worker", at_step=50)
    one.wait_until(
        lambda s: s.relaunches and s.relaunches[0].seconds is not None,
        "a replacement that works",
    )
    step = one.status_now().progress.steps
    one.wait_for_step(step + 60)
    # The survivor may make these steps while the replacement still traces its first.
    one.wait_until(
        lambda s: [bool(r.step) for r in running_workers(s)] == [True, True],
        "two workers that made a step",
    )
    edit_values(one.job_dir.spec_file, {"job.paused": True})
    one.wait_until(
        lambda s: (
            s.state == "paused"
            and not s.progress.tasks_leased
            and all(r.phase == "idle" for r in running_workers(s))
        ),
        "a job at rest",
    )
    # Heartbeats and the master's gauges follow within a moment.
    one.wait_until(
        lambda s: (
            s.progress.records_done == master_of(s).value("elasticdl_job_records_done")
            and are_versions_of_one_job(
                [
                    Shown(r.metrics_port).value("elasticdl_ps_version")
                    for r in s.replicas
                    if r.role == "ps"
                ],
                s.progress.version,
            )
        ),
        "the master's figures",
    )
    return one


def are_versions_of_one_job(versions, version):
    """A killed worker's last push may have reached one PS, either of them, alone."""
    return version in versions and max(versions) - min(versions) <= 1


def master_of(status):
    return Shown(status.master_metrics_port)


def test_every_role_shows_every_metric_and_what_it_shows_is_true(quiet):
    status = quiet.status_now()
    running = [r for r in status.replicas if r.state == "running"]
    ports = {r.name: r.metrics_port for r in running}
    ports["master"] = status.master_metrics_port
    assert sorted(r.role for r in running) == ["ps", "ps", "worker", "worker"]
    for name, port in ports.items():
        assert fetch(port, "/healthz") == (200, "ok\n"), name
        assert fetch(port, "/readyz") == (200, "ok\n"), name
    shown = {name: Shown(port) for name, port in ports.items()}

    declared = {"master": MasterMetrics(), "ps": PsMetrics(), "worker": WorkerMetrics()}
    for name, figures in shown.items():
        missing = figures.without_sample(declared[name.split("-")[0]])
        assert not missing, f"{name} declares but does not show {missing}"
        strange = figures.undeclared(declared[name.split("-")[0]])
        assert not strange, f"{name} shows but does not declare {strange}"
    targets = json.loads(quiet.job_dir.targets_file.read_text())
    assert {(one["targets"][0], one["labels"]["role"]) for one in targets} == {
        (f"127.0.0.1:{port}", name.split("-")[0]) for name, port in ports.items()
    }
    assert {
        (one["labels"]["namespace"], one["labels"]["training_job"]) for one in targets
    } == {("local", "metrics")}

    for name, histograms in {
        "master": [
            "elasticdl_journal_commit_seconds",
            "elasticdl_task_seconds",
            "elasticdl_recovery_seconds",
        ],
        "ps-0": [
            "elasticdl_ps_call_seconds",
            "elasticdl_ps_apply_seconds",
            "elasticdl_ps_checkpoint_write_seconds",
            "elasticdl_ps_staleness_versions",
        ],
        "worker-0": [
            "elasticdl_worker_step_seconds",
            "elasticdl_worker_pull_seconds",
            "elasticdl_worker_push_seconds",
            "elasticdl_worker_convert_seconds",
            "elasticdl_worker_compute_seconds",
        ],
    }.items():
        for histogram in histograms:
            of = shown.get(name) or next(s for n, s in shown.items() if "worker" in n)
            assert of.value(f"{histogram}_count") > 0, histogram

    master = shown["master"]
    assert master.value("elasticdl_relaunches_total", replica_role="worker") == 1
    assert master.value("elasticdl_recovery_seconds_count", replica_role="worker") == 1
    assert master.value("elasticdl_evaluations_total") > 0
    assert master.value("elasticdl_journal_bytes") > 0
    assert (
        master.value("elasticdl_replicas", replica_role="worker", state="running") == 2
    )
    assert master.value("elasticdl_membership_changes_total", cause="killed") == 1
    assert (
        master.value("elasticdl_membership_last_change_cost_seconds", cause="killed")
        == status.relaunches[0].seconds
    )
    assert master.value("elasticdl_preemptions_total") == 0
    assert master.value("elasticdl_master_restarts_total") == 0
    assert master.value("elasticdl_job_loss") == status.last_loss
    assert master.value("elasticdl_job_steps_done") == status.progress.steps
    assert master.value("elasticdl_tasks_done") == status.progress.tasks_done
    assert master.value("elasticdl_job_nonfinite_losses_total") == 0
    since = time.time() - master.value("elasticdl_job_last_step_timestamp_seconds")
    assert 0 <= since <= time.time() - status.started
    assert {
        sample.labels["worker"]
        for sample in master.families["elasticdl_workers_last_step_seconds"]
    } == {str(replica.index) for replica in running_workers(status)}
    steps = status.progress.steps
    for ps in ("ps-0", "ps-1"):
        # A lost worker's last steps were pushed, and were trained again.
        assert shown[ps].value("elasticdl_ps_pushes_total", answer="accepted") >= steps
        used = shown[ps].value("elasticdl_ps_memory_bytes")
        assert used > shown[ps].value("elasticdl_ps_parameter_bytes") > 0
    assert are_versions_of_one_job(
        [shown[ps].value("elasticdl_ps_version") for ps in ("ps-0", "ps-1")],
        status.progress.version,
    )

    for replica in running_workers(status):
        figures = shown[replica.name]
        assert figures.value("elasticdl_worker_memory_limit_bytes") == 0
        trained = figures.value("elasticdl_worker_records_total", task="training")
        assert figures.value("elasticdl_worker_steps_total") == replica.step
        assert replica.step * 10 <= trained <= replica.step * 16
        lived = time.time() - psutil.Process(replica.pid).create_time()
        accounted = figures.value("elasticdl_worker_goodput_seconds_total")
        assert accounted <= lived
        assert accounted >= 0.95 * lived - SLACK_SECONDS
    evaluated = sum(
        figures.value("elasticdl_worker_records_total", task="evaluation")
        for name, figures in shown.items()
        if name.startswith("worker")
    )
    assert evaluated > 0

    records = master.value("elasticdl_job_records_done")
    quiet.handle.stop()
    report = quiet.finish(expected=130)
    assert report.records == records
    assert report.steps == steps
    assert report.replayed_records == master.value(
        "elasticdl_job_replayed_records_total"
    )
    assert json.loads(quiet.job_dir.targets_file.read_text()) == []


@pytest.mark.soak
def test_goodput_of_the_job_is_the_time_of_its_workers(job):
    one = job("goodput", training={"epochs": 10})
    status = one.wait_for_step(1)
    lives = {}
    while status is not None and status.state != "succeeded":
        now = time.time()
        for replica in status.replicas:
            if replica.role == "worker" and replica.pid:
                try:
                    began = psutil.Process(replica.pid).create_time()
                except psutil.NoSuchProcess:
                    continue
                lives[replica.name] = now - began
        status = one.status() if one.processes() else None
    report = one.finish()
    assert len(lives) == 2
    # Pending and preempted seconds are of workers that have no process.
    accounted = sum(
        seconds
        for cause, seconds in report.goodput_seconds.items()
        if cause not in ("pending", "preempted")
    )
    assert accounted == pytest.approx(sum(lives.values()), rel=0.05, abs=2.0)
    assert report.goodput_seconds["train"] > 0
    assert 0 < report.goodput < 1
