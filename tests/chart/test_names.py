"""Names, labels and nulls of values: what YAML makes of them, and what stays."""

import helm_python as helm
import pytest
import yaml
from elasticdl.job.values.file import parse_values

from tests.chart.rendering import job, merged, objects, render

# Valid names of jobs, releases and namespaces; YAML 1.1 or 1.2 reads another thing.
NAMES = ("2024", "017", "0x1f", "0o17", "1e3", "yes", "on", "null", "2024-11-25")
EVERYTHING_OF_A_JOB = {
    "monitoring": {"tensorboard": {"enabled": True}},
    "serviceAccounts": {"perJob": True},
    "tls": {"metrics": {"enabled": True, "podMonitor": {"enabled": True}}},
}
EVERYTHING_OF_A_PLATFORM = {
    "platform": {"locked": True},
    "monitoring": {
        "dashboards": {"enabled": True},
        "exporter": {"enabled": True},
        "podMonitor": {"enabled": True},
        "rules": {"enabled": True},
    },
    "controller": {"enabled": True, "trainingJobs": {"enabled": True}},
}
MADE_BY = {
    "a job": lambda name: render(job(name, **EVERYTHING_OF_A_JOB)),
    "a job's release": lambda name: render(job(**EVERYTHING_OF_A_JOB), release=name),
    "a job's namespace": lambda name: render(
        job(**EVERYTHING_OF_A_JOB), namespace=name
    ),
    "a job's Secrets": lambda name: render(
        job(
            token={"existingSecret": name},
            tls={**EVERYTHING_OF_A_JOB["tls"], "existingSecret": name},
        )
    ),
    "an issuer": lambda name: render(job(tls={"certManager": {"issuer": name}})),
    "a platform's release": lambda name: render(EVERYTHING_OF_A_PLATFORM, release=name),
    "a platform's namespace": lambda name: render(
        EVERYTHING_OF_A_PLATFORM, namespace=name
    ),
    "a platform's objects": lambda name: render(
        # That of a Service begins with a letter.
        {
            **EVERYTHING_OF_A_PLATFORM,
            "nameOverride": name if name.isalpha() else f"e{name}",
        }
    ),
    "where the controller is": lambda name: render(
        {"controller": {"runsIn": {"namespace": name, "account": name}}}
    ),
}


@pytest.mark.parametrize("made", MADE_BY)
@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_yaml_takes_for_something_else_is_quoted(name, made):
    for template, text in MADE_BY[made](name).items():
        if template == "NOTES.txt":
            continue
        for token in yaml.scan(text):
            if isinstance(token, yaml.ScalarToken) and token.value == name:
                assert not token.plain, f"{template}: {token.start_mark}"


@pytest.mark.parametrize("name", NAMES)
def test_pods_of_a_job_of_such_a_name_are_found_by_it(name):
    found = objects(job(name, **EVERYTHING_OF_A_JOB))
    board = found["Deployment", f"elasticdl-{name}-tensorboard"]["spec"]
    labels = board["template"]["metadata"]["labels"]
    assert labels["elasticdl.org/tensorboard-of"] == name
    assert board["selector"]["matchLabels"]["elasticdl.org/tensorboard-of"] == name


class Strict(yaml.SafeLoader):
    """Of a key that a mapping has twice Helm takes the last one, kubectl none."""


def mapping_of(loader, node):
    keys = [loader.construct_object(key) for key, _ in node.value]
    assert len(keys) == len(set(keys)), f"{sorted(keys)}: {node.start_mark}"
    return loader.construct_mapping(node, deep=True)


Strict.add_constructor("tag:yaml.org,2002:map", mapping_of)
MORE = {"release": "prometheus", "app.kubernetes.io/name": "mine"}


