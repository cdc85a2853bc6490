"""Databases that SQLAlchemy reaches: SQLite, MySQL, MariaDB, PostgreSQL and others.

Owns cursors on the server's side, whose rows are `cursor`'s, and tables put in place;
what their columns are is in `tables`. Called by `source`. Types are those of the values
that drivers return (`types`), as few drivers agree in how they name them.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elasticdl.errors import DataError
from elasticdl.sql.data import describing, tables, types_postgresql
from elasticdl.sql.data.cursor import ServerRows
from elasticdl.sql.data.settings import Settings, refuse_held_back
from elasticdl.sql.data.source import (
    NO_COLUMNS,
    Answer,
    Described,
    Held,
    failed,
    one_line,
    schema_or_none,
)
from elasticdl.sql.data.transactions import Transaction
from elasticdl.sql.plan import Column, Kind, Schema

# What a URL names alone, where SQLAlchemy would look for a driver nobody installs.
_DRIVERS = {
    "mysql": "mysql+pymysql",
    "mariadb": "mariadb+pymysql",
    "postgresql": "postgresql+psycopg",
    "postgres": "postgresql+psycopg",
}
# Of a table that others use: what PostgreSQL says then, and how long it waits.
_LOCKED, _LOCK_TIMEOUT = "55P03", "1s"
_PACKAGES = {"pymysql": "pymysql", "psycopg": "'psycopg[binary]'"}


def open_server(url: str) -> Server:
    """Return the source of a URL. Raises DataError if a driver is missing."""
    try:
        import sqlalchemy
    except ImportError as error:
        raise DataError(
            "databases need sqlalchemy, which is not installed; install elasticdl[sql]"
        ) from error
    scheme, _, rest = url.partition("://")
    driver = _DRIVERS.get(scheme, scheme)
    try:
        parsed = sqlalchemy.engine.make_url(f"{driver}://{rest}")
        engine = _engine(parsed)
    except ValueError:
        raise DataError(
            "--db: the URL cannot be read, expected scheme://user@host:port/name with "
            "a number as port; write signs of a password as %40 for @"
        ) from None
    except ModuleNotFoundError as error:
        package = _PACKAGES.get(error.name or "", error.name)
        raise DataError(
            f"--db: {scheme} needs the driver {error.name}, which is not installed; "
            f"install it with `pip install {package}`, or name another one, as "
            f"{scheme.partition('+')[0]}+DRIVER://..."
        ) from None
    except sqlalchemy.exc.ArgumentError as error:
        raise DataError(
            f"--db: {one_line(error)}; expected a URL as postgresql://user@host/name, "
            "or the path of a file"
        ) from None
    except sqlalchemy.exc.NoSuchModuleError:
        raise DataError(
            f"--db: SQLAlchemy has no dialect {scheme!r}; install the package that "
            "brings it, or check the spelling"
        ) from None
    settings = Settings()
    settings.give_to(engine)
    return Server(engine, secret=parsed.password or "", _settings=settings)


def _engine(url: Any) -> Any:
    """Return SQLAlchemy's engine; psycopg gives values as `types_postgresql` says.

    A connection is tried before it is used again: it idles while a job runs, and
    servers end idle ones.
    """
    import sqlalchemy

    if url.get_driver_name() != types_postgresql.DRIVER:
        return sqlalchemy.create_engine(url, pool_pre_ping=True)
    engine = sqlalchemy.create_engine(url, pool_pre_ping=True, use_native_hstore=False)

    @sqlalchemy.event.listens_for(engine, "connect")
    def prepare(connection: Any, _: object) -> None:
        types_postgresql.load_as_text(connection.adapters)

    return engine


@dataclass(frozen=True)
class Server:
    """A source behind SQLAlchemy."""

    _engine: Any
    secret: str = field(default="", repr=False)
    keeps_tables: bool = True
    _transaction: Transaction = field(default_factory=Transaction)
    _settings: Settings = field(default_factory=Settings)

    @property
    def engine(self) -> str:
        """The name of SQLAlchemy's dialect."""
        return str(self._engine.dialect.name)

    @contextmanager
    def rows(self, select: str) -> Iterator[ServerRows]:
        from sqlalchemy import exc

        self._transaction.give_up()
        try:
            with self._engine.connect() as connection:
                options = {"stream_results": True, "no_parameters": True}
                streamed = connection.execution_options(**options)
                result = streamed.exec_driver_sql(select)
                if not result.returns_rows:
                    raise DataError("the statement before TO returns no rows")
                with closing(result):
                    # Before the last row is fetched: then there is no cursor.
                    described = tuple(result.cursor.description)
                    stated = self._stated(connection, described)
                    yield ServerRows(result, self.engine, described, stated)
        except exc.SQLAlchemyError as error:
            raise self._failed(error, "the query failed") from None

    def _stated(
        self, connection: Any, described: Sequence[Any]
    ) -> list[types_postgresql.Stated]:
        """Return the types of a query's columns where the server can be asked."""
        if self._engine.driver != types_postgresql.DRIVER:
            return []
        return types_postgresql.ask(connection, described)

    def schema(self, select: str) -> Schema | None:
        return schema_or_none(self.rows, select)

    def describe(self, select: str) -> Described | None:
        from sqlalchemy import exc

        try:
            with self._engine.connect() as connection:
                if self._engine.driver == types_postgresql.DRIVER:
                    schema = types_postgresql.describe(connection, select)
                    return Described(schema, typed=True) if schema else None
                names = describing.names(connection, self.engine, select)
        except exc.SQLAlchemyError as error:
            raise self._failed(error, "the query failed") from None
        columns = tuple(Column(name, Kind.OTHER) for name in names)
        return Described(Schema(columns), typed=False) if columns else None

    def execute(self, sql: str, *, most_rows: int) -> Answer:
        from sqlalchemy import exc

        refuse_held_back(sql)
        try:
            held = self._transaction.connection(self._engine, sql)
            if held is None:
                with self._engine.begin() as connection:
                    answer = _answer(connection, sql, most_rows)
                    self._settings.after(connection, sql)
                    return answer
            try:
                answer = _answer(held, sql, most_rows)
                self._settings.after(held, sql)
                return answer
            finally:
                self._transaction.after(sql)
        except exc.SQLAlchemyError as error:
            raise DataError(one_line(_original(error), self.secret)) from None

    def check_table(self, name: str) -> None:
        import sqlalchemy
        from sqlalchemy import exc

        self._transaction.give_up()
        schema, _, last = name.rpartition(".")
        try:
            if self.engine == "postgresql":
                self._try_swap(schema, last)
                return
            self._try_beside(schema, last)
            views = sqlalchemy.inspect(self._engine).get_view_names(schema or None)
        except exc.SQLAlchemyError as error:
            if _is_busy(_original(error)):
                return  # Somebody reads it just now: it can be seen at the end alone.
            raise self._failed(error, f"table {name} cannot be written") from None
        except NotImplementedError:  # of a dialect
            return
        if last in views:
            raise DataError(
                f"`{name}` is a view, in whose place no table can come; name another "
                "table, or drop the view"
            )

    def _try_beside(self, schema: str, name: str) -> None:
        """Make an empty table and drop it, as rights and places may be missing."""
        table = _empty_table(_aside(name), schema)
        with self._engine.begin() as connection:
            if self.engine in tables.MYSQL:
                tables.refuse_in_mysql(connection, schema, name)
            table.create(connection)
            table.drop(connection)

    def _try_swap(self, schema: str, name: str) -> None:
        """Put an empty table in place, and take it back: other engines could not."""
        aside = _aside(name)
        table = _empty_table(aside, schema)
        with self._engine.connect() as connection:
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'")
            table.create(connection)
            for statement in self._swap(aside, name, schema):
                connection.exec_driver_sql(statement)
            connection.rollback()

    def held(self, name: str) -> Held | None:
        import sqlalchemy
        from sqlalchemy import exc

        schema, _, last = name.rpartition(".")
        try:
            inspector = sqlalchemy.inspect(self._engine)
            if not inspector.has_table(last, schema or None):
                return None
            place = self._place(schema, last)
            # Not of the inspector, which warns of types that it does not know.
            with self._engine.connect() as connection:
                run = connection.execution_options(no_parameters=True).exec_driver_sql
                names = list(run(f"SELECT * FROM {place} WHERE 1 = 0").keys())
            asked = f"SELECT count(*) FROM {place}"
            (count,) = self.execute(asked, most_rows=1).rows[0]
        except (exc.SQLAlchemyError, NotImplementedError) as error:
            raise self._failed(error, f"table {name} cannot be read") from None
        return Held(tuple(names), int(count))

    def state(self, name: str) -> str:
        from sqlalchemy import exc

        schema, _, last = name.rpartition(".")
        try:
            with self._engine.connect() as connection:
                return tables.state(connection, self._place(schema, last))
        except exc.SQLAlchemyError as error:
            raise self._failed(error, f"table {name} cannot be read") from None

    def views(self, query: str) -> list[tuple[str, str]]:
        import sqlalchemy
        from sqlalchemy import exc

        within, found = query.lower(), []
        try:
            inspector = sqlalchemy.inspect(self._engine)
            named = [s for s in inspector.get_schema_names() if s.lower() in within]
            there = [(s, v) for s in (None, *named) for v in _views(inspector, s)]
        except (exc.SQLAlchemyError, NotImplementedError):  # who may not ask
            return []
        for schema, name in there:
            if name.lower() in within:
                with suppress(exc.SQLAlchemyError, NotImplementedError):  # may not look
                    behind = inspector.get_view_definition(name, schema)
                    found.append((name, str(behind or "")))
        return found

    def has_schema(self, name: str) -> bool:
        import sqlalchemy
        from sqlalchemy import exc

        try:
            return name in sqlalchemy.inspect(self._engine).get_schema_names()
        except (exc.SQLAlchemyError, NotImplementedError):  # who may not ask
            return False

    def _place(self, schema: str, name: str) -> str:
        """Return a table's name in the quotes of its engine."""
        mark = self._engine.dialect.identifier_preparer.quote_identifier
        return f"{mark(schema)}.{mark(name)}" if schema else str(mark(name))

    def put_table(self, name: str, parquet: Path, came: Schema = NO_COLUMNS) -> int:
        from sqlalchemy import MetaData, Table, exc

        schema, _, last = name.rpartition(".")
        aside = _aside(last)
        asked = self._engine.driver == types_postgresql.DRIVER
        if not asked:
            came = tables.kept_of(came)
        columns = tables.columns(parquet, self.engine, came)
        table = Table(aside, MetaData(), *columns, schema=schema or None)
        written = 0
        try:
            with self._engine.begin() as connection:
                if self.engine in tables.MYSQL:
                    connection.exec_driver_sql(tables.STRICT)
                table.create(connection)
                for batch in tables.batches(parquet, self.engine, came):
                    connection.execute(table.insert(), batch)
                    written += len(batch)
                for statement in self._swap(aside, last, schema):
                    connection.exec_driver_sql(statement)
        except exc.SQLAlchemyError as error:
            # Where nothing answers any more, nothing can be dropped either.
            with (
                suppress(exc.SQLAlchemyError),
                self._engine.begin() as connection,
            ):
                table.drop(connection, checkfirst=True)
            raise self._failed(error, f"table {name} cannot be written") from None
        return written

    def _swap(self, aside: str, name: str, schema: str) -> list[str]:
        """Return the statements that put a table in the place of another one."""
        mark = self._engine.dialect.identifier_preparer.quote_identifier
        new, there = self._place(schema, aside), self._place(schema, name)
        if self.engine not in tables.MYSQL:
            # MySQL alone renames two tables in one step and has no transaction here.
            renamed = f"ALTER TABLE {new} RENAME TO {mark(name)}"
            swap = [f"DROP TABLE IF EXISTS {there}", renamed]
            if self.engine != "sqlite":
                return swap
            # Else it refuses while a view names the table that is just away.
            rule = "PRAGMA legacy_alter_table"
            return [f"{rule}=ON", *swap, f"{rule}=OFF"]
        old = self._place(schema, f"{aside}_old")
        return [
            f"CREATE TABLE IF NOT EXISTS {there} LIKE {new}",
            f"RENAME TABLE {there} TO {old}, {new} TO {there}",
            f"DROP TABLE {old}",
        ]

    def _failed(self, error: BaseException, doing: str) -> DataError:
        from sqlalchemy import exc

        original = _original(error)
        told = failed(original, doing=doing, secret=self.secret)
        of_driver = getattr(original, "sqlstate", "") is None
        if not (of_driver and isinstance(error, exc.DataError)):
            return told
        # Of psycopg itself, not of the server: for infinity, 24:00 and years BC.
        return DataError(
            f"{told}; Python has no such value: CAST its column to text in the SELECT"
        )

    def close(self) -> None:
        self._transaction.close()
        self._engine.dispose()


