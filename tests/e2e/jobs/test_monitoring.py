"""What people ask about a job is answered in a cluster, of pods that really train."""

import json
import math
import re
import time

import pytest
from elasticdl.kube.inventory import node_of

from tests.e2e.jobs import serving
from tests.e2e.jobs.scraping import Monitor, Proxy, Targets, scrapes
from tests.e2e.kube import KubectlError, wait_until
from tests.e2e.releases import merged, values_file
from tests.prometheus.boards import (
    BOARDS,
    DRAWN,
    EACH_RULE,
    QUERIES,
    Seen,
    assert_answered,
    assert_no_line_twice,
    assert_offered,
    assert_rule_answered,
    assert_rules_evaluated,
)
from tests.prometheus.server import Prometheus
from tests.reading import Reading

# Nobody measures what pods use where there is no metrics server.
MEASURED = {"CPU in use", "Memory in use"}
# Pushes bring the values back: a worker pulls once, mostly before it is scraped.
RARE = "elasticdl_worker_pull_seconds"
CHARTS = {
    "workers", "goodput", "goodput-time", "queue", "leases", "loss", "steps",
    "preemptions", "stragglers", "checkpoints", "ps-bytes", "ps-latency", "ps-memory",
}  # fmt: skip
TAGS = {"loss", "evaluation/accuracy", "workers/running", "goodput/share"}
WIDE = {"COLUMNS": "160"}  # for tables that are read word by word


@pytest.fixture
def serve(kube, images):
    """Makes or scales pods that are more important than training, of two CPUs each."""

    def scale(replicas):
        serving.deploy(kube, image=images.of("master"), replicas=replicas)

    return scale


@pytest.fixture
def monitor(kube, helm, images, tmp_path):
    """Watches the namespace, with the platform's exporter."""
    exporter = {"enabled": True, "image": images.of("master")}
    values = {
        "priorityClasses": {"create": False},
        "monitoring": {"exporter": exporter},
    }
    helm.upgrade("elasticdl", values)
    targets = Targets(kube, tmp_path / "targets.json")
    try:
        with Proxy(kube) as proxy:
            found = scrapes(proxy, targets.file)
            folder = tmp_path / "prometheus"
            with Prometheus(folder, scrapes=found, every_seconds=3) as prometheus:
                yield Monitor(proxy, targets, prometheus)
    finally:
        helm.uninstall("elasticdl")  # some of it is of the whole cluster


def a_quarter(kube):
    """Return CPUs of which three fit, and four do not: others hold some."""
    found = kube.run("get", "nodes", "--output=name").split()
    nodes = [kube.get(*name.split("/")) for name in found]
    return sum(node_of(node).allocatable.cpu for node in nodes) / 4


def let_it_happen(digits, monitor, take_room, give_room):
    """Let everything happen that dashboards tell of; return two losses of workers."""
    digits.wait_running("worker", 2)
    monitor.targets.write()
    digits.wait_status(
        "an evaluation and a checkpoint",
        lambda s: s.last_evaluation and (s.checkpoint_version or 0) > 9,
    )
    monitor.wait_for("elasticdl_worker_step_seconds_count > 0")

    digits.delete_pod("worker-1")
    wait_replaced(digits, 1)
    monitor.targets.write()

    digits.upgrade(worker={"replicas": 3})
    digits.wait_running("worker", 3)
    monitor.targets.write()
    digits.wait_steps(20)

    take_room()
    monitor.wait_for("elasticdl_preemptions_total > 0")
    monitor.wait_for('elasticdl_goodput_seconds_total{cause="preempted"} > 0')
    give_room()
    losses = wait_replaced(digits, 2)
    digits.wait_running("worker", 3)
    monitor.targets.write()

    digits.grant(4, why="there is room")
    waits = 'training_job="digits",reason="Unschedulable"'
    for drawn in (
        f'elasticdl_pending_replicas{{replica_role="worker",{waits}}}',
        f"elasticdl_cluster_pending_pods{{{waits}}}",
        "elasticdl_worker_step_seconds_count",
        "elasticdl_job_eta_seconds",
        "elasticdl_workers_granted",
    ):
        monitor.wait_for(f"count_over_time({drawn}[1m]) > 3")
    digits.wait_steps(20)
    monitor.wait_for("count(elasticdl_worker_memory_bytes) == 3")
    monitor.wait_for("min(up) == 1")
    return losses


