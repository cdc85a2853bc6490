"""Claims about generated modules; `samples` are those that people can look at.

`python -m tests.unit.sql.test_generated` writes the samples anew.
"""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest
from elasticdl.job.values.file import parse_values
from elasticdl.sql.generate import generate
from elasticdl.sql.plan import (
    Column,
    ColumnStatistics,
    Kind,
    Places,
    Schema,
    Statistics,
)
from elasticdl.sql.problems import StatementError
from elasticdl.sql.writing import beside, text
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.unit.sql import tables

_SAMPLES = Path(__file__).parent / "samples"
# The other statements make parts of these.
_KEPT = ("wide_and_deep", "deepfm", "cross", "own")
_CONFIG = Path(__file__).parents[3] / "python" / "pyproject.toml"


# Quotes, backslashes, control characters and such as take two columns.
_TEXTS = st.text(st.sampled_from("ab \"'\\\n\x00äß名é#{}"), max_size=30)
_ROWS = st.lists(st.lists(_TEXTS, max_size=12), min_size=1, max_size=20)


def _formatted(source: str) -> str:
    ruff = Path(sys.executable).with_name("ruff")
    command = [ruff, "format", "--config", _CONFIG, "--stdin-filename", "m.py", "-"]
    done = subprocess.run(
        command, input=source, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", _KEPT)
def test_samples_are_what_is_generated(name: str) -> None:
    made = tables.generated(tables.SAMPLES[name])
    assert made.module == (_SAMPLES / f"{name}.py").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", tables.SAMPLES)
def test_modules_are_as_a_formatter_leaves_them(name: str) -> None:
    module = tables.generated(tables.SAMPLES[name]).module
    assert _formatted(module) == module


@settings(max_examples=10, deadline=None, phases=[Phase.generate])
@given(_ROWS)
def test_lists_and_calls_are_as_a_formatter_leaves_them(rows: list[list[str]]) -> None:
    lines = []
    for i, row in enumerate(rows):
        items = [text.literal(item) for item in row]
        lines.append(text.listing(f"x{i} = ", items, indent=0))
        lines.append(text.call(f"f{i}", items, indent=0))
    source = "\n".join(lines) + "\n"
    assert _formatted(source) == source


@pytest.mark.parametrize("name", tables.SAMPLES)
def test_values_files_are_right_and_carry_the_module(name: str) -> None:
    made = tables.generated(tables.SAMPLES[name])
    values, problems = parse_values(made.values, source="values.yaml")
    assert values is not None, problems
    assert values.job.model.files[made.module_path] == made.module
    assert values.job.model.definition == f"sql.{name}.model"
    assert values.job.data.reader_params["columns"][-1] == "label"


def test_one_worker_trains_locally_and_more_do_not() -> None:
    alone = tables.generated("SELECT * FROM t LABEL income INTO m")
    assert "strategy: local" in alone.values
    many = tables.generated(
        "SELECT * FROM t LABEL income INTO m WITH engine.num_workers = 2"
    )
    assert "strategy" not in many.values


def test_a_statement_cannot_leave_its_comment() -> None:
    made = tables.generated(
        "SELECT *, '\"\"\"' AS q, '\\\u2028' AS r FROM t\rWHERE 1 = 1 "
        "LABEL income INTO m"
    )
    compile(made.module, "m.py", "exec")
    assert _formatted(made.module) == made.module


def test_columns_may_be_called_as_words_of_python() -> None:
    names = ("class", "inputs", "ops", "filled", "None", "1st", "a b", "a_b", "é")
    schema = Schema((
        *(Column(name, Kind.NUMBER) for name in names), Column("y", Kind.BOOLEAN),
    ))  # fmt: skip
    values = dict.fromkeys(names, tables.VALUES["pay"])
    y = tables.VALUES["married"]
    plan = tables.plan(
        "SELECT * FROM t LABEL y INTO m", tables.preview(schema=schema, y=y, **values)
    )
    found = tuple(
        ColumnStatistics(need.of, 200, 0, mean=1.0, variance=1.0, vocabulary_size=2)
        for need in plan.needs
    )
    made = generate(plan, Statistics(200, found), Places("t", "", "v", "e"))
    compile(made.module, "m.py", "exec")
    features = [column.feature for column in plan.columns]
    assert len(set(features)) == len(names)
    assert all(feature.isidentifier() and feature.isascii() for feature in features)


@pytest.mark.parametrize("count", [1, 7, 11, 40])
@pytest.mark.parametrize("name", ["t", "a_column_of_a_rather_long_name"])
def test_means_of_texts_of_numbers_are_as_a_formatter_leaves_them(
    count: int, name: str, tmp_path: Path
) -> None:
    listed = ", ".join(f"i / {7 * place + 3}" for place in range(count))
    made = tables.trained(
        f"SELECT concat_ws(',', {listed}) AS {name}, i % 2 AS y FROM range(90) t(i) "
        f"TO TRAIN DNNClassifier COLUMN DENSE({name}, {count}) LABEL y INTO m",
        tmp_path,
    ).made
    assert _formatted(made.module) == made.module
    assert len(made.files) == (count > 24)


def test_hostile_values_and_names_stay_texts() -> None:
    nasty = ['"', "'", "\\", "\n", '"""', "{x}", "ä", "\x00", "\\N"]
    for value in nasty:
        assert eval(text.literal(value)) == value


def test_each_vocabulary_beside_the_module_has_a_file_of_its_own(
    tmp_path: Path,
) -> None:
    made = tables.trained(
        "SELECT 'value ' || i % 40 || '; second ' || i % 35 AS tags, i % 2 AS y "
        "FROM range(400) t(i) TO TRAIN DNNClassifier "
        "COLUMN VOCABULARIZE(tags), SPLIT(tags, ';') LABEL y INTO m",
        tmp_path,
    ).made
    assert sorted(len(text.splitlines()) for text in made.files.values()) == [75, 280]
    assert all(f'FOLDER / "{Path(name).name}"' in made.module for name in made.files)


def test_a_value_with_any_line_end_takes_one_line_of_a_file(tmp_path: Path) -> None:
    made = tables.trained(
        "SELECT 'a long value ' || i % 30 || CASE WHEN i % 30 = 5 THEN chr(13) || 'x' "
        "ELSE '' END AS c, i % 2 AS y FROM range(600) t(i) LABEL y INTO m",
        tmp_path,
    ).made
    (text,) = made.files.values()
    assert len(text.splitlines()) == 30


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ("optimizer = 'sgd'", "SGD(learning_rate=0.001)"),
        ("optimizer = 'sgd', optimizer.momentum = 0.9",
         "SGD(learning_rate=0.001, momentum=0.9)"),
        ("optimizer.beta_1 = 0.5", "Adam(learning_rate=0.001, beta_1=0.5)"),
        ("optimizer.learning_rate = 0.1", "Adam(learning_rate=0.1)"),
        # Keras takes no whole number for it.
        ("optimizer.learning_rate = 1", "Adam(learning_rate=1.0)"),
    ],
)  # fmt: skip
def test_the_learning_rate_is_the_documented_one_unless_given(
    given: str, written: str
) -> None:
    sql = f"SELECT * FROM t TO TRAIN DNNClassifier WITH {given} LABEL income INTO m"
    assert f"keras.optimizers.{written}\n" in tables.generated(sql).module


