"""Values files: what is read, what is refused and in which words, what is kept."""

import stat
from pathlib import Path

import pytest
from elasticdl.errors import SpecError
from elasticdl.job.spec.job import JobSpec, ModelSpec, Strategy, UpdateMode
from elasticdl.job.values.document import ValuesFile
from elasticdl.job.values.file import (
    dump_values,
    edit_values,
    load_values,
    parse_values,
    read_values,
    write_values,
)
from hypothesis import given
from hypothesis import strategies as st

GOOD = """\
# What it shows.
kind: job
job:
  name: digits          # the name
  model:
    definition: digits.cnn.custom_model
  data:
    training: data/train
  worker:
    replicas: 3         # how many
networkPolicy:
  enabled: true
"""


def write(folder: Path, text: str) -> Path:
    file = folder / "job.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def mistakes(text: str, *overrides: str) -> list[str]:
    values, problems = parse_values(text, source="f.yaml", overrides=overrides)
    assert values is None
    return [str(problem) for problem in problems]


def mistake(text: str, *overrides: str) -> str:
    found = mistakes(text, *overrides)
    assert len(found) == 1, found
    return found[0]


def with_line(line: str) -> str:
    return GOOD.replace("  worker:\n", f"{line}\n  worker:\n")


def test_a_good_file_gives_typed_values(tmp_path):
    values = load_values(write(tmp_path, GOOD))
    assert values.job.worker.replicas == 3
    assert values.job.strategy is Strategy.PARAMETER_SERVER
    assert values.job.master.resources.cpu == 0.1


def test_keys_of_the_chart_are_kept_as_they_stand(tmp_path):
    values = load_values(write(tmp_path, GOOD))
    assert values.chart_keys() == {"networkPolicy": {"enabled": True}}
    assert "networkPolicy:\n  enabled: true" in dump_values(values)


@pytest.mark.parametrize(
    ("lines", "part"),
    [
        ("network_policy: {}", "expected `kind`, `job` or the chart's; did"),
        ("pods: {workers: {}}", "pods.workers: got an unknown key, expected a key of"),
        ("images: {tags: a}", "f.yaml:13:10: images.tags: got an unknown key"),
        ("pods: {ps: {tolerations: {}}}", "got a mapping, expected a list of mappings"),
        (
            "pods: {ps: {tolerations: [{key: a, tolerationSecond: 3}]}}",
            "13:54: pods.ps.tolerations[0].tolerationSecond: got an unknown key, "
            "expected one of Kubernetes; did you mean `tolerationSeconds`?",
        ),
        (
            "pods: {ps: {env: [{name: A, value: 3}]}}",
            'pods.ps.env[0].value: got 3, expected text; put it in quotes: "3"',
        ),
        (
            "pods: {ps: {volumes: [{name: a, configMap: {name: b,\n"
            "  items: [{key: a.b/c}]}}]}}",
            "pods.ps.volumes[0].configMap.items[0].path: got nothing",
        ),
        ("state: {mountPath: data}", "expected a path that begins with `/`"),
        ("claims: []", "claims: got a section of the platform's values"),
        (
            "monitoring: {rules: {enabled: true}}",
            "monitoring.rules: got a section of the platform's values",
        ),
    ],
)
def test_a_mistake_in_the_charts_keys_is_found(lines, part):
    assert part in mistake(f"{GOOD}{lines}\n")


def test_an_override_reaches_the_charts_keys(tmp_path):
    values = load_values(write(tmp_path, GOOD), overrides=["images.tag=v1"])
    assert values.chart_keys()["images"] == {"tag": "v1"}


def test_a_key_without_a_value_means_its_default():
    text = with_line("  training:\n    # epochs: 3\n  evaluation:\n    everySteps:")
    values, problems = parse_values(text, source="f")
    assert problems == []
    assert values is not None
    assert values.job.training.epochs == 1


