"""The platform's release: what it makes, and what masters may do by it."""

import re

import helm_python as helm
import pytest
import yaml

from tests.chart.rendering import ROOT, example, objects, of_kind, render

PODS = {"Pod", "Job", "Deployment", "StatefulSet", "DaemonSet", "CronJob", "ReplicaSet"}


def test_a_platform_renders_these_objects_and_no_others():
    assert sorted(objects()) == [
        ("ConfigMap", "elasticdl.defaults"),
        ("NetworkPolicy", "elasticdl"),
        ("PersistentVolumeClaim", "fileserver-claim"),
        ("PriorityClass", "elasticdl-high"),
        ("PriorityClass", "elasticdl-low"),
        ("Role", "elasticdl-master"),
        ("RoleBinding", "elasticdl-master"),
        ("ServiceAccount", "elasticdl-job"),
        ("ServiceAccount", "elasticdl-master"),
    ]


def test_a_platform_runs_no_pod_and_holds_no_secret():
    assert not {kind for kind, _ in objects()} & {*PODS, "Secret"}


WITHOUT_A_CLASS = 0  # what Kubernetes gives a pod that names none
NOT_EXPENDABLE = -10  # for a cluster-autoscaler, from its default cut-off on


def test_training_pushes_nothing_out_and_whatever_has_no_class_pushes_out_training():
    high, low = classes(objects())
    assert NOT_EXPENDABLE <= low["value"] < high["value"] < WITHOUT_A_CLASS
    assert not high["globalDefault"]
    assert not low["globalDefault"]
    assert {high["preemptionPolicy"], low["preemptionPolicy"]} == {"Never"}


