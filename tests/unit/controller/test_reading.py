"""From the API server's objects to what the planner knows."""

from dataclasses import replace

import pytest
from elasticdl.controller.jobs import (
    Classes,
    Granted,
    JobReader,
    is_foreign,
    is_job,
    with_grant,
)
from elasticdl.controller.reading import node_of, pod_of
from elasticdl.job.grant import Grant, Read, format_grant, what_holds
from elasticdl.job.names import Role
from elasticdl.job.spec.replicas import WorkerSpec
from elasticdl.kube.amounts import quantity
from elasticdl.kube.inventory import Serving
from elasticdl.planner.admission import Admission
from elasticdl.planner.matching import admits
from elasticdl.planner.view import (
    Expression,
    Holder,
    Resources,
    Taint,
    Toleration,
)

SERVING = Serving(1_000_000)
WORKER = WorkerSpec(replicas=3, min=2, max=8)
NOW = 1_795_400_000.0
AT, CREATED = 1_767_261_600.0, "2026-01-01T10:00:00Z"
GI = 2**30
TEMPLATE = """\
metadata: {labels: {app.kubernetes.io/name: elasticdl}}
spec:
  nodeSelector: {pool: train}
  containers:
  - name: main
    resources: {requests: {cpu: 1500m, memory: 2Gi, nvidia.com/gpu: "1"}}
"""
VALUES = """\
kind: job
job:
  name: digits
  model: {definition: net.custom_model}
  data: {training: train.csv}
  ps: {replicas: 2}
  worker: {replicas: 3, min: 2, max: 8, priority: "0.5"}
"""


def node(**changes):
    item = {
        "metadata": {"name": "n1", "labels": {"pool": "train"}},
        "spec": {},
        "status": {
            "allocatable": {"cpu": "3920m", "memory": "1000Ki", "pods": "110"},
            "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": CREATED}
            ],
        },
    }
    return {**item, **changes}


def pod(*, labels=None, status=None, **spec):
    return {
        "metadata": {
            "name": "p",
            "namespace": "ml",
            "uid": "u",
            "creationTimestamp": CREATED,
            "labels": labels or {},
        },
        "spec": {
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "100m"}}}],
            **spec,
        },
        "status": {"phase": "Pending", **(status or {})},
    }


def config_map(text=VALUES, *, annotations=None, **data):
    return {
        "metadata": {
            "name": "elasticdl-digits",
            "namespace": "ml",
            "uid": "uid-1",
            "creationTimestamp": CREATED,
            "labels": {"elasticdl-job-name": "digits"},
            "annotations": annotations or {},
        },
        "data": {
            "job.yaml": text,
            "ps.yaml": TEMPLATE,
            "worker.yaml": TEMPLATE,
            **data,
        },
    }


def test_amounts_of_nodes_are_rounded_down_and_requests_up():
    read = node_of(node())
    assert read.allocatable == Resources.of(
        {"cpu": 3920, "memory": 1_024_000, "pods": 110}
    )
    third = {"requests": {"cpu": "333.3m", "memory": "0.5"}}
    asked = pod_of(pod(containers=[{"name": "c", "resources": third}]), SERVING)
    assert asked.request == Resources.of({"cpu": 334, "memory": 1})


def test_memory_in_decimal_units_is_read_to_the_byte():
    read = node_of(node(status={"allocatable": {"memory": "32.2G"}}))
    asked = {"requests": {"memory": "32.2G"}}
    pods = pod_of(pod(containers=[{"name": "c", "resources": asked}]), SERVING)
    exact = Resources.of({"memory": 32_200_000_000})
    assert read.allocatable == pods.request == exact


def test_a_node_says_whether_it_takes_pods():
    read = node_of(node())
    assert (read.ready, read.cordoned, read.ready_since) == (True, False, AT)
    taint = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
    cordoned = node_of(node(spec={"unschedulable": True, "taints": [taint]}))
    assert cordoned.cordoned
    assert cordoned.taints == (Taint("gpu", "yes", "NoSchedule"),)
    assert not node_of(node(status={})).ready