def test_a_whole_number_may_be_written_with_a_point_or_an_exponent():
    text = with_line(
        "  training: {batchSize: 64.0, epochs: 1e3}\n"
        "  model: {definition: a.b, params: {rate: 1.0}}"
    ).replace("  model:\n    definition: digits.cnn.custom_model\n", "")
    values, problems = parse_values(text, source="f", overrides=["ps.replicas=2.0"])
    assert problems == []
    assert values is not None
    job = values.job
    given = (job.training.batch_size, job.training.epochs, job.ps.replicas)
    assert given == (64, 1000, 2)
    assert [type(number) for number in given] == [int, int, int]
    assert isinstance(job.model.params["rate"], float)


@pytest.mark.parametrize("number", ["64.5", "1e300", "-1.0", ".nan", ".inf", "true"])
def test_what_is_no_whole_number_is_none_by_a_point(number):
    line = f"  training: {{batchSize: {number}}}"
    assert "expected a whole number" in mistake(with_line(line))


def test_overrides_are_typed_by_yaml_and_may_leave_job_out(tmp_path):
    values = load_values(
        write(tmp_path, GOOD),
        overrides=[
            "job.training.epochs=3",
            "worker.replicas=5",
            "ps.mode=sync",
            'worker.priority="0.5"',
            "model.params={units: 8}",
            "worker.resources.extra.nvidia\\.com/gpu='1'",
            "image=",
        ],
    )
    job = values.job
    assert (job.training.epochs, job.worker.replicas) == (3, 5)
    assert job.ps.mode is UpdateMode.SYNC
    assert job.worker.priority == "0.5"
    assert job.model.params == {"units": 8}
    assert job.worker.resources.extra == {"nvidia.com/gpu": "1"}


def test_an_override_reaches_items_of_lists():
    text = with_line("  volumes:\n    - {claimName: a, mountPath: /a}")
    values, problems = parse_values(
        text, source="f", overrides=["volumes[0].mountPath=/b"]
    )
    assert problems == []
    assert values is not None
    assert values.job.volumes[0].mount_path == "/b"


def test_an_override_of_a_numbered_key_takes_its_place():
    text = with_line("  training:\n    classWeight: {0: 1.0, 1: 3.0}")
    values, problems = parse_values(
        text, source="f", overrides=["training.classWeight.0=8"]
    )
    assert problems == []
    assert values is not None
    assert values.job.training.class_weight == {0: 8.0, 1: 3.0}


def test_a_mistake_in_an_override_names_the_override():
    assert mistake(GOOD, "training.epochs=many") == (
        "--set training.epochs=many: job.training.epochs: got 'many', expected a whole "
        "number, 0 or more; correct it, or leave it out for the default (1)"
    )


@pytest.mark.parametrize(
    ("override", "part"),
    [
        ("novalue", "expected path=value"),
        ("=3", "expected path=value"),
        ("trainingz.epochs=3", "did you mean `training`?"),
        ("jb.worker=3", "did you mean `job`?"),
        ("qqq=1", "expected a field of the job"),
        ("job.foo.bar=1", "--set job.foo.bar=1: job.foo: got an unknown key"),
        ("job.name.x=1", "expected a mapping at `job.name`"),
        ("volumes[3].mountPath=1", "index 3"),
        ("worker.replicas=[1", "expected a YAML value"),
    ],
)
def test_an_override_that_goes_nowhere_is_refused(override, part):
    assert part in mistake(GOOD, override)


def test_a_definition_without_a_function_and_a_limit_below_its_request():
    text = GOOD.replace("definition: ", "definition: x # ")
    assert "definition: x" in text
    assert "expected the model function, as `folder.file.function`" in mistake(text)
    limits = with_line("  ps: {resources: {cpu: 2}, limits: {cpu: 1}}")
    assert "job.ps.limits.cpu: got 1, expected at least resources.cpu, 2" in mistake(
        limits
    )


