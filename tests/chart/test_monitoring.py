"""What Prometheus is given: the exporter, PodMonitors, annotations of a job's pods."""

import copy
import re

import helm_python as helm
import jsonschema
import pytest
from elasticdl.exporter.main import make_parser
from elasticdl.metrics.cluster import HOLDER
from elasticdl.metrics.registry import ROLES

from tests.chart.platform.pod_security import violations
from tests.chart.rendering import env, example, job, objects, of_kind, pods, render

# The part of the operator's own schema that is used here, strict: kubernetes-validate
# has no custom resources. Types and enums are those of PodMonitor v1.
LABEL_SELECTOR = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "matchLabels": {"type": "object", "additionalProperties": {"type": "string"}},
        "matchExpressions": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["key", "operator"],
                "properties": {
                    "key": {"type": "string"},
                    "operator": {"enum": ["Exists", "DoesNotExist"]},
                    "values": {"type": "array", "items": {"type": "string"}},
                },
            },
        },
    },
}
RELABELING = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "sourceLabels": {
            "type": "array",
            "items": {"type": "string", "pattern": "^[a-zA-Z_][a-zA-Z0-9_]*$"},
        },
        "separator": {"type": "string"},
        "targetLabel": {"type": "string"},
        "regex": {"type": "string"},
        "modulus": {"type": "integer"},
        "replacement": {"type": "string"},
        "action": {"enum": ["replace", "keep", "drop", "hashmod", "labelmap"]},
    },
}
SECRET_KEY = {
    "type": "object",
    "additionalProperties": False,
    "required": ["key"],
    "properties": {"name": {"type": "string"}, "key": {"type": "string"}},
}
POD_MONITOR = {
    "type": "object",
    "additionalProperties": False,
    "required": ["apiVersion", "kind", "metadata", "spec"],
    "properties": {
        "apiVersion": {"const": "monitoring.coreos.com/v1"},
        "kind": {"const": "PodMonitor"},
        "metadata": {
            "type": "object",
            "additionalProperties": False,
            "required": ["name"],
            "properties": {
                "name": {"type": "string"},
                "namespace": {"type": "string"},
                "labels": {
                    "type": "object",
                    "additionalProperties": {"type": "string"},
                },
            },
        },
        "spec": {
            "type": "object",
            "additionalProperties": False,
            "required": ["podMetricsEndpoints", "selector"],
            "properties": {
                "selector": LABEL_SELECTOR,
                "sampleLimit": {"type": "integer"},
                "namespaceSelector": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {
                        "matchNames": {"type": "array", "items": {"type": "string"}}
                    },
                },
                "podMetricsEndpoints": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "additionalProperties": False,
                        "properties": {
                            "port": {"type": "string"},
                            "path": {"type": "string"},
                            "interval": {
                                "type": "string",
                                "pattern": "^(([0-9]+)(ms|s|m|h|d|w|y))+$",
                            },
                            "honorLabels": {"type": "boolean"},
                            "scheme": {"enum": ["http", "https"]},
                            "authorization": {
                                "type": "object",
                                "additionalProperties": False,
                                "properties": {
                                    "type": {"type": "string"},
                                    "credentials": SECRET_KEY,
                                },
                            },
                            "tlsConfig": {
                                "type": "object",
                                "additionalProperties": False,
                                "properties": {
                                    "ca": {
                                        "type": "object",
                                        "additionalProperties": False,
                                        "properties": {"secret": SECRET_KEY},
                                    },
                                    "serverName": {"type": "string"},
                                },
                            },
                            "scrapeTimeout": {
                                "type": "string",
                                "pattern": "^(([0-9]+)(ms|s|m|h|d|w|y))+$",
                            },
                            "metricRelabelings": {
                                "type": "array",
                                "items": RELABELING,
                            },
                            "relabelings": {"type": "array", "items": RELABELING},
                        },
                    },
                },
            },
        },
    },
}


def platform(**monitoring):
    return objects({"monitoring": monitoring}, namespace="ml")


def exporter(**settings):
    return platform(exporter={"enabled": True, **settings})


def arguments(found):
    (main,) = of_kind(found, "Deployment")["spec"]["template"]["spec"]["containers"]
    return make_parser().parse_args(main["args"])


# -- the exporter ----------------------------------------------------------------------


def test_nothing_of_monitoring_is_made_unless_it_is_wanted():
    kinds = {kind for kind, _ in objects()}
    assert not kinds & {"Deployment", "ClusterRole", "PodMonitor", "Service"}


