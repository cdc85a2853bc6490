"""The embedded engine: files, DuckDB databases, and all work on staged rows.

Owns DuckDB's connections and limits. Called by `source` for what the user asks, and by
`shards`, `statistics` and `results` for their own queries. Its extensions that would
be downloaded are never loaded.
"""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from elasticdl.errors import DataError
from elasticdl.sql.data import types, types_duckdb
from elasticdl.sql.data.source import (
    NO_COLUMNS,
    Answer,
    Described,
    Held,
    failed,
    file_literal,
    identifier,
    literal,
    one_line,
    quoted,
    schema_or_none,
)
from elasticdl.sql.data.stopping import interrupts
from elasticdl.sql.plan import PREVIEW_ROWS, Kind, Preview, Schema

# Of the engine alone. A process has about 0.5 GiB beside it.
MEMORY_LIMIT = "600MiB"
_STAGED_ROWS = 61_440  # Of a row group of staged rows: read again as a whole.
_FEWEST_ROWS = 2_048  # The engine makes no smaller ones.
_GROUP_BYTES = 2**25  # Each thread has a row group in memory, some even two.
# Parts of the engine's plan that give rows as they come.
_STREAMING = ("PROJECTION", "FILTER", "UNNEST", "UNION", "STREAMING_LIMIT", "RANGE",
              "STREAMING_WINDOW", "GENERATE_SERIES", "EMPTY_RESULT")  # fmt: skip
_SHOWS_PROGRESS = "SELECT current_setting('enable_progress_bar')"
_ONLY_READ = ("Permission denied", "Read-only file system")
# A macro may be a table, too: FROM young().
_VIEWS = (
    "SELECT view_name, sql FROM duckdb_views() WHERE NOT internal AND "
    "contains(lower(?), lower(view_name)) UNION ALL "
    "SELECT function_name, macro_definition FROM duckdb_functions() WHERE NOT internal "
    "AND function_type = 'table_macro' AND contains(lower(?), lower(function_name))"
)
# Kinds of values whose size is not that of their type.
_OF_ANY_SIZE = (Kind.TEXT, Kind.ARRAY, Kind.OTHER)


def import_duckdb() -> Any:
    """Return the module. Raises DataError naming the extra if it is not there."""
    try:
        import duckdb
    except ImportError as error:
        raise DataError(
            "SQL needs duckdb, which is not installed; install elasticdl[sql]"
        ) from error
    return duckdb


def connect(
    path: str = "",
    *,
    spill: Path | None = None,
    ordered: bool = True,
    reading: bool = False,
) -> Any:
    """Return a connection with bounded memory that downloads nothing.

    One that is for `reading` leaves a database's file to others that read it.
    """
    duckdb = import_duckdb()
    config: dict[str, Any] = {
        "memory_limit": MEMORY_LIMIT,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "preserve_insertion_order": ordered,
        # A variable of this program is no table.
        "python_enable_replacements": False,
    }
    if spill is not None:
        config["temp_directory"] = str(spill / "spill")
    try:
        connection = _opened(path or ":memory:", config, reading=reading)
        # It is on without a script (python -c, notebooks), and writes to stdout. In a
        # notebook without ipywidgets it is off, and a word about it is refused there.
        if connection.execute(_SHOWS_PROGRESS).fetchall() != [(False,)]:
            connection.execute("SET enable_progress_bar = false")
        return connection
    except duckdb.Error as error:
        raise failed(error, doing=f"{path}: cannot be opened") from error


def _opened(path: str, config: dict[str, Any], *, reading: bool) -> Any:
    """Open a database; only to be read where its file can only be read."""
    duckdb = import_duckdb()
    try:
        if reading and Path(path).is_file():
            return duckdb.connect(path, read_only=True, config=config)
        return duckdb.connect(path, config=config)
    except duckdb.IOException as error:
        refused = any(sign in str(error) for sign in _ONLY_READ)
        if not refused or not Path(path).is_file():
            raise
        return duckdb.connect(path, read_only=True, config=config)


