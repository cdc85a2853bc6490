"""What other kinds of clusters ask for: OpenShift, meshes, autoscalers, registries."""

import helm_python as helm
import pytest
import yaml
from elasticdl.job.values.defaults import (
    PlatformDefaults,
    sections_of,
    without_registry,
)
from elasticdl.job.values.file import parse_values

from tests.chart.platform.pod_security import violations
from tests.chart.rendering import (
    chart,
    container,
    job,
    merged,
    objects,
    of_kind,
    pods,
    render,
)

USERS = ("runAsUser", "runAsGroup", "fsGroup")
SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"
EVERYTHING = {"tensorboard": {"enabled": True}}
DIGEST = "sha256:" + 64 * "a"


def platform(**values):
    monitoring = {"exporter": {"enabled": True, **values.pop("exporter", {})}}
    return objects({"monitoring": monitoring, **values})


def every_pod(openshift):
    of_job = objects(job(openshift=openshift, monitoring=EVERYTHING))
    of_platform = platform(openshift=openshift)
    made = pods(of_job)
    made["tensorboard"] = of_kind(of_job, "Deployment")["spec"]["template"]
    made["exporter"] = of_kind(of_platform, "Deployment")["spec"]["template"]
    return made


def test_on_openshift_no_pod_names_a_user_and_all_stay_restricted():
    for name, pod in every_pod(openshift=True).items():
        context = pod["spec"]["securityContext"]
        assert not set(USERS) & set(context), name
        assert context["runAsNonRoot"] is True
        assert violations(pod) == []
    for pod in every_pod(openshift=False).values():
        assert pod["spec"]["securityContext"]["runAsUser"] == 10001


def test_a_user_that_was_chosen_stays_on_openshift_too():
    chosen = {"worker": {"securityContext": {"runAsUser": 1000700001}}}
    found = pods(objects(job(openshift=True, pods=chosen)))
    assert found["worker"]["spec"]["securityContext"]["runAsUser"] == 1000700001


def test_the_exporters_user_may_be_left_to_the_cluster():
    found = platform(exporter={"securityContext": dict.fromkeys(USERS)})
    context = of_kind(found, "Deployment")["spec"]["template"]["spec"][
        "securityContext"
    ]
    assert not set(USERS) & set(context)


# Meshes.


def test_every_port_of_a_service_says_its_protocol():
    found = {**objects(job(monitoring=EVERYTHING)), **platform()}
    seen = {
        port["name"]: port["appProtocol"]
        for (kind, _), made in found.items()
        if kind == "Service"
        for port in made["spec"]["ports"]
    }
    # Calls go as TCP: a proxy that reads HTTP would repeat them.
    assert seen == {"tcp-grpc": "tcp", "metrics": "http", "http": "http"}


def test_a_services_port_is_one_of_the_pods_own():
    found = objects(job())
    for role in ("master", "ps"):
        named = {port["name"] for port in container(pods(found)[role])["ports"]}
        service = found["Service", f"elasticdl-digits-{role}"]
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= named


# Autoscalers.


@pytest.mark.parametrize("role", ["master", "ps", "worker"])
def test_an_autoscaler_may_move_every_role_unless_that_is_not_wanted(role):
    assert pods(objects(job()))[role]["metadata"]["annotations"][SAFE] == "true"
    kept = {"common": {"annotations": {SAFE: "false"}}}
    made = pods(objects(job(pods=kept)))[role]
    assert made["metadata"]["annotations"][SAFE] == "false"


# Images.


def test_images_are_taken_by_digest_where_one_is_named():
    images = {"registry": "r.example:5000/team/", "digests": {"ps": DIGEST}}
    found = pods(objects(job(images=images)))
    ps, worker = (container(found[role])["image"] for role in ("ps", "worker"))
    assert ps.startswith("r.example:5000/team/elasticdl/ps:")
    assert ps.endswith(f"@{DIGEST}")
    assert "@" not in worker


@pytest.mark.parametrize("host", ["[::1]:5000", "[2001:db8::1]", "10.0.0.1:5000"])
def test_a_registry_may_be_known_by_its_address(host):
    found = pods(objects(job(images={"registry": f"{host}/team"})))
    image = container(found["ps"])["image"]
    assert image.startswith(f"{host}/team/elasticdl/ps:")


