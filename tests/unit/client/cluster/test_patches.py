"""What is sent to a cluster: patches of the ConfigMap, the audit's pod, the values."""

import re

import pytest
from elasticdl.client.cluster.chart import find_chart, manifests, needs
from elasticdl.client.cluster.errand import errand_pod
from elasticdl.client.cluster.job import changed
from elasticdl.client.cluster.submit import chart_values, is_for_cluster
from elasticdl.client.scaling import Scaled, Scaling
from elasticdl.errors import PlatformError, SpecError
from elasticdl.job.values.file import parse_values

JOB_YAML = """\
kind: job
job:
  name: digits
  model: {definition: digits.cnn.custom_model}
  data: {training: d}
  worker:
    replicas: 2    # as many as the nodes hold
    max: 4
"""
PS_YAML = """\
apiVersion: v1
kind: Pod
metadata:
  labels: {app.kubernetes.io/component: ps}
spec:
  serviceAccountName: elasticdl-job
  priorityClassName: high
  containers:
    - name: sidecar
      image: s
    - name: main
      image: zoo:1
      command: [python, -m, elasticdl.ps.main]
      args: []
      ports: [{containerPort: 50002}]
      readinessProbe: {httpGet: {path: /readyz}}
      resources: {requests: {cpu: "16"}}
      env:
        - {name: ELASTICDL_JOB_DIR, value: /data/.elasticdl/jobs/ml/digits}
      volumeMounts: [{name: state, mountPath: /data}]
  volumes:
    - name: state
      persistentVolumeClaim: {claimName: fileserver-claim}
"""


def config_map(**data):
    return {
        "metadata": {"name": "elasticdl-digits", "uid": "u1", "resourceVersion": "7"},
        "data": {"job.yaml": JOB_YAML, "ps.yaml": PS_YAML, **data},
    }


def values(extra=""):
    parsed, problems = parse_values(JOB_YAML + extra, source="v")
    assert not problems
    return parsed


def test_scaling_changes_one_line_and_keeps_the_comments():
    patch, scaled = changed(config_map(), Scaling(workers=3))
    assert (scaled.before.worker.replicas, scaled.after.worker.replicas) == (2, 3)
    assert patch.body["data"] == {
        "job.yaml": JOB_YAML.replace("replicas: 2 ", "replicas: 3 ")
    }


def test_scaling_fails_if_somebody_else_wrote_meanwhile():
    patch, _ = changed(config_map(), Scaling(workers=3))
    assert patch.body["metadata"] == {"resourceVersion": "7"}


def test_what_the_job_has_already_is_no_patch():
    job = values().job
    wanted = Scaling(workers=2, max_workers=4, paused=False)
    assert changed(config_map(), wanted) == (None, Scaled(job, job))


def test_a_pause_is_one_more_line():
    patch, scaled = changed(config_map(), Scaling(paused=True))
    assert patch.body["data"] == {"job.yaml": JOB_YAML + "  paused: true\n"}
    assert scaled.after.paused


def test_more_workers_than_the_maximum_are_no_patch():
    with pytest.raises(SpecError, match=r"job\.worker\.replicas: got 9"):
        changed(config_map(), Scaling(workers=9))


def audit_pod(found):
    return errand_pod(
        found,
        "digits",
        "audit",
        lambda folder: ["audit", folder.name, "--jobs-dir", str(folder.parent)],
    )


def test_an_errand_runs_in_the_jobs_own_image_with_its_volume():
    pod = audit_pod(config_map())
    (main,) = pod["spec"]["containers"]
    assert main["image"] == "zoo:1"
    assert main["command"] == ["python", "-P", "-m", "elasticdl.cli.main"]
    jobs_dir = "/data/.elasticdl/jobs/ml"
    assert main["args"] == ["audit", "digits", "--jobs-dir", jobs_dir]
    assert main["volumeMounts"] == [{"name": "state", "mountPath": "/data"}]
    assert pod["spec"]["serviceAccountName"] == "elasticdl-job"