def test_a_worker_is_known_by_its_labels():
    labels = {
        "elasticdl-job-name": "digits",
        "elasticdl-replica-type": "worker",
        "elasticdl-replica-index": "7",
    }
    read = pod_of(pod(labels=labels), SERVING)
    assert (read.holder, read.role, read.index) == (Holder.TRAINING, Role.WORKER, 7)
    assert read.of is not None
    assert str(read.of) == "ml/digits"


def test_who_waits_says_since_when_and_in_the_schedulers_words():
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/3 nodes are available: 3 Insufficient cpu.",
    }
    read = pod_of(pod(status={"conditions": [condition]}), SERVING)
    assert read.waiting_since == AT
    assert "Insufficient cpu" in read.waiting_why
    placed = pod_of(pod(nodeName="n1"), SERVING)
    assert (placed.waiting_since, placed.waiting_why) == (0.0, "")


def test_a_gate_is_told_as_one():
    gates = [{"name": "kueue.x-k8s.io/admission"}]
    read = pod_of(pod(schedulingGates=gates), SERVING)
    assert read.gated
    assert "kueue.x-k8s.io/admission" in read.waiting_why


def test_what_has_ended_is_nobodys():
    assert pod_of(pod(status={"phase": "Succeeded"}), SERVING) is None


def test_where_a_pod_may_be_is_read_as_far_as_it_is_required():
    term = {
        "matchExpressions": [
            {"key": "zone", "operator": "In", "values": ["a", "b"]},
            {"key": "old", "operator": "DoesNotExist"},
        ]
    }
    required = {"nodeSelectorTerms": [term]}
    affinity = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}
    }
    read = pod_of(
        pod(
            affinity=affinity,
            nodeSelector={"pool": "train"},
            tolerations=[{"operator": "Exists"}],
        ),
        SERVING,
    ).placement
    assert read.selector == (("pool", "train"),)
    assert read.tolerations == (Toleration(operator="Exists"),)
    assert read.affinity == (
        (Expression("zone", "In", ("a", "b")), Expression("old", "DoesNotExist")),
    )


def bound_to(*terms):
    required = {"nodeSelectorTerms": list(terms)}
    affinity = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}
    }
    return pod_of(pod(affinity=affinity), SERVING).placement


def test_the_pod_of_a_daemon_set_may_be_on_its_node_alone():
    field = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    placement = bound_to({"matchFields": [field]})
    other = node_of(node(metadata={"name": "n2"}))
    assert admits(node_of(node()), placement)
    assert not admits(other, placement)


def test_an_empty_term_of_an_affinity_admits_no_node():
    assert not admits(node_of(node()), bound_to({}))
    known = {"key": "pool", "operator": "Exists"}
    assert admits(node_of(node()), bound_to({}, {"matchExpressions": [known]}))


# -- jobs ---------------------------------------------------------------------------


CLASSES = Classes(values={"elasticdl-high": -5, "elasticdl-low": -10})


def read(item):
    assert is_job(item)
    return JobReader().read(item, CLASSES)


def test_a_job_is_what_its_config_map_says():
    known = read(config_map())
    job = known.job
    assert (job.min, job.max, job.replicas, job.num_ps) == (2, 8, 3, 2)
    assert job.takes_part
    assert job.arrived == AT
    asked = {"cpu": 1500, "memory": 2 * GI, "nvidia.com/gpu": 1}
    assert job.worker.request == Resources.of(asked)
    assert job.worker.placement.selector == (("pool", "train"),)
    # Of a share the lower class counts: its workers go first.
    assert (job.worker.priority, job.ps.priority) == (-10, -5)
    assert job.master.request.get("cpu") == 100


def test_a_specification_that_nobody_could_run_is_no_job():
    assert read(config_map("kind: job\njob: {name: digits, worker: 3}\n")) is None


# Nine lists of ten times the one before: a thousand million texts, on 600 characters.
ALIASES = "  zero: &l0 [x]\n" + "".join(
    f"  more{i}: &l{i} [{', '.join(10 * [f'*l{i - 1}'])}]\n" for i in range(1, 10)
)


