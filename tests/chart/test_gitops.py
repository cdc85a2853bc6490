"""gitops/: what Argo CD and Flux are given fits the chart, every job of values/, and
nothing more. That both can work with it is for tests/e2e/gitops."""

import json

import pytest
import yaml

from tests.chart.rendering import (
    CHART,
    EXAMPLES,
    JOBS,
    ROOT,
    job,
    merged,
    objects,
    render,
    values_of,
)

GITOPS = ROOT / "gitops"
FILES = sorted(GITOPS.rglob("*.yaml"))
CLUSTER_WIDE = {
    "PriorityClass", "Namespace", "ClusterRole", "ClusterRoleBinding",
    "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
}  # fmt: skip
GRANTS_RIGHTS = "account-per-job"  # an example of what jobs by commits may not do
PLATFORMS = "https://github.com/elasticdl/elasticdl.git"
SETS = [GITOPS / "argocd" / "jobs.yaml", GITOPS / "one-repository.yaml"]


def documents(file):
    return [one for one in yaml.safe_load_all(file.read_text()) if one]


def by_name(file, name):
    (one,) = (one for one in documents(file) if one["metadata"]["name"] == name)
    return one


def common():
    return values_of(GITOPS / "common.yaml")


def platform_values():
    application = documents(GITOPS / "argocd" / "platform.yaml")[0]
    return application["spec"]["source"]["helm"]["valuesObject"]


def kinds(values):
    found = objects(values).values()
    return {(one["apiVersion"].rpartition("/")[0], one["kind"]) for one in found}


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(GITOPS)))
def test_every_file_is_yaml_with_a_heading(file):
    assert documents(file)
    assert file.read_text().startswith("# ")


def test_the_platforms_words_are_its_own_values_and_the_last_ones_of_every_job():
    platform = documents(GITOPS / "argocd" / "platform.yaml")[0]
    assert platform["spec"]["source"]["helm"]["valueFiles"] == ["/gitops/common.yaml"]
    jobs = documents(GITOPS / "argocd" / "jobs.yaml")[0]["spec"]["template"]
    chart = jobs["spec"]["sources"][0]["helm"]
    assert chart["valueFiles"][-1] == "/gitops/common.yaml"
    (release,) = documents(GITOPS / "flux" / "jobs" / "digits.yaml")
    assert release["spec"]["chart"]["spec"]["valuesFiles"][-1] == "./gitops/common.yaml"
    assert list(common()) == ["jobs"]
    assert objects(merged(platform_values(), common()))


@pytest.mark.parametrize("file", JOBS, ids=lambda file: file.stem)
def test_every_job_is_rendered_as_the_application_set_does(file):
    values = merged(merged(values_of(file), common()), {"kind": "job"})
    found = objects(values)
    assert ("ConfigMap", f"elasticdl-{values['job']['name']}") in found
    image = found["Job", f"elasticdl-{values['job']['name']}-master"]["spec"]
    image = image["template"]["spec"]["containers"][0]["image"]
    assert image.startswith("registry.example/team/")


def test_an_empty_file_is_no_second_platform():
    with pytest.raises(Exception, match="missing property 'job'"):
        render(merged(common(), {"kind": "job"}))


def allowed(project, key):
    return {(one["group"], one["kind"]) for one in project["spec"].get(key, [])}


def split(found):
    """Return what is of the whole cluster, and the rest."""
    wide = {one for one in found if one[1] in CLUSTER_WIDE}
    return wide, found - wide