def test_an_unknown_key_gets_a_did_you_mean_with_its_place():
    text = with_line("  training:\n    batch_size: 8")
    assert mistake(text) == (
        "f.yaml:10:5: job.training.batch_size: got an unknown key, expected a key of "
        "`job.training`; did you mean `batchSize`?"
    )


def test_a_key_in_the_wrong_section_is_sent_to_its_own():
    assert "did you mean `job.training.epochs`?" in mistake(with_line("  epochs: 3"))


def test_a_key_near_to_nothing_gets_the_list_of_keys():
    assert "known are: level, file" in mistake(with_line("  log: {zzzz: 3}"))


def test_a_misspelt_section_does_not_hide_the_mistakes_inside_it():
    text = with_line("  trainingg:\n    epochs: x\n    batchSize: 0")
    found = mistakes(text)
    assert len(found) == 3
    assert "did you mean `training`?" in found[0]
    assert found[1].startswith("f.yaml:10:13: job.training.epochs: got 'x'")
    assert "job.training.batchSize: got 0, expected a whole number, 1" in found[2]


def test_an_enumeration_gets_a_did_you_mean():
    assert "did you mean `sync`?" in mistake(with_line("  ps: {mode: synch}"))
    text = with_line("  export: {formats: [savedmodel]}")
    assert "did you mean `savedModel`?" in mistake(text)


def test_a_number_or_a_word_is_one_mistake_that_says_both():
    said = mistake(with_line("  training: {globalBatchSize: 0}"))
    assert said.startswith("f.yaml:9:31: job.training.globalBatchSize: got 0, expected")
    assert "a whole number, 1 or more, or `elastic`" in said


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ('  training: {epochs: "3"}', "write 3, without quotes"),
        ("  training: {epochs: 2.5}", "expected a whole number"),
        ("  data2: 1", "did you mean `data`?"),
        ('  paused: "yes"', "write true, without quotes"),
        ("  env: {A: 1}", 'put it in quotes: "1"'),
        ("  env: {A: true}", 'put it in quotes: "true"'),
        ("  training: 3", "expected a mapping; write its keys below it"),
        ("  log: {level: []}", "got a list, expected one of `debug`"),
        ("  ps: {resources: {memory: 4GB}}", "a quantity, as `512Mi` or `4Gi`"),
        ("  ps: {resources: {cpu: 0}}", "a number, more than 0"),
        ("  ps: {resources: {cpu: .nan}}", "got nan, expected a number"),
        ("  volumes: [{claimName: a}]", "job.volumes[0].mountPath: got nothing"),
        ("  volumes: [{mountPath: /a}]", "expected exactly one of `claimName`"),
        ("  evaluation: {everySeconds: -1}", "0 or more"),
        ("  master: {port: 70000}", "65535 or less"),
        ("  strategy: local", "job.worker.replicas: got 3, expected 1"),
        (
            "  ps: {gradsToWait: 3}",
            "job.ps.gradsToWait: got 3, expected 0 with ps.mode async; set",
        ),
        ("  type: evaluate", "data.validation"),
        ("  volumes: a", "got 'a', expected a list of mappings; write a list: [a]"),
    ],
)
def test_a_wrong_value_says_got_expected_and_next_step(line, part):
    found = mistakes(with_line(line))
    assert part in " ".join(found)
    assert "Input should" not in " ".join(found)


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("    max: 2", "job.worker.replicas: got 3, expected at most worker.max, 2"),
        ("    min: 4", "job.worker.min: got 4, expected at most worker.replicas, 3"),
        ("    deadSeconds: 1", "expected more than worker.heartbeatSeconds, 1"),
        ("    priority: 1.5", "a share of `high` workers from 0 to 1"),
        ("    priority: true", "expected text"),
        ("    priority: '1.5'", "a share of `high` workers from 0 to 1"),
        ("    priority: '1.5.2'", "a share of `high` workers from 0 to 1"),
        ("    priority: high=0.5", "write `0.5` for `high=0.5`"),
        ("    memoryLimitMax: lots", "expected a quantity"),
    ],
)
def test_rules_between_fields_are_reported_with_their_place(line, part):
    text = GOOD.replace("networkPolicy:", f"{line}\nnetworkPolicy:")
    found = mistake(text)
    assert part in found
    assert found.startswith("f.yaml:1")