def wait_replaced(digits, count):
    """Return the losses, once there are so many and all their replacements work."""
    status = digits.wait_status(
        f"{count} replicas that were lost and replaced",
        lambda s: len(s.relaunches) == count and all(r.seconds for r in s.relaunches),
    )
    return status.relaunches


@pytest.mark.soak
def test_the_questions_about_a_job_are_answered_in_a_cluster(
    job, kube, serve, monitor, elasticdl, tmp_path
):
    serve(1)
    started = time.time()
    monitoring = {"scrapeAnnotations": True, "tensorboard": {"enabled": True}}
    cpus = a_quarter(kube)
    digits = job(
        merged(values_file("digits.yaml"), {"monitoring": monitoring}),
        training={"epochs": 10_000},
        evaluation={"everySteps": 100},
        checkpoint={"everySeconds": 5},
        ps={"resources": {"cpu": 0.25, "memory": "1Gi"}},
        worker={
            "replicas": 2,
            "min": 1,
            "max": 4,
            "resources": {"cpu": cpus, "memory": "1536Mi"},
        },
    )
    losses = let_it_happen(
        digits,
        monitor,
        # As much as the quarter that workers leave: it does not all fit.
        take_room=lambda: serve(math.ceil(cpus / 2)),
        give_room=lambda: serve(1),
    )
    deleted, preempted = losses
    assert deleted.replica == "worker-1"
    assert preempted.reason == "preempted"
    seen = Seen(monitor.prometheus, kube.namespace, "digits", started, time.time())

    dashboards_and_rules_have_data(seen, measured=is_measured(kube))
    figures_are_those_of_the_cluster(seen, digits, cpus)
    explain_tells_it(elasticdl, losses)
    top_shows_it(elasticdl)
    report_draws_it(elasticdl, losses, tmp_path / "digits.html")
    for loss in losses:
        said = f"{loss.replica} ended: {loss.reason}; replaced by {loss.replacement}"
        assert said in digits.notices()
    tensorboard_shows(monitor.proxy, TAGS)

    digits.upgrade(worker={"replicas": 3})
    digits.end_after_this_epoch()
    report = digits.wait_succeeded()
    assert report.relaunches == losses
    assert "succeeded" in elasticdl("top", "digits", "--once")
    for loss in losses:
        told = elasticdl("explain", "digits", loss.replica, env=WIDE)
        assert f"{loss.reason}; replaced by {loss.replacement}" in told


def is_measured(kube):
    try:
        return bool(kube.run("get", "--raw=/apis/metrics.k8s.io"))
    except KubectlError:
        return False


def dashboards_and_rules_have_data(seen, *, measured):
    asked = [
        (uid, panel, target)
        for uid, panel, target in QUERIES
        if (measured or panel["title"] not in MEASURED)
        and RARE not in target["expr"]
        and "elasticdl_controller_" not in target["expr"]  # there is none here
    ]
    empty = [
        f"{uid}, {panel['title']}: {target['expr']}"
        for uid, panel, target in asked
        if not seen.over_time(target["expr"])
    ]
    assert not empty, "\n".join(empty)
    for uid, panel, target in asked:
        assert_answered(seen, uid, panel, target)
    for _, panel in DRAWN:
        assert_no_line_twice(seen, panel)
    for board in BOARDS:
        assert_offered(seen, board)
        (annotation,) = board["annotations"]["list"]
        told = {labels["cause"] for labels, _ in seen.over_time(annotation["expr"])}
        assert {"deleted", "preempted", "grown"} <= told
    for rule in EACH_RULE:
        assert_rule_answered(seen, rule)
    assert_rules_evaluated(seen.prometheus)


