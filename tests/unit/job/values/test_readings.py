"""A bare word that Helm reads as another value than a job here is refused."""

import helm_python as helm
import pytest
from elasticdl.job.values.file import parse_values

TEXT = """\
kind: job
job:
  name: a
  model:
    definition: m.model
    params: {{use_norm: {word}, layers: [{word}]}}
  data: {{training: x, readerParams: {{header: {word}}}}}
"""
SAME = ["true", "False", '"no"', "'017'", "nope", "0", "0.5", "1e-3", "08", "12:30"]


def held(tree):
    return tree["job"]["model"]["params"], tree["job"]["data"]["readerParams"]


@pytest.mark.parametrize("word", ["no", "Yes", "off", "ON", "y", "017", "-010"])
def test_a_word_with_two_readings_is_refused_where_any_value_may_stand(word):
    values, problems = parse_values(TEXT.format(word=word), source="a.yaml")
    assert values is None
    assert [p.path for p in problems] == [
        "job.model.params.use_norm",
        "job.model.params.layers[0]",
        "job.data.readerParams.header",
    ]
    assert f"a.yaml:6:24: job.model.params.use_norm: got a bare {word}" in str(
        problems[0]
    )


@pytest.mark.parametrize("word", SAME)
def test_a_word_with_one_reading_is_what_helm_reads(word):
    text = TEXT.format(word=word)
    values, problems = parse_values(text, source="a.yaml")
    assert not problems
    job = values.job
    expected = held(helm.values_from_yaml(text))
    assert (dict(job.model.params), dict(job.data.reader_params)) == expected


def test_a_key_with_two_readings_is_refused():
    text = TEXT.format(word="1").replace("use_norm:", "y:")
    values, problems = parse_values(text, source="a.yaml")
    assert values is None
    assert "a bare y" in str(problems[0])


def test_a_word_that_is_text_in_other_fields_stays_one():
    text = TEXT.format(word="1") + "  log: {file: on}\n"
    values, problems = parse_values(text, source="a.yaml")
    assert not problems
    assert values.job.log.file == "on"
