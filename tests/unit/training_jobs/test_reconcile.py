"""What is decided about a TrainingJob, from it and what is there."""

import functools
from dataclasses import replace

import pytest
import yaml
from elasticdl.job.words import JobState
from elasticdl.training_jobs.reconcile import reconcile
from elasticdl.training_jobs.resource import Seen, TrainingJob
from elasticdl.training_jobs.verdicts import Edit, Reason, Refused, Settled, Submit

from tests.unit.training_jobs.objects import (
    REGISTRY,
    changed,
    config_map,
    made_by,
    manifest,
    master,
    owned,
    status_map,
    there,
    training_job,
)

NEW = Seen(platform=REGISTRY)


def submitted(**spec):
    """Return a TrainingJob of which everything was made, and what is there of it."""
    job = training_job(**spec)
    decision = reconcile(job, NEW)
    assert isinstance(decision, Submit), decision
    job = training_job(made_by(decision), **spec)
    return job, there(job)


def edited(job, **spec):
    return TrainingJob.of({**changed(job.manifest, **spec), "status": job.status})


def refused(decision):
    assert isinstance(decision, Refused), decision
    return decision


def test_a_new_one_is_submitted_with_what_its_platform_says():
    decision = reconcile(training_job(), NEW)
    assert isinstance(decision, Submit)
    assert decision.values.job.name == "digits"
    assert decision.platform.defaults == {"images": {"registry": "registry.example"}}
    assert decision.made.run == 1


def test_when_everything_is_there_nothing_is_done():
    job, seen = submitted()
    assert isinstance(reconcile(job, seen), Settled)


def test_one_that_is_being_deleted_is_left_to_the_collector():
    gone = manifest()
    gone["metadata"]["deletionTimestamp"] = "2026-11-24T22:00:00Z"
    assert isinstance(reconcile(TrainingJob.of(gone), NEW), Settled)


@pytest.mark.parametrize(
    "change",
    [
        {"job__worker__replicas": 5},
        {"job__worker__max": 8},
        {"job__worker__min": 2},
        {"job__paused": True},
        {"job__training": {"epochs": 9}},
        {"job__evaluation": {"everySteps": 5}},
        {"job__log": {"level": "debug"}},
    ],
)
def test_what_may_change_while_a_job_runs_changes_its_specification_alone(change):
    job, seen = submitted()
    decision = reconcile(edited(job, **change), seen)
    assert isinstance(decision, Edit)
    (text,) = decision.patch["data"].values()
    tree = yaml.safe_load(text)
    ((path, value),) = change.items()
    for key in path.split("__"):
        tree = tree[key]
    assert tree == value
    assert decision.made.fixed == job.made.fixed
    assert decision.made.whole != job.made.whole


def test_a_scaled_job_needs_neither_its_chart_nor_its_platform_again():
    job, seen = submitted()
    without = Seen(seen.config_map, None, seen.masters, "")  # no registry any more
    assert isinstance(reconcile(edited(job, job__worker__replicas=1), without), Edit)


def test_what_somebody_wrote_into_the_configmap_is_taken_back():
    job, seen = submitted()
    other = config_map(edited(job, job__worker__replicas=7))
    decision = reconcile(job, Seen(other, None, seen.masters, REGISTRY))
    assert isinstance(decision, Edit)
    assert "replicas: 3" in decision.patch["data"]["job.yaml"]


def test_another_field_of_a_running_job_is_refused_with_what_to_do():
    job, seen = submitted()
    running = Seen(seen.config_map, status_map(), seen.masters, REGISTRY)
    decision = refused(reconcile(edited(job, job__training={"batchSize": 8}), running))
    assert decision.reason is Reason.IMMUTABLE
    assert decision.message == (
        "job.training.batchSize: got 8, expected 64: it may not change while the job "
        "runs; take the change back, or raise `run` to 2 with it: then all of the job "
        "starts anew, from its newest checkpoint"
    )


def test_before_its_master_has_begun_any_field_may_change():
    job, seen = submitted()
    decision = reconcile(edited(job, job__training={"batchSize": 8}), seen)
    assert isinstance(decision, Submit)


def test_with_another_run_everything_may_change():
    job, seen = submitted()
    running = Seen(seen.config_map, status_map(), seen.masters, REGISTRY)
    decision = reconcile(edited(job, run=2, job__training={"batchSize": 8}), running)
    assert isinstance(decision, Submit)
    assert decision.made.run == 2


def test_a_job_that_has_ended_stays_ended_when_its_batch_job_is_cleaned_up():
    job, seen = submitted()
    over = Seen(seen.config_map, status_map(report=True), (), REGISTRY)
    assert isinstance(reconcile(job, over), Settled)


def test_a_job_whose_master_was_given_up_is_not_run_again_when_that_is_cleaned_up():
    job, seen = submitted()
    failed = replace(job, status={**job.status, "state": "failed"})
    # The master's last words.
    without = Seen(seen.config_map, status_map(), (), REGISTRY)
    assert isinstance(reconcile(failed, without), Settled)
    other = replace(edited(job, job__training={"batchSize": 8}), status=failed.status)
    decision = refused(reconcile(other, without))
    assert "set `run` to 2 to run it again" in decision.message
    again = replace(edited(job, run=2), status=failed.status)
    assert isinstance(reconcile(again, without), Submit)


def test_the_master_of_a_job_that_goes_on_is_made_again():
    job, seen = submitted()
    without = Seen(seen.config_map, status_map(), (), REGISTRY)
    assert isinstance(reconcile(job, without), Submit)


