"""What the command line refuses about a job, the chart refuses in the same words."""

import json

import helm_python as helm
import pytest
import yaml
from elasticdl.job.values.file import parse_values

from tests.chart.rendering import (
    config_map,
    container,
    job,
    merged,
    objects,
    pods,
    render,
)

JOB = """\
kind: job
job:
  name: digits
  model: {definition: a.b}
  data: {training: data}
"""
REFUSED = {
    "no model function": JOB.replace("{definition: a.b}", "{zoo: z}"),
    "a model without its file": JOB.replace("a.b", "net"),
    "model code outside of its folder": JOB.replace(
        "{definition: a.b}", "{definition: a.b, files: {'../../x.py': ''}}"
    ),
    "an absolute model file": JOB.replace(
        "{definition: a.b}", "{definition: a.b, files: {/etc/x.py: ''}}"
    ),
    "no data": JOB.replace("training: data", "validation: data"),
    "an evaluation of nothing": JOB + "  type: evaluate\n",
    "two ways to prepare": JOB.replace(
        "training: data", "training: data, prepare: {dataset: a, command: [b]}"
    ),
    "no way to prepare": JOB.replace("training: data", "training: d, prepare: {}"),
    "fewer workers than the minimum": JOB + "  worker: {replicas: 2, min: 5}\n",
    "more workers than the maximum": JOB + "  worker: {replicas: 9, max: 5}\n",
    "a range of local workers": JOB + "  strategy: local\n  worker: {max: 3}\n",
    "most memory in a unit that is none": JOB + "  worker: {memoryLimitMax: 4GB}\n",
    "a volume in the place of everything, said twice": JOB
    + "  volumes: [{claimName: a, mountPath: //}]\n",
    "a volume over the container's own files by another way": JOB
    + "  volumes: [{claimName: a, mountPath: //etc}]\n",
    "the same by a dot": JOB + "  volumes: [{claimName: a, mountPath: /./etc}]\n",
    "the state there": JOB + "state: {mountPath: //etc}\n",
    "the state there by a dot": JOB + "state: {mountPath: /./etc}\n",
    "three local workers": JOB + "  strategy: local\n  worker: {replicas: 3}\n",
    "PS of a local worker": JOB
    + "  strategy: local\n  ps: {replicas: 2}\n  worker: {pullSteps: 2}\n",
    "bounds of staleness in sync mode": JOB
    + "  ps: {mode: sync, maxStaleness: 2, stalenessModulation: true}\n",
    "rare pulls in sync mode": JOB + "  ps: {mode: sync}\n  worker: {pullSteps: 2}\n",
    "an exchange without a group": JOB + "  allReduce: {compression: bfloat16}\n",
    "more records than a group counts": JOB
    + "  strategy: allReduce\n  training: {globalBatchSize: 20000000}\n",
    "more records of all than a group counts": JOB
    + "  strategy: allReduce\n  worker: {replicas: 2}\n"
    + "  training: {batchSize: 10000000}\n",
    "a rate that follows nothing": JOB
    + "  strategy: allReduce\n  allReduce: {learningRate: sqrt}\n",
    "an elastic step of one worker": JOB + "  training: {globalBatchSize: elastic}\n",
    "parameter servers of a group": JOB
    + "  strategy: allReduce\n  ps: {resources: {cpu: 2}, replicas: 2}\n",
    "several steps of a group with the same values": JOB
    + "  strategy: allReduce\n  worker: {pullSteps: 4}\n",
    "records of a group's step without one": JOB
    + "  training: {globalBatchSize: 64}\n",
    "dead before the next heartbeat": JOB
    + "  worker: {deadSeconds: 2, heartbeatSeconds: 2}\n",
    "half more than all": JOB + "  worker: {priority: 1.5}\n",
    "a share that is none": JOB + "  worker: {priority: '1.5.2'}\n",
    "a share as flags write it": JOB + "  worker: {priority: high=0.5}\n",
    "a class of two words": JOB + "  worker: {priority: 'A B'}\n",
    "a class that begins with a dot": JOB + "  worker: {priority: .batch}\n",
    "gradients to wait for in async mode": JOB + "  ps: {gradsToWait: 2}\n",
    "a PS that goes on alone in sync mode": JOB
    + "  ps: {mode: sync, recovery: continue}\n",
    "a volume from nowhere": JOB + "  volumes: [{mountPath: /x}]\n",
    "a volume from two places": JOB
    + "  volumes: [{mountPath: /x, claimName: a, hostPath: /b}]\n",
    "less CPU than asked for": JOB
    + "  ps: {resources: {cpu: 4}, limits: {cpu: 0.5}}\n",
    "less memory than asked for": JOB
    + "  worker: {resources: {memory: 4Gi}, limits: {memory: 1000Mi}}\n",
    "less memory than by default": JOB + "  worker: {limits: {memory: 1Gi}}\n",
    "fewer GPUs than asked for": JOB
    + "  ps: {resources: {extra: {a.b/gpu: '2'}}, limits: {extra: {a.b/gpu: '1'}}}\n",
    "more GPUs than asked for": JOB
    + "  ps: {resources: {extra: {a.b/gpu: '1'}}, limits: {extra: {a.b/gpu: '2'}}}\n",
    "half a GPU": JOB + "  worker: {resources: {extra: {nvidia.com/gpu: '0.5'}}}\n",
    "half a GPU in thousandths": JOB
    + "  worker: {limits: {extra: {nvidia.com/gpu: 500m}}}\n",
    "a GPU of nobody": JOB + "  worker: {resources: {extra: {gpu: '1'}}}\n",
    "two addresses": JOB + "  onEnd: {webhook: 'http://a', webhookFrom: HOOK}\n",
    "a GPU in words": JOB + "  worker: {resources: {extra: {gpu: one}}}\n",
    "a limit in words": JOB + "  worker: {limits: {extra: {gpu: one}}}\n",
    "CPUs among other resources": JOB + "  worker: {resources: {extra: {cpu: '2'}}}\n",
    "memory without its unit": JOB + "  ps: {resources: {memory: '4'}}\n",
    "no memory": JOB + "  master: {resources: {memory: 0Gi}}\n",
    "a volume over the programs": JOB
    + "  volumes: [{claimName: a, mountPath: /opt/elasticdl/}]\n",
    "a volume in the place of everything": JOB
    + "  volumes: [{claimName: a, mountPath: /}]\n",
    "a volume on a path with a colon": JOB
    + "  volumes: [{claimName: a, mountPath: '/x:y'}]\n",
    "the state on a path with a colon": JOB + "state: {mountPath: '/a:b'}\n",
    "a volume on a way back": JOB
    + "  volumes: [{claimName: a, mountPath: /a/../etc}]\n",
    "an environment with a name of two words": JOB + "  env: {'A B': c}\n",
    "a role's environment with an equals sign": JOB + "  ps: {env: {'A=B': c}}\n",
    "the state over the container's own files": JOB + "state: {mountPath: /etc/}\n",
    "the state in the place of everything": JOB + "state: {mountPath: /}\n",
    "the state where the programs are": JOB + "state: {mountPath: /opt/elasticdl}\n",
    "several at once": JOB
    + "  strategy: local\n  worker: {replicas: 3, min: 5}\n  ps: {gradsToWait: 2}\n",
}


