"""gitops/: what Argo CD and Flux are given fits the chart, every job of values/, and
nothing more. That both can work with it is for tests/e2e/gitops."""

import pytest
import yaml

from tests.chart.rendering import (
    CHART,
    EXAMPLES,
    JOBS,
    ROOT,
    merged,
    objects,
    render,
    values_of,
)

GITOPS = ROOT / "gitops"
FILES = sorted(GITOPS.rglob("*.yaml"))
CLUSTER_WIDE = {"PriorityClass", "Namespace", "ClusterRole", "ClusterRoleBinding"}
SETS = [GITOPS / "argocd" / "jobs.yaml", GITOPS / "two-repositories.yaml"]


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


@pytest.mark.parametrize("file", JOBS, ids=lambda file: file.stem)
def test_every_job_is_rendered_as_the_application_set_does(file):
    values = merged(merged(common(), values_of(file)), {"kind": "job"})
    found = objects(values)
    assert ("ConfigMap", f"elasticdl-{values['job']['name']}") in found
    image = found["Job", f"elasticdl-{values['job']['name']}-master"]["spec"]
    image = image["template"]["spec"]["containers"][0]["image"]
    assert image.startswith("registry.example/team/")


def test_an_empty_file_is_no_second_platform():
    with pytest.raises(Exception, match="missing property 'job'"):
        render(merged(common(), {"kind": "job"}))


def test_the_projects_allow_what_the_chart_renders_and_nothing_else():
    rendered = {"job": set(), "platform": kinds(platform_values())}
    for file in EXAMPLES:
        values = values_of(file)
        rendered[values["kind"]] |= kinds(values)
    # Too long for an example file (test_dashboards.py).
    rendered["platform"] |= kinds({"monitoring": {"dashboards": {"enabled": True}}})
    # Not rendered, and why they are there is said in the file.
    rendered["job"].add(("", "Pod"))
    rendered["platform"].add(("", "Namespace"))
    for kind, name in (("job", "elasticdl-jobs"), ("platform", "elasticdl-platform")):
        spec = by_name(GITOPS / "argocd" / "projects.yaml", name)["spec"]
        for key, wide in (
            ("clusterResourceWhitelist", True),
            ("namespaceResourceWhitelist", False),
        ):
            allowed = {(one["group"], one["kind"]) for one in spec[key]}
            meant = {one for one in rendered[kind] if (one[1] in CLUSTER_WIDE) is wide}
            assert allowed == meant, f"{name}: {key}"
        assert all("*" not in str(one) for one in spec["destinations"])
        assert all("*" not in one for one in spec["sourceRepos"])


@pytest.mark.parametrize("file", SETS, ids=lambda file: file.stem)
def test_a_set_heals_prunes_and_never_replaces_what_is_in_sync(file):
    (whole,) = documents(file)
    spec = whole["spec"]["template"]["spec"]
    assert whole["spec"]["goTemplateOptions"] == ["missingkey=error"]
    assert spec["project"] == "elasticdl-jobs"
    assert spec["syncPolicy"]["automated"] == {"prune": True, "selfHeal": True}
    assert spec["syncPolicy"]["retry"]["refresh"] is True
    # With one of these left out each commit would change the token, or the master.
    assert {"RespectIgnoreDifferences=true", "ApplyOutOfSyncOnly=true"} <= set(
        spec["syncPolicy"]["syncOptions"]
    )
    assert spec["ignoreDifferences"] == [
        {"kind": "Secret", "jsonPointers": ["/data/token"]}
    ]
    (source,) = (s for s in spec.get("sources", [spec.get("source")]) if "path" in s)
    assert source["helm"]["parameters"] == [{"name": "kind", "value": "job"}]
    assert (ROOT / source["path"]) == CHART


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
