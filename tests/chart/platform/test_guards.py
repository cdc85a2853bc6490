"""What the chart refuses for what the cluster holds, and what an upgrade keeps."""

import json

import helm_python as helm
import pytest
import yaml

from tests.chart.api_server import ApiServer
from tests.chart.rendering import CHART, job, merged, with_registry

NAMESPACE = "/api/v1/namespaces/{}"
JOB_OBJECTS = {
    "elasticdl-digits", "elasticdl-digits-master", "elasticdl-digits-ps",
    "elasticdl-digits-ca",
    "elasticdl-digits-token",
}  # fmt: skip


class Cluster:
    """An API server and Helm on it, with one store of releases per namespace.

    The chart is read anew each time: an installation leaves its values in a loaded one.
    """

    def __init__(self, minor_version=36):
        self.api = ApiServer(minor_version)
        self._configs = {}

    def close(self):
        for config in self._configs.values():
            config.close()
        self.api.close()

    def helm(self, namespace="ml"):
        if namespace not in self._configs:
            place = {"cluster": "here", "user": "me"}
            kubeconfig = {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "here", "cluster": {"server": self.api.url}}],
                "users": [{"name": "me", "user": {}}],
                "contexts": [{"name": "here", "context": place}],
                "current-context": "here",
            }
            self._configs[namespace] = helm.Config(
                kubeconfig_content=yaml.safe_dump(kubeconfig),
                namespace=namespace,
                storage_driver="memory",
                qps=1000,
                burst_limit=1000,
            )
            path = f"{NAMESPACE.format(namespace)}/serviceaccounts/default"
            self.api.add(path)
        return self._configs[namespace]

    def install(self, name, values=None, namespace="ml"):
        return self.helm(namespace).install(
            CHART, name, with_registry(values or {}), namespace=namespace
        )

    def upgrade(self, name, values, namespace="ml", **options):
        return self.helm(namespace).upgrade(
            CHART, name, with_registry(values), namespace=namespace, **options
        )

    def get(self, kind, name, namespace="ml"):
        return self.api.objects[f"{NAMESPACE.format(namespace)}/{kind}/{name}"]


@pytest.fixture
def cluster():
    made = Cluster()
    yield made
    made.close()


@pytest.fixture
def with_job(cluster):
    """A cluster with the platform and the job `digits` of the release `digits`."""
    cluster.install("elasticdl")
    cluster.install("digits", job())
    return cluster


def refused(act, *parts):
    with pytest.raises(helm.HelmError) as refusal:
        act()
    for part in parts:
        assert part in str(refusal.value)


def test_a_job_is_installed_upgraded_and_uninstalled(with_job):
    before = dict(with_job.api.objects)
    values = job()
    values["job"]["worker"] = {"replicas": 4}
    with_job.upgrade("digits", values)
    assert (
        "replicas: 4"
        in with_job.get("configmaps", "elasticdl-digits")["data"]["job.yaml"]
    )
    assert set(with_job.api.objects) == set(before)
    with_job.helm().uninstall("digits")
    assert not with_job.api.names("digits")


def test_the_token_stays_the_same_over_upgrades(with_job):
    token = with_job.get("secrets", "elasticdl-digits-token")["data"]
    values = job()
    values["job"]["paused"] = True
    with_job.upgrade("digits", values)
    assert with_job.get("secrets", "elasticdl-digits-token")["data"] == token


def test_a_key_of_the_tokens_secret_that_is_empty_is_filled(with_job):
    """With an empty one metrics would be in the clear, or calls not protected."""
    secret = with_job.get("secrets", "elasticdl-digits-token")
    secret["data"] = {"token": "", "metrics": ""}
    with_job.upgrade("digits", {**job(tls={"metrics": {"enabled": True}}), "run": 2})
    filled = with_job.get("secrets", "elasticdl-digits-token")["data"]
    assert set(filled) == {"token", "metrics"}
    assert all(len(text) > 50 for text in filled.values())


def test_the_authority_stays_the_same_over_upgrades(with_job):
    authority = with_job.get("secrets", "elasticdl-digits-ca")["data"]
    assert set(authority) == {"tls.crt", "tls.key"}
    values = job()
    values["job"]["paused"] = True
    with_job.upgrade("digits", values)
    assert with_job.get("secrets", "elasticdl-digits-ca")["data"] == authority


