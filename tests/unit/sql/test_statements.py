"""Claims about statements: what is cut, what is read, where mistakes are shown."""

from __future__ import annotations

import pytest
from elasticdl.sql import planning
from elasticdl.sql.clauses import parse
from elasticdl.sql.problems import StatementError, in_one_line
from elasticdl.sql.running.statements import only_reads
from elasticdl.sql.statements import Evaluate, Plain, Predict, Train
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.sql.corpus import ALL, BAD, GOOD

_GOOD = [(kind, sql, engine) for kind, sql, engines in GOOD for engine in engines]


@pytest.mark.parametrize(("kind", "marked", "engine"), _GOOD)
def test_a_good_statement_is_cut_where_the_engine_ends(
    kind: str, marked: str, engine: str
) -> None:
    text = marked.replace("¦", "")
    (statement,) = parse(text, engine)
    assert type(statement).__name__ == kind
    if "¦" in marked:
        # Comments and blanks behind the last token are not the engine's.
        select = getattr(statement, "select", "")
        before = marked.split("¦", maxsplit=1)[0]
        assert before.startswith(select)
        assert before[len(select) :].strip() == "" or "#" in before[len(select) :]
    else:
        assert statement.text == text.partition(" /*")[0].strip().rstrip(";")


@pytest.mark.parametrize("engine", ALL)
@pytest.mark.parametrize(("marked", "message"), BAD)
def test_a_bad_statement_is_one_mistake_at_its_place(
    marked: str, message: str, engine: str
) -> None:
    text = marked.replace("¦", "")
    with pytest.raises(StatementError) as caught:
        planning.read_statements(text, engine)
    (problem,) = caught.value.problems
    assert message in problem.message
    assert problem.at.offset == marked.index("¦")


def test_the_corpus_is_large() -> None:
    assert len(GOOD) >= 60
    assert len(BAD) >= 60


def test_all_mistakes_are_told_at_once_with_carets() -> None:
    text = (
        "SELECT * FROM t\n"
        "TO TRAIN DNNClasifier WITH train.epoc = 3\n"
        "COLUMN EMBEDDNG(a, 3), HASH(b)\n"
        "LABEL y INTO m;\n"
        "SELECT * FROM t TO PREDICT r"
    )
    with pytest.raises(StatementError) as caught:
        planning.read_statements(text.rpartition(";")[0], "duckdb")
    told = str(caught.value)
    assert told.startswith("4 mistakes:\n")
    assert (
        "line 3, column 8: there is no function `EMBEDDNG`; did you mean `EMBEDDING`?\n"
        "    COLUMN EMBEDDNG(a, 3), HASH(b)\n"
        "           ^^^^^^^^\n"
    ) in told


def test_mistakes_of_all_statements_are_told_together() -> None:
    with pytest.raises(StatementError) as caught:
        parse("SELECT 1 TO PREDICT r; SELECT 2 TO EVALUATE", "duckdb")
    assert len(caught.value.problems) == 2


def test_the_original_line_has_no_model() -> None:
    (statement,) = parse("SELECT * FROM employee LABEL income INTO m", "duckdb")
    assert isinstance(statement, Train)
    assert statement.model is None
    assert statement.label is not None
    assert statement.label.text == "income"


def test_the_last_name_of_a_target_is_the_column() -> None:
    (statement,) = parse("SELECT 1 TO PREDICT db.r.class USING m", "duckdb")
    assert isinstance(statement, Predict)
    assert statement.table is not None
    assert statement.column is not None
    assert (statement.table.text, statement.column.text) == ("db.r", "class")


@pytest.mark.parametrize(
    ("target", "table", "column"),
    [
        ('"o u"."my guess"', "o u", "my guess"),
        ('main."o u".g', "main.o u", "g"),
        ('r."G"', "r", "G"),
        ("People.Guess", "people", "guess"),
        ('"People".Guess', "People", "guess"),
        ('"People"', "People", None),
        ("People", "people", None),
        ("'Out.csv'", "Out.csv", None),
    ],
)
def test_a_target_is_read_as_postgresql_reads_names(
    target: str, table: str, column: str | None
) -> None:
    """`People` made a table that `FROM People` does not find, beside the one meant."""
    (statement,) = parse(f"SELECT 1 TO PREDICT {target} USING M", "postgresql")
    assert isinstance(statement, Predict)
    assert statement.table is not None
    assert statement.table.text == table
    assert (statement.column.text if statement.column else None) == column
    assert statement.using.text == "M"


def test_a_target_keeps_its_letters_where_the_engine_keeps_them() -> None:
    for engine in ("duckdb", "mysql", "sqlite"):
        (statement,) = parse("SELECT 1 TO EVALUATE m INTO Figures", engine)
        assert isinstance(statement, Evaluate)
        assert statement.into is not None
        assert statement.into.text == "Figures"
    with pytest.raises(StatementError, match=r"`a\.b` has a dot, which no table's"):
        parse('SELECT 1 TO PREDICT "a.b".c USING m', "duckdb")


