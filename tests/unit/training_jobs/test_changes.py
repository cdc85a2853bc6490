"""What is called to make a job's objects, and in which order."""

import copy
from dataclasses import replace

from elasticdl.job.names import ANNOTATION_STOP
from elasticdl.training_jobs.changes import changes, entry_of, path_of
from elasticdl.training_jobs.reconcile import reconcile
from elasticdl.training_jobs.resource import Seen
from elasticdl.training_jobs.verdicts import Changes, Reason, Refused, Submit, Verb

from tests.chart.rendering import chart
from tests.unit.training_jobs.objects import (
    REGISTRY,
    UID,
    made_by,
    master,
    there,
    training_job,
)

NEW = Seen(platform=REGISTRY)


def thing(kind, name, version="v1", **about):
    labels = {"app.kubernetes.io/managed-by": "Helm"}
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": name, "labels": labels, **about},
    }


RENDERED = [
    thing(
        "Job",
        "elasticdl-digits-master",
        "batch/v1",
        annotations={"elasticdl.org/master-template": "t1"},
    ),
    thing("Secret", "elasticdl-digits-token"),
    thing("Service", "elasticdl-digits-ps"),
    thing("ConfigMap", "elasticdl-digits"),
]


def submission(job=None, seen=NEW):
    decision = reconcile(job or training_job(), seen)
    assert isinstance(decision, Submit), decision
    return decision


def planned(job, seen, objects):
    made = changes(job, seen, submission(), objects)
    assert isinstance(made, Changes), made
    return made


def test_the_specification_comes_first_and_the_master_last():
    made = planned(training_job(), NEW, RENDERED)
    kinds = [step.body["kind"] for step in made.steps]
    assert kinds == ["ConfigMap", "Secret", "Service", "Job"]
    assert [step.verb for step in made.steps] == [
        Verb.APPLY, Verb.CREATE, Verb.APPLY, Verb.APPLY,
    ]  # fmt: skip
    assert made.made.objects == (
        "v1/configmaps/elasticdl-digits",
        "v1/secrets/elasticdl-digits-token",
        "v1/services/elasticdl-digits-ps",
        "batch/v1/jobs/elasticdl-digits-master",
    )


def test_every_object_belongs_to_the_trainingjob_and_says_who_keeps_it():
    before = copy.deepcopy(RENDERED)
    for step in planned(training_job(), NEW, RENDERED).steps:
        (owner,) = step.body["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["uid"]) == (
            "TrainingJob", "digits", UID,
        )  # fmt: skip
        assert owner["controller"]
        assert not owner["blockOwnerDeletion"]  # that would need a right
        assert step.body["metadata"]["namespace"] == "ml"
        keeper = step.body["metadata"]["labels"]["app.kubernetes.io/managed-by"]
        assert keeper == "elasticdl-training-jobs"
    assert before == RENDERED


def test_what_is_not_rendered_any_more_is_deleted_but_no_secret():
    gone = (
        "batch/v1/jobs/elasticdl-digits-master-1",
        "apps/v1/deployments/elasticdl-digits-tensorboard",
        "v1/secrets/elasticdl-digits-ca",
    )
    job = training_job(made_by(submission(), *gone, "v1/services/elasticdl-digits-ps"))
    steps = planned(job, NEW, RENDERED).steps
    assert [step.path for step in steps if step.verb is Verb.DELETE] == [
        "/apis/batch/v1/namespaces/ml/jobs/elasticdl-digits-master-1",
        "/apis/apps/v1/namespaces/ml/deployments/elasticdl-digits-tensorboard",
    ]


def test_another_pod_for_a_master_that_is_there_is_refused_in_the_charts_words():
    job = training_job()
    seen = there(job, masters=(master(job, template="t0"),))
    refused = changes(job, seen, submission(), RENDERED)
    assert isinstance(refused, Refused)
    assert refused.reason is Reason.IMMUTABLE
    sentence = refused.message.partition(" (its image")[0]
    assert sentence == "this changes the pod of the master of job `digits`"
    assert "raise `run` to 2 with it" in refused.message
    same = there(job, masters=(master(job, template="t1"),))
    assert isinstance(changes(job, same, submission(), RENDERED), Changes)


def test_a_new_run_forgets_the_request_to_stop_the_one_before():
    first = training_job()
    seen = there(first)
    seen.config_map["metadata"]["annotations"] = {ANNOTATION_STOP: "by hand"}
    again = training_job(made_by(submission(first)), run=2)

    def stops(job, seen):
        made = changes(job, seen, submission(job, seen), RENDERED)
        assert isinstance(made, Changes), made
        about = made.steps[0].body["metadata"]
        return about.get("annotations", {}).get(ANNOTATION_STOP)

    # Its master may be held by a queue, and can forget nothing until it begins.
    assert stops(again, seen) == ""
    # The same run is to end, and one without such a request has nothing to forget.
    assert stops(again, replace(seen, masters=(master(again, 2),))) is None
    assert stops(again, there(first)) is None


def test_paths_are_those_of_groups_and_of_the_core():
    assert path_of("v1/services/a", "ml") == "/api/v1/namespaces/ml/services/a"
    assert path_of("policy/v1/poddisruptionbudgets/a", "ml") == (
        "/apis/policy/v1/namespaces/ml/poddisruptionbudgets/a"
    )


def test_every_kind_that_the_chart_makes_of_a_job_is_known():
    import yaml

    values = {
        "kind": "job",
        "job": {
            "name": "a", "image": "i", "model": {"definition": "m.f"},
            "data": {"training": "d"},
        },
        "serviceAccounts": {"perJob": True},
        "tls": {"enabled": True, "metrics": {
            "enabled": True, "podMonitor": {"enabled": True}},
            "certManager": {"issuer": "i"}},
        "monitoring": {"tensorboard": {"enabled": True}},
    }  # fmt: skip
    texts = chart().render(values, name="a", namespace="ml")
    found = [
        one
        for name, text in texts.items()
        if name.endswith(".yaml")
        for one in yaml.safe_load_all(text)
        if one
    ]
    assert len(found) > 10
    for one in found:
        assert entry_of(one).endswith(one["metadata"]["name"])
