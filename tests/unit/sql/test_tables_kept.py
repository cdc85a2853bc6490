"""A table that a statement reads and writes has all of its rows and columns then."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from elasticdl.errors import DataError
from elasticdl.sql import planning
from elasticdl.sql.data.source import open_source
from elasticdl.sql.plan import ColumnPlan, Head, Kind, LabelPlan, Schema, Stored
from elasticdl.sql.registry import Description, Registry, write_description
from elasticdl.sql.running import evaluate, explain, gradients, losses, predict
from elasticdl.sql.running.session import Session

ABOUT = Description(
    (ColumnPlan("x", "x", Stored.FLOAT),),
    LabelPlan("y", Kind.INTEGER, Head.BINARY, 2, (0, 1)),
    Schema(()),
    "DNNClassifier",
)


@pytest.fixture(params=["", "shop.sqlite"])
def session(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Session]:
    def run_job(*_: object) -> Any:
        raise AssertionError("no job is run here")

    url = f"sqlite:///{tmp_path / request.param}" if request.param else ""
    source = open_source(url, folder=tmp_path)
    source.execute("CREATE TABLE people (x INTEGER, y INTEGER)", most_rows=1)
    values = ", ".join(f"({i}, {i % 2})" for i in range(10))
    for table in ("people", '"out"'):
        sql = f"CREATE TABLE IF NOT EXISTS {table} AS SELECT * FROM people"
        source.execute(sql, most_rows=1)
        source.execute(f"INSERT INTO {table} VALUES {values}", most_rows=1)
    yield Session(source, Registry(tmp_path / "models"), run_job, lambda _: None)
    source.close()


def prepared(session: Session, text: str, folder: Path) -> Any:
    (statement,) = planning.read_statements(text, session.source.engine)
    folder.mkdir()
    assert predict.prepare(session, statement, ABOUT, folder)
    return statement


def finished(session: Session, statement: Any, folder: Path, num_rows: int) -> None:
    said = {"record": list(range(num_rows)), "prediction": [0.75] * num_rows}
    (folder / "outputs").mkdir()
    pq.write_table(pa.table(said), folder / "outputs" / "part-0.parquet")
    predict.finish(session, statement, ABOUT, folder, {})


def rows_of(session: Session, sql: str) -> Any:
    return session.source.execute(sql, most_rows=99).rows


@pytest.mark.parametrize(
    ("select", "table"),
    [
        ("SELECT x, people FROM employees", "people"),
        ("SELECT count(people), x FROM employees GROUP BY x", "people"),
        ("SELECT * FROM raw.people", "mart.people"),
        ('SELECT * FROM "raw data"."people" AS r', "mart.people"),
        ("SELECT * FROM people_of_today", "people"),
    ],
)
def test_what_only_has_the_name_of_the_target_is_not_it(
    select: str, table: str
) -> None:
    """Each day's second run was refused: the table had other rows from the first."""
    assert not losses.reads(select, table)


@pytest.mark.parametrize(
    ("select", "table"),
    [
        ("SELECT * FROM main.people", "main.people"),
        ('SELECT * FROM "main" . "people"', "main.people"),
        ("SELECT * FROM people", "main.people"),
        ("SELECT * FROM main.people", "people"),
        ("SELECT x FROM cities c, people", "people"),
        ("FROM (people)", "people"),
        ("SELECT * FROM ONLY people", "people"),
        ("SELECT * FROM cities c, ONLY people", "people"),
    ],
)
def test_a_target_is_found_however_it_is_named(select: str, table: str) -> None:
    assert losses.reads(select, table)


@pytest.mark.parametrize("joined", ["JOIN orders o ON", ", orders o WHERE"])
def test_a_join_that_gives_some_rows_often_hides_none_that_it_leaves_out(
    session: Session, tmp_path: Path, joined: str
) -> None:
    """Who had no order was gone from the table, without a word."""
    made = "CREATE TABLE orders AS SELECT x FROM people WHERE x < 3"
    session.source.execute(made, most_rows=1)
    for _ in range(2):
        session.source.execute("INSERT INTO orders SELECT * FROM orders", most_rows=1)
    select = f"SELECT p.* FROM people p {joined} o.x = p.x"
    with pytest.raises(DataError, match="people would have 12 rows in place of 10: "):
        prepared(session, f"{select} TO PREDICT people USING m", tmp_path / "w")
    assert len(rows_of(session, "SELECT * FROM people")) == 10