@pytest.mark.parametrize("text", REFUSED.values(), ids=list(REFUSED))
def test_both_refuse_it_and_say_the_same(text):
    values, problems = parse_values(text, source="v")
    assert values is None
    with pytest.raises(helm.HelmError) as refusal:
        render(helm.values_from_yaml(text))
    for problem in problems:
        assert str(problem).partition(": ")[2] in str(refusal.value)


def test_what_lies_on_the_border_is_taken_by_both():
    text = JOB + (
        "  worker: {replicas: 5, min: 5, max: 5, deadSeconds: 2, priority: 1,\n"
        "    resources: {memory: 1Gi}, limits: {memory: 1024Mi, cpu: 1}}\n"
        "  ps: {mode: sync, gradsToWait: 5, recovery: rewind}\n"
    )
    assert parse_values(text, source="v")[1] == []
    assert render(helm.values_from_yaml(text))


@pytest.mark.parametrize(
    "more",
    [
        "  worker: {resources: {extra: {a.b/c: 2000m}},\n"
        "    limits: {extra: {a.b/c: '2'}}}\n",
        "  worker: {resources: {extra: {hugepages-2Mi: 4Mi, ephemeral-storage: 1Gi}},\n"
        "    limits: {extra: {hugepages-2Mi: 4Mi, ephemeral-storage: 2Gi}}}\n",
        "  strategy: allReduce\n  data: {training: d, onBadRecord: skip}\n",
        "  strategy: allReduce\n  training: {globalBatchSize: null}\n",
    ],
    ids=["whole GPUs", "pages and disks", "a group without bad records", "the default"],
)
def test_what_a_master_takes_the_chart_takes(more):
    text = JOB.replace("  data: {training: data}\n", "") + more
    if "data:" not in more:
        text += "  data: {training: data}\n"
    assert parse_values(text, source="v")[1] == []
    assert render(helm.values_from_yaml(text))


