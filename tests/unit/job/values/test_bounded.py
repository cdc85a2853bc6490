"""YAML of others is read as far as it may hold up other work."""

from __future__ import annotations

from pathlib import Path

import pytest
from elasticdl.job.values import bounded
from elasticdl.job.values.bounded import TooMuchError, check_tree, load_bounded
from elasticdl.job.values.file import parse_values
from ruamel.yaml import YAML

VALUES = sorted((Path(__file__).parents[4] / "values").glob("*.yaml"))
FITS = bounded.MOST_VALUES


@pytest.mark.parametrize("path", VALUES, ids=lambda path: path.name)
def test_a_values_file_reads_as_it_does_without_bounds(path):
    text = path.read_text()
    assert load_bounded(text) == YAML(typ="safe").load(text)
    check_tree(load_bounded(text))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a" * (bounded.MOST_CHARACTERS + 1), "characters, more than"),
        ("- a\n" * FITS, "more than 10000 keys and values"),
        ("x: [" + "a, " * FITS + "]", "more than 10000 keys and values"),
        ("[" * 101 + "]" * 101, "nest deeper than 100"),
        ("[" * 100_000, "nest deeper than 100"),
        ("a: &one [x]\nb: *one\n", "an alias"),
        ('{"k&":&a [1], b: *a}', "an alias"),
        ("a: &b {c: d}\ne: {<<: *b}\n", "an alias"),
        ("a: &a [*a]\n", "an alias"),
        ("%YAML 1.1\n---\na: 1" + ":1" * 200, "a number of more than 400 digits"),
        ("a: 0x" + "f" * 400, "a number of more than 400 digits"),
    ],
)
def test_a_text_that_takes_long_to_read_is_refused(text, said):
    with pytest.raises(TooMuchError, match=said.replace("(", r"\(")):
        load_bounded(text)


def test_code_and_what_only_looks_like_an_alias_is_read():
    code = "".join(f"        x = [{i}, {{1: 2}}]  # a && b, *c\n" for i in range(9_000))
    text = f"model:\n  files:\n    a.py: |\n{code}cmd: [sh, 'a &b *b']\n"
    assert load_bounded(text) == YAML(typ="safe").load(text)
    check_tree(load_bounded(text))


@pytest.mark.parametrize(
    "tree",
    [["a"] * FITS, {str(i): 1 for i in range(FITS)}, "a" * 600_000, [["x"]] * FITS],
)
def test_a_tree_that_holds_more_than_a_text_may_is_refused(tree):
    with pytest.raises(TooMuchError):
        check_tree(tree)


def test_thousands_of_mistakes_are_told_by_the_first_hundred_of_them():
    many = "".join(f"  unknown{i}: 1\n" for i in range(4000))
    text = f"kind: job\njob:\n  name: a\n{many}"
    values, problems = parse_values(text, source="it", bounded=True)
    assert values is None
    assert [one.path for one in problems[1:3]] == ["job.unknown0", "job.unknown1"]
    assert 100 <= len(problems) <= 200
    assert problems[-1].got == "more mistakes than are told here"


def test_a_few_mistakes_are_told_as_without_bounds():
    text = "kind: job\njob:\n  name: a\n  worker: {replica: 2, min: -1}\n  zoo: 1\n"
    told = [
        [(one.path, one.got, one.expected, one.next_step) for one in found]
        for _, found in (
            parse_values(text, source="it", bounded=bounded) for bounded in (0, 1)
        )
    ]
    assert told[0] == told[1]
    assert len(told[0]) > 2