def test_the_exporter_is_pulled_from_the_platforms_registry():
    images = {"registry": "r.example", "pullSecrets": ["a"], "tag": "v1"}
    spec = of_kind(platform(images=images), "Deployment")["spec"]["template"]["spec"]
    assert spec["containers"][0]["image"] == "r.example/elasticdl/master:v1"
    assert spec["imagePullSecrets"] == [{"name": "a"}]


@pytest.mark.parametrize(
    ("images", "said"),
    [
        ({"registry": "https://r.example"}, "/images/registry"),
        ({"tag": DIGEST}, "/images/tag"),
        ({"digests": {"ps": "v1"}}, "/images/digests/ps"),
    ],
)
def test_what_makes_no_name_of_an_image_is_refused(images, said):
    with pytest.raises(helm.HelmError, match=f"{said}.*does not match pattern"):
        render(job(images=images))


# What a job or an exporter has that needs a stock image, and no registry for it.
NO_REGISTRY = {
    "a job": job(images={"registry": ""}),
    "a platform that says none": job(
        images={"registry": ""}, jobs={"defaults": {"images": {"tag": "v1"}}}
    ),
    "other names": job(images={"registry": "", "master": "m", "ps": "p"}),
    "one role's own": merged(
        job(images={"registry": ""}), {"job": {"worker": {"image": "r.example/x:1"}}}
    ),
    "an exporter": {
        "images": {"registry": ""},
        "monitoring": {"exporter": {"enabled": True}},
    },
}


@pytest.mark.parametrize("case", NO_REGISTRY)
def test_no_image_has_a_name_that_somebody_else_may_own(case):
    values = NO_REGISTRY[case]
    said = "images.registry: got nothing, expected the registry that the stock images"
    with pytest.raises(helm.HelmError) as error:
        render(values)
    assert said in str(error.value)
    if "job" in values:  # the package says the same
        file, _ = parse_values(yaml.safe_dump(values), source="job.yaml")
        says = PlatformDefaults((values.get("jobs") or {}).get("defaults") or {})
        (problem,) = without_registry(says, sections_of(file), file.job)
        assert str(problem) in str(error.value)


OWN = "r.example/own:1"


@pytest.mark.parametrize(
    "fields",
    [{"image": OWN}, {role: {"image": OWN} for role in ("master", "ps", "worker")}],
)
def test_images_of_its_own_need_no_registry(fields):
    values = merged(job(images={"registry": ""}), {"job": fields})
    assert {container(pod)["image"] for pod in pods(objects(values)).values()} == {OWN}
    file, _ = parse_values(yaml.safe_dump(values), source="job.yaml")
    assert not without_registry(PlatformDefaults(), sections_of(file), file.job)
    tools = {"exporter": {"enabled": True, "image": OWN}}
    values = {"images": {"registry": ""}, "monitoring": tools}
    pod = of_kind(objects(values), "Deployment")["spec"]["template"]
    assert container(pod)["image"] == OWN
    assert objects({"images": {"registry": ""}})  # a platform runs no image


def test_images_that_the_nodes_have_are_those_of_localhost():
    found = pods(objects(job(images={"registry": "localhost"})))
    for role, pod in found.items():
        name = f"localhost/elasticdl/{role}:{chart().metadata['appVersion']}"
        assert container(pod)["image"] == name
        assert container(pod)["imagePullPolicy"] == "IfNotPresent"


# What people add to pods.


def test_sidecars_end_with_the_role_and_are_as_restricted_as_it():
    more = {
        "sidecars": [{"name": "proxy", "image": "p"}],
        "initContainers": [{"name": "fetch", "image": "f"}],
        "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a"]}],
        "dnsConfig": {"options": [{"name": "ndots", "value": "1"}]},
        "tmpSizeLimit": "5Gi",
    }
    for role, pod in pods(objects(job(pods={"common": more}))).items():
        proxy, fetch = pod["spec"]["initContainers"]
        assert (proxy["name"], proxy["restartPolicy"]) == ("proxy", "Always")
        assert (fetch["name"], fetch.get("restartPolicy")) == ("fetch", None)
        assert violations(pod) == [], role
        assert pod["spec"]["hostAliases"] == more["hostAliases"]
        assert pod["spec"]["dnsConfig"] == more["dnsConfig"]
        (tmp,) = (v for v in pod["spec"]["volumes"] if v["name"] == "elasticdl-tmp")
        assert tmp["emptyDir"] == {"sizeLimit": "5Gi"}


