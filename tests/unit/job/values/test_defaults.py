"""What a platform says for its jobs: who says each value, and what is no platform's."""

import pytest
import yaml
from elasticdl.errors import SpecError
from elasticdl.job.values.defaults import (
    PlatformDefaults,
    ValueOrigin,
    merged,
    origins,
    refused,
    sections_of,
    unlike,
)
from elasticdl.job.values.file import parse_values

SITE = PlatformDefaults(
    {
        "images": {"registry": "registry.example", "tag": "v1"},
        "pods": {
            "common": {
                "tolerations": [{"key": "training"}],
                "env": [{"name": "TEAM", "value": "vision"}],
            }
        },
    },
    ("images.registry",),
)


def values(**sections):
    job = {
        "name": "digits",
        "model": {"definition": "a.b"},
        "data": {"training": "data"},
        **sections.pop("job", {}),
    }
    text = yaml.safe_dump({"kind": "job", "job": job, **sections})
    found, problems = parse_values(text, source="job.yaml")
    assert not problems
    return found


def said(platform, file):
    return {line.path: line.origin for line in origins(platform, sections_of(file))}


def test_each_value_that_is_not_the_charts_is_told_with_who_says_it():
    file = values(
        images={"tag": "v2"},
        pods={"common": {"tolerations": [{"key": "spot"}], "schedulerName": "mine"}},
    )
    assert said(SITE, file) == {
        "images.registry": ValueOrigin.PLATFORM,
        "images.tag": ValueOrigin.JOB,
        "pods.common.tolerations": ValueOrigin.BOTH,
        "pods.common.schedulerName": ValueOrigin.JOB,
        "pods.common.env": ValueOrigin.PLATFORM,
    }


def test_without_a_platform_only_the_job_says_something():
    assert said(PlatformDefaults(), values()) == {}
    assert said(PlatformDefaults(), values(openshift=True)) == {
        "openshift": ValueOrigin.JOB
    }


def test_a_merge_changes_neither_side():
    file = values(pods={"common": {"tolerations": [{"key": "spot"}]}})
    before = yaml.safe_dump(SITE.defaults)
    merged(SITE, sections_of(file))["pods"]["common"]["tolerations"].clear()
    again = merged(SITE, sections_of(file))["pods"]["common"]["tolerations"]
    assert again == [{"key": "training"}, {"key": "spot"}]
    assert yaml.safe_dump(SITE.defaults) == before


def test_all_that_is_fixed_is_told_at_once():
    file = values(
        images={"registry": "docker.io"},
        job={"image": "docker.io/x", "worker": {"image": "registry.example/x"}},
    )
    told = [
        str(problem)
        for problem in refused(SITE, sections_of(file), file.job, namespace="ml")
    ]
    help_ = (
        "the platform of namespace `ml` fixes it for its jobs: take it out, or ask who "
        "installs that platform (`jobs.fixed` in its values)"
    )
    assert told == [
        f'images.registry: got "docker.io", expected "registry.example"; {help_}',
        'job.image: got "docker.io/x", expected an image of "registry.example"; '
        f"{help_}",
    ]


@pytest.mark.parametrize("text", ["- a", "fixed: 3", "a: [", "defaults: text"])
def test_what_is_no_platforms_is_refused_with_where_it_was(text):
    with pytest.raises(SpecError, match=r"^ConfigMap x: got what is no `jobs:`"):
        PlatformDefaults.parse(text, source="ConfigMap x")


def test_a_platform_that_says_nothing_is_one():
    assert PlatformDefaults.parse("", source="x") == PlatformDefaults()
    assert (
        PlatformDefaults.parse("fixed: []\ndefaults: null\n", source="x")
        == PlatformDefaults()
    )


def test_two_platforms_differ_where_a_job_has_something_else_by_them():
    other = PlatformDefaults({"images": {"registry": "registry.example", "tag": "v1"}})
    paths = ["pods.common.env", "pods.common.tolerations"]
    assert unlike(SITE, other, sections_of(values())) == paths
    own = sections_of(values(images={"registry": "mine", "tag": "v2"}))
    assert unlike(other, PlatformDefaults(), own) == []
    assert unlike(SITE, SITE, own) == []


def test_a_newer_platform_may_say_what_this_version_does_not_know():
    newer = PlatformDefaults.parse(
        "defaults: {later: {a: b}}\nfixed: [later.a]\n", source="x"
    )
    file = values()
    assert refused(newer, sections_of(file), file.job, namespace="ml") == []