@contextmanager
def working(spill: Path) -> Iterator[Any]:
    """Give a connection for work on staged rows; what it spills is gone afterwards.

    Raises DataError where the engine refuses, as for a text that is no number.
    """
    connection = connect(spill=spill)
    try:
        with interrupts(connection):
            yield connection
    except import_duckdb().Error as error:
        raise failed(error, doing="the rows cannot be converted") from error
    finally:
        connection.close()
        shutil.rmtree(spill / "spill", ignore_errors=True)


def open_embedded(path: str, *, folder: Path | None, reading: bool) -> Embedded:
    """Return the engine on a database file; without one its tables are in memory."""
    connection = connect(path, spill=folder, reading=reading)
    return Embedded(connection, keeps_tables=bool(path))


@dataclass(frozen=True)
class Embedded:
    """A source that is DuckDB itself."""

    connection: Any
    keeps_tables: bool
    engine: str = "duckdb"

    @contextmanager
    def rows(self, select: str) -> Iterator[EmbeddedRows]:
        duckdb = import_duckdb()
        self._begin()  # In one transaction, so that the preview is of the same rows.
        try:
            with interrupts(self.connection):
                relation = self.connection.sql(select)
                if relation is None:
                    raise DataError("the statement before TO returns no rows")
                streams = _streams(self.connection, select)
                yield EmbeddedRows(relation, self.connection, streams)
        except duckdb.Error as error:
            raise failed(_first(error), doing="the query failed") from error
        finally:
            self.connection.rollback()

    def schema(self, select: str) -> Schema | None:
        return schema_or_none(self.rows, select)

    def describe(self, select: str) -> Described | None:
        duckdb = import_duckdb()
        connection = self.connection
        try:
            found = connection.extract_statements(select)
            if [one.type for one in found] != [duckdb.StatementType.SELECT]:
                return None
            # Not by `sql`, which computes what needs no rows: nextval('s').
            described = connection.execute(f"DESCRIBE {select}").fetchall()
            columns = [(one[0], connection.type(one[1])) for one in described]
        except duckdb.Error as error:
            told = str(failed(error, doing="the query failed"))
            # The line that it shows is the user's, without our word.
            raise DataError(told.replace("LINE 1: DESCRIBE ", "LINE 1: ")) from error
        schema = Schema(tuple(types_duckdb.column(*one) for one in columns))
        return Described(schema, typed=True)

    def execute(self, sql: str, *, most_rows: int) -> Answer:
        duckdb = import_duckdb()
        try:
            with interrupts(self.connection):
                cursor = self.connection.execute(sql)
                if cursor.description is None:
                    return Answer((), ())
                names = tuple(one[0] for one in cursor.description)
                found = cursor.fetchmany(most_rows + 1)
        except duckdb.Error as error:
            raise DataError(one_line(error)) from error
        rows = tuple(map(tuple, found))
        return Answer(names, rows[:most_rows], len(rows) > most_rows)

    def check_table(self, name: str) -> None:
        duckdb = import_duckdb()
        self._begin()
        try:
            self._replace(name, "(x INTEGER)")
        except duckdb.Error as error:
            raise failed(error, doing=f"table {name} cannot be written") from error
        finally:
            self._give_up()

    def held(self, name: str) -> Held | None:
        with interrupts(self.connection):
            return _held(self.connection, quoted(name))

    def state(self, name: str) -> str:
        asked = f"SELECT count(*), sum(hash(*COLUMNS(*))) FROM {quoted(name)}"
        with interrupts(self.connection):
            return str(self.connection.execute(asked).fetchone())

    def views(self, query: str) -> list[tuple[str, str]]:
        found = self.connection.execute(_VIEWS, [query, query]).fetchall()
        return [(name, behind) for name, behind in found]

    def has_schema(self, name: str) -> bool:
        # In `o.sales` a database that was attached stands for its first schema.
        asked = (
            "SELECT count(*) FROM (SELECT schema_name AS name FROM duckdb_schemas() "
            "UNION ALL SELECT database_name FROM duckdb_databases()) "
            "WHERE lower(name) = ?"
        )
        (found,) = self.connection.execute(asked, [name.lower()]).fetchone()
        return bool(found)

    def put_table(self, name: str, parquet: Path, came: Schema = NO_COLUMNS) -> int:
        with interrupts(self.connection):
            return self._put_table(name, parquet, came)

    def _put_table(self, name: str, parquet: Path, came: Schema) -> int:
        duckdb = import_duckdb()
        run = self.connection.execute
        try:
            run("BEGIN")
            rows = f"read_parquet({file_literal(parquet)})"
            found = run(f"DESCRIBE SELECT * FROM {rows}").fetchall()
            columns = ", ".join(_as_it_came(one[0], one[1], came) for one in found)
            self._replace(name, f"AS SELECT {columns} FROM {rows}")
            run("COMMIT")
            (count,) = run(f"SELECT count(*) FROM {quoted(name)}").fetchone()
        except duckdb.Error as error:
            self._give_up()
            raise failed(error, doing=f"table {name} cannot be written") from error
        return int(count)

    def _replace(self, name: str, made: str) -> None:
        """Make a table aside and put it in place, in a transaction of the caller's."""
        before, _, last = name.rpartition(".")
        place = f"{quoted(before)}." if before else ""
        aside = identifier(f"{last}_{secrets.token_hex(4)}")
        run = self.connection.execute
        run(f"CREATE TABLE {place}{aside} {made}")
        run(f"DROP TABLE IF EXISTS {place}{identifier(last)}")
        run(f"ALTER TABLE {place}{aside} RENAME TO {identifier(last)}")

    def _begin(self) -> None:
        duckdb = import_duckdb()
        try:
            self.connection.begin()
        except duckdb.TransactionException as error:
            # The engine itself gives an open transaction up by now.
            self._give_up()
            raise DataError(
                "an earlier statement began a transaction, which is rolled back now; "
                "COMMIT it before the SELECT ... TO"
            ) from error

    def _give_up(self) -> None:
        duckdb = import_duckdb()
        try:
            self.connection.rollback()
        except duckdb.Error:
            return

    def close(self) -> None:
        self.connection.close()


