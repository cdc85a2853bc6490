"""A values file as a TrainingJob and back: the same job, with its comments."""

import json
from pathlib import Path

import pytest
import yaml
from elasticdl.cli.files.convert import converted
from elasticdl.cli.main import main
from elasticdl.errors import ExitCode, SpecError
from elasticdl.job.values.file import load_values, parse_values
from elasticdl.job.values.training_job import manifest_of, read_manifest

ROOT = Path(__file__).parents[4]
JOBS = [
    *sorted((ROOT / "values").glob("*.yaml")),
    ROOT / "tests" / "chart" / "values" / "everything.yaml",
]

BASE_VALUES = """\
kind: job
job:
  name: digits
  model: {definition: a.b}
  data: {training: d}
"""


@pytest.mark.parametrize("file", JOBS, ids=lambda file: file.stem)
def test_a_values_file_comes_back_the_same(file):
    values = load_values(file)
    there = converted(file.read_text(), source=str(file))
    back = converted(there, source="manifest")
    assert parse_values(back, source="back") == (values, [])
    # But for spaces before comments, and only those, it is the same text.
    assert [line.split() for line in back.splitlines()] == [
        line.split() for line in file.read_text().splitlines()
    ]


@pytest.mark.parametrize("file", JOBS, ids=lambda file: file.stem)
def test_without_comments_it_is_the_same_job_too(file):
    values = load_values(file)
    assert read_manifest(manifest_of(values)) == (values, [])


def test_the_name_stands_in_the_metadata_alone():
    text = "kind: job\njob: {name: a, namespace: ml, model: {definition: m.f}, "
    text += "data: {training: d}}\nrun: 2\n"
    assert yaml.safe_load(converted(text, source="x")) == {
        "apiVersion": "elasticdl.org/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": "a", "namespace": "ml"},
        "spec": {
            "job": {"model": {"definition": "m.f"}, "data": {"training": "d"}},
            "run": 2,
        },
    }


def test_what_kubectl_prints_is_read_too():
    manifest = {
        "apiVersion": "elasticdl.org/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": "a", "namespace": "ml", "uid": "1", "generation": 3},
        "spec": {
            "job": {"model": {"definition": "m.f"}, "data": {"training": "d"}},
            "run": 2,
        },
        "status": {"state": "running"},
    }
    assert yaml.safe_load(converted(json.dumps(manifest), source="-")) == {
        "kind": "job",
        "run": 2,
        "job": {
            "name": "a",
            "namespace": "ml",
            "model": {"definition": "m.f"},
            "data": {"training": "d"},
        },
    }


def test_the_result_is_written_where_it_is_wanted(tmp_path, capsys):
    file, manifest = ROOT / "values" / "digits.yaml", tmp_path / "digits-job.yaml"
    assert main(["convert", str(file), "-o", str(manifest)]) == ExitCode.OK
    assert capsys.readouterr().out == ""
    assert main(["convert", str(manifest)]) == ExitCode.OK
    back, _ = parse_values(capsys.readouterr().out, source="back")
    assert back == load_values(file)


BASE = {
    "apiVersion": "elasticdl.org/v1alpha1",
    "kind": "TrainingJob",
    "metadata": {"name": "a"},
    "spec": {"job": {"model": {"definition": "m.f"}, "data": {"training": "d"}}},
}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"apiVersion": "elasticdl.org/v2"},
            "kind: got TrainingJob of elasticdl.org/v2",
        ),
        ({"metadata": {}}, "metadata.name: got nothing, expected the job's name"),
        ({"spec": None}, "spec: got nothing, expected the job's values"),
        ({"spec": {}}, "job: got nothing"),
        (
            {"spec": {"job": {**BASE["spec"]["job"], "name": "b"}}},
            "spec.job.name: got 'b', expected metadata.name, 'a'; take it out",
        ),
        (
            {"spec": {**BASE["spec"], "jobs": {"fixed": []}}},
            "spec.jobs: got a key that a TrainingJob does not have",
        ),
        (
            {"spec": {"job": {**BASE["spec"]["job"], "trainings": {"epochs": 2}}}},
            "job.trainings: got an unknown key, expected a key of `job`; did you mean "
            "`training`?",
        ),
    ],
)
def test_mistakes_of_a_manifest_are_said_in_the_words_of_values_files(change, said):
    with pytest.raises(SpecError) as caught:
        converted(json.dumps({**BASE, **change}), source="m.yaml")
    assert f"m.yaml: {said}" in str(caught.value)


def test_mistakes_of_a_values_file_have_their_lines():
    with pytest.raises(SpecError, match=r"f.yaml:3:3: job.modl: got an unknown key"):
        converted("kind: job\njob:\n  modl: {}\n  name: a\n", source="f.yaml")


def test_what_no_trainingjob_has_is_refused_and_not_left_out():
    text = (
        "kind: job\njob: {name: a, model: {definition: m.f}, data: {training: d}}\n"
        "jobs: {fixed: [images.registry]}\n"
    )
    with pytest.raises(SpecError, match="got `jobs`, which no TrainingJob has"):
        converted(text, source="f.yaml")


def test_what_is_nested_too_deeply_is_refused_in_a_sentence():
    with pytest.raises(SpecError, match=r"f\.yaml: got lists .* nested too deeply"):
        converted(f"x: {'[' * 3000}{']' * 3000}", source="f.yaml")


def test_comments_beside_and_below_what_moves_are_kept_there_and_back() -> None:
    comments = ["head", "of kind", "of job", "of name", "of model", "of data", "of ns"]
    text = """\
# head
kind: job  # of kind
# of job
job:
  name: digits  # of name
  # of model
  model: {definition: a.b.custom_model}
  # of data
  data: {training: d}
  namespace: ml
  # of ns
  worker: {replicas: 2}
"""
    there = converted(text, source="values.yaml")
    back = converted(there, source="job.yaml")
    for comment in comments:
        assert f"# {comment}\n" in there
        assert f"# {comment}\n" in back


def test_kubectl_reads_what_we_read() -> None:
    """PyYAML reads YAML 1.1, as kubectl does, but for `y` and `n`."""
    text = """\
kind: job
job:
  name: digits
  model: {definition: a.b, params: {list: ["off", 7]}}  # of model
  data: {training: d}
  training: {epochs: 010}
  env: {DEBUG: on, SURE: "no"}
"""
    there = converted(text, source="values.yaml")
    assert "# of model\n" in there
    found = yaml.safe_load(there)["spec"]["job"]
    assert found["model"]["params"] == {"list": ["off", 7]}
    assert found["training"] == {"epochs": 10}
    assert found["env"] == {"DEBUG": "on", "SURE": "no"}
    back = converted(there, source="job.yaml")
    values, _ = parse_values(text, source="values.yaml")
    assert parse_values(back, source="back") == (values, [])


def test_a_key_that_kubectl_takes_for_no_text_is_quoted() -> None:
    text = BASE_VALUES + "  env: {on: a, N: b, y: c}\n"
    there = converted(text, source="values.yaml")
    assert '"N": b' in there
    assert '"y": c' in there
    assert yaml.safe_load(there)["spec"]["job"]["env"] == {
        "on": "a",
        "N": "b",
        "y": "c",
    }
