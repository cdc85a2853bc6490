"""TensorBoard beside a job: where it is wanted, restricted, closed, reading alone."""

import helm_python as helm
import pytest
import yaml

from tests.chart.platform.pod_security import violations
from tests.chart.rendering import container, job, mounts, objects, of_kind, render

NAME = "elasticdl-digits-tensorboard"
POLICY = "elasticdl-digits.tensorboard"  # no job can be called so


def with_tensorboard(**settings):
    tensorboard = {"enabled": True, **settings}
    return objects(job(monitoring={"tensorboard": tensorboard}))


def test_there_is_none_unless_it_is_wanted():
    assert not [name for _, name in objects(job()) if "tensorboard" in name]


def test_it_shows_what_the_master_writes_and_cannot_write_itself():
    found = with_tensorboard()
    pod = found["Deployment", NAME]["spec"]["template"]
    main = container(pod)
    assert main["args"][0] == ("--logdir=/data/.elasticdl/jobs/ml/digits/tensorboard")
    (state,) = (one for one in main["volumeMounts"] if one["mountPath"] == "/data")
    assert state["readOnly"] is True
    assert set(mounts(pod)) == {"/data", "/tmp"}
    worker = yaml.safe_load(of_kind(found, "ConfigMap")["data"]["worker.yaml"])
    assert main["image"] == container(worker)["image"]


def test_its_pod_is_restricted_and_no_replica_of_the_job():
    pod = with_tensorboard()["Deployment", NAME]["spec"]["template"]
    assert violations(pod) == []
    assert pod["spec"]["automountServiceAccountToken"] is False
    # With that label it could call master and PS, and would count as one of the job's.
    assert "elasticdl-job-name" not in pod["metadata"]["labels"]


def test_it_pushes_nothing_out_unless_it_is_given_a_class_that_does():
    def class_of(*, master, **keys):
        values = job(monitoring={"tensorboard": {"enabled": True}}, **keys)
        values["job"]["master"] = master
        pod = objects(values)["Deployment", NAME]["spec"]["template"]
        return pod["spec"].get("priorityClassName")

    assert class_of(master={}) == "elasticdl-high"
    classes = {"high": {"name": "training"}}
    assert class_of(master={}, priorityClasses=classes) == "training"
    assert class_of(master={"priority": "batch"}) == "batch"
    # Where there are no classes at all.
    assert class_of(master={"priority": ""}) is None


def test_service_deployment_and_policy_mean_the_same_pod():
    found = with_tensorboard()
    labels = found["Deployment", NAME]["spec"]["template"]["metadata"]["labels"]
    for selector in (
        found["Deployment", NAME]["spec"]["selector"]["matchLabels"],
        found["Service", NAME]["spec"]["selector"],
        found["NetworkPolicy", POLICY]["spec"]["podSelector"]["matchLabels"],
    ):
        assert selector.items() <= labels.items()
        assert "digits" in selector.values()


def test_nobody_reaches_it_who_is_not_named():
    assert "ingress" not in with_tensorboard()["NetworkPolicy", POLICY]["spec"]
    peers = [{"podSelector": {"matchLabels": {"app": "proxy"}}}]
    (rule,) = with_tensorboard(allowedFrom=peers)["NetworkPolicy", POLICY]["spec"][
        "ingress"
    ]
    assert rule == {"ports": [{"protocol": "TCP", "port": 6006}], "from": peers}


def test_a_volume_in_the_claims_place_is_read_as_well():
    values = job(monitoring={"tensorboard": {"enabled": True}})
    values["job"]["volumes"] = [{"claimName": "team", "mountPath": "/data"}]
    pod = objects(values)["Deployment", NAME]["spec"]["template"]
    assert mounts(pod)["/data"] == {"persistentVolumeClaim": {"claimName": "team"}}


def test_the_notes_say_how_to_open_it():
    values = job(monitoring={"tensorboard": {"enabled": True}})
    assert f"service/{NAME} 6006" in render(values)["NOTES.txt"]


def test_a_platform_has_none():
    with pytest.raises(helm.HelmError, match=r"monitoring\.tensorboard` belongs"):
        render({"monitoring": {"tensorboard": {"enabled": True}}})
