"""A job's release: the objects, and the pods that its values ask for."""

import json

import helm_python as helm
import pytest
import yaml
from elasticdl.job import names
from elasticdl.job.names import Role
from elasticdl.job.values.defaults import chart_sections
from elasticdl.job.values.file import parse_values
from elasticdl.master.members import scale

from tests.chart.rendering import (
    EXAMPLES,
    FURTHER,
    JOBS,
    REGISTRY,
    config_map,
    container,
    env,
    example,
    job,
    merged,
    mounts,
    objects,
    of_kind,
    pods,
    render,
    values_of,
)

ROLES = ["master", "ps", "worker"]
TOKEN_SECRET, AUTHORITY_SECRET = "elasticdl-digits-token", "elasticdl-digits-ca"
OWN_JOBS = [file for file in (*JOBS, *FURTHER) if values_of(file)["kind"] == "job"]
CLUSTER_SCOPED = {"PriorityClass", "ClusterRole", "ClusterRoleBinding", "Namespace"}


def of(role, changes=None, **chart_keys):
    """Return one role's pod of a small job with changes of its `job:`."""
    values = job(**chart_keys)
    values["job"] = merged(values["job"], changes or {})
    return pods(objects(values))[role]


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_every_example_renders(file):
    assert objects(values_of(file))


def test_a_job_renders_these_objects_and_no_others():
    assert sorted(objects(example("digits"))) == sorted(
        [
            ("ConfigMap", "elasticdl-digits"),
            ("Job", "elasticdl-digits-master"),
            ("NetworkPolicy", "elasticdl-digits"),
            ("PodDisruptionBudget", "elasticdl-digits"),
            ("Secret", "elasticdl-digits-ca"),
            ("Secret", "elasticdl-digits-token"),
            ("Service", "elasticdl-digits-master"),
            ("Service", "elasticdl-digits-ps"),
        ]
    )


@pytest.mark.parametrize("file", OWN_JOBS, ids=lambda file: file.stem)
def test_a_job_makes_nothing_of_the_whole_cluster_and_all_belongs_to_it(file):
    values = values_of(file)
    for (kind, name), made in objects(values).items():
        assert kind not in CLUSTER_SCOPED
        assert "namespace" not in made["metadata"]  # that of the release
        assert name.startswith(f"elasticdl-{values['job']['name']}")
        labels = made["metadata"]["labels"]
        assert labels[names.LABEL_JOB] == values["job"]["name"]
        assert labels["app.kubernetes.io/managed-by"] == "Helm"
        assert labels["app.kubernetes.io/instance"] == "release"


@pytest.mark.parametrize("file", OWN_JOBS, ids=lambda file: file.stem)
def test_the_config_map_holds_the_users_job_as_it_is(file):
    values = values_of(file)
    made = of_kind(objects(values), "ConfigMap")["data"]
    # What the file says beside `job`; here all of them say a registry at least.
    assert sorted(made) == ["job.yaml", "ps.yaml", "values.yaml", "worker.yaml"]
    said = set(chart_sections()) & {*values, "images"}
    assert set(yaml.safe_load(made["values.yaml"])) == said
    there, _ = parse_values(made["job.yaml"], source="the ConfigMap")
    here, _ = parse_values(file.read_text(), source=str(file))
    assert there.job == here.job
    assert there.chart_keys() == {}  # pods are rendered: the master needs no such key


def test_large_numbers_stay_numbers():
    values = example("host-path")
    made = config_map(objects(values))["job.yaml"]["job"]
    assert made["training"]["seed"] == 1234567890
    assert made["model"]["params"]["seed"] == 12345678


def test_two_jobs_share_no_name_in_a_namespace():
    one = objects(job("one"), release="one")
    two = objects(job("two"), release="two")
    assert not set(one) & set(two)
    selectors = [
        json.dumps(of_kind(it, "NetworkPolicy")["spec"]["podSelector"])
        for it in (one, two)
    ]
    assert selectors[0] != selectors[1]