def test_a_token_and_an_authority_that_were_deleted_are_made_anew_with_the_next_run(
    with_job,
):
    paths = [
        f"{NAMESPACE.format('ml')}/secrets/elasticdl-digits-{end}"
        for end in ("token", "ca")
    ]
    before = [with_job.api.objects.pop(path)["data"] for path in paths]
    with_job.upgrade("digits", {**job(), "run": 2})
    after = [with_job.api.objects[path]["data"] for path in paths]
    for old, new in zip(before, after, strict=True):
        assert set(old) == set(new)
        assert not set(old.values()) & set(new.values())


def test_a_claim_that_cannot_be_changed_is_named(with_job):
    claim = {"name": "fileserver-claim", "storageClass": "fast"}
    made = with_job.get("persistentvolumeclaims", "fileserver-claim")
    made["spec"]["storageClassName"] = "slow"
    for changed, said in (
        ({"accessMode": "ReadWriteOnce"}, "which is there with ReadWriteMany"),
        ({"size": "9Gi"}, "got size 9Gi for `fileserver-claim`, which is there with"),
        ({}, "got storageClass fast for `fileserver-claim`, which is there with slow"),
    ):
        values = {"claims": [{**claim, **changed}]}
        refused(lambda values=values: with_job.upgrade("elasticdl", values), said)
    with_job.upgrade("elasticdl", {"claims": [{**claim, "storageClass": "slow"}]})


def test_an_upgrade_of_a_job_with_set_alone_is_refused_and_the_master_stays(with_job):
    for forgetful in ({"networkPolicy": {"enabled": False}}, {"kind": "platform"}):
        refused(
            lambda values=forgetful: with_job.upgrade("digits", values),
            "release `digits` in namespace `ml` is the job `digits`, and these values "
            "are no job's: its master would be deleted",
            "helm upgrade digits CHART --reset-then-reuse-values --set KEY=VALUE",
        )
    assert set(with_job.api.names("elasticdl-digits")) == JOB_OBJECTS


def test_an_upgrade_that_reuses_the_values_goes_through(with_job):
    changed = {"job": {"worker": {"replicas": 4}}}
    with_job.upgrade("digits", changed, reuse_values=True)
    assert (
        "replicas: 4"
        in with_job.get("configmaps", "elasticdl-digits")["data"]["job.yaml"]
    )


def test_no_upgrade_asks_for_the_histories_of_all_jobs(with_job):
    with_job.upgrade("digits", job())
    with_job.upgrade("elasticdl", {})
    listed = {path.rpartition("/")[2] for path in with_job.api.listed}
    assert listed == {"serviceaccounts", "services"}


def test_an_empty_values_file_makes_no_second_platform(with_job):
    refused(
        lambda: with_job.install("mnist", {}),
        "namespace `ml` has the platform already, from release `elasticdl`",
        "If this release was to be a job, its values file is empty or has no `kind: ",
    )
    refused(
        lambda: with_job.install("mnist", {}, namespace="other"),
        "PriorityClass `elasticdl-high` is there already, from release `elasticdl`",
        "its values file is empty or has no `kind: job`",
    )


def test_a_second_platform_only_names_the_priority_classes(with_job):
    values = {"priorityClasses": {"create": False}}
    with_job.install("elasticdl", values, namespace="other")
    with_job.install("digits", job(), namespace="other")
    assert with_job.get("configmaps", "elasticdl-digits", "other")


def test_priority_classes_that_nobody_installed_by_helm_are_left_alone(cluster):
    cluster.api.add("/apis/scheduling.k8s.io/v1/priorityclasses/elasticdl-low", value=1)
    refused(
        lambda: cluster.install("elasticdl"),
        "PriorityClass `elasticdl-low` is there already, from somebody without Helm",
        "set priorityClasses.create=false",
    )


def test_the_platform_is_upgraded_and_running_jobs_are_left_alone(with_job):
    jobs = {path: it for path, it in with_job.api.objects.items() if "-digits" in path}
    with_job.upgrade(
        "elasticdl", {"claims": [{"name": "fileserver-claim"}, {"name": "b"}]}
    )
    assert with_job.get("persistentvolumeclaims", "b")
    assert jobs.items() <= with_job.api.objects.items()