def _as_it_came(name: str, stored: str, came: Schema) -> str:
    """Return a column of a Parquet file in the type that it had in the query."""
    column = identifier(name)
    stated = next((one.stated for one in came.columns if one.name == name), "")
    if stated in ("", stored, types_duckdb.UNTYPED):
        return column
    return f"CAST({column} AS {stated}) AS {column}"


@dataclass(frozen=True)
class EmbeddedRows:
    """A query of the embedded engine, bound but not run yet.

    What is read of it before all rows are written is kept in a table of its
    transaction: all rows, where the first ones take as long (groups, joins, an order).
    """

    relation: Any
    connection: Any
    streams: bool

    @cached_property
    def _kept(self) -> Any:
        rows = self.relation.limit(PREVIEW_ROWS) if self.streams else self.relation
        name = f"rows_{secrets.token_hex(8)}"  # of no table of the user's
        rows.query(name, f"CREATE TEMP TABLE {name}_kept AS FROM {name}")
        return self.connection.sql(f"FROM {name}_kept")

    def _whole(self) -> Any:
        """Return what has all rows."""
        if "_kept" not in self.__dict__:
            return self.relation
        ((number,),) = self._kept.aggregate("count(*)").fetchall()
        partly = self.streams and number >= PREVIEW_ROWS
        return self.relation if partly else self._kept

    @cached_property
    def schema(self) -> Schema:
        columns = zip(self.relation.columns, self.relation.types, strict=True)
        return Schema(tuple(types_duckdb.column(name, kind) for name, kind in columns))

    @cached_property
    def preview(self) -> Preview:
        table = self._kept.limit(PREVIEW_ROWS).to_arrow_table()
        values = {
            column.name: tuple(map(types.plain, found.to_pylist()))
            for column, found in zip(self.schema.columns, table.columns, strict=True)
            # Python has no date beyond the year 9999, and nobody looks at these.
            if column.kind not in (Kind.TIME, Kind.OTHER)
        }
        return Preview(
            self.schema, values, table.num_rows, table.num_rows < PREVIEW_ROWS
        )

    def write(self, path: Path, *, kept: bool = False) -> int:
        del kept  # A column has values of one type.
        columns = zip(self.relation.columns, self.relation.types, strict=True)
        staged = [one for one in (_staged(name, kind) for name, kind in columns) if one]
        size = self._group_rows()
        relation = self._whole()
        if staged:
            relation = relation.project(f"* REPLACE ({', '.join(staged)})")
        relation.write_parquet(str(path), compression="lz4_raw", row_group_size=size)
        return count_rows(path)

    def _group_rows(self) -> int:
        """Return how many rows make a row group: fewer where texts are long."""
        texts = [
            f"strlen(CAST({identifier(one.name)} AS VARCHAR))"
            for one in self.schema.columns
            if one.kind in _OF_ANY_SIZE
        ]
        if not texts:
            return _STAGED_ROWS
        wide = " + ".join(f"coalesce(avg({text}), 0)" for text in texts)
        found = self._kept.limit(_FEWEST_ROWS).aggregate(f"{wide} AS wide")
        ((width,),) = found.fetchall()
        fitting = int(_GROUP_BYTES / max(width, 1.0)) // _FEWEST_ROWS * _FEWEST_ROWS
        return max(_FEWEST_ROWS, min(_STAGED_ROWS, fitting))