@pytest.mark.parametrize(
    "values",
    [
        merged(
            EVERYTHING_OF_A_PLATFORM,
            {
                "commonLabels": {"release": "all", "grafana_dashboard": "0"},
                "monitoring": {
                    "podMonitor": {"labels": MORE},
                    "rules": {"labels": MORE},
                    "exporter": {"labels": MORE},
                },
                "controller": {"labels": MORE, "trainingJobs": {"labels": MORE}},
            },
        ),
        merged(
            job(**EVERYTHING_OF_A_JOB),
            {
                "commonLabels": {"release": "all", "kueue.x-k8s.io/queue-name": "all"},
                "job": {"queue": "one"},
                "tls": {"metrics": {"podMonitor": {"labels": MORE}}},
                "monitoring": {"tensorboard": {"labels": MORE}},
            },
        ),
    ],
    ids=["platform", "job"],
)
def test_a_label_that_is_said_twice_is_the_narrower_one(values):
    for name, text in render(values).items():
        if name != "NOTES.txt":
            list(yaml.load_all(text, Strict))
    for (kind, name), made in objects(values).items():
        labels = made["metadata"]["labels"]
        assert labels["app.kubernetes.io/name"] == "elasticdl"
        if kind in ("PodMonitor", "PrometheusRule"):
            assert labels["release"] == "prometheus"
        if kind == "Job":
            assert labels["kueue.x-k8s.io/queue-name"] == "one"
        if kind == "Deployment":
            labels = made["spec"]["template"]["metadata"]["labels"]
            assert labels["release"] == "prometheus"
            selector = made["spec"]["selector"]["matchLabels"]
            assert selector.items() <= labels.items()
        if name.startswith("dashboard-"):
            assert labels["grafana_dashboard"] == "1"


PLATFORM = "kind: platform\n"
JOB = (
    "kind: job\njob:\n  name: a\n  model: {definition: a.b}\n  data: {training: data}\n"
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (PLATFORM + "platform: {locked: true, allowed: {secrets: null}}\n", "secrets"),
        (
            PLATFORM + "priorityClasses: {low: {name: null}}\n",
            "priorityClasses.low.name",
        ),
        (
            PLATFORM + "monitoring: {exporter: {metricsFrom: null}}\n",
            "exporter.metricsFrom",
        ),
        (
            PLATFORM + "monitoring: {rules: {enabled: true, alerts: null}}\n",
            "rules.alerts",
        ),
        (
            PLATFORM + "controller: {trainingJobs: {definition: null}}\n",
            "Jobs.definition",
        ),
        (JOB + "tls: {metrics: {podMonitor: null}}\n", "`tls.metrics.podMonitor"),
    ],
)
def test_a_key_that_holds_nothing_is_named(text, said):
    with pytest.raises(helm.HelmError) as refusal:
        render(helm.values_from_yaml(text))
    assert f"{said}:` holds nothing: take the line out" in str(refusal.value)


REFUSED = {
    "a class of PS of two words": (
        JOB + "  ps: {priority: 'A B'}\n",
        "at '/job/ps/priority': 'A B' does not match pattern",
    ),
    "a class of masters with a capital": (
        JOB + "  master: {priority: High}\n",
        "at '/job/master/priority': 'High' does not match pattern",
    ),
    "a resource of two words": (
        JOB + "  worker: {resources: {extra: {'a b/c?': '1'}}}\n",
        "at '/job/worker/resources/extra': additional properties 'a b/c?' not allowed",
    ),
    "a limit of a resource of two words": (
        JOB + "  worker: {limits: {extra: {'a b/c': '1'}}}\n",
        "at '/job/worker/limits/extra': additional properties 'a b/c' not allowed",
    ),
    "a platform's name that no Service may have": (
        PLATFORM + "nameOverride: '2024'\n",
        "at '/nameOverride': '2024' does not match pattern",
    ),
    "a certificate of a second": (
        JOB + "tls: {certificateHours: 0.0003}\n",
        "at '/tls/certificateHours': minimum: got",
    ),
}


@pytest.mark.parametrize(("text", "said"), REFUSED.values(), ids=REFUSED)
def test_a_name_that_no_cluster_takes_is_refused(text, said):
    with pytest.raises(helm.HelmError) as refusal:
        render(helm.values_from_yaml(text))
    assert said in str(refusal.value)
    if text.startswith(JOB):
        assert parse_values(text, source="v")[0] is None


@pytest.mark.parametrize(
    "name", ["jobs", "exporter", "controller", "training-jobs", "job", "master"]
)
def test_a_job_has_no_object_of_its_platforms_name(name):
    of_job = objects(job(name, **EVERYTHING_OF_A_JOB))
    assert not set(objects(EVERYTHING_OF_A_PLATFORM)) & set(of_job)