def asks(request: str) -> str:
    return f"spec: {{containers: [{{resources: {{requests: {{{request}}}}}}}]}}"


def greater_than(value: str) -> str:
    terms = f"[{{matchExpressions: [{{key: a, operator: Gt, values: [{value}]}}]}}]"
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    where = f"{{{required}: {{nodeSelectorTerms: {terms}}}}}"
    return f"spec: {{affinity: {{nodeAffinity: {where}}}}}"


@pytest.mark.parametrize(
    "data",
    [
        {"worker.yaml": "spec: {containers: 5}"},
        {"worker.yaml": "spec: {containers: [x]}"},
        {"worker.yaml": "spec: {tolerations: [x]}"},
        {"worker.yaml": "spec: {nodeSelector: {a: b, 1: c}}"},
        {"worker.yaml": "spec: {x: 2024-13-45}"},
        {"worker.yaml": "spec: " + "[" * 1100 + "]" * 1100},
        {"worker.yaml": "spec: " + "[" * 100_000},
        {"job.yaml": VALUES + f"  x: [{'a,' * 10_000}]\n"},
        {"job.yaml": VALUES + f"  x: {'a' * 300_000}\n"},
        {"job.yaml": VALUES + ALIASES},
        {"worker.yaml": "spec:\n" + ALIASES},
        {"worker.yaml": TEMPLATE.replace("1500m", "1e306")},
        {"worker.yaml": "spec: {overhead: {cpu: -1}}"},
        {"worker.yaml": TEMPLATE.replace("nvidia.com/gpu", "pods")},
        {"worker.yaml": TEMPLATE.replace("nvidia.com/gpu", "1")},
        {"worker.yaml": TEMPLATE.replace("pool: train", "pool: [train]")},
        {"worker.yaml": "spec: {tolerations: [{key: {a: b}}]}"},
        {"ps.yaml": "spec: {x: !!int foo}"},
        {"job.yaml": "{[1]: 2, {a: 1}: 3}"},
        {"job.yaml": VALUES + "  master: {resources: {cpu: 1.0e+306}}\n"},
        {"platform.yaml": "run: " + "9" * 5000},
        {"worker.yaml": asks("nvidia.com/gpu: " + "9" * 308)},
        {
            "worker.yaml": "",
            "job.yaml": VALUES.replace(
                "{replicas: 2}", "{replicas: 2, resources: {cpu: 1.7e+305}}"
            ),
            "ps.yaml": "",
        },
        {"worker.yaml": greater_than("null")},
        {"worker.yaml": greater_than(".inf")},
        {"worker.yaml": greater_than("2020-01-01")},
        {"worker.yaml": "spec: {tolerations: [{key: spot, value: 5}]}"},
        {"worker.yaml": "%YAML 1.1\n---\na: 1" + ":1" * 200_000},
    ],
)
def test_a_job_whose_texts_cannot_be_read_is_left_alone_and_told_of_once(data, caplog):
    reader = JobReader()
    for annotations in ({}, {"elasticdl.org/workers": "renewed"}):
        item = config_map(annotations=annotations, **data)
        assert reader.read(item, CLASSES) is None
    [line] = caplog.messages
    assert line.startswith("job ml/digits is left alone: ")
    assert len(line) < 400
    assert reader.read(config_map(), CLASSES) is not None


@pytest.mark.parametrize("text", ["inf", "nan", "-inf", "1e400", "9" * 310 + "Gi"])
def test_an_amount_that_is_not_finite_is_none(text):
    assert quantity(text) == 0.0
    limits = {"requests": {"cpu": text, "memory": text}}
    read = pod_of(pod(containers=[{"name": "c", "resources": limits}]), SERVING)
    assert read.request.get("cpu") == 0