def test_the_projects_allow_what_the_chart_renders_and_nothing_else():
    rendered = {"job": set(), "platform": kinds(platform_values())}
    # None of them is in the platform of gitops/.
    bare = {
        "monitoring": {"exporter": {"enabled": False}},
        "controller": {"enabled": False, "trainingJobs": {"enabled": False}},
    }
    for file in EXAMPLES:
        values = values_of(file)
        if file.stem == GRANTS_RIGHTS:
            continue
        if values["kind"] == "platform":
            values = merged(values, bare)
        rendered[values["kind"]] |= kinds(values)
    # Too long for an example file (test_dashboards.py).
    rendered["platform"] |= kinds({"monitoring": {"dashboards": {"enabled": True}}})
    # Not rendered, and why they are there is said in the file.
    rendered["job"].add(("", "Pod"))
    rendered["platform"].add(("", "Namespace"))
    names = {"job": "elasticdl-team-ml", "platform": "elasticdl-platform"}
    for kind, name in names.items():
        project = by_name(GITOPS / "argocd" / "projects.yaml", name)
        wide, namespaced = split(rendered[kind])
        assert allowed(project, "clusterResourceWhitelist") == wide
        assert allowed(project, "namespaceResourceWhitelist") == namespaced
        assert all("*" not in str(one) for one in project["spec"]["destinations"])
        assert all("*" not in one for one in project["spec"]["sourceRepos"])


def test_rights_over_the_cluster_are_in_the_exporters_project_alone():
    for file in (GITOPS / "argocd").glob("*.yaml"):
        assert "ClusterRole" not in file.read_text()
    project, application = documents(GITOPS / "exporter.yaml")
    values = application["spec"]["source"]["helm"]["valuesObject"]
    rendered = kinds(values) | {("", "Namespace")}
    wide, namespaced = split(rendered)
    assert ("rbac.authorization.k8s.io", "ClusterRole") in wide
    assert allowed(project, "clusterResourceWhitelist") == wide
    assert allowed(project, "namespaceResourceWhitelist") == namespaced
    assert project["spec"]["destinations"] == [application["spec"]["destination"]]
    assert application["spec"]["destination"]["namespace"] != "ml"


def test_the_root_may_make_what_its_folder_has_and_nothing_else():
    project, application = documents(GITOPS / "root.yaml")
    assert application["spec"]["project"] == project["metadata"]["name"]
    found = {
        (one["apiVersion"].partition("/")[0], one["kind"])
        for file in (GITOPS / "argocd").glob("*.yaml")
        for one in documents(file)
    }
    assert allowed(project, "namespaceResourceWhitelist") == found
    assert not allowed(project, "clusterResourceWhitelist")
    assert project["spec"]["destinations"] == [application["spec"]["destination"]]
    assert project["spec"]["sourceRepos"] == [application["spec"]["source"]["repoURL"]]


def test_nothing_is_in_the_project_that_allows_everything():
    for file in GITOPS.rglob("*.yaml"):
        assert "project: default" not in file.read_text(), file.name


def test_a_team_cannot_change_the_chart_nor_leave_its_namespace():
    project = by_name(GITOPS / "argocd" / "projects.yaml", "elasticdl-team-ml")
    (whole,) = documents(GITOPS / "argocd" / "jobs.yaml")
    (generator,) = whole["spec"]["generators"]
    spec = whole["spec"]["template"]["spec"]
    chart, values = spec["sources"]
    assert chart["repoURL"] == PLATFORMS
    assert "path" not in values
    assert generator["git"]["repoURL"] == values["repoURL"] != PLATFORMS
    assert set(project["spec"]["sourceRepos"]) == {PLATFORMS, values["repoURL"]}
    # Of the destination nothing is taken from the team's files.
    assert "{{" not in str(spec["destination"])
    assert "{{" not in spec["project"]
    assert spec["destination"]["namespace"] == "ml"
    assert project["spec"]["destinations"] == [spec["destination"]]
    assert not allowed(project, "clusterResourceWhitelist")
    assert not [
        kind for _, kind in allowed(project, "namespaceResourceWhitelist")
        if "Role" in kind or kind == "ServiceAccount"
    ]  # fmt: skip
    # And what its files ask for is judged by the platform's policies.
    assert platform_values()["platform"]["locked"] is True


def test_the_chart_comes_by_a_tag_everywhere():
    sources = []
    for file in FILES:
        for one in documents(file):
            spec = one["spec"] if one.get("kind") == "Application" else {}
            if one.get("kind") == "ApplicationSet":
                spec = one["spec"]["template"]["spec"]
            sources += [*spec.get("sources", []), spec.get("source", {})]
    charts = [one for one in sources if one.get("path") == "charts/elasticdl"]
    assert len(charts) == 4
    assert {one["targetRevision"] for one in charts} == {"v1.0.0"}