@pytest.mark.parametrize("share", [1e-5, 1e-300])
def test_a_small_share_of_high_workers_is_no_class(share):
    made = pods(objects(merged(job(), {"job": {"worker": {"priority": share}}})))
    assert made["worker"]["spec"]["priorityClassName"] == "elasticdl-low"


def test_a_number_above_all_workers_is_no_class():
    with pytest.raises(helm.HelmError, match="or a share of `high` workers from 0"):
        render(merged(job(), {"job": {"worker": {"priority": 1e22}}}))


def test_the_port_of_the_metrics_is_not_the_masters_in_a_cluster():
    with pytest.raises(helm.HelmError, match=r"job.master.port: got 8080, expected an"):
        render(helm.values_from_yaml(JOB + "  master: {port: 8080}\n"))


POD = "pods: {worker: {volumes: VOLUMES, volumeMounts: MOUNTS}}\n"


@pytest.mark.parametrize(
    ("volumes", "mounts", "said"),
    [
        (
            "[{name: a, emptyDir: {}}, {name: b, emptyDir: {}}]",
            "[{name: a, mountPath: /x}, {name: b, mountPath: /x/}]",
            "got two volumes on `/x`, expected one",
        ),
        (
            "[]",
            "[{name: a, mountPath: /x}]",
            "got the volume `a`, expected one of pods",
        ),
        (
            "[{name: elasticdl-state, emptyDir: {}}]",
            "[]",
            "pods.worker.volumes: got the name `elasticdl-state`, expected one that",
        ),
    ],
    ids=["one path", "no volume", "the chart's own name"],
)
def test_volumes_that_no_pod_can_have_are_refused(volumes, mounts, said):
    text = JOB + POD.replace("VOLUMES", volumes).replace("MOUNTS", mounts)
    with pytest.raises(helm.HelmError) as refusal:
        render(helm.values_from_yaml(text))
    assert said in str(refusal.value)


LINE = "x\nhostNetwork: true"


@pytest.mark.parametrize(
    "values",
    [
        {"serviceAccounts": {"job": LINE}},
        {"state": {"claimName": LINE}},
        {"state": {"mountPath": f"/{LINE}"}},
        {"token": {"existingSecret": LINE}},
        {"images": {"pullSecrets": [LINE]}},
        {"images": {"tag": LINE}},
        {"priorityClasses": {"low": {"name": LINE}}},
        {"job": {"ps": {"priority": LINE}}},
        {"job": {"worker": {"resources": {"extra": {LINE: "1"}}}}},
        {"job": {"image": LINE}},
        {"job": {"env": {"A": LINE}}},
        {"pods": {"common": {"schedulerName": LINE}}},
    ],
    ids=lambda values: str(next(iter(values.items()))),
)
def test_no_text_of_a_value_becomes_a_key_of_a_pod(values):
    whole = merged(job(), values)
    try:
        found = objects(whole)
    except helm.HelmError:
        return
    for pod in pods(found).values():
        assert "hostNetwork" not in pod["spec"]
        assert "hostNetwork" not in container(pod)


def test_a_whole_number_with_a_point_is_one_for_both():
    text = JOB + "  training: {batchSize: 1e6, epochs: 64.0}\n"
    here, problems = parse_values(text, source="job.yaml")
    assert problems == []
    there = config_map(objects(yaml.safe_load(text.replace("1e6", "1.0e+6"))))
    training = there["job.yaml"]["job"]["training"]
    assert here.job.training.batch_size == training["batchSize"] == 1_000_000
    assert here.job.training.epochs == training["epochs"] == 64