def test_what_a_template_limits_it_asks_for_too():
    limits = "limits: {cpu: 2, memory: 3Gi, nvidia.com/gpu: 2}"
    asked = "requests: {cpu: 1500m, memory: 2Gi}"
    text = TEMPLATE[: TEMPLATE.index("requests")] + f"{asked}, {limits}}}\n"
    request = read(config_map(**{"worker.yaml": text})).job.worker.request
    assert request == Resources.of({"cpu": 1500, "memory": 2 * GI, "nvidia.com/gpu": 2})


def test_a_template_says_whether_a_queue_lets_its_pods_in():
    queue = "labels: {kueue.x-k8s.io/queue-name: team-a, "
    text = TEMPLATE.replace("labels: {", queue)
    assert read(config_map(**{"worker.yaml": text})).job.worker.queued
    assert not read(config_map(**{"worker.yaml": TEMPLATE})).job.worker.queued


RESIZING = {"type": "PodResizePending", "status": "True"}


@pytest.mark.parametrize(
    ("has", "why", "holds"),
    [
        ("2", "Deferred", 8000),  # its node may give it later
        ("2", "Infeasible", 2000),  # nobody's room is kept for what never comes
        ("16", "", 16_000),  # it has not given back yet what it asks for no more
    ],
)
def test_a_container_that_is_resized_holds_what_it_does_for_the_scheduler(
    has, why, holds
):
    status = {
        "containerStatuses": [{"name": "c", "allocatedResources": {"cpu": has}}],
        "conditions": [{**RESIZING, "reason": why}] if why else [],
    }
    asks = [{"name": "c", "resources": {"requests": {"cpu": "8"}}}]
    read = pod_of(pod(containers=asks, nodeName="n1", status=status), SERVING)
    assert read.request == Resources.of({"cpu": holds})


def test_of_a_pod_that_says_far_too_much_no_word_is_kept():
    terms = [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}]
    required = {"nodeSelectorTerms": terms * 4000}
    asked = "requiredDuringSchedulingIgnoredDuringExecution"
    for much in (
        {"affinity": {"nodeAffinity": {asked: required}}},
        {"tolerations": [{"key": str(number)} for number in range(10_001)]},
        {"nodeSelector": {str(number): "" for number in range(10_001)}},
    ):
        kept = pod_of(pod(**much), SERVING)
        assert len(repr(kept.placement)) < 200
        assert not admits(node_of(node()), kept.placement)
        assert not Admission([node_of(node())]).admitting(kept.placement)


def test_config_maps_of_masters_and_of_others_are_no_jobs():
    status = config_map()
    status["metadata"]["name"] = "elasticdl-digits-status"
    assert not is_job(status)
    other = config_map()
    other["metadata"]["labels"] = {}
    assert not is_job(other)


def test_a_stop_and_a_pause_are_seen():
    stopped = read(config_map(annotations={"elasticdl.org/stop": "by hand"}))
    assert stopped.job.stopped
    assert read(config_map(VALUES + "  paused: true\n")).job.resting
    ring = VALUES.replace("ps: {replicas: 2}", "strategy: allReduce")
    held = read(config_map(ring + "  paused: true\n")).job
    assert held.paused
    assert not held.resting  # its workers hold the model, and stay


def granted(grant, **how):
    annotations = {"elasticdl.org/workers": format_grant(grant)}
    return with_grant(read(config_map(annotations=annotations)), now=NOW, **how)


def test_at_rest_a_job_is_the_same_object_and_another_once_anything_has_changed():
    jobs, mine = Granted("ops/controller"), Grant(5, (), NOW + 1800, "ops/controller")

    def annotated(grant):
        return read(
            config_map(annotations={"elasticdl.org/workers": format_grant(grant)})
        )

    known = annotated(mine)
    first = jobs.job(known, None, NOW)
    assert first.granted == 5
    assert jobs.job(known, None, NOW + 1799) is first
    assert jobs.job(known, 3, NOW).tasks_left == 3
    assert jobs.job(known, None, NOW + 1801).granted is None
    assert jobs.job(annotated(replace(mine, workers=4)), None, NOW).granted == 4
    theirs = annotated(Grant(6, (), NOW + 1800, "other/controller", lasts=1800.0))
    assert not jobs.job(theirs, None, NOW).elastic
    assert jobs.job(theirs, None, NOW + 1500).elastic  # that one does not live