def figures_are_those_of_the_cluster(seen, digits, cpus):
    labels = f'training_job="digits",training_namespace="{seen.namespace}"'
    requested = "elasticdl_cluster_requested_cpu_cores"
    of_job = seen.value(f'{requested}{{class="training",{labels}}}')
    assert of_job == pytest.approx(3 * cpus + 2 * 0.25 + 0.1)
    assert seen.value(f'{requested}{{class="serving"}}') == pytest.approx(2)
    there = seen.value("elasticdl_cluster_allocatable_cpu_cores")
    assert there == pytest.approx(4 * cpus)
    assert seen.value("sum(elasticdl_relaunches_total)") == 2
    assert seen.value("sum(elasticdl_preemptions_total)") == 1
    assert seen.value("max(elasticdl_workers_wanted)") == 4
    series = seen.prometheus.series("elasticdl_worker_memory_bytes", at=seen.ended)
    running = {labels["index"]: labels["instance"] for labels, _ in series}
    assert running == {
        pod["metadata"]["labels"]["elasticdl-replica-index"]: (
            f"{pod['status']['podIP']}:8080"
        )
        for pod in digits.pods("worker").values()
        if pod["status"]["phase"] == "Running"
    }


def top_shows_it(elasticdl):
    shown = elasticdl("top", "digits", "--once", env=WIDE)
    for line in (
        r"tasks +\d.* done, \d+ leased, \d+ waiting; .* records replayed",
        r"workers +3 running of 4 granted \(min 1, max 4\), 1 pending",
        r"pending +Unschedulable: .*cpu",
        r"goodput +.*training \d+%",
        r"evaluation +accuracy",
        r"preempted +once",
        r"checkpoint +version \d",
        r"cluster +.*serving 2 .*training \d.*free .* CPUs",
        r"worker-\d +running",
        r"worker-\d +pending +Unschedulable",
        r"ps-1 +running",
    ):
        assert re.search(line, shown), f"no {line!r} in\n{shown}"


def explain_tells_it(elasticdl, losses):
    def with_the_newest():
        # What a client without the job's volume sees is written every ten seconds.
        told = elasticdl("explain", "digits", env=WIDE)
        newest = re.search(r"worker-5 +waits +Unschedulable: .*cpu", told)
        return told if newest else ""

    told = wait_until("worker-5 is explained", with_the_newest, seconds=60)
    assert re.search(r"grown +granted workers: 3 -> 4: there is room", told)
    noted = json.loads(elasticdl("explain", "digits", "--json"))["decisions"]
    for loss in losses:
        (ended, replaced) = (
            one
            for one in noted
            if one["replica"] == loss.replica and one["replacement"]
        )
        assert (ended["kind"], replaced["kind"]) == ("ended", "relaunched")
        for one in (ended, replaced):
            assert one["cause"] == loss.reason
            assert one["replacement"] == loss.replacement
        assert replaced["cost_seconds"] == pytest.approx(loss.seconds)


def report_draws_it(elasticdl, losses, file):
    elasticdl("report", "digits", "-o", str(file))
    page = Reading(file.read_text())
    drawn = {value for name, value in page.attributes if name == "id"}
    assert drawn >= CHARTS
    rows = [f"{r.replica} → {r.replacement}" for r in losses]
    for words in (*rows, *(r.reason for r in losses), "of 4 granted"):
        assert words in page.text, words


def tensorboard_shows(proxy, tags):
    path = proxy.path("elasticdl-digits-tensorboard", "http")
    wait_until(
        "TensorBoard has read what the master wrote",
        lambda: any(
            set(found) >= tags
            for found in (proxy.get(f"{path}/data/plugin/scalars/tags") or {}).values()
        ),
        seconds=120,
    )