def test_statements_come_in_order() -> None:
    text = "SELECT 1;; SELECT 2 LABEL a INTO m;\nSHOW MODELS"
    kinds = [
        type(one).__name__ for one in parse(text.replace("2", "* FROM t"), "mysql")
    ]
    assert kinds == ["Plain", "Train", "ShowModels"]


# Pieces of SELECTs that a rewriting parser would change: blanks, case, comments,
# spellings, quotes.
_PIECES = st.sampled_from([
    "a", "  b", "\tc", "/* x */ d", "-- y\n e", "'TO TRAIN z'", "'it''s'", "LOG(a)",
    "CONCAT(a, 'b')", "(SELECT label x FROM u)", "1e5", "COUNT( * )", "cast(a AS int)",
    "a<>b", "a!=b", "not  a", "CASE WHEN a THEN 'x' END", "ä", "名",
])  # fmt: skip
_ENDS = st.sampled_from([
    " LABEL y INTO m", "\nTO TRAIN DNNClassifier LABEL y INTO m", " TO PREDICT USING m",
    "\tTO EVALUATE m", " TO EXPLAIN m -- end",
])  # fmt: skip


@given(st.lists(_PIECES, min_size=1, max_size=6), _ENDS, st.sampled_from(ALL))
def test_cutting_never_changes_a_byte_of_the_select(
    pieces: list[str], end: str, engine: str
) -> None:
    select = f"SELECT {', '.join(pieces)} FROM t"
    (statement,) = parse(select + end, engine)
    assert getattr(statement, "select", "") == select


@given(st.lists(_PIECES, min_size=1, max_size=4), st.sampled_from(ALL))
def test_a_plain_statement_is_handed_on_as_it_is(
    pieces: list[str], engine: str
) -> None:
    sql = f"SELECT {', '.join(pieces)} FROM t"
    first, second = parse(f"{sql};\n{sql}", engine)
    assert isinstance(first, Plain)
    assert isinstance(second, Plain)
    assert first.sql == second.sql == sql


@pytest.mark.parametrize(
    "body",
    [
        "IF a > 1 THEN SELECT 1; IF a > 2 THEN SELECT 3; END IF; ELSE SELECT 2; END IF",
        "WHILE a > 1 DO SET a = a - 1; END WHILE",
        "REPEAT SET a = a - 1; UNTIL a < 1 END REPEAT",
        "CASE a WHEN 1 THEN SELECT 1; ELSE SELECT 2; END CASE",
        "l: LOOP LEAVE l; END LOOP l",
    ],
)
def test_a_routine_whose_body_is_no_block_is_one_statement(body: str) -> None:
    made = f"CREATE PROCEDURE p(a INT) {body}"
    text = f"SELECT 0; {made}; CREATE FUNCTION f() RETURNS INT RETURN 1; SELECT 1"
    found = [one.sql for one in parse(text, "mysql") if isinstance(one, Plain)]
    assert found[1] == made
    assert len(found) == 4


def test_the_failure_of_a_job_is_one_line() -> None:
    """Lines of code came along with what was raised, as many as the stack was deep."""
    message = (
        "worker-0: the model module failed: loss() raised ValueError: other ranks\n"
        "  ...\n    return body() if cond else orelse()\n           ^^^^^^\n"
        "Traceback (most recent call last):\n  File 'x', line 1\nValueError: ranks\n"
    )
    assert in_one_line(message) == (
        "worker-0: the model module failed: loss() raised ValueError: other ranks "
        "ValueError: ranks"
    )
    assert in_one_line("") == ""


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ("SELECT * FROM t LABEL y INTO m; SELECT * FROM t TO PREDICT USING m", True),
        ('SHOW MODELS; SELECT * FROM t TO EXPLAIN m INTO "i.csv"', True),
        ('SELECT * FROM t TO PREDICT "p.parquet" USING m', True),
        ("SELECT * FROM t TO PREDICT p.guess USING m", False),
        ("SELECT * FROM t TO EVALUATE m INTO figures", False),
        ("SELECT * FROM t LABEL y INTO m; SELECT nextval('s')", False),
        ("SELECT * FROM t TO PREDICT WITH", False),
        ("SELECT 'open", False),
    ],
)
def test_statements_that_only_read_are_known(text: str, reads: bool) -> None:
    assert only_reads(text, "duckdb") == reads


def test_a_table_alone_is_a_query_in_the_originals_form_too() -> None:
    """The engine was given our clause."""
    (made,) = parse("TABLE employee LABEL income INTO m", "duckdb")
    assert isinstance(made, Train)
    assert made.select == "TABLE employee"


def test_a_pivot_is_a_query() -> None:
    """The engine was given the clauses, too, and refused its own statement."""
    select = "PIVOT sales ON day USING sum(paid) GROUP BY shop, y"
    (statement,) = parse(f"{select} LABEL y INTO m", "duckdb")
    assert isinstance(statement, Train)
    assert statement.select == select
    (plain,) = parse(select, "duckdb")
    assert isinstance(plain, Plain)
