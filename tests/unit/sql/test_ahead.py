"""Claims about mistakes that are told before the first statement of a text runs."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from elasticdl.errors import SpecError
from elasticdl.sql.data.source import open_source
from elasticdl.sql.plan import ColumnPlan, Head, Kind, LabelPlan, Schema, Stored
from elasticdl.sql.problems import Problem, StatementError
from elasticdl.sql.registry import Description, Registry, write_description
from elasticdl.sql.running.session import Session
from elasticdl.sql.running.statements import read

_ABOUT = Description(
    (ColumnPlan("age", "age", Stored.FLOAT), ColumnPlan("city", "city", Stored.TEXT)),
    LabelPlan("income", Kind.TEXT, Head.BINARY, 2, ("<=50K", ">50K")),
    Schema(()),
    "DNNClassifier",
)
_COLUMNS = "30 AS age, 'Bonn' AS city, '<=50K' AS income, 1.5 AS pay"


def _no_job(*_: object) -> Any:
    raise AssertionError("no job is run here")


def _session(url: str, folder: Path) -> Session:
    source = open_source(url, folder=folder)
    source.execute(f"CREATE TABLE t AS SELECT {_COLUMNS}", most_rows=1)
    registry = Registry(folder / "models")
    with registry.adding("old") as version:
        write_description(version, _ABOUT)
    return Session(source, registry, _no_job, lambda _: None)


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    """One of DuckDB, which tells the types of columns."""
    made = _session("", tmp_path)
    yield made
    made.source.close()


@pytest.fixture
def untyped(tmp_path: Path) -> Iterator[Session]:
    """One of SQLite, which has types of values alone."""
    made = _session(f"sqlite:///{tmp_path / 't.sqlite'}", tmp_path)
    yield made
    made.source.close()


def _found(session: Session, text: str) -> tuple[Problem, ...]:
    with pytest.raises(StatementError) as caught:
        read(session, text)
    return caught.value.problems


def _told(session: Session, text: str) -> list[str]:
    return [problem.message for problem in _found(session, text)]


def _places(session: Session, text: str) -> list[tuple[int, int]]:
    return [(one.at.line, one.at.column) for one in _found(session, text)]


_THREE = (
    "SELECT * FROM t TO TRAIN DNNClassifier COLUMN age LABEL income INTO m;\n"
    "SELECT * FROM t TO TRAIN DNNClassifier COLUMN agee LABEL incom INTO n;\n"
    "SELECT age FROM t TO PREDICT USING old;\n"
    "SELECT age, city FROM t TO EVALUATE old;\n"
    "SELECT * FROM t TO TRAIN DNNClassifier WITH validation.key = uzer\n"
    "COLUMN EMBEDDING(town, 4), CONCAT(city, ages) AS g, INDICATOR(g)\n"
    "LABEL income INTO o"
)
_PLACES = [(2, 47), (2, 58), (3, 36), (4, 37), (5, 62), (6, 18), (6, 41)]


def test_mistakes_of_later_statements_are_told_before_the_first_runs(
    session: Session,
) -> None:
    """A training of hours ran before the column's name of the next was looked at."""
    assert _places(session, _THREE) == [*_PLACES[:-1], _PLACES[-1]]
    told = _told(session, _THREE)
    assert told[0] == "the query has no column `agee`; did you mean `age`?"
    assert "needs the column `city`" in told[2]
    assert "the label `income` is no column" in told[3]


def test_names_are_told_before_the_first_runs_where_types_are_not_known(
    untyped: Session,
) -> None:
    assert _places(untyped, _THREE) == _PLACES
    # What is known of values alone waits for its turn.
    kinds = "SELECT 1; SELECT * FROM t TO TRAIN DNNClassifier COLUMN RAW(city) "
    assert len(read(untyped, f"{kinds} LABEL income INTO m")) == 2


def test_types_and_functions_of_later_statements_are_checked(session: Session) -> None:
    text = (
        "SELECT * FROM t LABEL income INTO m;\n"
        "SELECT *, DATE '2026-01-02' AS day FROM t TO TRAIN DNNRegressor "
        "COLUMN RAW(city), day LABEL income INTO n;\n"
        "SELECT 'x' AS age, city, 1 AS x, 2 AS x FROM t TO PREDICT USING old"
    )
    told = _told(session, text)
    assert len(told) == 5
    for problem in ("`city` is text; RAW takes", "`day` is a DATE", "is text, DNNRegr"):
        assert any(problem in one for one in told)
    assert any("two columns `x`" in one for one in told)
    assert any("column `age` is text" in one for one in told)


