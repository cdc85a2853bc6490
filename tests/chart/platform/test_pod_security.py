"""Every pod keeps the restricted Pod Security Standard, and the check of it bites."""

import copy

import pytest

from tests.chart.platform.pod_security import violations
from tests.chart.rendering import (
    EXAMPLES,
    container,
    example,
    job,
    objects,
    pods,
    values_of,
)

RUN = [file for file in EXAMPLES if values_of(file)["kind"] == "job"]


@pytest.mark.parametrize("file", RUN, ids=lambda file: file.stem)
def test_every_pod_is_restricted(file):
    for role, pod in pods(objects(values_of(file))).items():
        of_node = file.stem == "host-path"  # which its values ask for, where allowed
        assert violations(pod) == (["volume hostPath"] if of_node else []), role


def test_the_root_file_system_is_read_only():
    for pod in pods(objects(job())).values():
        assert container(pod)["securityContext"]["readOnlyRootFilesystem"] is True
        assert pod["spec"]["securityContext"]["runAsUser"] == 10001


@pytest.mark.parametrize(
    ("where", "key", "value", "words"),
    [
        ("spec", "hostNetwork", True, "hostNetwork"),
        ("spec", "hostPID", True, "hostPID"),
        ("spec", "volumes", [{"name": "a", "hostPath": {}}], "volume hostPath"),
        ("spec", "securityContext", {}, "runAsNonRoot is not true"),
        ("spec", "securityContext", {"runAsUser": 0}, "runAsUser 0"),
        ("context", "allowPrivilegeEscalation", True, "allowPrivilegeEscalation"),
        ("context", "privileged", True, "privileged"),
        ("context", "runAsNonRoot", False, "runAsNonRoot is"),
        ("context", "runAsUser", 0, "runAsUser 0"),
        ("context", "capabilities", {}, "capabilities not dropped"),
        ("context", "capabilities", {"drop": ["ALL"], "add": ["SYS_ADMIN"]}, "added"),
        ("context", "seccompProfile", {"type": "Unconfined"}, "seccomp"),
        ("context", "procMount", "Unmasked", "procMount"),
        ("context", "seLinuxOptions", {"type": "spc_t"}, "seLinuxOptions"),
        ("container", "ports", [{"containerPort": 1, "hostPort": 1}], "hostPort"),
        ("container", "livenessProbe", {"httpGet": {"host": "a"}}, "host of"),
    ],
)  # fmt: skip
def test_the_check_sees_what_the_standard_forbids(where, key, value, words):
    pod = copy.deepcopy(pods(objects(example("digits")))["worker"])
    main = container(pod)
    place = {"spec": pod["spec"], "container": main, "context": main["securityContext"]}
    place[where][key] = value
    assert any(words in violation for violation in violations(pod)), violations(pod)


def test_the_check_looks_at_all_containers():
    pod = copy.deepcopy(pods(objects(job()))["worker"])
    pod["spec"]["initContainers"] = [{"name": "first"}]
    assert "first: allowPrivilegeEscalation is not false" in violations(pod)


def test_values_can_give_up_the_standard_only_by_saying_so():
    values = job(pods={"worker": {"containerSecurityContext": {"privileged": True}}})
    assert violations(pods(objects(values))["worker"]) == ["main: privileged"]
    assert violations(pods(objects(values))["ps"]) == []
