"""Real servers: types, streaming, NULLs, tables put in place; secrets stay secret."""

import datetime
import decimal
import json
import uuid

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from elasticdl.errors import DataError
from elasticdl.sql import planning
from elasticdl.sql.data import shards
from elasticdl.sql.data.shards import Staged
from elasticdl.sql.data.source import open_source
from elasticdl.sql.plan import NULL_INTEGER, Kind, SplitPlan, Stored
from elasticdl.sql.problems import StatementError
from elasticdl.sql.registry import Registry
from elasticdl.sql.running import losses
from elasticdl.sql.running.session import Session
from elasticdl.sql.running.statements import read

from tests.integration.sql import servers
from tests.integration.sql.chain import Runner, run_all
from tests.integration.sql.servers import PASSWORD

TYPES = {
    "mariadb": {
        "TINYINT DEFAULT -1": Kind.INTEGER,
        "BOOLEAN DEFAULT true": Kind.INTEGER,
        "BIGINT DEFAULT 9223372036854775807": Kind.INTEGER,
        "INT UNSIGNED DEFAULT 4294967295": Kind.INTEGER,
        "BIGINT UNSIGNED DEFAULT 18446744073709551615": Kind.NUMBER,
        "DECIMAL(18, 4) DEFAULT 12.3456": Kind.NUMBER,
        "DECIMAL(30, 0) DEFAULT 123456789012345678901234567890": Kind.NUMBER,
        "FLOAT DEFAULT 1.5": Kind.NUMBER,
        "DOUBLE DEFAULT 1.5": Kind.NUMBER,
        "VARCHAR(20) DEFAULT 'köln'": Kind.TEXT,
        "ENUM('a', 'b') DEFAULT 'b'": Kind.TEXT,
        "SET('a', 'b') DEFAULT 'a,b'": Kind.TEXT,
        "DATE DEFAULT '2026-01-02'": Kind.TIME,
        "DATETIME(6) DEFAULT '2026-01-02 03:04:05.123456'": Kind.TIME,
        "TIME(6) DEFAULT '103:04:05.25'": Kind.TIME,
        "YEAR DEFAULT 2026": Kind.INTEGER,
        "VARBINARY(4) DEFAULT x'00ff'": Kind.OTHER,
    },
    "postgresql": {
        "SMALLINT DEFAULT -1": Kind.INTEGER,
        "BOOLEAN DEFAULT true": Kind.BOOLEAN,
        "BIGINT DEFAULT 9223372036854775807": Kind.INTEGER,
        "NUMERIC(18, 4) DEFAULT 12.3456": Kind.NUMBER,
        "REAL DEFAULT 1.5": Kind.NUMBER,
        "DOUBLE PRECISION DEFAULT 1.5": Kind.NUMBER,
        "TEXT DEFAULT 'köln'": Kind.TEXT,
        "UUID DEFAULT '00000000-0000-0000-0000-000000000001'": Kind.TEXT,
        "DATE DEFAULT '2026-01-02'": Kind.TIME,
        "TIMESTAMP DEFAULT '2026-01-02 03:04:05'": Kind.TIME,
        "TIMESTAMPTZ DEFAULT '2026-01-02 03:04:05+00'": Kind.TIME,
        "TIME DEFAULT '03:04:05'": Kind.TIME,
        "INTERVAL DEFAULT '1 day'": Kind.TIME,
        "INTEGER[] DEFAULT '{1, 2}'": Kind.ARRAY,
        "REAL[] DEFAULT '{1.5, 2.5}'": Kind.ARRAY,
        "NUMERIC(4, 2)[] DEFAULT '{1.5, 2.5}'": Kind.ARRAY,
        "TEXT[] DEFAULT '{a, b}'": Kind.ARRAY,
        "JSONB DEFAULT '{\"a\": 1}'": Kind.OTHER,
        "BYTEA DEFAULT '\\\\x00ff'": Kind.OTHER,
    },
}
SERIES = {
    "mariadb": "SELECT seq AS n, IF(seq % 3 = 0, NULL, seq / 4) AS x, CONCAT('w', "
    "seq % 100) AS w FROM seq_1_to_30000",
    "postgresql": "SELECT n, CASE WHEN n % 3 = 0 THEN NULL ELSE n / 4.0 END AS x, "
    "'w' || n % 100 AS w FROM generate_series(1, 30000) AS n",
}


