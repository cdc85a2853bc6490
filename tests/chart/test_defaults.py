"""What a platform says once reaches its jobs, and what it fixes stays as it is."""

import os
import shutil
import subprocess
import sys

import helm_python as helm
import pytest
import yaml
from elasticdl.errors import ExitCode, PlatformError
from elasticdl.job import names
from elasticdl.job.values.defaults import (
    CONFIG_MAP,
    KEY,
    PlatformDefaults,
    merged,
    refused,
    sections_of,
)
from elasticdl.job.values.file import parse_values
from elasticdl.master.platform_defaults import check

from tests.chart.platform.test_guards import Cluster
from tests.chart.rendering import (
    CHART,
    config_map,
    container,
    env,
    job,
    objects,
    of_kind,
    pods,
)

SITE = {
    "images": {"registry": "registry.example/team", "pullSecrets": ["site"]},
    "pods": {
        "common": {
            "tolerations": [{"key": "training", "operator": "Exists"}],
            "nodeSelector": {"pool": "training"},
            "env": [{"name": "TEAM", "value": "vision"}],
            "securityContext": {"runAsUser": 5000},
        },
        "worker": {"runtimeClassName": "nvidia"},
    },
    "proxy": {"https": "http://proxy.example:3128", "none": [".example"]},
    "caBundle": {"configMap": "site-ca"},
    "serviceAccounts": {"master": "site-master", "job": "site-job"},
    "priorityClasses": {"low": {"name": "site-batch"}},
}

# Each case: what the platform says, what the job says.
CASES = {
    "nothing of either": ({}, {}),
    "nothing of the platform": ({}, {"images": {"tag": "v2"}}),
    "nothing of the job": (SITE, {}),
    "the chart's own value leaves it open": (
        SITE,
        {"pods": {"common": {"securityContext": {"runAsUser": 10001}}}},
    ),
    "another value stays": (
        SITE,
        {"pods": {"common": {"securityContext": {"runAsUser": 7}}}},
    ),
    "null takes out": (
        SITE,
        {"pods": {"common": {"securityContext": {"runAsUser": None}}}},
    ),
    "lists are joined": (
        SITE,
        {"pods": {"common": {"tolerations": [{"key": "spot"}]}}},
    ),
    "an entry of one name is the job's": (
        {"pods": {"common": {"volumes": [{"name": "a"}, {"name": "b"}]}}},
        {"pods": {"common": {"volumes": [{"name": "b", "emptyDir": {}}]}}},
    ),
    "a mount of one place is the job's": (
        {"pods": {"worker": {"volumeMounts": [{"name": "a", "mountPath": "/a"}]}}},
        {
            "pods": {
                "worker": {
                    "volumes": [{"name": "b", "emptyDir": {}}],
                    "volumeMounts": [{"name": "b", "mountPath": "/a"}],
                }
            }
        },
    ),
    "pull secrets are joined": (SITE, {"images": {"pullSecrets": ["own", "site"]}}),
    "lists elsewhere are the job's": (
        {
            "proxy": {"none": ["a"]},
            "networkPolicy": {"metricsFrom": [{"podSelector": {}}]},
        },
        {"proxy": {"none": ["b"]}},
    ),
    "a role takes a list of the platform away": (
        SITE,
        {"pods": {"worker": {"tolerations": None, "runtimeClassName": None}}},
    ),
    "an empty text of a role is the job's": (
        SITE,
        {"pods": {"worker": {"runtimeClassName": ""}}},
    ),
    "mappings key by key": (
        SITE,
        {"pods": {"common": {"nodeSelector": {"zone": "a"}}}},
    ),
    "empty texts of the platform say nothing": (
        {"images": {"registry": "", "tag": None}},
        {"images": {"registry": "r"}},
    ),
    "sections of the platform that hold nothing": (
        {"images": None, "pods": {"common": None, "worker": None}, "proxy": None},
        {"pods": {"worker": {"labels": {"a": "b"}}}},
    ),
    "no pods of the platform": ({"pods": None}, {}),
    "a mapping that only the platform has": (
        {"pods": {"master": {"dnsConfig": {"options": [{"name": "ndots"}]}}}},
        {"pods": {"master": {"labels": {"a": "b"}}}},
    ),
    "labels and openshift": (
        {"openshift": True, "commonLabels": {"cost": "1", "team": "x"}},
        {"commonLabels": {"team": "y"}},
    ),
}


