"""A run begins only with what the platform of its namespace says, and within it."""

import pytest
import yaml
from elasticdl.errors import PlatformError, SpecError
from elasticdl.job.values.file import parse_values
from elasticdl.master.platform_defaults import check

SAYS = {"defaults": {"images": {"registry": "r.example"}}, "fixed": ["job.volumes"]}


@pytest.fixture
def pod(tmp_path):
    """The files of a master's pod; each call writes one of a ConfigMap's."""

    def write(folder, file, tree):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / file).write_text(yaml.safe_dump(tree))
        return tmp_path / "elasticdl"

    return write


def job(**fields):
    tree = {
        "name": "digits",
        "model": {"definition": "a.b"},
        "data": {"training": "data"},
        **fields,
    }
    text = yaml.safe_dump({"kind": "job", "job": tree})
    values, _ = parse_values(text, source="job.yaml")
    return values.job


def test_without_a_platform_that_says_something_a_run_begins(pod):
    place = pod("elasticdl", "job.yaml", {})
    check(place, job(), namespace="ml")
    pod("elasticdl-platform", "jobs.yaml", {"defaults": {}, "fixed": []})
    check(place, job(), namespace="ml")


def test_a_run_that_was_rendered_without_its_platforms_words_does_not_begin(pod):
    place = pod("elasticdl-platform", "jobs.yaml", SAYS)
    with pytest.raises(PlatformError) as error:
        check(place, job(), namespace="ml")
    assert str(error.value) == (
        "the pods of job digits were rendered without what the platform of namespace "
        "ml says of images.registry: give the job the platform's file with `jobs:` as "
        "the last of its values files, or submit it by helm install or elasticdl "
        "train, which ask the cluster"
    )


def test_a_run_that_was_rendered_with_them_begins(pod):
    pod("elasticdl-platform", "jobs.yaml", SAYS)
    place = pod("elasticdl", "platform.yaml", {**SAYS, "run": 1})
    check(place, job(), namespace="ml")


def test_a_run_that_says_all_of_it_itself_begins(pod):
    pod("elasticdl-platform", "jobs.yaml", SAYS)
    own = {"images": {"registry": "mine.example", "pullSecrets": []}}
    place = pod("elasticdl", "values.yaml", own)
    check(place, job(), namespace="ml")


def test_what_the_platform_fixes_is_refused_whatever_the_job_was_rendered_with(pod):
    pod("elasticdl-platform", "jobs.yaml", SAYS)
    place = pod("elasticdl", "platform.yaml", {"defaults": {}, "fixed": []})
    volumes = [{"hostPath": "/", "mountPath": "/host"}]
    with pytest.raises(SpecError, match=r"^job\.volumes: got \[.*`ml` fixes it"):
        check(place, job(volumes=volumes), namespace="ml")


def test_a_platform_that_cannot_be_read_is_tried_again(pod):
    place = pod("elasticdl-platform", "jobs.yaml", ["text"])
    with pytest.raises(PlatformError, match="got what is no `jobs:` of a platform"):
        check(place, job(), namespace="ml")