_NOTING = {
    "mariadb": "CREATE FUNCTION noted() RETURNS INT MODIFIES SQL DATA BEGIN "
    "INSERT INTO seen VALUES (1); RETURN 1; END",
    "postgresql": "CREATE FUNCTION noted() RETURNS INT LANGUAGE sql AS "
    "'INSERT INTO seen VALUES (1); SELECT 1'",
}
_NEXT = {"mariadb": "NEXTVAL(steps)", "postgresql": "nextval('steps')"}


@pytest.fixture(scope="module", params=["mariadb", "postgresql"])
def server(request, tmp_path_factory):
    with getattr(servers, request.param)(tmp_path_factory.mktemp(request.param)) as one:
        yield request.param, one


@pytest.fixture
def source(server):
    opened = open_source(server[1].url)
    yield opened
    opened.close()


def plain(value):
    """Return a value as it comes back: large numbers are doubles, JSON is text."""
    if isinstance(value, dict):
        return json.dumps(value)
    if isinstance(value, list):
        return list(map(plain, value))
    if isinstance(value, decimal.Decimal) or value == 2**64 - 1:
        return float(value)
    return str(value) if isinstance(value, uuid.UUID | set) else value


def execute(source, sql):
    return source.execute(sql, most_rows=10)


def test_each_type_has_the_kind_of_the_table_and_comes_back(server, source, tmp_path):
    wanted = list(TYPES[server[0]].items())
    columns = ", ".join(f"c{i} {kind}" for i, (kind, _) in enumerate(wanted))
    execute(source, "DROP TABLE IF EXISTS kinds")
    execute(source, f"CREATE TABLE kinds (id INT, {columns})")
    execute(source, "INSERT INTO kinds (id) VALUES (1), (2)")
    execute(source, "INSERT INTO kinds VALUES (3" + ", NULL" * len(wanted) + ")")
    with source.rows("SELECT * FROM kinds ORDER BY id") as rows:
        found = {column.name: column.kind for column in rows.schema.columns}
        assert found == {
            "id": Kind.INTEGER, **{f"c{i}": kind for i, (_, kind) in enumerate(wanted)}
        }  # fmt: skip
        assert rows.write(tmp_path / "kinds.parquet") == 3
    table = pq.read_table(tmp_path / "kinds.parquet")
    for i, (stated, kind) in enumerate(wanted):
        value, _, null = table[f"c{i}"].to_pylist()
        assert null is None
        if stated.startswith("BIGINT DEFAULT"):
            assert value == 2**63 - 1
        if "12.3456" in stated:
            assert value == pytest.approx(12.3456)
        if stated.startswith("DATE "):
            assert value == datetime.date(2026, 1, 2)
        if kind is Kind.ARRAY:
            assert value in ([1, 2], [1.5, 2.5], ["a", "b"])
    assert source.put_table("kinds_back", tmp_path / "kinds.parquet") == 3
    before = execute(source, "SELECT * FROM kinds ORDER BY id").rows
    back = execute(source, "SELECT * FROM kinds_back ORDER BY id").rows
    assert [list(map(plain, row)) for row in back] == [
        list(map(plain, row)) for row in before
    ]


def test_rows_are_streamed_once_with_a_preview_before(server, source, tmp_path):
    with source.rows(SERIES[server[0]]) as rows:
        preview = rows.preview
        assert (preview.num_rows, preview.complete) == (10_000, False)
        assert preview.values["x"][:4] == (0.25, 0.5, None, 1.0)
        assert rows.write(tmp_path / "rows.parquet") == 30_000
    table = pq.read_table(tmp_path / "rows.parquet")
    assert table["n"].to_pylist() == list(range(1, 30_001))
    assert table["x"].null_count == 10_000