def with_platform(defaults, own=None, fixed=()):
    return {**job(), **(own or {}), "jobs": {"defaults": defaults, "fixed": [*fixed]}}


def parsed(values):
    found, problems = parse_values(yaml.safe_dump(values), source="job.yaml")
    assert not problems
    return found


def told(platform, values):
    """Return what the package refuses of a job."""
    file = parsed(values)
    return refused(platform, sections_of(file), file.job, namespace="ml")


@pytest.fixture(scope="module")
def showing(tmp_path_factory):
    """The chart with one more template, which shows the values of all templates."""
    place = tmp_path_factory.mktemp("chart") / "elasticdl"
    shutil.copytree(CHART, place)
    (place / "templates" / "shown.yaml").write_text(
        '{{- $_ := include "elasticdl.kind" . }}\n{{ toYaml .Values }}\n'
    )
    with helm.Chart.load(place) as chart:
        yield lambda values: yaml.safe_load(
            chart.render(values, name="r", namespace="ml")[
                "elasticdl/templates/shown.yaml"
            ]
        )


@pytest.mark.parametrize("case", CASES)
def test_chart_and_package_merge_alike(case, showing):
    defaults, own = CASES[case]
    given = {**job(), **own}
    given["job"]["image"] = "registry.example/own:1"  # no registry has to be said
    shown = showing({**given, "jobs": {"defaults": defaults}})
    ours = merged(PlatformDefaults(defaults), sections_of(parsed(given)))
    assert {key: shown[key] for key in ours} == ours


def test_what_a_platform_says_reaches_every_role():
    made = pods(objects(with_platform(SITE)))
    for role, pod in made.items():
        spec, told = pod["spec"], env(pod)
        assert container(pod)["image"].startswith("registry.example/team/elasticdl/")
        assert spec["imagePullSecrets"] == [{"name": "site"}]
        assert spec["tolerations"][0] == {"key": "training", "operator": "Exists"}
        assert spec["nodeSelector"] == {"pool": "training"}
        assert spec["securityContext"]["runAsUser"] == 5000
        assert spec["securityContext"]["runAsGroup"] == 10001
        assert told["TEAM"] == "vision"
        assert told["HTTPS_PROXY"] == told["https_proxy"] == "http://proxy.example:3128"
        assert ".svc" in told["NO_PROXY"].split(",")
        assert told["NO_PROXY"].endswith(",.example")
        assert told["SSL_CERT_FILE"] == "/etc/elasticdl-ca/ca.crt"
        assert spec.get("runtimeClassName") == ("nvidia" if role == "worker" else None)
    assert made["master"]["spec"]["serviceAccountName"] == "site-master"
    assert made["ps"]["spec"]["serviceAccountName"] == "site-job"
    assert made["worker"]["spec"]["priorityClassName"] == "site-batch"


def test_environment_of_a_job_goes_before_that_of_its_platform():
    values = with_platform(SITE)
    values["job"]["env"] = {"TEAM": "text", "https_proxy": ""}
    values["job"]["worker"] = {"env": {"TEAM": "speech"}}
    made = pods(objects(values))
    assert env(made["ps"])["TEAM"] == "text"
    assert env(made["worker"])["TEAM"] == "speech"
    assert env(made["worker"])["https_proxy"] == ""


def test_what_a_platform_says_of_itself_is_said_for_its_jobs():
    found = objects(
        {
            "images": {"registry": "r.example", "pullSecrets": ["site"]},
            "serviceAccounts": {"job": "site-job"},
            "priorityClasses": {"high": {"name": "site-high"}},
            "openshift": True,
            "jobs": {"defaults": {"images": {"tag": "v3"}}, "fixed": ["job.volumes"]},
        }
    )
    says = yaml.safe_load(found["ConfigMap", CONFIG_MAP]["data"][KEY])
    assert says == {
        "defaults": {
            "images": {"registry": "r.example", "pullSecrets": ["site"], "tag": "v3"},
            "serviceAccounts": {"job": "site-job"},
            "priorityClasses": {"high": {"name": "site-high"}},
            "openshift": True,
        },
        "fixed": ["job.volumes"],
    }
    for account in ("elasticdl-master", "site-job"):
        secrets = found["ServiceAccount", account]["imagePullSecrets"]
        assert secrets == [{"name": "site"}]