@pytest.mark.parametrize("column", ["y", "Y", "x"])
def test_a_prediction_takes_no_place_of_what_the_model_learned_from(
    session: Session, tmp_path: Path, column: str
) -> None:
    """`TO PREDICT people.y` put guesses in the place of the true values."""
    text = f"SELECT * FROM people TO PREDICT people.{column} USING m"
    with pytest.raises(DataError, match=f"people would lose its `{column.lower()}`: "):
        prepared(session, text, tmp_path / "w")
    text = f"SELECT * FROM people TO PREDICT guesses.{column} USING m"
    finished(session, prepared(session, text, tmp_path / "v"), tmp_path / "v", 10)


def test_a_second_prediction_takes_the_place_of_the_first_with_its_probability(
    session: Session, tmp_path: Path
) -> None:
    """Beside the new guess stood the old one's probability."""
    text = "SELECT * FROM people TO PREDICT people.guess USING m"
    for folder in (tmp_path / "first", tmp_path / "second"):
        finished(session, prepared(session, text, folder), folder, 10)
    found = session.source.execute("SELECT * FROM people", most_rows=1)
    assert found.names == ("x", "y", "guess", "probability")


def test_a_probability_of_the_users_own_stays(session: Session, tmp_path: Path) -> None:
    select = "SELECT y AS guess, x, 0.5 AS probability FROM people"
    folder = tmp_path / "w"
    text = f'{select} TO PREDICT "other".guess USING m'
    finished(session, prepared(session, text, folder), folder, 10)
    found = session.source.execute("SELECT * FROM other", most_rows=1)
    assert found.names == ("x", "probability", "guess", "probability_2")


@pytest.mark.parametrize("head", [Head.BINARY, Head.NUMBER])
def test_a_probability_of_the_users_own_that_is_not_selected_is_not_replaced(
    session: Session, tmp_path: Path, head: Head
) -> None:
    """It was gone: that of the answer seemed to be it, also where none is written."""
    made = "CREATE TABLE risks AS SELECT x, 0.5 AS probability, y FROM people"
    session.source.execute(made, most_rows=1)
    text = "SELECT x, y FROM risks TO PREDICT risks.guess USING m"
    (statement,) = planning.read_statements(text, session.source.engine)
    about = replace(ABOUT, label=replace(ABOUT.label, head=head))
    with pytest.raises(DataError, match="risks would lose its `probability`: "):
        predict.prepare(session, statement, about, tmp_path)


def test_an_answer_of_before_is_replaced_though_it_is_not_selected(
    session: Session, tmp_path: Path
) -> None:
    text = "SELECT x, y FROM people TO PREDICT people.guess USING m"
    for folder in (tmp_path / "first", tmp_path / "second"):
        finished(session, prepared(session, text, folder), folder, 10)
    found = session.source.execute("SELECT * FROM people", most_rows=1)
    assert found.names == ("x", "y", "guess", "probability")


@pytest.mark.parametrize(
    ("select", "lost"),
    [
        ("SELECT * FROM people WHERE x < 3", "lose 7 of its 10 rows: "),
        ("SELECT p.x FROM\n  PEOPLE AS p", "lose its `y`: "),
        ("SELECT * FROM -- all\n people WHERE x < 3", "lose 7 of its 10 rows: "),
        ("SELECT * FROM/**/people WHERE x < 3", "lose 7 of its 10 rows: "),
        ('SELECT a.x FROM "out" a, people b WHERE a.x = b.x AND a.x = 1',
         "lose its `y` and 8 of its 10 rows: "),
    ],
)  # fmt: skip
def test_a_table_that_is_read_in_part_does_not_become_that_part(
    session: Session, tmp_path: Path, select: str, lost: str
) -> None:
    """All other people were gone, without a word."""
    with pytest.raises(DataError, match=f"people would {lost}"):
        prepared(session, f"{select} TO PREDICT people.guess USING m", tmp_path / "w")
    assert len(rows_of(session, "SELECT * FROM people")) == 10