def test_no_job_has_the_name_of_what_another_one_or_the_platform_makes():
    watched = {"monitoring": {"tensorboard": {"enabled": True}}}
    platform = objects(
        {
            "monitoring": {"exporter": {"enabled": True}},
            "controller": {"enabled": True, "trainingJobs": {"enabled": True}},
        }
    )
    first = objects(job("one", **watched))
    for made in {**platform, **first}:
        kind, name = made
        if name.startswith("elasticdl-") and name != "elasticdl-one":
            other = job(name.removeprefix("elasticdl-"), **watched)
            try:
                assert made not in objects(other), f"{kind} {name}"
            except helm.HelmError:
                continue  # no job is called so


def test_a_job_in_two_namespaces_knows_only_its_own():
    for namespace, other in (("a-space", "b-space"), ("b-space", "a-space")):
        text = "".join(render(job(), namespace=namespace).values())
        assert f"elasticdl-digits-master.{namespace}.svc:50001" in text
        assert other not in text


def test_the_longest_name_fits_into_a_service_and_the_next_one_is_refused():
    found = objects(job("a" * 46))
    assert max(len(name) for kind, name in found if kind == "Service") == 63
    with pytest.raises(Exception, match="maxLength: got 47, want 46"):
        objects(job("a" * 47))


# What the roles' processes are told.


@pytest.mark.parametrize("role", ROLES)
def test_every_role_is_told_where_its_job_is(role):
    told = env(of(role))
    assert told[names.ENV_JOB_DIR] == "/data/.elasticdl/jobs/ml/digits"
    assert told[names.ENV_MASTER_ADDRESS] == "elasticdl-digits-master.ml.svc:50001"
    assert told["ELASTICDL_HOST"] == "::"
    assert told["ELASTICDL_METRICS_PORT"] == "8080"
    assert told["ELASTICDL_POD_IP"]["fieldRef"] == {"fieldPath": "status.podIP"}
    secret = {"name": "elasticdl-digits-token", "key": "token"}
    assert told["ELASTICDL_TOKEN"]["secretKeyRef"] == secret
    assert container(of(role))["command"][-2:] == ["-m", f"elasticdl.{role}.main"]
    assert container(of(role))["workingDir"] == "/data"


def test_the_master_is_told_what_it_leads_and_the_others_are_stamped_by_it():
    told = env(of("master"))
    assert told["ELASTICDL_PLATFORM"] == "kubernetes"
    assert told["ELASTICDL_NAMESPACE"] == "ml"
    assert told["ELASTICDL_CONFIG_MAP"] == "elasticdl-digits"
    assert (told["ELASTICDL_PORT"], env(of("ps"))["ELASTICDL_PORT"]) == (
        "50001",
        "50002",
    )
    for role in ("ps", "worker"):
        assert not {names.ENV_ROLE, names.ENV_INDEX, names.ENV_GENERATION} & set(
            env(of(role))
        )


def test_the_master_reads_the_specification_from_a_mount():
    assert mounts(of("master"))["/etc/elasticdl"] == {
        "configMap": {"name": "elasticdl-digits"}
    }
    assert "/etc/elasticdl" not in mounts(of("worker"))


def test_labels_select_the_jobs_pods():
    labels = of("master")["metadata"]["labels"]
    assert labels[names.LABEL_JOB] == "digits"
    assert labels[names.LABEL_ROLE] == "master"
    for role in ROLES:
        labels = of(role)["metadata"]["labels"]
        assert labels["app.kubernetes.io/component"] == role
        assert labels["app.kubernetes.io/part-of"] == "elasticdl"
        assert "app.kubernetes.io/instance" not in labels
        by = "Helm" if role == "master" else "elasticdl-master"
        assert labels["app.kubernetes.io/managed-by"] == by


def test_the_master_pods_name_begins_as_people_know_it():
    assert ("Job", names.pod_name("digits", Role.MASTER, 0)) in objects(job())


# Accounts, probes, ends.


def test_only_the_master_has_a_token_of_the_api_server():
    tokens = {role: of(role)["spec"]["automountServiceAccountToken"] for role in ROLES}
    assert tokens == {"master": True, "ps": False, "worker": False}
    accounts = {role: of(role)["spec"]["serviceAccountName"] for role in ROLES}
    assert accounts == {
        "master": "elasticdl-master", "ps": "elasticdl-job", "worker": "elasticdl-job",
    }  # fmt: skip