def test_a_key_that_is_gone_says_what_takes_its_place():
    found = mistake(with_line("  populateEnv: 'AWS_.*'"))
    assert "job.populateEnv: got an unknown key" in found
    assert "take it out: `job.env` reaches all roles" in found


@pytest.mark.parametrize("name", ["digits-status", "digits-history"])
def test_a_name_under_which_another_job_shows_itself_is_refused(name):
    found = mistakes(
        with_line("  paused: false").replace("name: digits", f"name: {name}")
    )
    assert f"ConfigMap elasticdl-{name}" in " ".join(found)


def test_prepare_is_a_data_set_or_a_command():
    text = GOOD.replace("training: data/train", "training: t\n    prepare: {}")
    assert "got neither of them, expected exactly one" in mistake(text)
    both = "training: t\n    prepare: {dataset: digits, command: [make]}"
    text = GOOD.replace("training: data/train", both)
    assert "got both, expected exactly one" in mistake(text)


def test_a_duplicate_key_is_reported_beside_other_mistakes():
    text = with_line("  name: other\n  env: {A: 1}")
    found = mistakes(text)
    assert "each key once (first in line 4)" in found[0]
    assert "job.env.A" in found[1]


def test_two_spellings_of_a_key_are_one_key():
    text = with_line("  training:\n    classWeight:\n      0: 1.0\n      '0': 2.0")
    (found,) = mistakes(text)
    assert "classWeight.0: got the key a second time" in found


@pytest.mark.parametrize("key", ["true", "null"])
def test_a_key_that_is_no_text_is_the_same_as_its_text(key):
    model = "  model:\n"
    params = "    params: {kinds: {%s: 1%s}}\n"
    (found,) = mistakes(GOOD.replace(model, model + params % (key, f", '{key}': 2")))
    assert f"kinds.{key}: got the key a second time" in found
    values, problems = parse_values(
        GOOD.replace(model, model + params % (key, "")),
        source="f",
        overrides=[f"model.params.kinds.{key}=8"],
    )
    assert problems == []
    assert values is not None
    assert values.job.model.params == {"kinds": {key: 8}}


def test_thirty_mistakes_give_thirty_entries():
    lines = "".join(f"    WRONG_{number}: {number}\n" for number in range(28))
    text = with_line(f"  env:\n{lines}  strategi: local\n  imagePullPolicy: always")
    found = mistakes(text)
    places = {entry.split(" ")[0] for entry in found}
    # `strategi` means local, which does not go with three workers: the 31st.
    assert len(found) == 31
    assert len(places) == 31


def test_a_file_of_thirty_mistakes_is_one_error_with_all_lines(tmp_path):
    lines = "".join(f"    WRONG_{number}: {number}\n" for number in range(30))
    with pytest.raises(SpecError, match="30 mistakes:") as raised:
        load_values(write(tmp_path, with_line(f"  env:\n{lines.rstrip()}")))
    assert len(str(raised.value).splitlines()) == 31


def test_rules_are_checked_even_beside_wrong_fields():
    text = with_line("  training: {epochs: x}").replace("replicas: 3", "min: 5")
    found = mistakes(text)
    assert any("training.epochs" in entry for entry in found)
    assert any("job.worker.min: got 5" in entry for entry in found)


def test_a_wrong_value_has_no_followers():
    text = GOOD.replace("training: data/train", "training: 5")
    assert "job.data.training: got 5" in mistake(text)