@pytest.mark.parametrize("target", ['"answers"', "answers.GUESS"])
def test_a_table_of_answers_is_made_anew(
    session: Session, tmp_path: Path, target: str
) -> None:
    for folder, count in ((tmp_path / "first", 10), (tmp_path / "second", 3)):
        text = f"SELECT x FROM people WHERE x < {count} TO PREDICT {target} USING m"
        finished(session, prepared(session, text, folder), folder, count)
        assert rows_of(session, "SELECT count(*) FROM answers") == ((count,),)


@pytest.mark.parametrize("target", ["people.guess", "people.y", '"people"', "early"])
@pytest.mark.parametrize("head", [Head.BINARY, Head.NUMBER])
def test_another_table_is_not_replaced_by_answers(
    session: Session, tmp_path: Path, target: str, head: Head
) -> None:
    """All people were gone, and the answers for a few newcomers in their place."""
    session.source.execute("CREATE TABLE newcomers AS SELECT 1 AS x", most_rows=1)
    made = "CREATE TABLE early AS SELECT 1 AS prediction, 0.5 AS probability, 2 AS note"
    session.source.execute(made, most_rows=1)
    about = replace(ABOUT, label=replace(ABOUT.label, head=head))
    if head is Head.NUMBER and target == "people.y":
        learn(session, about, "SELECT * FROM people")
    text = f"SELECT * FROM newcomers TO PREDICT {target} USING m"
    (statement,) = planning.read_statements(text, session.source.engine)
    with pytest.raises(DataError, match=r"would be gone; name another .*, or DROP"):
        predict.prepare(session, statement, about, tmp_path)
    assert rows_of(session, "SELECT count(*) FROM people") == ((10,),)


def learn(session: Session, about: Description, select: str) -> None:
    with session.registry.adding("m") as version:
        write_description(version, about)
        text = f"{select} LABEL y INTO m"
        version.statement_file.write_text(text, encoding="utf-8")


def test_what_a_model_learned_from_is_not_replaced_though_it_has_answers(
    session: Session, tmp_path: Path
) -> None:
    """After `TO PREDICT people.guess` of all people it looks like a mere answer."""
    learn(session, ABOUT, "SELECT x, y FROM people")
    session.source.execute("CREATE TABLE newcomers AS SELECT 1 AS x", most_rows=1)
    text = "SELECT * FROM people TO PREDICT people.guess USING m"
    finished(session, prepared(session, text, tmp_path / "w"), tmp_path / "w", 10)
    with pytest.raises(DataError, match="people is what the model learned from"):
        prepared(session, text.replace("FROM people", "FROM newcomers"), tmp_path / "v")


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_another_file_is_not_replaced_by_answers(tmp_path: Path, ending: str) -> None:
    source = open_source("", folder=tmp_path)
    place = tmp_path / f"people.{ending}"
    source.execute(f"COPY (SELECT i AS x FROM range(9) t(i)) TO '{place}'", most_rows=1)
    session = Session(source, Registry(tmp_path), lambda _: None, lambda _: None)  # type: ignore[arg-type, return-value]
    before = place.read_bytes()
    with pytest.raises(DataError, match="name another file, or delete it first"):
        prepared(session, f"SELECT 1 AS x TO PREDICT '{place}' USING m", tmp_path / "w")
    assert place.read_bytes() == before
    for folder in (tmp_path / "first", tmp_path / "second"):
        text = f"SELECT 1 AS x TO PREDICT '{tmp_path / f'new.{ending}'}' USING m"
        finished(session, prepared(session, text, folder), folder, 1)
    source.close()


@pytest.mark.parametrize("using", ["", "USING IntegratedGradients "])
@pytest.mark.parametrize("verb", ["EVALUATE", "EXPLAIN"])
def test_figures_take_the_place_of_such_figures_alone(
    session: Session, tmp_path: Path, verb: str, using: str
) -> None:
    if verb == "EVALUATE":
        using = ""
    columns = "metric, value" if verb == "EVALUATE" else '"COLUMN", importance'
    select = "SELECT x, y FROM people"
    as_named = "SELECT x AS {}, y AS {}".format(*columns.split(", "))
    session.source.execute(
        f"CREATE TABLE figures AS {as_named} FROM people", most_rows=1
    )
    part = gradients if using else explain if verb == "EXPLAIN" else evaluate
    for table in ("figures", "other"):
        text = f"{select} TO {verb} m {using}INTO {table}"
        (statement,) = planning.read_statements(text, session.source.engine)
        folder = tmp_path / table
        folder.mkdir()
        if table == "figures":
            assert part.prepare(session, statement, ABOUT, folder) == 10
            continue
        made = "CREATE TABLE other AS SELECT 1 AS metric, 2 AS importance, 3 AS value"
        session.source.execute(made, most_rows=1)
        with pytest.raises(DataError, match=r"other is there, .* would be gone"):
            part.prepare(session, statement, ABOUT, folder)


