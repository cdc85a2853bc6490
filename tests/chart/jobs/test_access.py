"""Who reaches the pods of a job, and what its master is known by and may be told."""

import base64
import json
import re
from pathlib import Path

import jsonschema
import pytest
from elasticdl.job import names
from elasticdl.job.names import Role
from elasticdl.rpc.tls.certificates import Authority
from elasticdl.rpc.tls.peer_name import PeerName

from tests.chart.rendering import (
    FURTHER,
    JOBS,
    chart,
    container,
    env,
    example,
    job,
    merged,
    objects,
    of_kind,
    pods,
    render,
    values_of,
)

CERTIFICATE = json.loads(
    (Path(__file__).parents[1] / "certificate.schema.json").read_text()
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


def test_services_find_the_master_and_the_ps():
    found = objects(job())
    master = found["Service", "elasticdl-digits-master"]["spec"]
    ps = found["Service", "elasticdl-digits-ps"]["spec"]
    assert master["selector"] == {names.LABEL_JOB: "digits", names.LABEL_ROLE: "master"}
    assert ps["selector"] == {names.LABEL_JOB: "digits", names.LABEL_ROLE: "ps"}
    assert {port["name"]: port["port"] for port in master["ports"]} == {
        "tcp-grpc": 50001,
        "metrics": 8080,
    }
    assert {port["name"]: port["port"] for port in ps["ports"]} == {
        "tcp-grpc": 50002,
        "metrics": 8080,
    }
    assert ps["clusterIP"] == "None"
    assert master["publishNotReadyAddresses"]


def test_a_job_without_ps_has_no_service_for_them():
    values = job()
    values["job"]["strategy"] = "local"
    found = objects(values)
    assert ("Service", "elasticdl-digits-ps") not in found
    assert of_kind(found, "PodDisruptionBudget")["spec"]["minAvailable"] == 0


def test_a_drain_takes_one_of_master_and_ps_at_a_time():
    values = job()
    values["job"]["ps"] = {"replicas": 3}
    spec = of_kind(objects(values), "PodDisruptionBudget")["spec"]
    assert spec["minAvailable"] == 3  # of a master and three PS
    assert "maxUnavailable" not in spec  # nothing scales these pods
    (rule,) = spec["selector"]["matchExpressions"]
    assert sorted(rule["values"]) == ["master", "ps"]


def test_another_port_of_the_master_is_the_same_everywhere():
    values = job()
    values["job"]["master"] = {"port": 6000}
    found = objects(values)
    assert (
        found["Service", "elasticdl-digits-master"]["spec"]["ports"][0]["port"] == 6000
    )
    assert env(pods(found)["worker"])[names.ENV_MASTER_ADDRESS].endswith(":6000")
    assert env(pods(found)["master"])["ELASTICDL_PORT"] == "6000"
    ports = of_kind(found, "NetworkPolicy")["spec"]["ingress"][0]["ports"]
    assert [port["port"] for port in ports] == [6000, 50002]


def test_only_the_jobs_own_pods_reach_master_and_ps():
    spec = of_kind(objects(job()), "NetworkPolicy")["spec"]
    own = {"podSelector": {"matchLabels": {names.LABEL_JOB: "digits"}}}
    inner, metrics = spec["ingress"]
    assert spec["podSelector"] == own["podSelector"]
    assert inner["from"] == [own]
    assert [port["port"] for port in inner["ports"]] == [50001, 50002]
    assert metrics["ports"] == [{"protocol": "TCP", "port": 8080}]
    peers = [{"ipBlock": {"cidr": "10.0.0.0/8"}}]
    closed = objects(job(networkPolicy={"metricsFrom": peers}))
    assert of_kind(closed, "NetworkPolicy")["spec"]["ingress"][1]["from"] == peers
    assert "NetworkPolicy" not in {
        kind for kind, _ in objects(job(networkPolicy={"enabled": False}))
    }


def test_only_the_workers_of_a_group_reach_each_other():
    values = job()
    values["job"]["strategy"] = "allReduce"
    found = objects(values)
    _, between, _ = of_kind(found, "NetworkPolicy")["spec"]["ingress"]
    workers = {names.LABEL_JOB: "digits", names.LABEL_ROLE: "worker"}
    assert between["from"] == [{"podSelector": {"matchLabels": workers}}]
    worker = pods(found)["worker"]
    assert between["ports"] == [{"protocol": "TCP", "port": 50003}]
    assert env(worker)[names.ENV_PORT] == "50003"
    ports = {port["name"]: port["containerPort"] for port in container(worker)["ports"]}
    assert ports == {"tcp-group": 50003, "metrics": 8080}
    assert ("Service", "elasticdl-digits-ps") not in found


def test_metrics_are_closed_to_other_namespaces_but_those_that_are_labelled():
    monitored = {"monitoring": {"exporter": {"enabled": True}}}
    (of_exporter,) = objects(monitored)["NetworkPolicy", "elasticdl.exporter"]["spec"][
        "ingress"
    ]
    of_job = of_kind(objects(job()), "NetworkPolicy")["spec"]["ingress"][1]
    labels = {"elasticdl.org/scrapes": "true"}
    assert (
        of_job["from"]
        == of_exporter["from"]
        == [
            {"podSelector": {}},  # of the policy's own namespace
            {"namespaceSelector": {"matchLabels": labels}},
        ]
    )
    opened = objects(job(networkPolicy={"metricsFrom": []}))
    assert "from" not in of_kind(opened, "NetworkPolicy")["spec"]["ingress"][1]


def test_the_token_is_random_unless_a_secret_is_named():
    one, two = (
        objects(job(), release=release)["Secret", TOKEN_SECRET]["data"]["token"]
        for release in ("one", "two")
    )
    assert one != two
    assert len(one) >= 43
    named = objects(job(token={"existingSecret": "mine"}))
    assert ("Secret", TOKEN_SECRET) not in named
    assert env(pods(named)["ps"])["ELASTICDL_TOKEN"]["secretKeyRef"]["name"] == "mine"


def authority_of(values) -> tuple[str, str]:
    """The Secret that the master has whole, and the one that replicas know of."""
    made = objects(values)
    volumes = pods(made)["master"]["spec"]["volumes"]
    (mounted,) = (one for one in volumes if one["name"] == "elasticdl-authority")
    known = {
        env(pods(made)[role])["ELASTICDL_AUTHORITY"]["secretKeyRef"]["name"]
        for role in ("ps", "worker")
    }
    (name,) = known
    return mounted["secret"]["secretName"], name


def test_the_key_of_the_jobs_authority_reaches_the_master_alone():
    made = objects(job())
    secret = made["Secret", AUTHORITY_SECRET]
    assert secret["type"] == "kubernetes.io/tls"
    assert authority_of(job()) == (AUTHORITY_SECRET, AUTHORITY_SECRET)
    for role in ("ps", "worker"):
        pod = pods(made)[role]
        known = env(pod)["ELASTICDL_AUTHORITY"]["secretKeyRef"]
        assert known == {"name": AUTHORITY_SECRET, "key": "tls.crt"}
        assert "secret" not in str(pod["spec"]["volumes"]).lower()
        assert "tls.key" not in str(pod)
    assert "ELASTICDL_AUTHORITY" not in env(pods(made)["master"])


def test_a_made_authority_is_one_that_a_master_takes(tmp_path):
    data = objects(job())["Secret", AUTHORITY_SECRET]["data"]
    for key, text in data.items():
        (tmp_path / key).write_bytes(base64.b64decode(text))
    authority = Authority.load(tmp_path)
    name = PeerName("ml", "digits", Role.PS, 0, 1)
    assert authority.own(name, hours=1).name == name
    again = objects(job(), release="two")["Secret", AUTHORITY_SECRET]["data"]
    assert again["tls.key"] != data["tls.key"]


def test_another_authority_may_be_named_or_made_by_cert_manager():
    named = job(tls={"existingSecret": "ours"})
    assert authority_of(named) == ("ours", "ours")
    assert ("Secret", AUTHORITY_SECRET) not in objects(named)
    managed = job(tls={"certManager": {"issuer": "root", "kind": "ClusterIssuer"}})
    assert authority_of(managed) == (AUTHORITY_SECRET, AUTHORITY_SECRET)
    assert ("Secret", AUTHORITY_SECRET) not in objects(managed)
    certificate = objects(managed)["Certificate", AUTHORITY_SECRET]
    jsonschema.validate(certificate, CERTIFICATE)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(merged(certificate, {"spec": {"isCa": True}}), CERTIFICATE)
    spec = certificate["spec"]
    assert spec["isCA"] is True
    assert spec["secretName"] == AUTHORITY_SECRET
    assert spec["privateKey"]["algorithm"] == "ECDSA"
    assert spec["privateKey"]["rotationPolicy"] == "Never"
    assert spec["issuerRef"]["kind"] == "ClusterIssuer"


def test_calls_are_plain_only_where_the_values_say_so():
    plain = objects(job(tls={"enabled": False}))
    assert ("Secret", AUTHORITY_SECRET) not in plain
    for role in ROLES:
        assert "AUTHORITY" not in str(pods(plain)[role])
        assert "elasticdl-authority" not in str(pods(plain)[role])
    for role in ROLES:
        assert "AUTHORITY" in str(pods(objects(job()))[role])


def test_how_long_certificates_are_good_reaches_the_master():
    hours = env(pods(objects(job(tls={"certificateHours": 0.5})))["master"])
    assert hours["ELASTICDL_CERTIFICATE_HOURS"] == "0.5"
    for wrong in (0, 0.01, 9000, "day"):
        with pytest.raises(Exception, match="certificateHours"):
            objects(job(tls={"certificateHours": wrong}))


# What may change while the job runs.


@pytest.mark.parametrize(
    "changes",
    [
        {"worker": {"replicas": 7}},
        {"worker": {"min": 1, "max": 9, "priority": "0.5", "env": {"A": "b"}}},
        {"worker": {"image": "other", "resources": {"cpu": 2}}},
        {"ps": {"replicas": 4, "resources": {"memory": "8Gi"}}},
        {"training": {"epochs": 99}},
        {"paused": True},
        {"log": {"level": "debug"}},
        {"evaluation": {"everySteps": 10}},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_change_of_the_job_leaves_the_masters_pod_as_it_is(changes):
    before, values = job(), job()
    values["job"] = merged(values["job"], changes)
    before, after = objects(before), objects(values)
    assert of_kind(before, "Job") == of_kind(after, "Job")
    assert of_kind(before, "ConfigMap") != of_kind(after, "ConfigMap")


def test_a_change_of_the_masters_pod_is_marked_on_its_job():
    mark = "elasticdl.org/master-template"
    marks = set()
    for changes in ({}, {"master": {"image": "other"}}, {"env": {"A": "b"}}):
        values = job()
        values["job"] = merged(values["job"], changes)
        marks.add(of_kind(objects(values), "Job")["metadata"]["annotations"][mark])
    assert len(marks) == 3


def test_the_masters_pod_does_not_know_the_charts_version():
    template = json.dumps(
        of_kind(objects(job(images={"tag": "v1"})), "Job")["spec"]["template"]
    )
    assert "helm.sh/chart" not in template
    assert not re.search(re.escape(chart().version), template)


def test_notes_say_what_is_there_and_the_next_command():
    notes = render(example("digits"))["NOTES.txt"]
    assert "its master makes 2 PS and 3 workers" in notes
    assert "elasticdl status digits -n ml" in notes
    assert "helm upgrade release CHART -n ml -f FILE" in notes


def test_null_in_a_role_takes_away_what_all_roles_have():
    common = {
        "runtimeClassName": "nvidia",
        "nodeSelector": {"a": "b"},
        "tolerations": [{"operator": "Exists"}],
    }
    worker = {
        "securityContext": {"runAsUser": None, "fsGroup": None},
        "containerSecurityContext": {"capabilities": None},
        "runtimeClassName": None,
        "tolerations": None,
        "nodeSelector": None,
    }
    found = pods(objects(job(pods={"common": common, "worker": worker})))
    spec = found["worker"]["spec"]
    assert not {"runAsUser", "fsGroup"} & set(spec["securityContext"])
    assert spec["securityContext"]["runAsGroup"] == 10001
    assert "capabilities" not in container(found["worker"])["securityContext"]
    assert not {"runtimeClassName", "tolerations", "nodeSelector"} & set(spec)
    assert found["ps"]["spec"]["securityContext"]["runAsUser"] == 10001
    assert found["ps"]["spec"]["runtimeClassName"] == "nvidia"