@pytest.mark.parametrize("role", ROLES)
def test_probes_look_at_the_port_of_the_metrics(role):
    main = container(of(role, {"worker": {"startSeconds": 61}}))
    assert {"name": "metrics", "containerPort": 8080} in main["ports"]
    for probe, path in (
        ("startup", "/healthz"),
        ("liveness", "/healthz"),
        ("readiness", "/readyz"),
    ):
        assert main[f"{probe}Probe"]["httpGet"] == {"path": path, "port": "metrics"}
    start = main["startupProbe"]
    # A master that begins may wait for storage first, and for its folder's lock.
    seconds = 1800 + 600 if role == "master" else 62
    assert start["periodSeconds"] * start["failureThreshold"] == seconds


def test_pods_have_the_workers_time_to_hand_back_their_task():
    changes = {"worker": {"graceSeconds": 20.5}}
    assert of("worker", changes)["spec"]["terminationGracePeriodSeconds"] == 21
    assert of("ps", changes)["spec"]["terminationGracePeriodSeconds"] == 21
    assert of("worker")["spec"]["terminationGracePeriodSeconds"] == 15


def test_the_next_master_comes_while_the_one_before_cannot_end():
    spec = of_kind(objects(job()), "Job")["spec"]
    assert spec["template"]["spec"]["restartPolicy"] == "Never"
    assert spec["podReplacementPolicy"] == "TerminatingOrFailed"
    assert "podFailurePolicy" not in spec  # Kubernetes refuses both together
    assert "backoffLimit" not in spec  # the master writes it


def test_a_master_leaves_a_node_that_does_not_answer_after_a_minute():
    lost = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]
    said = of("master")["spec"]["tolerations"]
    assert [(one["key"], one["tolerationSeconds"]) for one in said] == [
        (key, 60) for key in lost
    ]
    assert {one["effect"] for one in said} == {"NoExecute"}
    assert "tolerations" not in of("ps")["spec"]

    own = [
        {"key": lost[1], "operator": "Exists", "tolerationSeconds": 900},
        {"key": "team", "operator": "Equal", "value": "a", "effect": "NoSchedule"},
    ]
    said = of("master", pods={"master": {"tolerations": own}})["spec"]["tolerations"]
    assert said[:2] == own
    assert [one["key"] for one in said[2:]] == [lost[0]]

    everything = [{"operator": "Exists"}]
    changed = of("master", pods={"master": {"tolerations": everything}})
    assert changed["spec"]["tolerations"] == everything


# Images, resources, priorities.


def test_stock_images_have_the_packages_version():
    from elasticdl import __version__

    for role in ROLES:
        stock = f"{REGISTRY}/elasticdl/{role}:{__version__}"
        assert container(of(role))["image"] == stock


def test_images_come_from_the_registry_and_tag_that_are_given():
    images = {"registry": "registry.example.com/team/", "tag": "v7", "worker": "models"}
    assert (
        container(of("ps", images=images))["image"]
        == "registry.example.com/team/elasticdl/ps:v7"
    )
    assert (
        container(of("worker", images=images))["image"]
        == "registry.example.com/team/models:v7"
    )


def test_the_jobs_images_go_before_the_stock_ones():
    changes = {
        "image": "mine:1",
        "ps": {"image": "mine-ps:2"},
        "imagePullPolicy": "Always",
    }
    found = {role: container(of(role, changes, images={"tag": "v7"})) for role in ROLES}
    images = {role: main["image"] for role, main in found.items()}
    assert images == {"master": "mine:1", "ps": "mine-ps:2", "worker": "mine:1"}
    assert {main["imagePullPolicy"] for main in found.values()} == {"Always"}