def test_metrics_and_validation_rows_of_later_statements_are_checked(
    session: Session,
) -> None:
    text = (
        "SELECT 1;\n"
        "SELECT * FROM t TO EVALUATE old WITH validation.metrics = 'MAE';\n"
        "SELECT * FROM t TO TRAIN DNNClassifier\n"
        "WITH validation.select = 'SELECT 1 AS age' LABEL income INTO m;\n"
        "SELECT * FROM t TO TRAIN DNNClassifier\n"
        "WITH validation.select = 'SELECT * FROM nowhere' LABEL income INTO m"
    )
    assert _places(session, text) == [(2, 59), (4, 26), (6, 26)]
    told = _told(session, text)
    assert "does not go with a label of classes" in told[0]
    assert "no column `city`, which the training needs" in told[1]
    assert "nowhere" in told[2]


def test_a_model_of_ones_own_is_looked_at_before_the_first_runs(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "zoo").mkdir()
    (tmp_path / "zoo" / "net.py").write_text("def net(groups, *, units):\n    ...\n")
    text = (
        "SELECT * FROM t LABEL income INTO m;\n"
        "SELECT * FROM t TO TRAIN zoo.net.net WITH model.unit = 3 LABEL income INTO n"
    )
    assert _places(session, text) == [(2, 26), (2, 43)]


@pytest.mark.parametrize(
    "before",
    [
        "CREATE TABLE u AS SELECT *, 1 AS new FROM t",
        'CREATE OR REPLACE TEMP TABLE "u" (new INT, income TEXT)',
        "CREATE VIEW main.u AS SELECT *, 1 AS new FROM t",
        "ALTER TABLE t ADD COLUMN new INT; ALTER TABLE t RENAME TO u",
        "ATTACH 'u.duckdb' AS u; USE u",
        "COPY t TO 'u.csv'",
        "SELECT * FROM t TO PREDICT u.new USING old",
        "SELECT * FROM t TO EVALUATE old INTO u",
        "SELECT * FROM t TO EXPLAIN old INTO u",
        "SELECT * FROM t TO PREDICT 'u.parquet' USING old",
    ],
)
def test_what_an_earlier_statement_makes_is_left_for_its_turn(
    session: Session, before: str
) -> None:
    for there in ("", "u"):  # one of that name may be there, with other columns
        if there:
            session.source.execute("CREATE TABLE u AS SELECT 1 AS x", most_rows=1)
        text = (
            f"{before}; SELECT * FROM u TO TRAIN DNNClassifier COLUMN new LABEL income "
            "INTO m; SELECT new FROM 'u.parquet' TO PREDICT USING m"
        )
        assert read(session, text)


def test_what_an_earlier_statement_leaves_alone_is_checked(session: Session) -> None:
    later = "SELECT * FROM t TO TRAIN DNNClassifier COLUMN agee LABEL income INTO m"
    for before in (
        "CREATE TABLE u AS SELECT * FROM t",
        "SELECT * FROM t",
        "INSERT INTO t SELECT * FROM t",
        "SHOW MODELS",
        "SELECT * FROM t TO PREDICT u USING old",
        "SELECT * FROM t LABEL income INTO t",
    ):
        assert _told(session, f"{before}; {later}") == [
            "the query has no column `agee`; did you mean `age`?"
        ]


def test_a_model_that_an_earlier_statement_trains_is_left_for_its_turn(
    session: Session,
) -> None:
    text = (
        "SELECT pay, income FROM t LABEL income INTO old;"
        "SELECT pay FROM t TO PREDICT USING old;"
    )
    assert len(read(session, text)) == 2


@pytest.mark.parametrize("kind", ["session", "untyped"])
def test_a_query_that_the_engine_refuses_is_told_before_the_first_runs(
    kind: str, request: pytest.FixtureRequest
) -> None:
    session = request.getfixturevalue(kind)
    text = (
        "SELECT * FROM t LABEL income INTO m;\n"
        "  SELECT * FROM nowhere LABEL income INTO n;\n"
        "SELECT agee FROM t TO PREDICT USING m;\n"
        "SELECT * FROM t WITH train.epoch = 3 LABEL income INTO o"
    )
    assert _places(session, text) == [(2, 3), (3, 1), (4, 1)]
    told = _told(session, text)
    assert "nowhere" in told[0]
    assert "DESCRIBE" not in told[0]
    assert "agee" in told[1]
    assert "WITH before LABEL belongs to the SELECT" in told[2]