def _answer(connection: Any, sql: str, most_rows: int) -> Answer:
    """Run a statement; its first rows, or how many it changed."""
    quiet = connection.execution_options(no_parameters=True)
    result = quiet.exec_driver_sql(sql)
    if not result.returns_rows:
        return Answer((), (), changed=result.rowcount)
    names = tuple(result.keys())
    rows = tuple(map(tuple, result.fetchmany(most_rows + 1)))
    result.close()
    return Answer(names, rows[:most_rows], len(rows) > most_rows)


def _aside(name: str) -> str:
    """Return the name of a table that is made to take another one's place."""
    return f"{name[:40]}_{secrets.token_hex(4)}"


def _empty_table(name: str, schema: str) -> Any:
    from sqlalchemy import Column, Integer, MetaData, Table

    return Table(name, MetaData(), Column("x", Integer), schema=schema or None)


def _views(inspector: Any, schema: str | None) -> list[str]:
    """Return the names of views, also of those that keep their rows."""
    names = list(inspector.get_view_names(schema))
    with suppress(NotImplementedError):  # of a dialect without
        names += inspector.get_materialized_view_names(schema)
    return names


def _is_busy(error: BaseException) -> bool:
    """Whether others use what is asked for, says PostgreSQL or SQLite."""
    if getattr(error, "sqlstate", "") == _LOCKED:
        return True
    return getattr(error, "sqlite_errorname", "") == "SQLITE_BUSY"


def _original(error: BaseException) -> BaseException:
    """Return the driver's own error: SQLAlchemy's repeats the whole statement."""
    return getattr(error, "orig", None) or error