@pytest.mark.parametrize("section", ["images", "pods", "proxy"])
def test_a_section_that_holds_nothing_says_nothing_in_a_platform(section):
    found = objects(
        {"jobs": {"defaults": {section: None}}, "platform": {"locked": True}}
    )
    assert "imagePullSecrets" not in found["ServiceAccount", "elasticdl-master"]


# Each case: what is fixed, what the job says beside and in `job`, what is told.
FIXED = {
    "another value": (
        "pods.common.securityContext",
        {"pods": {"common": {"securityContext": {"runAsUser": 0}}}},
        {},
        '"runAsUser":0',
    ),
    "a role's way around it": (
        "pods.common.securityContext",
        {"pods": {"ps": {"securityContext": {"runAsUser": 0}}}},
        {},
        'pods.ps.securityContext: got {"runAsUser":0}, expected nothing; ',
    ),
    "null of a role": (
        "pods.common.tolerations",
        {"pods": {"worker": {"tolerations": None}}},
        {},
        "pods.worker.tolerations: got null, expected nothing; ",
    ),
    "an entry more": (
        "pods.common.tolerations",
        {"pods": {"common": {"tolerations": [{"operator": "Exists"}]}}},
        {},
        'expected [{"key":"training","operator":"Exists"}]; ',
    ),
    "what reaches a role from all roles": (
        "pods.worker.nodeSelector",
        {"pods": {"common": {"nodeSelector": {"pool": "serving"}}}},
        {},
        'pods.common.nodeSelector: got {"pool":"serving"}, expected '
        '{"pool":"training"}; ',
    ),
    "all of a role by an entry of all roles": (
        "pods.worker",
        {"pods": {"common": {"tolerations": [{"operator": "Exists"}]}}},
        {},
        '"tolerations":[{"key":"training","operator":"Exists"}]',
    ),
    "another registry": (
        "images.registry",
        {"images": {"registry": "docker.io"}},
        {},
        'images.registry: got "docker.io", expected "registry.example/team"; ',
    ),
    "an image of another registry": (
        "images.registry",
        {},
        {"worker": {"image": "docker.io/x"}},
        'job.worker.image: got "docker.io/x", expected an image of '
        '"registry.example/team"; ',
    ),
    "a sidecar of another registry": (
        "images.registry",
        {"pods": {"worker": {"sidecars": [{"name": "x", "image": "docker.io/x"}]}}},
        {},
        'pods.worker.sidecars.x: got "docker.io/x", expected an image of '
        '"registry.example/team"; ',
    ),
    "an init container of another registry": (
        "images",
        {"pods": {"common": {"initContainers": [{"name": "x", "image": "x"}]}}},
        {},
        'pods.common.initContainers.x: got "x", expected an image of ',
    ),
    "a field of the job": (
        "job.volumes",
        {},
        {"volumes": [{"hostPath": "/", "mountPath": "/host"}]},
        "job.volumes: got [",
    ),
}


@pytest.mark.parametrize("case", FIXED)
def test_what_a_platform_fixes_is_refused_in_one_sentence_of_chart_and_package(case):
    path, own, fields, sentence = FIXED[case]
    values = with_platform(SITE, own, [path])
    values["job"] |= fields
    with pytest.raises(helm.HelmError) as error:
        objects(values)
    problems = told(PlatformDefaults(SITE, (path,)), values)
    assert sentence in str(problems[0])
    if (
        case != "a field of the job"
    ):  # the package shows its fields that say nothing too
        assert str(problems[0]) in str(error.value)
    assert sentence in str(error.value)
    assert "the platform of namespace `ml` fixes it for its jobs" in str(error.value)