@pytest.mark.parametrize(
    "change", ["UPDATE people SET y = 7 WHERE x = 3", "UPDATE people SET y = 1 - y"]
)
def test_values_that_change_while_the_job_runs_are_not_lost(
    session: Session, tmp_path: Path, change: str
) -> None:
    """They were as before the job again, without a word."""
    text = "SELECT * FROM people TO PREDICT people.guess USING m"
    statement = prepared(session, text, tmp_path / "w")
    rows_of(session, change)
    now = rows_of(session, "SELECT * FROM people ORDER BY x")
    with pytest.raises(DataError, match=r"changed while the job ran.*are kept in"):
        finished(session, statement, tmp_path / "w", 10)
    assert rows_of(session, "SELECT * FROM people ORDER BY x") == now


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_file_that_changes_while_the_job_runs_is_not_lost(
    tmp_path: Path, ending: str
) -> None:
    source = open_source("", folder=tmp_path)
    place = tmp_path / f"people.{ending}"
    source.execute(f"COPY (SELECT i AS x FROM range(9) t(i)) TO '{place}'", most_rows=1)
    session = Session(source, Registry(tmp_path), lambda _: None, lambda _: None)  # type: ignore[arg-type, return-value]
    text = f"SELECT * FROM '{place}' TO PREDICT '{place}' USING m"
    statement = prepared(session, text, tmp_path / "w")
    source.execute(f"COPY (SELECT 8 - i AS x FROM range(9) t(i)) TO '{place}'",
                   most_rows=1)  # fmt: skip
    before = place.read_bytes()
    with pytest.raises(DataError, match=r"changed while the job ran.*are kept in"):
        finished(session, statement, tmp_path / "w", 9)
    assert place.read_bytes() == before
    source.close()


def test_rows_that_come_while_the_job_runs_are_not_lost(
    session: Session, tmp_path: Path
) -> None:
    text = "SELECT * FROM people TO PREDICT people.guess USING m"
    statement = prepared(session, text, tmp_path / "w")
    rows_of(session, "INSERT INTO people VALUES (10, 1)")
    with pytest.raises(DataError, match=r"lose 1 of its 11 rows.* answers are kept in"):
        finished(session, statement, tmp_path / "w", 10)
    assert rows_of(session, "SELECT count(*) FROM people") == ((11,),)
    assert len(list((tmp_path / "models" / ".answers").glob("*.parquet"))) == 1


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_file_that_is_read_in_part_stays_whole(tmp_path: Path, ending: str) -> None:
    source = open_source("", folder=tmp_path)
    place = tmp_path / f"people.{ending}"
    source.execute(f"COPY (SELECT i AS x FROM range(9) t(i)) TO '{place}'", most_rows=1)
    session = Session(source, Registry(tmp_path), lambda _: None, lambda _: None)  # type: ignore[arg-type, return-value]
    text = f"SELECT * FROM '{place}' WHERE x > 3 TO PREDICT \"{place}\" USING m"
    with pytest.raises(DataError, match=r"would lose 4 of its 9 rows"):
        prepared(session, text, tmp_path / "w")
    every = tmp_path / f"p*.{ending}"
    text = f"SELECT * FROM '{every}' WHERE x > 3 TO PREDICT \"{place}\" USING m"
    with pytest.raises(DataError, match=r"would lose 4 of its 9 rows"):
        prepared(session, text, tmp_path / "u")
    text = f"SELECT * FROM '{place}' TO PREDICT \"{place}\" USING m"
    finished(session, prepared(session, text, tmp_path / "v"), tmp_path / "v", 9)
    assert rows_of(session, f"SELECT count(*) FROM '{place}'") == ((9,),)
    source.close()