def test_the_exporter_reads_nodes_and_pods_and_may_do_nothing_else():
    found = exporter()
    role = of_kind(found, "ClusterRole")
    may = {
        (group, resource): set(rule["verbs"])
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert may == {
        ("", "nodes"): {"list", "watch"},
        ("", "pods"): {"list", "watch"},
        ("batch", "jobs"): {"list", "watch"},
        ("metrics.k8s.io", "pods"): {"get", "list"},
    }
    binding = of_kind(found, "ClusterRoleBinding")
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": "elasticdl-exporter", "namespace": "ml"}
    ]


def test_two_platforms_may_both_have_an_exporter():
    values = {"monitoring": {"exporter": {"enabled": True}}}
    names = {
        of_kind(objects(values, namespace=one), "ClusterRole")["metadata"]["name"]
        for one in ("ml", "team")
    }
    assert len(names) == 2


def test_the_exporters_pod_is_restricted_and_alone_has_its_accounts_token():
    found = exporter()
    account = found["ServiceAccount", "elasticdl-exporter"]
    assert account["automountServiceAccountToken"] is False
    pod = of_kind(found, "Deployment")["spec"]["template"]
    assert violations(pod) == []
    assert pod["spec"]["serviceAccountName"] == "elasticdl-exporter"
    assert pod["spec"]["automountServiceAccountToken"] is True
    (main,) = pod["spec"]["containers"]
    assert main["securityContext"]["readOnlyRootFilesystem"] is True
    assert main["resources"]["limits"]["memory"]
    assert main["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert main["readinessProbe"]["httpGet"]["path"] == "/readyz"


def test_selectors_find_the_exporters_pod_and_no_pod_of_a_job():
    found = exporter()
    deployment = of_kind(found, "Deployment")["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    selectors = [
        deployment["selector"]["matchLabels"],
        found["Service", "elasticdl-exporter"]["spec"]["selector"],
        found["NetworkPolicy", "elasticdl.exporter"]["spec"]["podSelector"][
            "matchLabels"
        ],
    ]
    of_jobs = [pod["metadata"]["labels"] for pod in pods(objects(job())).values()]
    for selector in selectors:
        assert selector.items() <= labels.items()
        assert not any(selector.items() <= one.items() for one in of_jobs)
    # A pod of no job: or it would count as training.
    assert "elasticdl-job-name" not in labels


def test_metrics_of_the_exporter_are_open_as_far_as_is_wanted():
    anybody = exporter(metricsFrom=[])["NetworkPolicy", "elasticdl.exporter"]
    assert anybody["spec"]["ingress"] == [
        {"ports": [{"protocol": "TCP", "port": 8080}]}
    ]
    peers = [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}]
    closed = exporter(metricsFrom=peers)["NetworkPolicy", "elasticdl.exporter"]
    assert closed["spec"]["ingress"][0]["from"] == peers


def test_serving_begins_above_what_has_no_class_or_where_it_is_said():
    assert arguments(exporter()).serving_priority == 1
    assert arguments(exporter(servingPriority=0)).serving_priority == 0
    chosen = arguments(exporter(servingPriority=77, servingLabels={"a": "b", "c": "d"}))
    assert chosen.serving_priority == 77
    assert chosen.serving_labels == "a=b,c=d"


def test_the_exporters_image_is_the_masters_unless_another_is_named():
    def image(found):
        spec = of_kind(found, "Deployment")["spec"]["template"]["spec"]
        return spec["containers"][0]["image"], spec.get("imagePullSecrets")

    name, _ = image(exporter())
    assert name.startswith("registry.example/elasticdl/master:")
    assert image(exporter(image="reg/x:1", pullSecrets=["a"])) == (
        "reg/x:1",
        [{"name": "a"}],
    )


# -- PodMonitors -----------------------------------------------------------------------


def monitors(**settings):
    found = platform(
        podMonitor={"enabled": True, **settings}, exporter={"enabled": True}
    )
    return {name: made for (kind, name), made in found.items() if kind == "PodMonitor"}


def test_pod_monitors_fit_the_operators_schema():
    for made in monitors(labels={"release": "prometheus"}, interval="5s").values():
        jsonschema.validate(made, POD_MONITOR)
        assert made["metadata"]["labels"]["release"] == "prometheus"
        assert made["spec"]["podMetricsEndpoints"][0]["interval"] == "5s"


ENCRYPTED = {"metrics": {"enabled": True, "podMonitor": {"enabled": True}}}