def test_required_fields_say_what_they_are():
    found = mistakes("kind: job\njob: {}\n")
    assert "job.name: got nothing" in found[0]
    assert "add `model`: the model module" in " ".join(found)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "an empty file"),
        ("# nothing\n", "an empty file"),
        ("- a\n", "no mapping"),
        ("just text\n", "no mapping"),
        ("kind: job\n\tjob: 1\n", "f.yaml:2:1: got a character"),
        ("kind: job\njob:\n  name: a: b\n", "f.yaml:3:10: got a second `:`"),
        ("kind: job\njob:\n  name: [a\n", "not closed"),
        ("kind: job\njob:\n  name: 'a\n", "close the quotes"),
        ("kind: job\njob: *a\n", "alias"),
        ("kind: job\n---\njob: 1\n", "one job per file"),
        ("kind: job\njob:\n    name: a\n  model: b\n", "indentation"),
        ("kind: job\njob: 2024-13-45\n", "put the text in quotes"),
        ("kind: job\njob:\n  name: %a\n", "quotes"),
        ("kind: job\njob\nx: 1\n", "f.yaml:"),
        ("kind: job\njob: &a\n  env: *a\n", "an alias inside itself"),
        ("kind: job\njob: " + "[" * 1100 + "]" * 1100, "nested too deeply"),
        (GOOD.replace("data/train", '"\\ud800"'), "what JSON cannot hold"),
    ],
)
def test_what_is_no_values_file_is_refused_in_plain_words(text, part):
    assert part in mistake(text)


@pytest.mark.parametrize(
    ("kind", "part"),
    [
        ("kind: platform", "a platform's values are for `helm install`"),
        ("kind: jobs", "expected `job`; write `kind: job`"),
        ("", "add the line `kind: job` at the top"),
        ("Kind: job", "did you mean `kind`?"),
    ],
)
def test_the_kind_has_to_be_job(kind, part):
    assert part in mistake(GOOD.replace("kind: job", kind, 1))


def test_a_misspelt_job_is_reported_and_still_checked():
    found = mistakes(GOOD.replace("job:\n", "jobs:\n").replace("3  ", "x  "))
    assert len(found) == 2
    assert "did you mean `job`?" in found[0]
    assert "job.worker.replicas: got 'x'" in found[1]


def test_a_section_outside_of_job_is_sent_inside():
    found = mistake(GOOD + "training:\n  epochs: 3\n")
    assert "training: got a section of the job" in found


def test_files_that_cannot_be_read_are_one_plain_message(tmp_path):
    assert "no such file" in str(read_values(tmp_path / "x.yaml")[1][0])
    assert "a folder" in str(read_values(tmp_path)[1][0])
    (tmp_path / "b").write_bytes(b"\xff\xfe\x00")
    assert "no UTF-8" in str(read_values(tmp_path / "b")[1][0])
    with pytest.raises(SpecError, match="no such file"):
        edit_values(tmp_path / "x.yaml", {"job.paused": True})


def test_written_values_are_read_back_the_same(tmp_path):
    values = load_values(write(tmp_path, GOOD))
    other = tmp_path / "other.yaml"
    write_values(other, values)
    assert load_values(other) == values
    assert stat.S_IMODE(other.stat().st_mode) == 0o644
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "job.yaml",
        "other.yaml",
    ]


def test_code_in_a_values_file_is_written_as_a_block():
    code = "import keras\n\n\ndef model():\n    return keras.Model()\n"
    values = ValuesFile(
        job=JobSpec(
            name="inline",
            model=ModelSpec(definition="m.model", files={"m.py": code}),
            data={"training": "d"},
        )
    )
    text = dump_values(values)
    assert "m.py: |" in text
    assert parse_values(text, source="f")[0] == values


_TEXT = st.text(max_size=30)
_ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _TEXT,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3)
    ),
    max_leaves=6,
)


_VARIABLE = st.from_regex(r"[-._a-zA-Z][-._a-zA-Z0-9]*", fullmatch=True)