def test_a_table_takes_the_place_of_one_that_it_was_read_from(server, source, tmp_path):
    execute(source, "DROP TABLE IF EXISTS people")
    execute(source, f"CREATE TABLE people AS {SERIES[server[0]]} LIMIT 50")
    with source.rows("SELECT n, w FROM people") as rows:
        rows.write(tmp_path / "people.parquet")
    assert source.put_table("people", tmp_path / "people.parquet") == 50
    found = execute(source, "SELECT count(*), count(DISTINCT n) FROM people").rows
    assert found == ((50, 50),)
    listed = "SELECT table_name FROM information_schema.tables WHERE table_name LIKE "
    tables = execute(source, listed + "'people!_%' ESCAPE '!'")
    assert tables.rows == ()


@pytest.mark.parametrize("begin", ["BEGIN", "START TRANSACTION", "begin /* */ work"])
def test_what_is_rolled_back_is_as_it_was(server, source, begin):
    """Each statement was kept at once; that ROLLBACK had nothing to do was not told."""
    execute(source, "DROP TABLE IF EXISTS person")
    execute(source, f"CREATE TABLE person AS {SERIES[server[0]]} LIMIT 50")
    count = "SELECT count(*) FROM person"
    for end, number in (("ROLLBACK", 50), ("COMMIT", 0), ("ROLLBACK", 0)):
        execute(source, begin)
        execute(source, "DELETE FROM person")
        assert execute(source, count).rows == ((0,),)
        execute(source, end)
        assert execute(source, count).rows == ((number,),)
    with pytest.raises(DataError, match="nothing to roll back: no transaction is op"):
        execute(source, "ROLLBACK")
    execute(source, "INSERT INTO person (n) VALUES (1)")
    execute(source, begin)
    execute(source, "DELETE FROM person")
    with pytest.raises(DataError, match="transaction, which is rolled back now; COM"):
        list(source.rows(count).__enter__().preview)
    assert execute(source, count).rows == ((1,),)


def test_views_are_seen_through_to_the_table_that_they_are_of(server, source):
    """PostgreSQL puts no table in the place of one that a view is of."""
    execute(source, "DROP TABLE IF EXISTS person")
    execute(source, f"CREATE TABLE person AS {SERIES[server[0]]} LIMIT 50")
    execute(source, "CREATE VIEW few AS SELECT n FROM person WHERE n < 9")
    execute(source, "CREATE VIEW fewer AS SELECT few.n FROM few WHERE n < 5")
    behind = losses.with_views(source, "SELECT * FROM -- of the day\n fewer")
    assert [losses.reads(query, "person") for query in behind] == [False, False, True]
    execute(source, "DROP VIEW fewer")
    execute(source, "DROP VIEW few")


def test_a_table_with_other_values_has_another_state(server, source):
    """A PREDICT into it would take back what others changed while its job ran."""
    execute(source, "DROP TABLE IF EXISTS stock")
    execute(source, f"CREATE TABLE stock AS {SERIES[server[0]]} LIMIT 500")
    first = source.state("shop.stock" if server[0] == "mariadb" else "public.stock")
    assert source.state("stock") == first
    execute(source, "UPDATE stock SET x = x + 1 WHERE n = 77")
    second = source.state("stock")
    assert second != first
    execute(source, "UPDATE stock SET w = NULL WHERE n = 3")
    assert source.state("stock") not in (first, second)