def test_a_limit_that_is_not_given_is_the_request():
    asked = {
        "resources": {"cpu": 1.5, "memory": "2Gi", "extra": {"nvidia.com/gpu": "1"}}
    }
    resources = container(of("worker", {"worker": asked}))["resources"]
    assert resources["requests"] == {
        "cpu": "1.5",
        "memory": "2Gi",
        "nvidia.com/gpu": "1",
    }
    assert resources["limits"] == resources["requests"]
    limited = {**asked, "limits": {"cpu": 3, "extra": {"ephemeral-storage": "1Gi"}}}
    limits = container(of("worker", {"worker": limited}))["resources"]["limits"]
    assert limits == {
        "cpu": "3", "memory": "2Gi", "nvidia.com/gpu": "1", "ephemeral-storage": "1Gi",
    }  # fmt: skip


def test_the_master_may_use_a_whole_cpu_while_it_starts():
    resources = container(of("master"))["resources"]
    assert (resources["requests"]["cpu"], resources["limits"]["cpu"]) == ("0.1", "1")
    wanted = {"master": {"resources": {"cpu": 2}}}
    assert container(of("master", wanted))["resources"]["limits"]["cpu"] == "2"


@pytest.mark.parametrize("priority", ["batch", "training-class", "create"])
def test_one_priority_class_is_in_the_template(priority):
    changes = {role: {"priority": priority} for role in ROLES}
    for role in ROLES:
        assert of(role, changes)["spec"]["priorityClassName"] == priority


@pytest.mark.parametrize("share", ["0", "0.5", "1.0", ".5", 0, 0.5, 1])
def test_a_share_of_high_workers_is_left_to_the_master(share):
    spec = of("worker", {"worker": {"priority": share}})["spec"]
    assert spec["priorityClassName"] == "elasticdl-low"
    assert set(scale.split_priorities(str(share), 2)) <= {"high", "low"}


def test_high_and_low_are_words_for_the_clusters_own_classes():
    values = job(
        priorityClasses={"high": {"name": "serving"}, "low": {"name": "batch"}}
    )
    values["job"]["ps"] = {"priority": "high"}
    found = pods(objects(values))
    assert found["ps"]["spec"]["priorityClassName"] == "serving"
    assert found["worker"]["spec"]["priorityClassName"] == "batch"
    told = env(found["master"])
    assert told["ELASTICDL_PRIORITY_HIGH"] == "serving"
    assert told["ELASTICDL_PRIORITY_LOW"] == "batch"


def test_nobody_is_pushed_out_before_the_workers():
    assert of("master")["spec"]["priorityClassName"] == "elasticdl-high"
    assert of("ps")["spec"]["priorityClassName"] == "elasticdl-high"
    assert of("worker")["spec"]["priorityClassName"] == "elasticdl-low"


@pytest.mark.parametrize("role", ROLES)
def test_an_empty_priority_is_the_clusters_default(role):
    assert "priorityClassName" not in of(role, {role: {"priority": ""}})["spec"]


# Environment and volumes.


def test_of_two_variables_of_one_name_the_narrower_one_stays():
    found = pods(objects(example("everything")))
    assert env(found["ps"])["SHARED"] == "of the PS"
    assert env(found["worker"])["SHARED"] == "of the job"
    assert env(found["worker"])["API_KEY"] == {
        "secretKeyRef": {"name": "keys", "key": "api"}
    }
    assert container(found["worker"])["envFrom"] == [{"secretRef": {"name": "s3"}}]


def test_nobody_overrides_what_the_roles_are_told():
    changes = {"env": {"ELASTICDL_HOST": "1.2.3.4"}}
    more = {"common": {"env": [{"name": "ELASTICDL_TOKEN", "value": "guessed"}]}}
    told = env(of("worker", changes, pods=more))
    assert told["ELASTICDL_HOST"] == "::"
    assert "secretKeyRef" in told["ELASTICDL_TOKEN"]


def test_all_pods_mount_the_claim_and_workers_have_shared_memory():
    claim = {"persistentVolumeClaim": {"claimName": "fileserver-claim"}}
    for role in ROLES:
        assert mounts(of(role))["/data"] == claim
        assert mounts(of(role))["/tmp"] == {"emptyDir": {}}
    assert mounts(of("worker"))["/dev/shm"] == {"emptyDir": {"medium": "Memory"}}
    assert "/dev/shm" not in mounts(of("ps"))