@given(
    env=st.dictionaries(_VARIABLE, _TEXT, max_size=3),
    params=st.dictionaries(_TEXT, _ANY, max_size=3),
    code=_TEXT,
)
def test_any_text_survives_writing_and_reading(env, params, code):
    values = ValuesFile(
        job=JobSpec(
            name="a",
            model=ModelSpec(definition="m.f", params=params, files={"m.py": code}),
            data={"training": "d"},
            env=env,
        )
    )
    again, problems = parse_values(dump_values(values), source="f")
    assert problems == []
    assert again == values


def test_an_edit_keeps_comments_order_and_quotes(tmp_path):
    file = write(tmp_path, GOOD.replace("data/train", '"data/train"'))
    file.chmod(0o600)
    values = edit_values(file, {"job.worker.replicas": 5, "job.paused": True})
    assert (values.job.worker.replicas, values.job.paused) == (5, True)
    text = file.read_text()
    assert "# What it shows." in text
    assert "name: digits          # the name" in text
    assert "replicas: 5         # how many" in text
    assert 'training: "data/train"' in text
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["job.yaml"]


def test_an_edit_can_take_a_key_away(tmp_path):
    file = write(tmp_path, GOOD)
    values = edit_values(file, {"job.worker.replicas": None})
    assert values.job.worker.replicas == 1


@pytest.mark.parametrize(
    "changes", [{"job.worker.replicas": 0}, {"job.name.x": 1}, {"job.nonsense": 1}]
)
def test_an_edit_that_would_break_the_file_leaves_it_as_it_was(tmp_path, changes):
    file = write(tmp_path, GOOD)
    with pytest.raises(SpecError):
        edit_values(file, changes)
    assert file.read_text() == GOOD


@pytest.mark.parametrize("text", ["", "- a\n", "a: [\n"])
def test_an_edit_of_no_values_file_is_refused(tmp_path, text):
    with pytest.raises(SpecError):
        edit_values(write(tmp_path, text), {"job.paused": True})


def test_an_edit_through_a_link_changes_what_it_points_to(tmp_path):
    file = write(tmp_path, GOOD)
    link = tmp_path / "link.yaml"
    link.symlink_to(file)
    edit_values(link, {"job.worker.replicas": 4})
    assert link.is_symlink()
    assert load_values(file).job.worker.replicas == 4


def test_writing_into_a_folder_that_is_not_there_is_a_plain_error(tmp_path):
    values = load_values(write(tmp_path, GOOD))
    with pytest.raises(SpecError, match="cannot be written"):
        write_values(tmp_path / "no" / "job.yaml", values)


def test_every_example_is_valid():
    examples = sorted((Path(__file__).parents[4] / "values").glob("*.yaml"))
    assert len(examples) >= 6
    for example in examples:
        values = load_values(example)
        assert values.job.name == example.stem, example
        assert example.read_text().startswith("# "), example


@pytest.mark.parametrize(
    ("field", "line"),
    [
        ("resources.memory", "resources: {memory: %s}"),
        ("limits.memory", "limits: {memory: %s}"),
        ("memoryLimitMax", "memoryLimitMax: %s"),
    ],
)
def test_a_quantity_of_too_many_digits_is_refused(field, line):
    asked = line % ("9" * 310 + "Gi")
    text = GOOD.replace("    replicas: 3 ", f"    {asked}\n    replicas: 3 ")
    assert f"job.worker.{field}: got '999" in mistake(text)


def test_aliases_that_stand_for_more_than_can_be_held_are_refused() -> None:
    lines = ["a0: &a0 [x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join(9 * [f'*a{n - 1}'])}]" for n in range(1, 30)]
    (found,) = mistakes("\n".join([*lines, with_line("")]))
    assert "aliases that make " in found
    assert "at most 100,000; write fewer of them" in found


def test_a_few_aliases_are_what_they_stand_for() -> None:
    text = with_line("  env: &of_all {A: b}\n  master: {env: *of_all}")
    values, problems = parse_values(text, source="values.yaml")
    assert not problems
    assert values.job.master.env == values.job.env == {"A": "b"}