def test_what_a_session_set_is_set_where_the_server_ended_its_connection(
    server, source
):
    """Behind a job of hours `people` was that of the URL's database again."""
    kind = server[0]
    setting, where, ends, whose = {
        "mariadb": ("USE information_schema", "database()", "KILL {}",
                    "connection_id()"),
        "postgresql": ("SET search_path TO pg_catalog", "current_schema()",
                       "SELECT pg_terminate_backend({})", "pg_backend_pid()"),
    }[kind]  # fmt: skip
    mine = open_source(server[1].url)
    execute(mine, setting)
    ((number, set_to),) = execute(mine, f"SELECT {whose}, {where}").rows
    execute(source, ends.format(number))
    with mine.rows(f"SELECT {whose} AS i, {where} AS w") as rows:
        assert rows.preview.values["w"] == (set_to,)
        assert rows.preview.values["i"] != (number,)
        # One beside another that is in use has it as well.
        assert execute(mine, f"SELECT {where}").rows == ((set_to,),)
    mine.close()


def test_a_connection_that_the_server_ended_meanwhile_loses_no_answers(
    server, source, tmp_path
):
    """It idles while the job runs; servers and firewalls end such ones."""
    with source.rows(f"{SERIES[server[0]]} LIMIT 5") as rows:
        rows.write(tmp_path / "late.parquet")
    ends = {
        "mariadb": "KILL {}",
        "postgresql": "SELECT pg_terminate_backend({})",
    }
    whose = {"mariadb": "connection_id()", "postgresql": "pg_backend_pid()"}
    ((number,),) = execute(source, f"SELECT {whose[server[0]]}").rows
    other = open_source(server[1].url)
    execute(other, ends[server[0]].format(number))
    other.close()
    assert source.put_table("late", tmp_path / "late.parquet") == 5


def test_columns_are_told_without_running_the_query(server, source, tmp_path):
    """What it does beside would be done once more when it runs."""
    typed = server[0] == "postgresql"
    execute(source, "DROP TABLE IF EXISTS visits")
    execute(source, "CREATE TABLE visits (n INT, word VARCHAR(9), day DATE)")
    execute(source, "INSERT INTO visits VALUES (1, '%s', '2026-01-02')")
    execute(source, "CREATE SEQUENCE steps")
    execute(source, "CREATE TABLE seen (n INT)")
    execute(source, _NOTING[server[0]])
    select = f"SELECT v.*, {_NEXT[server[0]]} AS step, noted() AS x FROM visits v"
    like = f"{select} WHERE word LIKE '%\\%(s)' AND '\"' <> '%%'"
    for text in (select, f"WITH v AS (SELECT noted()) {select} -- all", like):
        found = source.describe(text)
        assert found.schema.names == ("n", "word", "day", "step", "x")
        assert found.typed is typed
    if typed:
        kinds = [column.kind for column in found.schema.columns]
        number, text, time = Kind.INTEGER, Kind.TEXT, Kind.TIME
        assert kinds == [number, text, time, number, number]
    session = Session(source, Registry(tmp_path), Runner(tmp_path), print)
    train = "TO TRAIN DNNClassifier COLUMN wrd LABEL n INTO m"
    with pytest.raises(StatementError, match="did you mean `word`"):
        read(session, f"SELECT n FROM seen; {select} {train}")
    assert execute(source, "SELECT count(*) FROM seen").rows == ((0,),)
    assert execute(source, f"SELECT {_NEXT[server[0]]}").rows == ((1,),)
    for wrong in ("SELECT * FROM nowhere", "SELECT m FROM visits"):
        with pytest.raises(DataError, match=r"query failed: .*(nowhere|\bm\b)"):
            source.describe(wrong)
    twice = source.describe("SELECT n, n FROM visits")
    assert twice is None or len(twice.schema.names) == 2


