"""The controller of TrainingJobs and their definition, as the chart renders them."""

import json

import pytest
from elasticdl.job.values.structural import definition
from elasticdl.training_jobs.changes import _PLURALS
from elasticdl.training_jobs.main import make_parser

from tests.chart.rendering import ROOT, container, objects, of_kind

NAME = "elasticdl-training-jobs"
OWN = "own@sha256:" + 64 * "1"
DEFINITION = ("CustomResourceDefinition", "trainingjobs.elasticdl.org")


def platform(**settings):
    images = settings.pop("images", {"registry": "registry.example"})
    controller = {"trainingJobs": {"enabled": True, **settings}}
    return objects({"images": images, "controller": controller})


def rights(found):
    return {
        (group, resource): set(rule["verbs"])
        for rule in found["Role", NAME]["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def test_it_adds_these_objects_and_no_others():
    assert sorted(set(platform()) - set(objects())) == [
        DEFINITION,
        ("Deployment", NAME),
        ("Role", NAME),
        ("RoleBinding", NAME),
        ("ServiceAccount", NAME),
    ]


def test_the_definition_is_kept_and_made_once_for_a_cluster():
    made = platform()[DEFINITION]
    assert made["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert made["spec"] == json.loads(json.dumps(definition()))
    assert DEFINITION not in platform(definition={"create": False})


def test_the_controller_reads_no_secret_and_gives_no_rights():
    may = rights(platform())
    assert may["", "secrets"] == {"create"}
    assert not {resource for _, resource in may} & {
        "roles", "rolebindings", "pods", "nodes", "pods/exec", "events",
    }  # fmt: skip
    assert not any("*" in verbs for verbs in may.values())
    assert may["", "serviceaccounts"] == {"get", "list"}
    assert may["elasticdl.org", "trainingjobs"] == {"list", "watch"}


def test_it_may_make_every_kind_of_a_job_but_accounts_and_rights():
    may = {resource: verbs for (_, resource), verbs in rights(platform()).items()}
    others = {"secrets", "roles", "rolebindings", "serviceaccounts"}
    for plural in set(_PLURALS.values()) - others:
        assert {"create", "patch"} <= may[plural], plural


def test_in_a_locked_platform_it_asks_no_issuer_for_an_authority():
    controller = {"trainingJobs": {"enabled": True}}
    images = {"registry": "registry.example"}
    lock = {"locked": True}
    found = objects({"images": images, "controller": controller, "platform": lock})
    missing = set(rights(platform())) - set(rights(found))
    assert missing == {("cert-manager.io", "certificates")}


def test_its_pod_is_restricted_and_starts_what_there_is():
    pod = of_kind(platform(), "Deployment")["spec"]["template"]
    spec = pod["spec"]
    assert spec["serviceAccountName"] == NAME
    assert spec["securityContext"]["runAsNonRoot"]
    main = container(pod)
    assert main["securityContext"]["readOnlyRootFilesystem"]
    assert main["command"] == ["python", "-P", "-m", "elasticdl.training_jobs.main"]
    args = make_parser().parse_args(main["args"])
    assert (args.namespace, args.host, args.port) == ("ml", "::", 8080)


@pytest.mark.parametrize(
    ("settings", "image"),
    [
        ({}, "registry.example/elasticdl/training-jobs:1.0.0.dev0"),
        (
            {"images": {"registry": "r/t/", "tag": "v1"}},
            "r/t/elasticdl/training-jobs:v1",
        ),
        ({"image": OWN, "images": {}}, OWN),
    ],
)
def test_its_image_is_the_stock_one_unless_another_is_named(settings, image):
    pod = of_kind(platform(**settings), "Deployment")["spec"]["template"]
    assert container(pod)["image"] == image


def test_its_pod_is_in_no_policy_or_service_of_jobs():
    labels = of_kind(platform(), "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert labels["app.kubernetes.io/component"] == "training-jobs"
    assert "elasticdl-job-name" not in labels


def test_a_locked_platform_takes_it_for_its_own():
    from tests.chart.rendering import render

    values = {
        "images": {"registry": "r"},
        "platform": {"locked": True},
        "controller": {"trainingJobs": {"enabled": True}},
    }
    policy = " ".join(render(values)["platform/lock-pods.yaml"].split())
    assert "in ['exporter', 'controller', 'training-jobs']" in policy


def test_there_is_an_image_of_its_name():
    dockerfile = (ROOT / "images" / "training-jobs" / "Dockerfile").read_text()
    assert 'CMD ["python", "-P", "-m", "elasticdl.training_jobs.main"]' in dockerfile
    assert "COPY charts/elasticdl" in dockerfile