def _first(error: BaseException) -> BaseException:
    """Return what ended a transaction, where the last that is told is that it ended."""
    duckdb = import_duckdb()
    before = error.__context__
    told = isinstance(error, duckdb.TransactionException)
    return before if told and isinstance(before, duckdb.Error) else error


def _streams(connection: Any, select: str) -> bool:
    """Whether the first rows of a query are there without all that it reads."""
    duckdb = import_duckdb()
    try:
        found = connection.execute(f"EXPLAIN (FORMAT json) {select}").fetchall()
    except duckdb.Error:  # as of SHOW and CALL
        return True
    plan = json.loads(found[0][1])
    return all(
        name in _STREAMING or name.endswith("_SCAN") or name.startswith("READ_")
        for name in _operators(plan)
    )


def _operators(plan: list[dict[str, Any]]) -> Iterator[str]:
    for one in plan:
        yield one["name"].strip()
        yield from _operators(one.get("children", []))


def _staged(column: str, kind: Any) -> str:
    """Return a column as a type that Parquet has; "" where it is one already.

    Each value is read back as what it was, too: what would not be the same is an error.
    """
    staged = types_duckdb.staged(kind)
    if not staged:
        return ""
    name = identifier(column)
    back = f"TRY_CAST(TRY_CAST({name} AS {staged}) AS {kind})"
    got = literal(f"column `{column}`: got ")
    expected = ", which would not come back; CAST it to VARCHAR in the SELECT"
    if "HUGEINT" in str(kind):
        expected = ", expected at most 38 digits; CAST it to DOUBLE or VARCHAR in the "
        expected += "SELECT"
    return (
        f"CASE WHEN CAST({back} AS VARCHAR) IS DISTINCT FROM CAST({name} AS VARCHAR) "
        f"THEN error({got} || CAST({name} AS VARCHAR) || {literal(expected)}) "
        f"ELSE CAST({name} AS {staged}) END AS {name}"
    )


def _held(connection: Any, relation: str) -> Held | None:
    duckdb = import_duckdb()
    try:
        found = connection.execute(f"DESCRIBE {relation}").fetchall()
    except (duckdb.CatalogException, duckdb.BinderException):
        return None
    (count,) = connection.execute(f"SELECT count(*) FROM {relation}").fetchone()
    return Held(tuple(one[0] for one in found), int(count))


def held_in_file(path: Path) -> Held | None:
    """Return what a Parquet or CSV file has; None if there is none."""
    if not path.is_file():
        return None
    reader = "read_parquet" if path.suffix == ".parquet" else "read_csv"
    with working(path.parent) as connection:
        return _held(connection, f"(FROM {reader}({file_literal(path)}))")


def like_those_of(path: Path) -> str:
    """Return the option of a COPY that makes row groups of a file's size."""
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        metadata = file.metadata
        rows = metadata.row_group(0).num_rows if metadata.num_row_groups else 0
    return f"ROW_GROUP_SIZE {max(rows, _FEWEST_ROWS)}"


def count_rows(path: Path) -> int:
    """Return the rows of a Parquet file, by its footer."""
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        return int(file.metadata.num_rows)