def test_pods_take_devices_hooks_and_user_ids_of_their_own():
    more = {
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}],
        "lifecycle": {"preStop": {"exec": {"command": ["sync"]}}},
        "hostUsers": False,
    }
    for role, pod in pods(objects(job(pods={"common": more}))).items():
        assert pod["spec"]["resourceClaims"] == more["resourceClaims"], role
        assert pod["spec"]["hostUsers"] is False
        assert container(pod)["resources"]["claims"] == [{"name": "gpu"}]
        assert container(pod)["lifecycle"] == more["lifecycle"]
    plain = pods(objects(job()))["worker"]
    assert "hostUsers" not in plain["spec"]
    assert "claims" not in container(plain)["resources"]


OWN_POD = {
    "labels": {"team": "ops"},
    "annotations": {"note": "b"},
    "env": [{"name": "HTTPS_PROXY", "value": "http://proxy"}],
    "affinity": {"nodeAffinity": {}},
    "priorityClassName": "batch",
}


@pytest.mark.parametrize("who", ["exporter", "tensorboard"])
def test_pods_that_are_no_role_have_settings_of_their_own(who):
    if who == "exporter":
        found = platform(exporter=OWN_POD)
    else:
        found = objects(job(monitoring={who: {"enabled": True, **OWN_POD}}))
    pod = of_kind(found, "Deployment")["spec"]["template"]
    assert pod["metadata"]["labels"]["team"] == "ops"
    assert pod["metadata"]["annotations"]["note"] == "b"
    assert OWN_POD["env"][0] in container(pod)["env"]
    assert pod["spec"]["affinity"] == OWN_POD["affinity"]
    assert pod["spec"]["priorityClassName"] == "batch"


# Labels and names.

COMMON = {"commonLabels": {"cost": "42"}, "commonAnnotations": {"owner": "vision"}}


def test_every_object_and_pod_has_the_common_labels():
    found = {
        **objects(job(monitoring=EVERYTHING, **COMMON)),
        **platform(**COMMON),
    }
    for (kind, name), made in found.items():
        assert made["metadata"]["labels"]["cost"] == "42", (kind, name)
        assert made["metadata"]["annotations"]["owner"] == "vision", (kind, name)
        if kind == "Deployment":
            assert made["spec"]["template"]["metadata"]["labels"]["cost"] == "42"
    for pod in pods(objects(job(**COMMON))).values():
        assert pod["metadata"]["labels"]["cost"] == "42"


def test_common_annotations_leave_those_of_the_chart():
    found = {**objects(job(**COMMON)), **objects(COMMON)}
    kept = found["PersistentVolumeClaim", "fileserver-claim"]["metadata"]["annotations"]
    assert kept == {"helm.sh/resource-policy": "keep", "owner": "vision"}
    master = of_kind(found, "Job")["metadata"]["annotations"]
    assert "elasticdl.org/master-template" in master


def test_the_charts_own_labels_are_not_for_others():
    with pytest.raises(helm.HelmError, match="commonLabels: got `elasticdl-job-name`"):
        render(job(commonLabels={"elasticdl-job-name": "x"}))


def test_the_platforms_objects_may_have_another_name():
    found = platform(nameOverride="training")
    for kind in ("Deployment", "Service"):
        assert (kind, "training-exporter") in found
    assert ("NetworkPolicy", "training.exporter") in found
    assert ("NetworkPolicy", "training") in found
    assert ("ClusterRole", "training-exporter-ml") in found
    assert not {name for _, name in found if name.startswith("elasticdl-exporter")}


# Queues.


def test_a_queue_of_kueue_reaches_the_job_and_the_pods_that_its_master_makes():
    label = "kueue.x-k8s.io/queue-name"
    values = job()
    values["job"]["queue"] = "team-a"
    found = objects(values)
    assert of_kind(found, "Job")["metadata"]["labels"][label] == "team-a"
    made = pods(found)
    for role in ("ps", "worker"):
        assert made[role]["metadata"]["labels"][label] == "team-a"
    # Kueue takes a Job by its own label; its pod would be another workload.
    assert label not in made["master"]["metadata"]["labels"]
    assert label not in str(objects(job()))