def test_what_is_fixed_and_left_alone_is_not_refused():
    paths = ["images", "pods.common", "job.volumes", "serviceAccounts", "openshift"]
    values = with_platform(SITE, {"state": {"claimName": "mine"}}, paths)
    values["job"]["image"] = "registry.example/team/mine:v1"
    assert objects(values)
    assert not told(PlatformDefaults(SITE, tuple(paths)), values)


def test_a_sidecar_of_the_platform_may_be_of_another_registry():
    mesh = [{"name": "mesh", "image": "mesh.example/proxy"}]
    mine = [{"name": "own", "image": "registry.example/team/own"}]
    site = {**SITE, "pods": {"common": {"sidecars": mesh}}}
    values = with_platform(
        site, {"pods": {"common": {"sidecars": mine}}}, ["images.registry"]
    )
    assert objects(values)
    assert not told(PlatformDefaults(site, ("images.registry",)), values)


def test_the_image_of_tensorboard_is_of_a_registry_that_is_fixed():
    board = {"enabled": True, "image": "docker.io/board"}
    values = with_platform(
        SITE, {"monitoring": {"tensorboard": board}}, ["images.registry"]
    )
    said = r'monitoring.tensorboard.image: got "docker.io/board", expected an image of'
    with pytest.raises(helm.HelmError, match=said):
        objects(values)


def test_a_registry_that_is_fixed_as_none_leaves_images_of_a_job_alone():
    values = with_platform({}, fixed=["images.registry"])
    values["job"]["image"] = "registry.example/mine:v1"
    assert objects(values)
    assert not told(PlatformDefaults({}, ("images.registry",)), values)


@pytest.mark.parametrize("path", ["images.tags", "job.imagee", "jobs.fixed", "claim"])
def test_a_fixed_path_that_no_job_has_is_refused_in_the_platform(path):
    with pytest.raises(helm.HelmError, match="expected the path of a key"):
        objects({"jobs": {"fixed": [path]}})


@pytest.fixture
def cluster():
    found = Cluster()
    yield found
    found.close()


def test_a_release_reads_what_the_platform_of_its_namespace_says(cluster):
    cluster.install("platform", {"jobs": {"defaults": SITE}, "serviceAccounts": {
        "master": "site-master", "job": "site-job"}})  # fmt: skip
    cluster.install("digits", job())
    made = cluster.get("configmaps", "elasticdl-digits")
    worker = yaml.safe_load(made["data"]["worker.yaml"])
    assert worker["spec"]["nodeSelector"] == {"pool": "training"}


def test_a_run_keeps_what_its_platform_said_when_it_began(cluster):
    def selector():
        data = cluster.get("configmaps", "elasticdl-digits")["data"]
        return yaml.safe_load(data["worker.yaml"])["spec"].get("nodeSelector")

    said = {"defaults": {"pods": {"common": {"nodeSelector": {"pool": "old"}}}}}
    cluster.install("platform", {"jobs": said})
    cluster.install("digits", job())
    said = {"defaults": {"pods": {"common": {"nodeSelector": {"pool": "new"}}}}}
    cluster.upgrade("platform", {"jobs": said})
    # Were it read anew, the upgrade would change the master's pod and be refused.
    edited = job()
    edited["job"]["worker"] = {"replicas": 2}
    cluster.upgrade("digits", edited)
    assert selector() == {"pool": "old"}
    cluster.upgrade("digits", {**edited, "run": 2})
    assert selector() == {"pool": "new"}


def test_the_job_says_to_its_master_what_it_says_itself():
    own = {"pods": {"worker": {"tolerations": [{"key": "spot"}]}}}
    found = config_map(objects({**job(), **own}))
    assert found["values.yaml"]["pods"]["worker"] == own["pods"]["worker"]
    assert "platform.yaml" not in found


