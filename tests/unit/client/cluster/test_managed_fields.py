"""A change of a field under the name of who applied it, whatever else it has."""

from elasticdl.client.cluster.managed_fields import change

PATH = ("data", "job.yaml")


def entry(manager, operation, fields, *, time="2026-11-21T10:00:00Z", **more):
    return {
        "manager": manager,
        "operation": operation,
        "apiVersion": "v1",
        "time": time,
        "fieldsV1": fields,
        **more,
    }


def data_of(*keys):
    return {"f:data": {f"f:{key}": {} for key in keys}}


HELM = {
    **data_of("job.yaml", "ps.yaml"),
    "f:metadata": {"f:annotations": {"f:meta.helm.sh/release-name": {}}},
}


def config_map(*entries):
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "elasticdl-digits",
            "namespace": "ml",
            "uid": "u1",
            "resourceVersion": "7",
            "annotations": {
                "meta.helm.sh/release-name": "digits",
                "elasticdl.org/stop": "elasticdl stop",
            },
            "managedFields": list(entries),
        },
        "data": {"job.yaml": "before", "ps.yaml": "p", "other": "o"},
    }


def test_a_field_that_nobody_applies_gets_a_merge_patch():
    helm_3 = entry("helm", "Update", HELM)
    made = change(config_map(helm_3), PATH, "after")
    assert made.manager == ""
    assert made.body == {
        "metadata": {"resourceVersion": "7"},
        "data": {"job.yaml": "after"},
    }


def test_the_change_is_applied_with_all_that_its_manager_has_and_nothing_more():
    made = change(config_map(entry("helm", "Apply", HELM)), PATH, "after")
    assert made.manager == "helm"
    assert made.body == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "elasticdl-digits",
            "namespace": "ml",
            "uid": "u1",
            "resourceVersion": "7",
            "annotations": {"meta.helm.sh/release-name": "digits"},
        },
        "data": {"job.yaml": "after", "ps.yaml": "p"},
    }


def test_who_lost_the_field_to_an_edit_gets_it_back():
    helm = entry("helm", "Apply", data_of("ps.yaml"))
    edit = entry("kubectl-edit", "Update", data_of("job.yaml"))
    made = change(config_map(helm, edit), PATH, "after")
    assert made.manager == "helm"
    assert made.body["data"] == {"job.yaml": "after", "ps.yaml": "p"}


def test_of_two_that_apply_it_the_latest_counts():
    early = entry("python", "Apply", HELM, time="2026-11-21T09:00:00Z")
    late = entry("helm", "Apply", HELM, time="2026-11-21T11:00:00Z")
    other = entry("argocd", "Apply", data_of("ps.yaml"), time="2026-11-21T12:00:00Z")
    assert change(config_map(early, late, other), PATH, "x").manager == "helm"


def test_an_object_as_it_was_read_stays_as_it_is():
    thing = config_map(entry("helm", "Apply", HELM))
    change(thing, PATH, "after")
    assert thing == config_map(entry("helm", "Apply", HELM))