def test_a_volume_of_the_state_claim_on_its_path_is_mounted_once():
    volume = {"claimName": "fileserver-claim", "mountPath": "/data"}
    found = of("worker", {"volumes": [volume]})
    claims = [
        volume
        for volume in found["spec"]["volumes"]
        if "persistentVolumeClaim" in volume
    ]
    assert len(claims) == 1
    assert "/data" in mounts(found)


def test_one_claim_on_two_paths_is_one_volume():
    volumes = [
        {"claimName": "a", "mountPath": "/one"},
        {"claimName": "a", "mountPath": "/two", "subPath": "two"},
    ]
    found = of("ps", {"volumes": volumes})
    assert (
        len([v for v in found["spec"]["volumes"] if "persistentVolumeClaim" in v]) == 2
    )
    assert mounts(found)["/one"] == mounts(found)["/two"]
    assert {
        "name": "elasticdl-volume-0",
        "mountPath": "/two",
        "subPath": "two",
    } in container(found)["volumeMounts"]


def test_mounts_of_the_user_take_the_place_of_the_charts():
    found = pods(objects(example("host-path")))
    memory = {"emptyDir": {"medium": "Memory", "sizeLimit": "4Gi"}}
    assert mounts(found["worker"])["/dev/shm"] == memory
    assert mounts(found["ps"])["/state/"] == {
        "persistentVolumeClaim": {"claimName": "team-claim"}
    }
    assert mounts(found["ps"])["/mnt"] == {
        "hostPath": {"path": "/srv/data", "type": "Directory"}
    }
    assert "fileserver-claim" not in json.dumps(found)
    assert env(found["ps"])[names.ENV_JOB_DIR] == "/state/.elasticdl/jobs/ml/host-path"


def test_model_code_comes_from_a_config_map_without_an_image():
    volume = {"name": "code", "configMap": {"name": "model-code"}}
    mount = {"name": "code", "mountPath": "/model_zoo"}
    found = of(
        "worker", pods={"worker": {"volumes": [volume], "volumeMounts": [mount]}}
    )
    assert mounts(found)["/model_zoo"] == {"configMap": {"name": "model-code"}}


# `pods`.


def test_lists_of_common_and_role_are_joined_and_mappings_laid_over():
    found = pods(objects(example("everything")))
    assert len(found["worker"]["spec"]["tolerations"]) == 2
    assert len(found["ps"]["spec"]["tolerations"]) == 1
    assert found["worker"]["spec"]["securityContext"]["runAsUser"] == 20000
    assert found["worker"]["spec"]["securityContext"]["fsGroup"] == 10001
    assert found["ps"]["spec"]["securityContext"]["runAsUser"] == 10001


def test_every_key_of_pods_reaches_the_pod():
    spec = pods(objects(example("everything")))["worker"]["spec"]
    assert spec["nodeSelector"] == {"example.com/gpu": "a100"}
    assert spec["runtimeClassName"] == "nvidia"
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    assert set(spec["affinity"]) == {"nodeAffinity"}
    assert spec["topologySpreadConstraints"][0]["maxSkew"] == 1
    metadata = pods(objects(example("everything")))["master"]["metadata"]
    assert metadata["annotations"]["example.com/team"] == "vision"
    assert metadata["labels"]["team"] == "vision"


def test_labels_of_the_user_cannot_hide_whose_pod_it_is():
    label = {"labels": {names.LABEL_JOB: "other", "app.kubernetes.io/name": "other"}}
    labels = of("master", pods={"common": label})["metadata"]["labels"]
    assert labels[names.LABEL_JOB] == "digits"
    assert labels["app.kubernetes.io/name"] == "elasticdl"


def test_a_user_that_is_null_is_left_to_the_cluster():
    context = pods(objects(example("host-path")))["worker"]["spec"]["securityContext"]
    assert context == {
        "fsGroupChangePolicy": "OnRootMismatch",
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


# Services, budgets, policies, the token.