TEXTS = {"note": "xMARKevil.yaml: 1MARKrest: | #"}


@pytest.mark.parametrize("mark", ["\u2028", "\u2029"])
@pytest.mark.parametrize(
    ("section", "own"),
    [
        ("pods", {"pods": {"ps": {"annotations": TEXTS}}}),
        ("commonAnnotations", {"commonAnnotations": TEXTS}),
        ("job", {"job": {"env": {"A": "aMARKb"}}}),
        ("job", {"job": {"model": {"files": {"x.py": "# aMARKb"}}}}),
        ("jobs", {"jobs": {"defaults": {"pods": {"common": {"annotations": TEXTS}}}}}),
    ],
    ids=["pods", "everything", "environment", "code", "defaults"],
)
def test_no_separator_of_lines_in_a_text_becomes_a_line_of_yaml(mark, section, own):
    """YAML 1.1 counts them as ends of lines: what follows was a key beside it."""
    values = json.loads(json.dumps(merged(job(), own)).replace("MARK", mark))
    values["job"]["strategy"] = "allReduce"
    said = f"{section}: got a text with a separator of lines .U.2028 or U.2029., "
    with pytest.raises(helm.HelmError, match=said):
        render(values)


def test_a_separator_of_lines_that_is_spelt_out_is_a_text():
    note = "a \\u2028 in words"
    made = pods(objects(job(pods={"worker": {"annotations": {"note": note}}})))
    assert made["worker"]["metadata"]["annotations"]["note"] == note


@pytest.mark.parametrize(
    "values",
    [
        {"claims": [{"name": LINE}]},
        {"claims": [{"name": "a", "storageClass": LINE}]},
        {"serviceAccounts": {"master": LINE}},
        {"priorityClasses": {"high": {"name": LINE}}},
    ],
    ids=lambda values: next(iter(values)),
)
def test_a_platforms_names_are_names(values):
    with pytest.raises(helm.HelmValuesError, match="does not match pattern"):
        objects(values)


@pytest.mark.parametrize("value", ["1", "true", "on", "1e3"])
def test_what_a_label_of_dashboards_says_stays_text(value):
    dashboards = {"enabled": True, "label": "grafana.example/board"}
    monitoring = {"dashboards": {**dashboards, "labelValue": value}}
    boards = [
        made
        for (kind, name), made in objects({"monitoring": monitoring}).items()
        if kind == "ConfigMap" and "dashboard" in name
    ]
    assert len(boards) > 1
    for made in boards:
        assert made["metadata"]["labels"]["grafana.example/board"] == value


@pytest.mark.parametrize("seed", [2**53, -(2**53), 1_795_400_000_000_000_000, 10**21])
def test_a_number_that_helm_would_change_is_refused_by_both(seed):
    """It reads numbers as JSON's: a job would train with another seed, or not begin."""
    text = JOB + f"  training: {{seed: {seed}}}\n"
    values, (problem,) = parse_values(text, source="values.yaml")
    assert values is None
    assert "at most 9007199254740991, up to which JSON keeps each one" in str(problem)
    with pytest.raises(helm.HelmError, match="training/seed"):
        render(helm.values_from_yaml(text))


@pytest.mark.parametrize("seed", [2**53 - 1, 1 - 2**53])
def test_a_number_that_it_keeps_is_taken_by_both(seed):
    text = JOB + f"  training: {{seed: {seed}}}\n"
    values, _ = parse_values(text, source="values.yaml")
    found = config_map(objects(helm.values_from_yaml(text)))["job.yaml"]
    assert values.job.training.seed == found["job"]["training"]["seed"] == seed


@pytest.mark.parametrize("seconds", [1e10, 1e300])
def test_a_time_without_an_end_is_one_that_a_pod_may_have(seconds):
    """Kubernetes has 32 bits for how often a probe may fail."""
    times = {"startSeconds": seconds, "graceSeconds": seconds}
    made = pods(objects(merged(job(), {"job": {"worker": times}})))["worker"]
    assert container(made)["startupProbe"]["failureThreshold"] == 10**9
    assert made["spec"]["terminationGracePeriodSeconds"] == 10**9
