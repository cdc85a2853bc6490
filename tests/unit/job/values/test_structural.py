"""The definition of TrainingJob: a structural schema that fits every job."""

import copy
from pathlib import Path

import jsonschema
import pytest
from elasticdl.job.values.file import load_values
from elasticdl.job.values.structural import definition, structural
from elasticdl.job.values.training_job import NOT_IN_SPEC, manifest_of

ROOT = Path(__file__).parents[4]
JOBS = [
    *sorted((ROOT / "values").glob("*.yaml")),
    ROOT / "tests" / "chart" / "values" / "everything.yaml",
]
VERSION = definition()["versions"][0]
SCHEMA = VERSION["schema"]["openAPIV3Schema"]
# What `kubectl apply` keeps of an object, in an annotation.
LAST_APPLIED_BYTES = 256 * 1024


def walk(schema, path=""):
    yield path, schema
    for key, inner in schema.get("properties", {}).items():
        yield from walk(inner, f"{path}.{key}")
    if "items" in schema:
        yield from walk(schema["items"], f"{path}[]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from walk(schema["additionalProperties"], f"{path}.*")


def as_json_schema(schema):
    """Return the schema as an API server reads it: closed, and with its own words."""
    made = {k: v for k, v in schema.items() if not k.startswith("x-kubernetes")}
    if made.pop("exclusiveMinimum", False):
        made["exclusiveMinimum"] = made.pop("minimum")
    if schema.get("x-kubernetes-int-or-string"):
        made["type"] = ["integer", "string"]
    if "properties" in made:
        made["properties"] = {
            key: as_json_schema(inner) for key, inner in made["properties"].items()
        }
        made["additionalProperties"] = False
    for key in ("items", "additionalProperties"):
        if isinstance(made.get(key), dict):
            made[key] = as_json_schema(made[key])
    if made.pop("nullable", False) and "type" in made:
        kinds = made["type"]
        made["type"] = [*([kinds] if isinstance(kinds, str) else kinds), "null"]
        made |= {"enum": [*made["enum"], None]} if "enum" in made else {}
    return made


VALIDATOR = jsonschema.Draft7Validator(as_json_schema(SCHEMA["properties"]["spec"]))


def mistakes(spec):
    return [error.message for error in VALIDATOR.iter_errors(spec)]


def test_every_node_says_its_type_and_nothing_that_no_api_server_takes():
    forbidden = {
        "$ref",
        "definitions",
        "anyOf",
        "oneOf",
        "const",
        "title",
        "if",
        "then",
    }
    for path, node in walk(SCHEMA):
        open_ = node.get("x-kubernetes-preserve-unknown-fields")
        either = node.get("x-kubernetes-int-or-string")
        assert isinstance(node.get("type"), str) or open_ or either, path
        assert not forbidden & set(node), path
        assert not ("properties" in node and "additionalProperties" in node), path
        assert node.get("type") != "array" or "items" in node, path


def test_defaults_are_of_the_field_that_is_scaled_alone():
    with_defaults = {path for path, node in walk(SCHEMA) if "default" in node}
    worker = ".spec.job.worker"
    assert with_defaults == {worker, f"{worker}.replicas"}
    scale = VERSION["subresources"]["scale"]
    assert scale["specReplicasPath"] == f"{worker}.replicas"
    paths = {path for path, _ in walk(SCHEMA)}
    assert scale["statusReplicasPath"] in paths
    assert scale["labelSelectorPath"] in paths


def test_every_column_shows_a_field_that_there_is():
    paths = {path for path, _ in walk(SCHEMA)}
    columns = {
        one["name"]: one["jsonPath"] for one in VERSION["additionalPrinterColumns"]
    }
    assert list(columns) == [
        "State", "Wanted", "Granted", "Running", "Loss", "Age", "Message",
    ]  # fmt: skip
    assert all(path in paths for path in columns.values() if "metadata" not in path)


def test_it_is_small_enough_for_kubectl_apply():
    file = ROOT / "charts" / "elasticdl" / "files" / "trainingjob.json"
    assert file.stat().st_size < LAST_APPLIED_BYTES


def test_nothing_of_a_platform_is_in_it():
    spec = SCHEMA["properties"]["spec"]["properties"]
    assert not set(NOT_IN_SPEC) & set(spec)
    assert set(spec["monitoring"]["properties"]) == {"scrapeAnnotations", "tensorboard"}
    assert {"job", "run", "pods", "images", "state", "token", "tls"} <= set(spec)


def test_kubectl_explain_has_a_sentence_for_each_field_of_a_job():
    job = SCHEMA["properties"]["spec"]["properties"]["job"]
    for path, node in walk(job):
        if path and not path.endswith(("[]", "*")):
            assert node.get("description"), path
    assert job["properties"]["training"]["properties"]["batchSize"][
        "description"
    ].endswith("Default: `64`.")


@pytest.mark.parametrize("file", JOBS, ids=lambda file: file.stem)
def test_it_accepts_every_job(file):
    assert mistakes(manifest_of(load_values(file))["spec"]) == []


GOOD = {"job": {"model": {"definition": "m.f"}, "data": {"training": "d"}}}


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("job.trainings", {"epochs": 2}, "trainings"),
        ("job.worker.replicas", "3", "not of type 'integer', 'null'"),
        ("job.worker.replicas", -1, "minimum"),
        ("job.strategy", "ring", "is not one of"),
        ("job.ps.resources.cpu", 0, "less than or equal to the minimum"),
        ("run", 0, "minimum"),
        ("platform.locked", True, "platform"),
        ("monitoring.rules.enabled", True, "rules"),
        ("pods.worker.nodeSelector.a", 1, "not of type 'string'"),
        ("pods.worker.tolerations", [{"keyy": "a"}], "keyy"),
    ],
)
def test_it_refuses_what_no_job_may_say(path, value, said):
    spec = copy.deepcopy(GOOD)
    *above, last = path.split(".")
    inner = spec
    for key in above:
        inner = inner.setdefault(key, {})
    inner[last] = value
    assert any(said in message for message in mistakes(spec)), mistakes(spec)


@pytest.mark.parametrize("value", [2, "high", 0.5, None])
def test_a_priority_may_be_a_number_or_a_word(value):
    spec = copy.deepcopy(GOOD)
    spec["job"]["worker"] = {"priority": value}
    assert mistakes(spec) == []


def test_a_number_or_a_word_is_said_in_the_form_of_kubernetes():
    whole = {"type": ["integer", "string", "null"], "description": "A port."}
    assert structural(whole, {}) == {
        "description": "A port.",
        "nullable": True,
        "x-kubernetes-int-or-string": True,
    }