@pytest.fixture
def user(cluster, tmp_path):
    """Run the command as somebody whose kube config names that cluster."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "here", "cluster": {"server": cluster.api.url}}],
        "users": [{"name": "me", "user": {}}],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
        "current-context": "here",
    }
    (tmp_path / "config").write_text(yaml.safe_dump(config))

    def run(values, verb="validate", *options):
        (tmp_path / "job.yaml").write_text(yaml.safe_dump(values))
        words = [verb, *options, "job.yaml", "-n", "ml"]
        return subprocess.run(
            [sys.executable, "-m", "elasticdl.cli.main", *words],
            cwd=tmp_path,
            env={**os.environ, "KUBECONFIG": str(tmp_path / "config")},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_validate_shows_what_a_job_has_from_whom(cluster, user):
    cluster.install("platform", {"jobs": {"defaults": SITE, "fixed": ["openshift"]}})
    done = user({**job(), "images": {"tag": "v2"}})
    assert done.returncode == ExitCode.OK, done.stderr
    out = done.stdout
    lines = {line.strip().partition(":")[0]: line for line in out.splitlines()}
    assert lines["images.tag"].endswith("(job)")
    assert lines["images.registry"].endswith("(platform)")
    assert lines["pods.common.tolerations"].endswith("(platform)")
    assert '"TEAM"' in lines["pods.common.env"]
    assert lines["openshift"].endswith("fixed by the platform")


def test_validate_refuses_what_the_platform_fixes(cluster, user):
    cluster.install("platform", {"jobs": {"fixed": ["openshift"]}})
    done = user({**job(), "openshift": True})
    assert done.returncode == ExitCode.SPEC
    said = "job.yaml: openshift: got true, expected false; the platform of"
    assert said in done.stderr


NO_REGISTRY = "images.registry: got nothing, expected the registry that the stock"


def test_a_cluster_without_a_registry_is_told_before_anything_is_made(cluster, user):
    cluster.install("platform", {"jobs": {"defaults": {"images": {"tag": "v2"}}}})
    before = dict(cluster.api.objects)
    done = user(job())
    assert done.returncode == ExitCode.SPEC
    assert f"job.yaml: {NO_REGISTRY}" in done.stderr
    for options in (["-f"], ["--yaml=-", "-f"]):
        done = user(job(), "train", *options)
        assert done.returncode == ExitCode.SPEC
        assert NO_REGISTRY in done.stderr
    assert cluster.api.objects == before


def test_a_registry_that_the_platform_says_is_that_of_all_its_jobs(cluster, user):
    images = {"registry": "registry.example:5000/team"}
    cluster.install("platform", {"images": images})
    assert user(job()).returncode == ExitCode.OK
    # As Helm alone does it, and with nothing about images in the job's values.
    cluster.helm().install(CHART, "digits", job(), namespace="ml")
    data = cluster.get("configmaps", "elasticdl-digits")["data"]
    for role in ("ps", "worker"):
        image = container(yaml.safe_load(data[f"{role}.yaml"]))["image"]
        assert image.startswith(f"registry.example:5000/team/elasticdl/{role}:")


def test_a_master_has_the_platforms_words_as_files_beside_the_jobs(tmp_path):
    """The folders that `elasticdl.master.platform_defaults` reads are those mounted."""
    master = pods(objects(job()))["master"]
    places = {mount["name"]: mount for mount in container(master)["volumeMounts"]}
    assert places["elasticdl-spec"]["mountPath"] == names.CONFIG_DIR
    platform = names.CONFIG_DIR + names.PLATFORM_SUFFIX
    assert places["elasticdl-platform"]["mountPath"] == platform
    (volume,) = (
        one for one in master["spec"]["volumes"] if one["name"] == "elasticdl-platform"
    )
    assert volume["configMap"] == {"name": CONFIG_MAP, "optional": True}


@pytest.mark.parametrize("rendered_with", [True, False])
def test_a_master_begins_with_what_the_chart_rendered_or_not_at_all(
    rendered_with, tmp_path
):
    values = with_platform(SITE) if rendered_with else job()
    made = of_kind(objects(values), "ConfigMap")["data"]
    says = objects({"jobs": {"defaults": SITE}})["ConfigMap", CONFIG_MAP]["data"]
    for folder, data in (("config", made), ("config-platform", says)):
        (tmp_path / folder).mkdir()
        for key, text in data.items():
            (tmp_path / folder / key).write_text(text)
    spec = parsed(values).job
    if rendered_with:
        check(tmp_path / "config", spec, namespace="ml")
        return
    with pytest.raises(PlatformError, match=r"says of caBundle\.configMap, images"):
        check(tmp_path / "config", spec, namespace="ml")