def test_no_query_is_run_to_know_its_columns(session: Session) -> None:
    session.source.execute("CREATE SEQUENCE s", most_rows=1)
    select = "SELECT *, nextval('s') AS n FROM t"
    read(
        session, f"SELECT 1; {select} LABEL income INTO m; {select} TO PREDICT USING m"
    )
    assert _told(session, f"{select} TO TRAIN DNNClasifier LABEL incom INTO m")
    found = session.source.execute("SELECT nextval('s')", most_rows=1)
    assert found.rows == ((1,),)


def test_mistakes_of_clauses_words_columns_and_models_are_told_together(
    session: Session,
) -> None:
    text = (
        "SELECT * FROM t TO TRAIN DNNClasifier WITH train.epochz = 3\n"
        "COLUMN agee, EMBEDDING(city) LABEL incom INTO m;\n"
        "SELECT * FROM t TO PREDICT USING other;\n"
        "SELECT * FROM t TO TRAIN DNNClassifier COLUMN LABEL income INTO n"
    )
    told = _told(session, text)
    assert len(told) == 7
    assert "the query has no column `incom`; did you mean `income`?" in told


def test_metrics_of_an_unread_label_are_no_mistake(session: Session) -> None:
    text = (
        "SELECT * FROM t TO TRAIN DNNRegressor WITH validation.metrics = 'MAE', x = 1 "
        "LABEL age INTO m"
    )
    (told,) = _told(session, text)
    assert "no attribute `x`" in told


def test_first_rows_tell_types_where_words_are_wrong(untyped: Session) -> None:
    """Nothing will run then, and no engine is asked twice."""
    text = "SELECT * FROM t TO TRAIN DNNClasifier COLUMN RAW(city) LABEL income INTO m"
    told = _told(untyped, text)
    assert len(told) == 2
    assert any("`city` is text; RAW takes" in one for one in told)


def test_a_statement_with_mistakes_in_its_clauses_hides_no_earlier_one(
    session: Session,
) -> None:
    """What it was to make nobody knows: what comes behind it is looked at later."""
    text = (
        "SELECT * FROM t TO TRAIN DNNClassifier COLUMN agee LABEL income INTO m;\n"
        "SELECT * FROM t TO TRAIN DNNClassifier COLUMN LABEL income INTO n;\n"
        "SELECT agee FROM t TO PREDICT USING n"
    )
    assert _places(session, text) == [(1, 47), (2, 47)]


def test_one_statement_alone_is_asked_when_it_runs(session: Session) -> None:
    text = "SELECT * FROM nowhere TO TRAIN DNNClassifier COLUMN agee LABEL y INTO m"
    assert len(read(session, text)) == 1


def test_in_a_dry_run_columns_are_checked_too(session: Session, tmp_path: Path) -> None:
    dry = replace(session, dry_run=tmp_path / "dry")
    text = "SHOW MODELS; SELECT * FROM t TO TRAIN DNNClassifier LABEL incom INTO m"
    with pytest.raises(SpecError, match="did you mean `income`"):
        read(dry, text)


def test_a_file_of_sqlite_may_have_columns_of_any_name(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "t.sqlite") as connection:
        connection.execute('CREATE TABLE t ("a b" INT, "c.d" TEXT, y TEXT)')
    connection.close()
    source = open_source(str(tmp_path / "t.sqlite"))
    session = Session(source, Registry(tmp_path / "models"), _no_job, print)
    select = 'SELECT *, count(*), t.y AS "q""r" FROM t -- and all'
    text = (
        f'SELECT 1; {select}\nTO TRAIN DNNClassifier COLUMN "a b", "count(*)", '
        'VOCABULARIZE("q""r") LABEL y INTO m'
    )
    assert len(read(session, text)) == 2
    source.close()


@pytest.mark.parametrize("function", ["SPARSE(city, 9)", "SEQ_CATEGORY_ID(city, 9)"])
def test_functions_that_look_at_first_rows_do_without_them(
    session: Session, function: str
) -> None:
    """A statement with one of them before another one ended in a traceback."""
    select = f"SELECT * FROM t TO TRAIN DNNClassifier COLUMN {function}"
    assert len(read(session, f"{select} LABEL income INTO m; SHOW MODELS")) == 2