def test_encrypted_metrics_have_a_pod_monitor_that_knows_the_jobs_authority():
    made = objects(job(tls=ENCRYPTED), namespace="ml")
    monitor = made["PodMonitor", "elasticdl-digits.metrics"]
    jsonschema.validate(monitor, POD_MONITOR)
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint["scheme"] == "https"
    assert endpoint["tlsConfig"] == {
        "ca": {"secret": {"name": "elasticdl-digits-ca", "key": "tls.crt"}},
        "serverName": "metrics.digits.ml.elasticdl",
    }
    secret = endpoint["authorization"]["credentials"]
    assert secret == {"name": "elasticdl-digits-token", "key": "metrics"}
    assert len(made["Secret", secret["name"]]["data"]["metrics"]) >= 43
    plain = monitors()["elasticdl-jobs"]["spec"]
    for role, pod in pods(made).items():
        # The master stamps these on its pods.
        own = {"elasticdl-job-name": "digits", "elasticdl-replica-type": role}
        labels = pod["metadata"]["labels"] | own
        assert matches(monitor["spec"]["selector"], labels)
        assert not matches(plain["selector"], labels)
    # Both give a series the same labels, and take the same from each role.
    (other,) = plain["podMetricsEndpoints"]
    assert endpoint["relabelings"] == other["relabelings"]
    assert endpoint["metricRelabelings"] == other["metricRelabelings"]


def test_encrypted_metrics_are_probed_by_tls_and_their_token_reaches_each_role():
    for made in pods(objects(job(tls={"metrics": {"enabled": True}}))).values():
        (main,) = made["spec"]["containers"]
        token = env(made)["ELASTICDL_METRICS_TOKEN"]["secretKeyRef"]
        assert token == {"name": "elasticdl-digits-token", "key": "metrics"}
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert main[probe]["httpGet"]["scheme"] == "HTTPS"
    for made in pods(objects(job())).values():
        assert "METRICS_TOKEN" not in str(made)
        assert "scheme" not in made["spec"]["containers"][0]["livenessProbe"]["httpGet"]


def test_metrics_are_not_encrypted_without_certificates():
    for tls, why in (
        ({"enabled": False, "metrics": {"enabled": True}}, "tls.enabled, which is fal"),
        ({"metrics": {"podMonitor": {"enabled": True}}}, "set tls.metrics.enabled"),
    ):
        with pytest.raises(Exception, match=re.escape(why)):
            objects(job(tls=tls))


def test_the_check_of_the_schema_sees_a_misspelt_field():
    made = copy.deepcopy(monitors()["elasticdl-jobs"])
    made["spec"]["podMetricsEndpoints"][0]["honourLabels"] = True
    with pytest.raises(jsonschema.ValidationError, match="honourLabels"):
        jsonschema.validate(made, POD_MONITOR)


def matches(selector, labels):
    wanted = selector.get("matchLabels", {}).items() <= labels.items()
    return wanted and all(
        (one["key"] in labels) == (one["operator"] == "Exists")
        for one in selector.get("matchExpressions", [])
    )


def test_pods_of_all_roles_are_scraped_and_carry_the_labels_of_all_targets():
    spec = monitors()["elasticdl-jobs"]["spec"]
    (endpoint,) = spec["podMetricsEndpoints"]
    relabelled = {
        rule["targetLabel"]: rule["sourceLabels"]
        for rule in endpoint["relabelings"]
        if "targetLabel" in rule
    }
    assert set(relabelled) == {"namespace", "training_job", "role", "index"}
    for role, pod in pods(objects(job())).items():
        # What the master stamps on the pods that it makes (runner.kubernetes.pods).
        stamped = {
            "elasticdl-job-name": "digits",
            "elasticdl-replica-type": role,
            "elasticdl-replica-index": "0",
        }
        labels = {**pod["metadata"]["labels"], **stamped}
        assert matches(spec["selector"], labels)
        for source in (s for sources in relabelled.values() for s in sources):
            if "_pod_label_" in source:
                key = source.removeprefix("__meta_kubernetes_pod_label_")
                assert key in {label.replace("-", "_") for label in labels}
        ports = {port["name"] for port in pod["spec"]["containers"][0]["ports"]}
        assert endpoint["port"] in ports


def kept(rules, **labels):
    """Whether Prometheus keeps a series, by the drops and keeps of these rules."""
    for rule in rules:
        value = ";".join(labels.get(one, "") for one in rule["sourceLabels"])
        found = re.fullmatch(rule["regex"], value) is not None
        if found != (rule["action"] == "keep"):
            return False
    return True