def test_a_model_learns_from_a_server_and_predicts_into_it(server, source, tmp_path):
    """In place of the table that it reads."""
    execute(source, "DROP TABLE IF EXISTS readings")
    execute(source, f"CREATE TABLE readings AS {SERIES[server[0]]} LIMIT 2000")
    registry = Registry(tmp_path / "models")
    session = Session(source, registry, Runner(tmp_path), print, [])
    run_all(
        session,
        "SELECT n, x, CASE WHEN n > 1000 THEN 'late' ELSE 'early' END AS y "
        "FROM readings TO TRAIN LinearClassifier "
        "WITH train.epoch = 10, optimizer.learning_rate = 0.05, job.worker.threads = 1 "
        "COLUMN n, x LABEL y INTO moments;"
        "SELECT * FROM readings TO PREDICT readings.moment USING moments",
    )
    counted = "SELECT count(*), count(DISTINCT n), count(moment) FROM readings WHERE "
    assert execute(source, counted + "w IS NOT NULL").rows == ((2000, 2000, 2000),)
    right = "moment = CASE WHEN n > 1000 THEN 'late' ELSE 'early' END"
    ((found, *_),) = execute(source, counted + right).rows
    assert found > 1600
    files = [one for one in (tmp_path / "models").rglob("*") if one.is_file()]
    assert files
    assert not any(PASSWORD.encode() in one.read_bytes() for one in files)


def test_long_texts_and_any_sign_come_back_whole(server, source, tmp_path):
    long = "x" * 70_000 + "日本😀"
    table = pa.table({"n": [1], "long": [long]})
    pq.write_table(table, tmp_path / "rows.parquet")
    source.put_table("long_texts", tmp_path / "rows.parquet")
    assert execute(source, "SELECT * FROM long_texts").rows == ((1, long),)


def test_a_percent_sign_is_the_querys_own(server, source, tmp_path):
    like = (
        "SELECT w FROM (" + SERIES[server[0]] + ") AS s WHERE w LIKE '%w1' AND n < 99"
    )
    with source.rows(like) as rows:
        assert rows.preview.values["w"] == ("w1",)


def test_no_message_has_the_password(server):
    wrong = open_source(server[1].url.replace(PASSWORD, "wr0ng-pass"))
    with pytest.raises(DataError) as refused:
        wrong.execute("SELECT 1", most_rows=1)
    assert "wr0ng-pass" not in str(refused.value)
    away = server[1].url.replace(str(server[1].port), str(servers.free_port()))
    with pytest.raises(DataError) as gone:
        open_source(away).execute("SELECT 1", most_rows=1)
    assert PASSWORD not in str(gone.value)
    assert PASSWORD not in repr(open_source(server[1].url))


def test_the_engines_own_message_says_what_is_wrong(server, source):
    with (
        pytest.raises(DataError, match=r"the query failed: .*nowhere"),
        source.rows("SELECT * FROM nowhere") as rows,
    ):
        assert not rows.schema


@pytest.mark.parametrize("server", ["postgresql"], indirect=True)
def test_arrays_of_postgresql_are_several_values(server, source, tmp_path):
    text = (
        "SELECT CASE WHEN n % 5 > 0 THEN ARRAY[n % 7, NULL, n % 3] END AS ids, "
        "ARRAY[n / 4.0, 1]::float[] AS vector, ARRAY['a', 'w' || n % 4]::text[] AS "
        "tags, n % 2 = 0 AS y FROM generate_series(1, 200) AS n "
        "TO TRAIN DNNClassifier COLUMN EMBEDDING(ids, 4), vector, tags LABEL y INTO m"
    )
    (statement,) = planning.read_statements(text, source.engine)
    with source.rows(statement.select) as rows:
        plan = planning.plan_training(statement, rows.preview, text)
        path = tmp_path / "rows.parquet"
        staged = Staged(path, rows.schema, rows.write(path))
    assert [(one.column, one.stored, one.longest) for one in plan.columns] == [
        ("ids", Stored.INTEGER, 3),
        ("vector", Stored.FLOAT, 2),
        ("tags", Stored.TEXT, 2),
    ]
    made = shards.write_training(
        staged,
        tmp_path / "shards",
        columns=plan.columns,
        label=plan.label,
        division=SplitPlan(fraction=0),
    )
    found = pq.read_table(made.training).to_pylist()
    null = NULL_INTEGER
    assert [row["ids"] for row in found[3:5]] == [[4, null, 1], [null] * 3]
    assert found[2]["vector"] == [0.75, 1.0]
    assert found[2]["tags"] == ["a", "w3"]
