"""The JSON Schema: it accepts what the models accept and refuses what they refuse."""

from pathlib import Path

import jsonschema
import pytest
from elasticdl.job.values.file import dump_values, parse_values
from elasticdl.job.values.schema import values_schema
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[4]
EXAMPLES = sorted((ROOT / "values").glob("*.yaml"))


@pytest.fixture(scope="module")
def checker():
    schema = values_schema()
    jsonschema.Draft7Validator.check_schema(schema)
    return jsonschema.Draft7Validator(schema)


def tree(file):
    return YAML(typ="safe").load(file.read_text())


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_every_example_fits_the_schema(checker, file):
    checker.validate(tree(file))


@pytest.mark.parametrize(
    "change",
    [
        "job.name=A_B",
        "job.name=3",
        "job.nonsense=1",
        "job.training.epochs=-1",
        "job.training.epochs=2.5",
        "job.training.epochs='3'",
        "job.training.batchSize=0",
        "job.training.batch_size=8",
        "job.ps.mode=synk",
        "job.ps.replicas=0",
        "job.ps.resources.memory=4GB",
        "job.ps.resources.cpu=0",
        "job.ps.limits.memory=lots",
        "job.data.shuffle='yes'",
        "job.data.prepare.command=make",
        "job.model=null",
        "job.model=3",
        "job.env={A: 1}",
        "job.export.formats=[onnx]",
        "job.master.port=70000",
        "job.worker.deadSeconds=0",
        "job.imagePullPolicy=always",
        "job.volumes=[{claimName: a}]",
        "job.log=[]",
        "kind=jobs",
    ],
)
def test_schema_and_models_refuse_the_same(checker, change):
    text = (ROOT / "values" / "digits.yaml").read_text()
    assert parse_values(text, source="f", overrides=[change])[0] is None
    path, _, value = change.partition("=")
    changed = YAML(typ="safe").load(text)
    inner = changed
    *around, last = path.split(".")
    for part in around:
        inner = inner.setdefault(part, {})
    inner[last] = YAML(typ="safe").load(value)
    assert not checker.is_valid(changed)


def test_an_empty_key_means_its_default_in_both(checker):
    text = "kind: job\njob:\n  name: a\n  model: {definition: b.c}\n"
    text += "  data: {training: d}\n  training:\n  ps: {limits: , mode: }\n  env:\n"
    assert parse_values(text, source="f")[1] == []
    checker.validate(YAML(typ="safe").load(text))


def test_what_is_dumped_fits_the_schema(checker):
    for file in EXAMPLES:
        values, _ = parse_values(file.read_text(), source=str(file))
        checker.validate(YAML(typ="safe").load(dump_values(values)))


def test_a_release_needs_a_kind_and_a_job_release_a_job(checker):
    platform = {"kind": "platform", "rbac": {"create": False}, "global": {"a": 1}}
    assert checker.is_valid(platform)
    assert not checker.is_valid({**platform, "nonsense": 1})
    assert not checker.is_valid({"kind": "job"})
    assert not checker.is_valid({"job": tree(EXAMPLES[0])["job"]})


def test_every_field_of_the_schema_says_what_it_is():
    schema = values_schema()
    for name, definition in {"": schema, **schema["definitions"]}.items():
        if name.startswith("io.k8s."):  # Kubernetes' own pages say it
            continue
        for key, field in definition.get("properties", {}).items():
            assert field.get("description"), f"{name}.{key}"
