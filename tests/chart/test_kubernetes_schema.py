"""What is rendered fits the schemas of the oldest and the newest Kubernetes.

The schemas are those of kubernetes-validate, strict: an unknown field is a mistake.
Each is read once, which its own command does for every object.
"""

import copy
import re
from functools import cache

import jsonschema
import pytest
from kubernetes_validate import utils as schemas
from referencing import Registry, Resource

from tests.chart.rendering import EXAMPLES, config_map, example, objects, values_of

VERSIONS = ["1.29", "1.36", "1.37"]


@cache
def registry(version):
    text = f"kubernetes-json-schema/v{version}.0-local-strict/_definitions.json"
    return Resource.from_contents(schemas.schema_contents(text, version)) @ Registry()


@cache
def checker(version, kind, api_version):
    group = re.sub(r"^([^./]*)(?:\.[^/]*)?/", r"\1-", api_version)
    name = (
        f"kubernetes-json-schema/v{version}.0-local-strict/{kind.lower()}-{group}.json"
    )
    schema = schemas.schema_contents(name, version)
    return jsonschema.Draft202012Validator(
        schema, registry=Resource.from_contents(schema) @ registry(version)
    )


def mistakes(version, made):
    found = checker(version, made["kind"], made["apiVersion"]).iter_errors(made)
    return [f"{error.json_path}: {error.message}" for error in found]


def all_objects(values):
    """Return the objects, and the pods that the master makes of its templates.

    Not those whose kinds an operator defines: no schema of Kubernetes knows them.
    """
    found = objects(values)
    made = [one for one in found.values() if "coreos.com" not in one["apiVersion"]]
    if any(kind == "Job" for kind, _ in found):
        templates = config_map(found)
        made += [templates["ps.yaml"], templates["worker.yaml"]]
    return made


# What 1.29 does not serve, so that the chart refuses it there (test_guards.py).
REFUSED = {("locked-platform", "1.29")}


@pytest.mark.parametrize(
    ("file", "version"),
    [
        pytest.param(file, version, id=f"{file.stem}-{version}")
        for file in EXAMPLES
        for version in VERSIONS
        if (file.stem, version) not in REFUSED
    ],
)
def test_every_object_fits_the_schema_of_kubernetes(file, version):
    for made in all_objects(values_of(file)):
        assert mistakes(version, made) == [], made["kind"]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_default_platform_fits_the_schema_of_kubernetes(version):
    for made in all_objects({}):
        assert mistakes(version, made) == [], made["kind"]


def test_the_check_sees_a_misspelt_field():
    pod = copy.deepcopy(config_map(objects(example("digits")))["ps.yaml"])
    pod["spec"]["restartPolicyy"] = "Never"
    assert "restartPolicyy" in mistakes("1.37", pod)[0]


def test_the_newest_schemas_are_used():
    assert schemas.major_minor(schemas.latest_version()) == VERSIONS[-1], (
        "a newer one is there"
    )