def test_no_process_shows_figures_of_another_role_of_another_job_or_of_the_cluster():
    """User code runs in workers, and may serve what it likes on their port."""
    (endpoint,) = monitors()["elasticdl-jobs"]["spec"]["podMetricsEndpoints"]
    # Then `namespace`, `training_job`, `role` and `index` of a series are the target's.
    assert "honorLabels" not in endpoint
    rules = endpoint["metricRelabelings"]
    for role in ("master", "ps", "worker"):
        for metric in ROLES[role]().declared:
            assert kept(rules, role=role, __name__=metric.name), metric.name
        for other in {"master", "ps", "worker", "exporter"} - {role}:
            of_other = [metric.name for metric in ROLES[other]().declared]
            if role == "master" and other != "exporter":
                continue  # it is the job's own account, and the job's figures are its
            taken = [m for m in of_other if kept(rules, role=role, __name__=m)]
            assert not taken, (role, other)


def test_pods_that_have_ended_are_not_scraped():
    """Their addresses are given to other pods."""
    (endpoint,) = monitors()["elasticdl-jobs"]["spec"]["podMetricsEndpoints"]
    first = endpoint["relabelings"][0]
    assert first["sourceLabels"] == ["__meta_kubernetes_pod_phase"]
    assert (first["action"], first["regex"]) == ("keep", "Running")


def test_a_pod_monitor_takes_bounds_rules_and_another_namespace():
    cluster = {"targetLabel": "cluster", "replacement": "one"}
    buckets = {
        "sourceLabels": ["__name__"], "regex": ".+_bucket", "action": "drop",
    }  # fmt: skip
    made = monitors(
        scrapeTimeout="4s",
        sampleLimit=500,
        namespace="monitoring",
        relabelings=[cluster],
        metricRelabelings=[buckets],
    )
    assert len(made) == 2
    for one in made.values():
        jsonschema.validate(one, POD_MONITOR)
        (endpoint,) = one["spec"]["podMetricsEndpoints"]
        assert one["metadata"]["namespace"] == "monitoring"
        # Another platform may have its own there.
        assert one["metadata"]["name"].endswith("-ml")
        assert one["spec"]["namespaceSelector"] == {"matchNames": ["ml"]}
        assert one["spec"]["sampleLimit"] == 500
        assert endpoint["scrapeTimeout"] == "4s"
        assert endpoint["relabelings"][-1] == cluster
        assert endpoint["metricRelabelings"][-1] == buckets


def test_the_exporter_is_scraped_and_its_own_labels_stay():
    made = monitors()["elasticdl-exporter"]["spec"]
    deployment = of_kind(exporter(), "Deployment")["spec"]["template"]
    assert matches(made["selector"], deployment["metadata"]["labels"])
    # No label of its figures is one of its target, which the operator makes.
    assert not {"namespace", "job", "instance", "pod", "container", "endpoint"} & {
        *HOLDER, *(n for m in ROLES["exporter"]().declared for n in m.labels)
    }  # fmt: skip
    alone = platform(podMonitor={"enabled": True})
    assert ("PodMonitor", "elasticdl-exporter") not in alone


# -- annotations -----------------------------------------------------------------------


def test_pods_of_a_job_are_annotated_for_scraping_where_that_is_wanted():
    plain = pods(objects(job()))
    marked = pods(objects(job(monitoring={"scrapeAnnotations": True})))
    for role, pod in marked.items():
        before = plain[role]["metadata"]["annotations"]
        assert pod["metadata"]["annotations"] == {
            **before,
            "prometheus.io/scrape": "true",
            "prometheus.io/port": "8080",
            "prometheus.io/path": "/metrics",
        }


def test_annotations_of_the_user_go_before_those_of_scraping():
    values = job(
        monitoring={"scrapeAnnotations": True},
        pods={"ps": {"annotations": {"prometheus.io/scrape": "false", "a": "b"}}},
    )
    noted = pods(objects(values))["ps"]["metadata"]["annotations"]
    assert noted["prometheus.io/scrape"] == "false"
    assert noted["a"] == "b"


@pytest.mark.parametrize("part", ["exporter", "podMonitor"])
def test_a_jobs_release_refuses_what_is_the_platforms(part):
    values = {**example("digits"), "monitoring": {part: {"enabled": True}}}
    with pytest.raises(helm.HelmError, match=f"`monitoring.{part}` belongs to the pl"):
        render(values)


def test_a_platform_refuses_annotations_of_a_jobs_pods():
    with pytest.raises(helm.HelmError, match="scrapeAnnotations` belongs"):
        render({"monitoring": {"scrapeAnnotations": True}})
