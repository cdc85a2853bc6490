"""Tables of servers for the rows of a Parquet file: columns, and values for drivers.

Owns which type of an engine holds a type of Arrow, so that values come back as they
were. Called by `servers`. Must not open anything but the file.
"""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from elasticdl.errors import DataError
from elasticdl.sql.data import types
from elasticdl.sql.data.source import NO_COLUMNS
from elasticdl.sql.plan import Kind, Schema

MYSQL = ("mysql", "mariadb")
# Without it what does not fit is cut, and only a warning says so.
STRICT = "SET SESSION sql_mode = CONCAT(@@sql_mode, ',STRICT_ALL_TABLES')"
_INTERVALS = (*MYSQL, "postgresql")
_INSERT_ROWS = 2000
_MYSQL_NAME = 64  # Characters of a table's.


def columns(parquet_file: Path, engine: str, came: Schema = NO_COLUMNS) -> list[Any]:
    """Return the columns of a table for a Parquet file's rows.

    Those of the query `came` have the types that they had there.
    """
    import sqlalchemy as sa
    from pyarrow import parquet

    schema = parquet.read_schema(parquet_file)
    stated = {one.name: one.stated for one in came.columns if not one.rounded}
    return [
        sa.Column(
            one.name,
            _named(stated[one.name])
            if stated.get(one.name)
            else _type(one.type, engine),
        )
        for one in schema
    ]


def refuse_in_mysql(connection: Any, schema: str, name: str) -> None:
    """Raise DataError where only the last statements of a swap would fail."""
    if len(name) > _MYSQL_NAME:
        raise DataError(
            f"table `{name}`: its name has {len(name)} characters, MySQL takes "
            f"{_MYSQL_NAME}"
        )
    import sqlalchemy

    asked = sqlalchemy.text(
        "SELECT table_name FROM information_schema.key_column_usage WHERE "
        "referenced_table_schema = coalesce(:schema, database()) AND "
        "referenced_table_name = :name AND table_name <> :name"
    )
    values = {"schema": schema or None, "name": name}
    other = connection.execute(asked, values).scalar()
    if other is not None:
        raise DataError(
            f"table {name} cannot be written: `{other}` has a foreign key to it, and "
            "no table can come in its place; name another one"
        )


def state(connection: Any, place: str) -> str:
    """Return what is another text when any value of a table is another one."""
    engine = connection.dialect.name
    run = connection.execution_options(
        stream_results=True, no_parameters=True
    ).exec_driver_sql
    if engine in MYSQL:
        return str(run(f"CHECKSUM TABLE {place}").first()[1])
    if engine == "postgresql":
        row = '"the row"'  # no column
        hashed = f"sum(hashtextextended({row}::text, 0))"
        return str(run(f"SELECT count(*), {hashed} FROM {place} AS {row}").first())
    total = 0
    cursor = run(f"SELECT * FROM {place}").cursor  # Others have no hash of texts.
    while rows := cursor.fetchmany(_INSERT_ROWS):
        for row in rows:
            digest = hashlib.blake2b(repr(tuple(row)).encode(), digest_size=8).digest()
            total += int.from_bytes(digest)
    return str(total)


def kept_of(came: Schema) -> Schema:
    """Return the columns of a query whose values come back by the type they state."""
    return Schema(tuple(c for c in came.columns if types.is_kept(c)))


def _named(stated: str) -> Any:
    """Return a type by the engine's own name of it."""
    from sqlalchemy.types import UserDefinedType

    class Named(UserDefinedType[Any]):
        cache_ok = True

        def get_col_spec(self, **_: Any) -> str:
            return stated

    return Named()


def _type(arrow: Any, engine: str) -> Any:
    """Return the type of a column that is made for values of an Arrow type."""
    import sqlalchemy as sa
    from pyarrow import types as of
    from sqlalchemy.dialects import mysql

    if of.is_list(arrow) and engine == "postgresql":
        return sa.ARRAY(_type(arrow.value_type, engine))
    known: list[tuple[Callable[[Any], bool], Any]] = [
        (of.is_boolean, sa.Boolean()),
        (of.is_integer, sa.BigInteger()),
        (of.is_floating, sa.Double()),
        (of.is_decimal, sa.Double()),
        (of.is_binary, sa.LargeBinary()),
        (of.is_timestamp, sa.DateTime(timezone=getattr(arrow, "tz", None) is not None)),
        (of.is_date, sa.Date()),
        (of.is_time, sa.Time()),
    ]
    if engine in MYSQL:
        # Its BLOB and TEXT have 64 KiB, its TIME and DATETIME no fractions; a text may
        # have any sign, whatever the database has as its own.
        known = [
            (of.is_binary, mysql.LONGBLOB()),
            (of.is_timestamp, mysql.DATETIME(fsp=6)),
            (of.is_time, mysql.TIME(fsp=6)),
            (of.is_duration, mysql.TIME(fsp=6)),
            *known,
        ]
    elif engine in _INTERVALS:
        known.append((of.is_duration, sa.Interval()))
    text = mysql.LONGTEXT(charset="utf8mb4") if engine in MYSQL else sa.Text()
    return next((kind for fits, kind in known if fits(arrow)), text)


def batches(
    parquet_file: Path, engine: str, came: Schema = NO_COLUMNS
) -> Iterator[list[dict[str, Any]]]:
    """Yield a Parquet file's rows as drivers take them, some at a time.

    Decimals of the query `came` are as they were, and spans; others are floats.
    """
    from pyarrow import parquet

    exact = set(kept_of(came).names)

    with parquet.ParquetFile(parquet_file) as file:
        for batch in file.iter_batches(_INSERT_ROWS):
            rows = batch.to_pylist()
            yield [
                {k: v if k in exact else _given(v, engine) for k, v in row.items()}
                for row in rows
            ]


def _given(value: Any, engine: str) -> Any:
    """Return a value as drivers take it; what the engine has no type for, as text."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if types.kind_of(value) is Kind.NUMBER:
        return float(value)
    if isinstance(value, list) and engine != "postgresql":
        return types.text_of(value)
    if isinstance(value, datetime.timedelta) and engine not in _INTERVALS:
        return str(value)
    return value