def test_the_grant_in_force_is_part_of_the_job():
    mine = Grant(5, leave=(2,), until=NOW + 1800, by="ops/controller")
    job = granted(mine, by="ops/controller")
    assert (job.granted, job.leave, job.until) == (5, (2,), NOW + 1800)


def test_an_expired_grant_is_none():
    old = Grant(5, until=NOW - 1, by="ops/controller")
    assert granted(old, by="ops/controller").granted is None


@pytest.mark.parametrize("by", ["ops/controller", "other/controller", ""])
def test_a_grant_that_no_master_obeys_is_none(by):
    ahead = Grant(5, until=NOW + 8 * 3600, by=by)
    assert what_holds(Read(ahead), WORKER, known=(), now=NOW).grant is None
    job = granted(ahead, by="ops/controller")
    assert job.granted is None
    assert job.takes_part


def test_a_job_of_another_living_controller_has_the_size_that_that_one_gave():
    theirs = Grant(5, until=NOW + 1800, by="other/controller")
    job = granted(theirs, by="ops/controller")
    assert not job.takes_part
    assert (job.replicas, job.granted) == (5, None)


@pytest.mark.parametrize(("workers", "size"), [(1000, 8), (0, 2), (-5, 2)])
def test_another_controllers_grant_counts_within_the_users_bounds(workers, size):
    theirs = Grant(workers, until=NOW + 1800, by="other/controller")
    assert what_holds(Read(theirs), WORKER, known=(), now=NOW).grant.workers == size
    assert granted(theirs, by="ops/controller").replicas == size


def test_no_grant_asks_for_more_workers_than_there_can_be():
    text = VALUES.replace("max: 8", "max: 1000000000")
    assert read(config_map(text)).job.max == 100_000
    worker = WorkerSpec(replicas=3, min=2, max=1_000_000_000)
    grant = Read(Grant(10**9, until=NOW + 60))
    held = what_holds(grant, worker, known=(), now=NOW)
    assert held.grant.workers == 100_000
    assert "got 1000000000, expected 2 to 100000" in held.refused


def test_another_controllers_grant_is_nothing_to_a_job_of_fixed_size():
    theirs = Grant(7, until=NOW + 1800, by="other/controller")
    annotations = {"elasticdl.org/workers": format_grant(theirs)}
    fixed = read(config_map(VALUES.replace("max: 8, ", ""), annotations=annotations))
    assert with_grant(fixed, by="ops/controller", now=NOW) == fixed.job


def test_a_controller_that_does_not_renew_is_no_living_one():
    theirs = Grant(5, until=NOW + 600, by="other/controller", lasts=1800)
    assert not is_foreign(theirs, by="ops/controller", now=NOW)
    assert granted(theirs, by="ops/controller").granted == 5


@pytest.mark.parametrize("lasts", [60, 600, 1800, 6 * 3600])
def test_how_long_another_controllers_grants_are_is_for_them_to_say(lasts):
    fresh = Grant(5, until=NOW + lasts, by="other/controller", lasts=lasts)
    assert is_foreign(fresh, by="ops/controller", now=NOW + 0.4 * lasts)
    assert not is_foreign(fresh, by="ops/controller", now=NOW + 0.6 * lasts)
    assert granted(fresh, by="ops/controller").replicas == 5


def test_a_grant_that_does_not_say_how_long_it_is_holds_to_its_end():
    theirs = Grant(5, until=NOW + 60, by="other/controller")
    assert is_foreign(theirs, by="ops/controller", now=NOW + 59)
    assert not is_foreign(theirs, by="ops/controller", now=NOW + 60)


@pytest.mark.parametrize("rubbish", ["rubbish", '{"workers": -1}', "[]"])
def test_a_grant_with_rubbish_is_none(rubbish):
    annotations = {"elasticdl.org/workers": rubbish}
    known = read(config_map(annotations=annotations))
    assert with_grant(known, by="ops/controller", now=NOW).granted is None
