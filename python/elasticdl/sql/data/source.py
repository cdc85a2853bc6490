"""A source of rows: where `--db` leads, and what can be asked of it.

Owns the protocol that both kinds of source keep and the choice between them: the
embedded engine for files and databases of its own, SQLAlchemy for servers. Called by
`sql.running`. Must not know statements. Its errors never hold a password.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from elasticdl.errors import DataError
from elasticdl.sql.data.passwords import without_secret
from elasticdl.sql.plan import Preview, Schema

_DUCKDB_ENDINGS = (".duckdb", ".ddb", ".db.duckdb")
_SQLITE_ENDINGS = (".sqlite", ".sqlite3")
NO_COLUMNS = Schema(())
BLANKS = " \t\n\r\f"  # Around a number in a text.
# Of a disk that is full, somewhere in the text.
_NOT_WRITTEN = re.compile(r'Could not write file \\?"(.+?)\\?": ([^"]+)')
_SQLITE_MAGIC = b"SQLite format 3\x00"


@dataclass(frozen=True)
class Answer:
    """What plain SQL returned: the first rows, and how many there were at least."""

    names: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    more: bool = False  # whether there were further rows
    changed: int = -1  # rows that the statement changed, where the engine tells


@dataclass(frozen=True)
class Described:
    """The columns of a query that was not run; untyped ones have names alone."""

    schema: Schema
    typed: bool


@dataclass(frozen=True)
class Held:
    """What a table has before another one takes its place."""

    names: tuple[str, ...]
    num_rows: int


class Rows(Protocol):
    """The rows of one query: looked at, then written once."""

    @property
    def schema(self) -> Schema:
        """The columns."""

    @property
    def preview(self) -> Preview:
        """The first rows, at most PREVIEW_ROWS."""

    def write(self, path: Path, *, kept: bool = False) -> int:
        """Write all rows as one Parquet file; return how many. Once.

        With `kept` they are to come back as they are: Raises DataError for a value that
        is among those of another type, which it would become one of.
        """


class Source(Protocol):
    """An engine that answers queries and takes tables."""

    @property
    def engine(self) -> str:
        """The name of its dialect: `duckdb`, `sqlite`, `mysql`, `postgresql`, ..."""

    @property
    def keeps_tables(self) -> bool:
        """Whether tables are there after the end of this process."""

    def rows(self, select: str) -> AbstractContextManager[Rows]:
        """Run a SELECT, unchanged. Raises DataError with the engine's own message."""

    def schema(self, select: str) -> Schema | None:
        """Return a SELECT's columns, by its first rows at most; None if it fails."""

    def describe(self, select: str) -> Described | None:
        """Return a SELECT's columns without running it; None if nobody can tell.

        Raises DataError with the engine's own message where it refuses the SELECT.
        """

    def execute(self, sql: str, *, most_rows: int) -> Answer:
        """Run a statement of the engine's own language."""

    def check_table(self, name: str) -> None:
        """Raise DataError where `put_table` could put nothing in place of that name.

        Nothing is changed, whatever is there.
        """

    def held(self, name: str) -> Held | None:
        """Return what a table has; None if there is none of that name."""

    def state(self, name: str) -> str:
        """Return what is another text when any value of a table is another one.

        The table is read for it, by the engine where that can tell.
        """

    def views(self, query: str) -> list[tuple[str, str]]:
        """Return names and definitions of views of which a query has the name.

        Those into which nobody may look are not there.
        """

    def has_schema(self, name: str) -> bool:
        """Whether tables may be in a schema of that name, in MySQL a database."""

    def put_table(self, name: str, parquet: Path, came: Schema = NO_COLUMNS) -> int:
        """Make a table of a Parquet file's rows, in place of one of that name.

        It is built aside and put in place at the end, so that nobody sees half of it.
        `came` is the query that gave some of the columns: they get its types.
        """

    def close(self) -> None:
        """Close all connections."""


def open_source(
    url: str, *, folder: Path | None = None, reading: bool = False
) -> Source:
    """Return the source of a URL or path; "" is an embedded engine without a file.

    With `reading` nothing is written to it: others may read its file meanwhile.

    Raises DataError if a driver is missing or nothing answers.
    """
    from elasticdl.sql.data import embedded, servers

    if not url:
        return embedded.open_embedded("", folder=folder, reading=False)
    if url.startswith("duckdb://"):
        url = url.removeprefix("duckdb://")
        return embedded.open_embedded(url, folder=folder, reading=reading)
    if "://" in url:
        return servers.open_server(url)
    path = Path(url).expanduser()
    if is_sqlite(path):
        return servers.open_server(f"sqlite:///{path}")
    return embedded.open_embedded(str(path), folder=folder, reading=reading)


def schema_or_none(
    rows: Callable[[str], AbstractContextManager[Rows]], select: str
) -> Schema | None:
    """Return the columns of a SELECT that a source's `rows` runs; None if it fails."""
    try:
        with rows(select) as found:
            return found.schema
    except DataError:  # of a table that an earlier statement makes, too
        return None


def engine_of(url: str) -> str:
    """Return the name of a URL's dialect, without opening anything."""
    if "://" not in url:
        return "sqlite" if url and is_sqlite(Path(url).expanduser()) else "duckdb"
    name = url.partition("://")[0].partition("+")[0]
    return {"postgres": "postgresql"}.get(name, name)


def is_sqlite(path: Path) -> bool:
    """Return whether a file is one of SQLite, by its first bytes or else its name."""
    try:
        with path.open("rb") as file:
            return file.read(len(_SQLITE_MAGIC)) == _SQLITE_MAGIC
    except OSError:
        return path.suffix in _SQLITE_ENDINGS


def one_line(error: BaseException, secret: str = "") -> str:
    """Return an engine's message in one line, without the password."""
    text = " ".join(str(error).split()) or type(error).__name__
    if secret:
        text = text.replace(secret, "***")
    return without_secret(text)


class EngineError(DataError):
    """What the engine said; of rows that it read or wrote, not of a model's."""


def failed(error: BaseException, *, doing: str, secret: str = "") -> EngineError:
    """Return the engine's refusal as an error of ours."""
    told = one_line(error, secret)
    full = _NOT_WRITTEN.search(told)
    return EngineError(f"{doing}: {full[1]}: {full[2]}" if full else f"{doing}: {told}")


def quoted(name: str) -> str:
    """Return a table's name in quotes; each part of `a.b` for itself."""
    return ".".join(map(identifier, name.split(".")))


def identifier(name: str) -> str:
    """Return one name, as that of a column, in quotes: a dot is a part of it."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return a text as a constant of SQL, for the embedded engine."""
    return "'" + text.replace("'", "''") + "'"


def file_literal(path: Path, last: str = "") -> str:
    """Return a file as `read_parquet` takes it, which has patterns; `last` is one."""
    plain = re.sub(r"[*?\[]", r"[\g<0>]", str(path))
    return literal(f"{plain}/{last}" if last else plain)


def as_double(text: str) -> str:
    """Return a part of a text as a number, for the embedded engine; NULL if none."""
    return f"TRY_CAST(trim({text}, {literal(BLANKS)}) AS DOUBLE)"


def batches_of(rows: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    """Yield slices of `size`."""
    for start in range(0, len(rows), size):
        yield rows[start : start + size]