def test_an_errands_pod_asks_for_little_and_is_no_replica_of_the_job():
    pod = audit_pod(config_map())
    (main,) = pod["spec"]["containers"]
    assert main["resources"]["requests"]["cpu"] == "100m"
    assert not {"ports", "readinessProbe"} & set(main)
    assert not any("job-name" in label for label in pod["metadata"]["labels"])
    assert pod["metadata"]["ownerReferences"][0]["uid"] == "u1"


def test_an_errand_takes_the_place_of_no_worker():
    """Without a class it has the cluster's 0, which pushes out all of training."""
    worker = PS_YAML.replace("priorityClassName: high", "priorityClassName: low")
    pod = audit_pod(config_map(**{"worker.yaml": worker}))
    assert pod["spec"]["priorityClassName"] == "low"
    assert audit_pod(config_map())["spec"]["priorityClassName"] == "high"
    without = worker.replace("  priorityClassName: low\n", "")
    assert "priorityClassName" not in without
    pod = audit_pod(config_map(**{"worker.yaml": without}))
    assert "priorityClassName" not in pod["spec"], "the job wants the cluster's default"


def test_a_template_of_another_version_is_named_as_such():
    with pytest.raises(PlatformError, match="another version of the chart"):
        audit_pod({**config_map(), "data": {"job.yaml": JOB_YAML}})


def test_what_pods_need_and_the_release_does_not_make_is_found_in_all_templates():
    text = f"""\
apiVersion: v1
kind: ConfigMap
metadata: {{name: elasticdl-digits}}
data:
  ps.yaml: |
{"".join(f"    {line}{chr(10)}" for line in PS_YAML.splitlines())}
---
apiVersion: v1
kind: Secret
metadata: {{name: made-here}}
---
apiVersion: batch/v1
kind: Job
metadata: {{name: elasticdl-digits-master}}
spec:
  template:
    spec:
      serviceAccountName: elasticdl-master
      containers:
        - {{name: main, env: [{{name: ELASTICDL_PRIORITY_LOW, value: spare}}]}}
      imagePullSecrets: [{{name: made-here}}, {{name: regcred}}]
"""
    found = needs(manifests(text))
    assert found.service_accounts == {"elasticdl-job", "elasticdl-master"}
    assert found.claims == {"fileserver-claim"}
    assert found.priority_classes == {"high"}
    assert found.split_classes == {"high", "spare"}
    assert found.pull_secrets == {"regcred"}


def test_keys_beside_the_job_reach_the_chart():
    given = chart_values(values("state: {claimName: mine}\n"))
    assert given["state"] == {"claimName": "mine"}
    assert given["job"]["worker"] == {"replicas": 2, "max": 4}


@pytest.mark.parametrize("role", ["master", "ps", "worker"])
def test_an_image_of_any_role_means_a_cluster(role):
    assert not is_for_cluster(values().job)
    named = JOB_YAML.replace("  worker:\n", "  worker:\n    image: i\n")
    if role != "worker":
        named = JOB_YAML + f"  {role}: {{image: i}}\n"
    parsed, _ = parse_values(named, source="v")
    assert is_for_cluster(parsed.job)


def test_a_chart_that_is_none_is_refused_by_its_path(tmp_path):
    with pytest.raises(PlatformError, match=r"Chart\.yaml"):
        find_chart(tmp_path)
    (tmp_path / "Chart.yaml").touch()
    assert find_chart(tmp_path) == tmp_path


def test_null_in_a_roles_pods_reaches_the_chart():
    pods = "pods: {worker: {tolerations: null, securityContext: {runAsUser: null}}}\n"
    assert chart_values(values(pods))["pods"] == {
        "worker": {"tolerations": None, "securityContext": {"runAsUser": None}}
    }


def test_the_kubelet_leaves_a_statements_dollars_as_they_are():
    """It makes `$` of `$$`, which quotes texts in SQL, and a value of `$(NAME)`."""
    words = ("sql", "SELECT $$a$$, '$(HOME)', '$(SECRET)x$'")
    made = errand_pod(config_map(), "digits", "sql", lambda _: words)
    (main,) = made["spec"]["containers"]
    # As Kubernetes expands arguments (third_party/forked/golang/expansion).
    expanded = [
        re.sub(r"\$(\$|\((\w+)\))", lambda m: m[1] if m[1] == "$" else "value", one)
        for one in main["args"]
    ]
    assert tuple(expanded) == words