def test_an_edit_of_an_ended_job_says_how_it_is_run_again():
    job, seen = submitted()
    over = Seen(seen.config_map, status_map(report=True), seen.masters, REGISTRY)
    decision = refused(reconcile(edited(job, job__training={"batchSize": 8}), over))
    assert "set `run` to 2 to run it again" in decision.message
    assert isinstance(reconcile(edited(job, run=2), over), Submit)


def test_a_stopped_job_counts_as_ended():
    job, seen = submitted()
    stopped = status_map(state=JobState.STOPPED)
    assert isinstance(
        reconcile(job, Seen(seen.config_map, stopped, (), REGISTRY)), Settled
    )


def test_all_mistakes_are_said_as_the_command_line_says_them():
    job = training_job(job__worker={"replicas": 9, "max": 4}, job__ps={"replica": 1})
    decision = refused(reconcile(job, NEW))
    assert decision.reason is Reason.INVALID
    assert decision.message.splitlines() == [
        "2 mistakes:",
        "job.worker.replicas: got 9, expected at most worker.max, 4; raise worker.max "
        "or lower worker.replicas",
        "job.ps.replica: got an unknown key, expected a key of `job.ps`; did you mean "
        "`replicas`?",
    ]


def test_a_running_job_goes_on_while_its_specification_is_wrong():
    job, seen = submitted()
    wrong = edited(job, job__worker={"replicas": 9, "max": 4})
    assert isinstance(reconcile(wrong, seen), Refused)
    assert isinstance(
        reconcile(edited(wrong, job__worker={"replicas": 3}), seen), Settled
    )


@pytest.mark.parametrize(
    ("notes", "whose"),
    [
        (
            {
                "meta.helm.sh/release-name": "mine",
                "meta.helm.sh/release-namespace": "ml",
            },
            "release `mine` in namespace `ml`",
        ),
        ({}, "somebody without Helm"),
    ],
)
def test_a_name_that_somebody_else_has_is_refused(notes, whose):
    theirs = {"metadata": {"name": "elasticdl-digits", "annotations": notes}}
    decision = refused(reconcile(training_job(), Seen(theirs, platform=REGISTRY)))
    assert decision.reason is Reason.NAME_TAKEN
    assert decision.message == (
        f"namespace `ml` has a job `digits` already, from {whose}: choose another "
        "metadata.name, or upgrade that release"
    )


def test_objects_of_an_earlier_one_of_the_name_are_waited_for():
    old = {"kind": "Job", "metadata": owned("elasticdl-digits-master", "uid-0")}
    seen = Seen(masters=(old,), platform=REGISTRY)
    decision = refused(reconcile(training_job(), seen))
    assert decision.reason is Reason.WAITING
    assert "as Job elasticdl-digits-master" in decision.message
    assert isinstance(reconcile(training_job(), NEW), Submit)


def test_a_job_without_a_registry_is_refused_as_helm_refuses_it():
    decision = refused(reconcile(training_job(), Seen()))
    assert decision.reason is Reason.NOT_ALLOWED
    assert decision.message.startswith("images.registry: got nothing, expected the reg")


def test_what_the_platform_fixes_is_refused_in_its_words():
    platform = REGISTRY + "fixed: [job.imagePullPolicy]\n"
    job = training_job(job__imagePullPolicy="Always")
    decision = refused(reconcile(job, Seen(platform=platform)))
    assert decision.reason is Reason.NOT_ALLOWED
    assert (
        'job.imagePullPolicy: got "Always", expected "IfNotPresent"; the platform of '
        "namespace `ml` fixes it"
    ) in decision.message


def test_a_run_keeps_what_its_platform_said_when_it_began():
    job, _ = submitted()
    began = "defaults: {images: {registry: old.example}}\nfixed: []\nrun: 1\n"
    kept = Seen(
        config_map(job, **{"platform.yaml": began}), None, (master(job),), REGISTRY
    )
    again = reconcile(edited(job, pods={"worker": {"labels": {"a": "b"}}}), kept)
    assert isinstance(again, Submit)
    assert again.platform.defaults["images"]["registry"] == "old.example"
    next_ = reconcile(edited(job, run=2), kept)
    assert isinstance(next_, Submit)
    assert next_.platform.defaults["images"]["registry"] == "registry.example"


@pytest.mark.parametrize("run", ["abc", "[1]", "{a: 1}", ".inf", ".nan"])
def test_a_run_that_is_no_number_in_what_was_submitted_is_none(run):
    job = training_job()
    seen = Seen(config_map=config_map(job, **{"platform.yaml": f"run: {run}"}))
    assert isinstance(reconcile(job, seen), Submit | Refused)


@pytest.mark.parametrize("text", ["[" * 1100 + "]" * 1100, "[1]", "\t"])
def test_a_platform_that_cannot_be_read_is_refused_in_a_sentence(text):
    assert (
        "got what is no `jobs:`"
        in refused(reconcile(training_job(), Seen(platform=text))).message
    )


@pytest.mark.parametrize(
    ("levels", "said"), [(400, "what JSON cannot hold"), (900, "what JSON cannot hold")]
)
def test_a_trainingjob_that_is_nested_too_deeply_is_refused_in_a_sentence(levels, said):
    deep = functools.reduce(lambda inner, _: [inner], range(levels), "x")
    job = training_job()
    job.manifest["spec"]["job"]["model"] = deep
    assert said in refused(reconcile(job, NEW)).message
