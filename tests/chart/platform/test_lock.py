"""What a locked platform renders, and the rights of a job's own account. That the API
server decides by it is for tests/e2e/control_plane/lock."""

import pytest

from tests.chart.rendering import (
    EXAMPLES,
    config_map,
    example,
    job,
    objects,
    pods,
    render,
    values_of,
)

POLICY = "ValidatingAdmissionPolicy"
LOCKED = {"platform": {"locked": True}}


def test_nothing_is_locked_unless_the_platform_says_so():
    assert not [key for key in objects() if key[0].startswith(POLICY)]


def test_each_policy_is_bound_and_is_of_the_releases_namespace_alone():
    found = objects(LOCKED, namespace="team-a")
    policies = {name: one for (kind, name), one in found.items() if kind == POLICY}
    bound = {
        one["spec"]["policyName"]: one["spec"]["validationActions"]
        for (kind, _), one in found.items()
        if kind == f"{POLICY}Binding"
    }
    names = {"elasticdl-team-a-pods", "elasticdl-team-a-masters"}
    assert set(policies) == names
    assert bound == {name: ["Deny"] for name in names}
    for one in policies.values():
        assert one["spec"]["failurePolicy"] == "Fail"
        selector = one["spec"]["matchConstraints"]["namespaceSelector"]
        assert selector == {"matchLabels": {"kubernetes.io/metadata.name": "team-a"}}
    assert not names & {name for _, name in objects(LOCKED, namespace="team-b")}


def test_the_lock_leaves_alone_what_runs_and_what_the_master_shows_of_it():
    policies = objects(LOCKED, namespace="ml")
    rules = policies[POLICY, "elasticdl-ml-pods"]["spec"]["matchConstraints"]
    assert {tuple(one["operations"]) for one in rules["resourceRules"]} == {("CREATE",)}


def test_a_job_cannot_unlock_its_platform():
    with pytest.raises(Exception, match="belongs to the platform's release"):
        render(job(platform={"allowed": {"secrets": ["a"]}}))


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_each_secret_that_a_job_makes_is_one_that_its_pods_may_have(file):
    values = values_of(file)
    if values["kind"] != "job":
        return
    made = {name for kind, name in objects(values) if kind == "Secret"}
    job = f"elasticdl-{values['job']['name']}"
    assert made <= {f"{job}-token", f"{job}-ca"}
    policies = objects(LOCKED, namespace="ml")
    variables = policies[POLICY, "elasticdl-ml-pods"]["spec"]["variables"]
    (allowed,) = (one for one in variables if one["name"] == "allowedSecrets")
    for name in made:
        end = name.rpartition("-")[2]
        assert f'"{end}"' in allowed["expression"]


def test_no_label_of_a_jobs_values_hides_a_pod_from_policies():
    mask = {
        "app.kubernetes.io/part-of": "other",
        "app.kubernetes.io/component": "exporter",
        "elasticdl.org/tensorboard-of": "other",
        "elasticdl-job-name": "other",
        "elasticdl-replica-type": "",
    }
    board = {"enabled": True, "labels": mask}
    values = job(pods={"common": {"labels": mask}}, monitoring={"tensorboard": board})
    found = objects(values)
    for role, pod in pods(found).items():
        labels = pod["metadata"]["labels"]
        assert labels["app.kubernetes.io/part-of"] == "elasticdl"
        assert labels["app.kubernetes.io/component"] == role
    board = found["Deployment", "elasticdl-digits-tensorboard"]["spec"]["template"]
    assert board["metadata"]["labels"]["app.kubernetes.io/component"] == "tensorboard"
    assert board["metadata"]["labels"]["app.kubernetes.io/part-of"] == "elasticdl"
    assert board["metadata"]["labels"]["elasticdl.org/tensorboard-of"] == "digits"
    assert not {"elasticdl-job-name", "elasticdl-replica-type"} & set(
        board["metadata"]["labels"]
    )
    text = render(values)["job/tensorboard.yaml"]
    assert text.count("app.kubernetes.io/part-of: other") == 0


def test_an_account_per_job_has_rights_by_name_where_names_are_known():
    found = objects(example("account-per-job"))
    name = "elasticdl-alone-master"
    rules = {
        (rule["resources"][0], tuple(rule.get("resourceNames", []))): set(rule["verbs"])
        for rule in found["Role", name]["rules"]
    }
    shown = ("elasticdl-alone-status", "elasticdl-alone-history")
    assert rules == {
        ("pods", ()): {"create", "delete", "get", "list", "watch"},
        ("configmaps", ("elasticdl-alone",)): {"get", "list", "watch", "patch"},
        ("configmaps", shown): {"patch"},
        ("configmaps", ()): {"create"},
        ("jobs", ("elasticdl-alone-master",)): {"patch"},
        ("events", ()): {"create"},
    }
    (subject,) = found["RoleBinding", name]["subjects"]
    assert (subject["name"], subject["namespace"]) == (name, "ml")
    assert found["ServiceAccount", name]["automountServiceAccountToken"] is False
    assert pods(found)["master"]["spec"]["serviceAccountName"] == name
    for role in ("ps.yaml", "worker.yaml"):
        spec = config_map(found)[role]["spec"]
        assert spec["serviceAccountName"] == "elasticdl-job"
    again = objects({**example("account-per-job"), "run": 3})
    assert again["Role", name]["rules"][4]["resourceNames"] == [f"{name}-3"]


def test_a_job_makes_no_rights_unless_it_is_asked_to():
    made = {kind for kind, _ in objects(job())}
    assert not made & {"Role", "RoleBinding", "ServiceAccount"}
    spec = pods(objects(job()))["master"]["spec"]
    assert spec["serviceAccountName"] == "elasticdl-master"