@pytest.mark.parametrize("using", ["", "USING IntegratedGradients "])
@pytest.mark.parametrize("verb", ["EVALUATE", "EXPLAIN"])
def test_figures_take_no_place_of_the_rows_that_they_are_of(
    session: Session, tmp_path: Path, verb: str, using: str
) -> None:
    if verb == "EVALUATE":
        using = ""
    text = f"SELECT * FROM people TO {verb} m {using}INTO people"
    (statement,) = planning.read_statements(text, session.source.engine)
    part = gradients if using else explain if verb == "EXPLAIN" else evaluate
    prepare = part.prepare
    with pytest.raises(DataError, match="people would lose its `x`, `y` and 10 of"):
        prepare(session, statement, ABOUT, tmp_path)


def test_a_table_of_a_schema_is_no_column_of_a_table_called_as_the_schema(
    session: Session, tmp_path: Path
) -> None:
    """The answers were in a table `main`, and those in `main.people` stayed old."""
    select = "SELECT x FROM people"
    told = "`main` is a schema or database; .* TO PREDICT main.people.prediction"
    with pytest.raises(DataError, match=told):
        prepared(session, f"{select} TO PREDICT main.people USING m", tmp_path / "a")
    prepared(
        session, f"{select} TO PREDICT main.new.prediction USING m", tmp_path / "b"
    )
    made = "CREATE TABLE main AS SELECT 1 AS guess, 0.5 AS probability"
    session.source.execute(made, most_rows=1)
    prepared(session, f"{select} TO PREDICT main.guess USING m", tmp_path / "c")


def test_a_table_of_a_database_that_was_attached_is_no_column(
    session: Session, tmp_path: Path
) -> None:
    """`TO PREDICT shop.guesses` made a table `shop` in memory, gone at the end."""
    session.source.execute("ATTACH ':memory:' AS shop", most_rows=1)
    told = "`shop` is a schema or database; .* TO PREDICT shop.guesses.prediction"
    with pytest.raises(DataError, match=told):
        prepared(
            session,
            "SELECT x FROM people TO PREDICT shop.guesses USING m",
            tmp_path / "a",
        )


@pytest.mark.parametrize(
    ("views", "select", "lost"),
    [
        (("young AS SELECT * FROM people WHERE x < 3",), "SELECT * FROM young",
         "7 of its 10 rows"),
        (("traits AS SELECT x FROM people",), "SELECT * FROM Traits t", "its `y`"),
        (('"all of us" AS SELECT * FROM people',
          'part AS SELECT * FROM /* here */ "all of us" WHERE x < 3'),
         "SELECT * FROM part", "7 of its 10 rows"),
    ],
)  # fmt: skip
def test_a_table_that_is_read_through_views_keeps_what_they_have_not(
    session: Session, tmp_path: Path, views: tuple[str, ...], select: str, lost: str
) -> None:
    """Rows and true labels were gone: only the view's took the table's place."""
    for view in views:
        session.source.execute(f"CREATE VIEW {view}", most_rows=1)
    with pytest.raises(DataError, match=f"people would lose {lost}: "):
        prepared(session, f"{select} TO PREDICT people.guess USING m", tmp_path / "w")
    assert len(rows_of(session, "SELECT y FROM people")) == 10


def test_a_view_of_all_that_a_table_has_may_be_predicted_into_it(
    session: Session, tmp_path: Path
) -> None:
    made = "CREATE VIEW every AS SELECT * FROM people"
    session.source.execute(made, most_rows=1)
    text = "SELECT * FROM every TO PREDICT people.guess USING m"
    finished(session, prepared(session, text, tmp_path / "w"), tmp_path / "w", 10)
    found = session.source.execute("SELECT * FROM people", most_rows=1)
    assert found.names == ("x", "y", "guess", "probability")


def test_a_macro_that_gives_a_table_is_seen_through(tmp_path: Path) -> None:
    source = open_source("", folder=tmp_path)
    for made in (
        "CREATE TABLE people AS SELECT i AS x FROM range(10) t(i)",
        "CREATE MACRO below(n) AS TABLE SELECT * FROM people WHERE x < n",
    ):
        source.execute(made, most_rows=1)
    session = Session(source, Registry(tmp_path), lambda _: None, lambda _: None)  # type: ignore[arg-type, return-value]
    text = "SELECT * FROM below(3) TO PREDICT people.guess USING m"
    with pytest.raises(DataError, match="people would lose 7 of its 10 rows"):
        prepared(session, text, tmp_path / "w")
    source.close()