@pytest.mark.parametrize("name", ["evaluation", "explained"])
def test_no_model_has_the_file_of_metrics_or_explanations(name: str) -> None:
    made = tables.generated(f"SELECT * FROM t LABEL income INTO {name}")
    assert made.module_path == f"sql/{name}.py"
    assert made.module_path not in (beside.EVALUATION_FILE, beside.EXPLAINED_FILE)
    with pytest.raises(StatementError, match="names no model"):
        tables.plan(f"SELECT * FROM t LABEL income INTO _{name}")


def test_a_name_of_combined_categories_may_be_any_text() -> None:
    made = tables.generated(
        "SELECT * FROM t TO TRAIN DNNClassifier "
        'COLUMN CONCAT(city, BUCKETIZE(age, 4)) AS "q r", EMBEDDING("q r", 6) '
        "LABEL income INTO m"
    )
    compile(made.module, "m.py", "exec")
    assert "q_r_vector" in made.module


def test_each_use_of_a_column_has_the_limits_that_it_asks_for(tmp_path: Path) -> None:
    trained = tables.trained(
        "SELECT 'c' || sqrt(i)::INT AS c, i AS n, i % 2 AS y FROM range(1000) t(i) "
        "TO TRAIN WideAndDeepClassifier "
        "COLUMN VOCABULARIZE(c, max_size=3), BUCKETIZE(n, 4) FOR wide "
        "COLUMN EMBEDDING(c, 8), VOCABULARIZE(c, min_count=60), BUCKETIZE(n, 10), "
        "BUCKETIZE(n, 3) FOR deep LABEL y INTO m",
        tmp_path,
    )
    sizes = [
        len(found.vocabulary) for found in trained.statistics.columns
        if found.of.column == "c"
    ]  # fmt: skip
    assert sorted(sizes) == [2, 3, 33]
    every = " ".join(trained.made.module.split())
    for count in (3, 4, 10):
        cuts = [math.ceil(1000 * i / count) - 1 for i in range(1, count)]
        assert f"[{', '.join(f'{cut}.0' for cut in cuts)}" in every


if __name__ == "__main__":
    for name in _KEPT:
        module = tables.generated(tables.SAMPLES[name]).module
        (_SAMPLES / f"{name}.py").write_text(module, encoding="utf-8")