def test_a_platform_does_not_become_a_job(with_job):
    refused(
        lambda: with_job.upgrade("elasticdl", job("mnist")),
        "release `elasticdl` in namespace `ml` is the platform, and these values are "
        "the job `mnist`: install them as a release of their own: helm install mnist",
    )
    assert with_job.get("serviceaccounts", "elasticdl-master")


def test_a_job_does_not_become_another_job(with_job):
    refused(
        lambda: with_job.upgrade("digits", job("mnist")),
        "is the job `digits`, and these values are the job `mnist`",
    )


def test_two_jobs_of_one_name_are_one_too_many(with_job):
    refused(
        lambda: with_job.install("digits-again", job()),
        "namespace `ml` has a job `digits` already, from release `digits` in namespace",
        "choose another job.name",
    )
    with_job.install("two", job("two"))


def test_a_job_needs_the_platform_in_its_namespace(cluster):
    refused(
        lambda: cluster.install("digits", job()),
        "namespace `ml` has no ServiceAccount `elasticdl-master`, so the platform is "
        "not installed there: helm install elasticdl CHART -n ml",
    )
    assert not cluster.api.names("digits")


@pytest.mark.parametrize(
    "changes",
    [
        {"state": {"claimName": "nowhere"}},
        {"job": {"volumes": [{"claimName": "nowhere", "mountPath": "/more"}]}},
        {"pods": {"common": {"volumes": [
            {"name": "a", "persistentVolumeClaim": {"claimName": "nowhere"}}]}}},
    ],
    ids=["state", "volumes", "pods"],
)  # fmt: skip
def test_a_job_needs_its_claims(cluster, changes):
    cluster.install("elasticdl")
    refused(
        lambda: cluster.install("digits", merged(job(), changes)),
        "namespace `ml` has no PersistentVolumeClaim `nowhere`: make it (`claims` of "
        "the platform's values), or name another one in state.claimName or job.volumes",
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"job": {"master": {"resources": {"cpu": 2}}}},
        {"job": {"image": "other"}},
        {"images": {"master": "other"}},
        {"pods": {"common": {"labels": {"a": "b"}}}},
    ],
    ids=lambda changes: json.dumps(changes)[:40],
)
def test_a_change_of_the_masters_pod_is_refused_with_the_way_on(with_job, changes):
    refused(
        lambda: with_job.upgrade("digits", merged(job(), changes)),
        "this changes the pod of the master of job `digits`",
        "raise `run` to 2 with it: then all of the job starts anew",
    )


def test_a_job_is_run_again_by_one_line_and_with_another_image(with_job):
    with_job.upgrade("digits", {**job(), "run": 2})
    assert with_job.api.names("/jobs/") == ["elasticdl-digits-master-2"]
    refused(
        lambda: with_job.upgrade("digits", {**job(), "run": 2, "images": {"tag": "b"}}),
        "raise `run` to 3 with it",
    )
    with_job.upgrade("digits", {**job(), "run": 3, "images": {"tag": "b"}})
    assert with_job.api.names("/jobs/") == ["elasticdl-digits-master-3"]
    maps = ["elasticdl-digits", "elasticdl.defaults"]
    assert sorted(with_job.api.names("/configmaps/")) == maps


def test_a_job_that_was_refused_is_installed_once_the_cluster_is_ready(cluster):
    refused(lambda: cluster.install("digits", job()), "the platform is not installed")
    cluster.install("elasticdl")
    cluster.install("digits-2", job())
    assert cluster.get("configmaps", "elasticdl-digits")


def test_an_older_kubernetes_is_refused():
    old = Cluster(minor_version=28)
    try:
        refused(lambda: old.install("elasticdl"), "1.29", "v1.28.0")
    finally:
        old.close()


def test_a_lock_is_refused_where_the_api_server_has_no_such_policy():
    old = Cluster(minor_version=29)
    try:
        said = "platform.locked: needs Kubernetes 1.30 or newer.* this is v1.29.0"
        with pytest.raises(helm.HelmError, match=said):
            old.install("elasticdl", {"platform": {"locked": True}})
    finally:
        old.close()