@pytest.mark.parametrize("file", SETS, ids=lambda file: file.stem)
def test_a_set_heals_prunes_and_never_replaces_what_is_in_sync(file):
    (whole,) = documents(file)
    spec = whole["spec"]["template"]["spec"]
    assert whole["spec"]["goTemplateOptions"] == ["missingkey=error"]
    assert whole["spec"]["template"]["metadata"]["name"].startswith("ml-{{")
    assert spec["project"] == "elasticdl-team-ml"
    assert spec["syncPolicy"]["automated"] == {"prune": True, "selfHeal": True}
    assert spec["syncPolicy"]["retry"]["refresh"] is True
    options = set(spec["syncPolicy"]["syncOptions"])
    assert {"ApplyOutOfSyncOnly=true", "FailOnSharedResource=true"} <= options
    # It would put the old pod of a Job into the one that takes its place.
    assert "RespectIgnoreDifferences=true" not in options
    source = spec["sources"][0]
    assert source["helm"]["parameters"] == [{"name": "kind", "value": "job"}]
    assert (ROOT / source["path"]) == CHART


def without(made, pointers):
    """Return the object without what the pointers name."""
    made = json.loads(json.dumps(made))
    for pointer in pointers:
        *above, last = pointer.strip("/").split("/")
        place = made
        for part in above:
            place = place.get(part, {})
        place.pop(last, None)
    return made


@pytest.mark.parametrize("file", SETS, ids=lambda file: file.stem)
def test_what_is_ignored_hides_no_change_that_a_commit_makes(file):
    (whole,) = documents(file)
    ignored = {
        one["kind"]: one["jsonPointers"]
        for one in whole["spec"]["template"]["spec"]["ignoreDifferences"]
    }
    assert set(ignored) == {"Secret", "Job"}
    label = {"pods": {"master": {"labels": {"a": "b"}}}}
    before, after = objects(job()), objects(merged(job(), label))
    work = ("Job", "elasticdl-digits-master")
    assert before[work] != after[work]
    seen = [without(found[work], ignored["Job"]) for found in (before, after)]
    assert seen[0] != seen[1]
    # Admission changes the pod and nothing of what Git says about it.
    changed = json.loads(json.dumps(before[work]))
    pod = changed["spec"]["template"]["spec"]
    pod["containers"][0]["image"] = "mirror.example/elasticdl/master"
    assert without(changed, ignored["Job"]) == seen[0]
    # The token's Secret looks the same whatever is rendered.
    token = ("Secret", "elasticdl-digits-token")
    labelled = objects(merged(job(), {"commonLabels": {"cost": "7"}}))
    assert before[token]["data"] != labelled[token]["data"]
    seen = [without(found[token], ignored["Secret"]) for found in (before, labelled)]
    assert seen[0] == seen[1]


def test_the_platform_comes_before_the_jobs():
    def wave(file):
        found = {
            one["metadata"]["annotations"]["argocd.argoproj.io/sync-wave"]
            for one in documents(GITOPS / "argocd" / file)
        }
        (only,) = found
        return int(only)

    assert wave("projects.yaml") < wave("platform.yaml") < wave("jobs.yaml")


@pytest.mark.parametrize(
    "file", sorted((GITOPS / "flux" / "jobs").glob("*.yaml")), ids=lambda f: f.stem
)
def test_flux_is_given_a_job_that_the_chart_takes(file):
    (release,) = documents(file)
    spec = release["spec"]
    first, *others = spec["chart"]["spec"]["valuesFiles"]
    assert (ROOT / first) == CHART / "values.yaml"
    values = {}
    for name in others:
        values = merged(values, values_of(ROOT / name))
    name = values["job"]["name"]
    assert ("Job", f"elasticdl-{name}-master") in objects(values)
    # It would wait for the end of the training otherwise.
    for step in ("install", "upgrade"):
        assert spec[step]["disableWait"]
        assert spec[step]["disableWaitForJobs"]