def test_classes_stay_for_other_namespaces_when_their_release_goes():
    for one in classes(objects()):
        assert one["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def test_the_classes_of_the_classic_tutorial_are_made_from_the_pages_values():
    text = (ROOT / "docs" / "priorities.md").read_text()
    values = yaml.safe_load(
        next(
            b for b in re.findall(r"```yaml\n(.*?)```", text, re.S) if "name: high" in b
        )
    )
    high, low = classes(objects(values))
    assert (high["metadata"]["name"], low["metadata"]["name"]) == ("high", "low")
    assert high["value"] > low["value"] > WITHOUT_A_CLASS
    assert high["preemptionPolicy"] == "PreemptLowerPriority"


def test_each_class_of_the_pages_quota_is_one_that_the_platform_makes():
    text = (ROOT / "docs" / "priorities.md").read_text()
    made = {one["metadata"]["name"] for one in classes(objects())}
    quotas = [
        document
        for block in re.findall(r"```yaml\n(.*?)```", text, re.S)
        for document in yaml.safe_load_all(block)
        if document.get("kind") == "ResourceQuota"
    ]
    named = {
        name
        for quota in quotas
        for scope in quota["spec"]["scopeSelector"]["matchExpressions"]
        for name in scope.get("values", [])
    }
    assert made <= named


def classes(found):
    """Return the two PriorityClasses, the higher one first."""
    both = [made for (kind, _), made in found.items() if kind == "PriorityClass"]
    return sorted(both, key=lambda one: -one["value"])


def test_priority_classes_may_be_named_otherwise_or_be_there_already():
    renamed = {"priorityClasses": {"high": {"name": "serving", "value": 7}}}
    assert objects(renamed)["PriorityClass", "serving"]["value"] == 7
    assert "PriorityClass" not in {
        kind for kind, _ in objects(example("second-platform"))
    }


def test_the_claim_outlives_the_release_unless_that_is_not_wanted():
    claim = of_kind(objects(), "PersistentVolumeClaim")
    assert claim["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert claim["spec"] == {
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": "10Gi"}},
    }
    other = of_kind(objects(example("second-platform")), "PersistentVolumeClaim")
    assert "annotations" not in other["metadata"]
    assert other["spec"]["accessModes"] == ["ReadWriteOnce"]


def test_claims_have_a_class_where_one_is_named_and_existing_ones_are_left_alone():
    claims = [{"name": "a", "storageClass": "fast"}, {"name": "b", "existing": True}]
    made = of_kind(objects({"claims": claims}), "PersistentVolumeClaim")
    assert (made["metadata"]["name"], made["spec"]["storageClassName"]) == ("a", "fast")


def test_a_master_may_do_this_and_no_more():
    may = {
        (group, resource): set(rule["verbs"])
        for rule in of_kind(objects(), "Role")["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert may == {
        ("", "pods"): {"create", "delete", "get", "list", "watch"},
        ("", "configmaps"): {"get", "list", "watch", "create", "patch"},
        ("batch", "jobs"): {"patch"},
        ("", "events"): {"create"},
    }


def test_the_role_is_bound_to_the_masters_account_alone():
    (subject,) = of_kind(objects(namespace="team"), "RoleBinding")["subjects"]
    assert subject["name"] == "elasticdl-master"
    assert subject["namespace"] == "team"


def test_readers_of_data_may_have_an_identity_that_masters_have_not():
    says = {
        "annotations": {"team": "a"},
        "jobAnnotations": {"cloud.example/role": "reader"},
        "masterAnnotations": {"team": "b"},
    }
    found = objects({"serviceAccounts": says})
    readers = found["ServiceAccount", "elasticdl-job"]["metadata"]["annotations"]
    assert readers == {"team": "a", "cloud.example/role": "reader"}
    masters = found["ServiceAccount", "elasticdl-master"]["metadata"]["annotations"]
    assert masters == {"team": "b"}


def test_workers_do_not_have_the_account_of_masters():
    accounts = {"master": "training", "job": "training"}
    with pytest.raises(helm.HelmError, match="got the name `training` twice, expected"):
        render({"serviceAccounts": accounts})


def test_no_account_gives_its_token_away():
    accounts = [
        value for (kind, _), value in objects().items() if kind == "ServiceAccount"
    ]
    assert [account["automountServiceAccountToken"] for account in accounts] == [
        False,
        False,
    ]


def test_pods_of_jobs_are_closed_to_all():
    spec = of_kind(objects(), "NetworkPolicy")["spec"]
    assert spec["policyTypes"] == ["Ingress"]
    assert "ingress" not in spec
    assert (
        spec["podSelector"]["matchLabels"]["app.kubernetes.io/part-of"] == "elasticdl"
    )


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ({"serviceAccounts": {"create": False}}, "ServiceAccount"),
        ({"rbac": {"create": False}}, "Role"),
        ({"priorityClasses": {"create": False}}, "PriorityClass"),
        ({"networkPolicy": {"enabled": False}}, "NetworkPolicy"),
        ({"claims": []}, "PersistentVolumeClaim"),
    ],
    ids=lambda part: next(iter(part)) if isinstance(part, dict) else part,
)
def test_each_part_may_be_left_out(values, kind):
    assert kind not in {made for made, _ in objects(values)}


def test_names_of_accounts_are_the_same_in_both_kinds_of_release():
    named = {"serviceAccounts": {"master": "boss", "job": "crew"}}
    platform = objects(named)
    assert ("Role", "boss") in platform
    assert of_kind(platform, "RoleBinding")["subjects"][0]["name"] == "boss"
    values = {**example("digits"), **named}
    assert 'serviceAccountName: "boss"' in render(values)["job/master.yaml"]
    assert 'serviceAccountName: "crew"' in render(values)["job/configmap.yaml"]


def test_notes_say_what_is_there_and_the_next_command():
    notes = render(namespace="team")["NOTES.txt"]
    assert "PriorityClasses    elasticdl-high (-5), elasticdl-low (-10)" in notes
    assert "helm install digits CHART -n team -f values/digits.yaml" in notes
    assert "kubectl describe pvc fileserver-claim -n team" in notes
    second = render(example("second-platform"))["NOTES.txt"]
    assert "PriorityClasses" not in second
    assert "datasets, which has to be there already" in second
