"""Whether a table in whose place an answer is put would have less in it then.

Owns how a target is found in a SELECT, which is not parsed, and in the views that the
SELECT names; and what an answer of before looks like, as nothing else that is not read
gives way to another one. Called by `predict`, `evaluate` and `gradients`, before the
job and behind it. Must not write anything.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from elasticdl.errors import DataError
from elasticdl.sql.data import embedded
from elasticdl.sql.data.results import Names
from elasticdl.sql.data.source import Held, Source
from elasticdl.sql.language.cut import without_comments
from elasticdl.sql.running.session import Session
from elasticdl.sql.statements import Name

FILE_ENDINGS = (".parquet", ".csv")


@dataclass(frozen=True)
class Written:
    """What an answer has: figures of the rows of a query, or these with more columns.

    Attributes:
        columns: Its own columns: all of figures, else those behind the query's.
        kept: What stays of a table's columns where the query has all of its rows.
        num_rows: How many rows the query has.
        answer: The names of prediction and probability, where both are written.
        learned: The query that the model learned from.
    """

    columns: tuple[str, ...]
    kept: tuple[str, ...] = ()
    num_rows: int = 0
    answer: Names | None = None
    learned: str = ""


def refuse_loss(
    session: Session, select: str, table: Name | None, written: Written
) -> None:
    """Raise DataError where what is in a table would be gone.

    Of one that is read, as in `SELECT * FROM people WHERE age < 30 TO PREDICT
    people.guess`, all rows and columns have to be in the SELECT. A probability right
    behind the prediction is of an answer before. One that is not read has to be an
    answer itself.
    """
    if table is None:
        return
    held = _held(session, table)
    if held is None:
        return
    queries = with_views(session.source, select)
    if not any(reads(query, table.text) for query in queries):
        _refuse_others(session, table, held, written)
        return
    num_rows = written.num_rows
    before = _of_before(held.names, written.answer)
    kept = {name.lower() for name in (*written.kept, *before)}
    gone = [f"`{name}`" for name in held.names if name.lower() not in kept]
    lost = [f"its {', '.join(gone)}"] if gone else []
    if held.num_rows > num_rows:
        fewer = held.num_rows - num_rows
        lost.append(f"{fewer:,} of its {held.num_rows:,} rows")
    joined = any(map(_JOINS.search, queries))
    if not lost and held.num_rows < num_rows and joined:
        raise DataError(
            f"{table.text} would have {num_rows:,} rows in place of {held.num_rows:,}: "
            "a join gives some of them more than once, and others perhaps not at all; "
            "name another table"
        )
    if lost:
        raise DataError(
            f"{table.text} would lose {' and '.join(lost)}: what is written takes its "
            "place, and has none of them; name another table or column, or have all in "
            "the SELECT"
        )


def _held(session: Session, table: Name) -> Held | None:
    if table.text.endswith(FILE_ENDINGS):
        return embedded.held_in_file(Path(table.text).expanduser())
    return session.source.held(table.text)


def _refuse_others(session: Session, table: Name, held: Held, written: Written) -> None:
    """Raise DataError where a table that is not read is no answer of before."""
    there = [name.lower() for name in held.names]
    last = there[-len(written.columns) :] if written.kept else there
    file = table.text.endswith(FILE_ENDINGS)
    advice = "name another table, or DROP TABLE it first"
    if file:
        advice = "name another file, or delete it first"
    if last != [name.lower() for name in written.columns]:
        columns = " and ".join(f"`{name}`" for name in written.columns)
        raise DataError(
            f"{table.text} is there, is not what the SELECT reads, and is no answer of "
            f"before, which {'ends with' if written.kept else 'has'} "
            f"{columns}: it would be gone; {advice}"
        )
    learned = with_views(session.source, written.learned) if written.learned else []
    if any(reads(query, table.text) for query in learned):
        raise DataError(
            f"{table.text} is what the model learned from, and not what the SELECT "
            f"reads: it would be gone; {advice}"
        )


def state(session: Session, select: str, table: Name | None) -> str:
    """Return what tells whether a table that a query reads has changed; or ""."""
    if table is None or (held := _held(session, table)) is None:
        return ""
    queries = with_views(session.source, select)
    if not any(reads(query, table.text) for query in queries):
        return ""
    if table.text.endswith(FILE_ENDINGS):
        found = Path(table.text).expanduser().stat()
        return f"{found.st_ino} {found.st_size} {found.st_mtime_ns}"
    return f"{', '.join(held.names)}: {session.source.state(table.text)}"


def with_views(source: Source, select: str) -> list[str]:
    """Return a query and, of all views in it, the queries behind; without comments."""
    queries = [without_comments(select, source.engine)]
    seen: set[str] = set()
    for query in queries:  # which grows: views are made of views
        for name, behind in source.views(query):
            if name not in seen and reads(query, name):
                seen.add(name)
                queries.append(without_comments(behind, source.engine))
    return queries


def _of_before(there: Sequence[str], answer: Names | None) -> Sequence[str]:
    """Return a table's column that is the probability of an answer before, if any."""
    if answer is None:
        return ()
    pair = [answer.prediction.lower(), answer.probability.lower()]
    lower = [name.lower() for name in there]
    at = lower.index(pair[0]) if pair[0] in lower else len(lower)
    return pair[1:] if lower[at : at + 2] == pair else ()


_FROM = r"\b(?:FROM|JOIN|TABLE)\b"
# Also by a comma, as in `FROM a, b`.
_JOINS = re.compile(
    r"\bJOIN\b|\bFROM\s+[\w.\"`\[\]]+(?:\s+(?:AS\s+)?\w+)?\s*,", re.IGNORECASE
)


def reads(select: str, table: str) -> bool:
    """Whether a query without comments seems to read a table; it is not parsed."""
    if table.endswith(FILE_ENDINGS):
        name = Path(table).name
        patterns = re.findall(r"'([^']*[*?\[][^']*)'", select)
        return name in select or any(fnmatch(name, Path(p).name) for p in patterns)
    begin = re.search(_FROM, select, re.IGNORECASE)
    if begin is None:
        return False
    of, _, last = table.rpartition(".")
    before = rf"(?:{_FROM}|[,.(])\s*(?:ONLY\s+)?[\"`\[']?"
    named = re.compile(rf"{before}{re.escape(last)}(?!\w)", re.IGNORECASE)
    return any(
        not (one[0].startswith(".") and _are_others(select[: one.start()], of))
        for one in named.finditer(select, begin.start())
    )


def _are_others(before: str, of: str) -> bool:
    """Whether the word before a point is not the schema of a target's name."""
    said, wanted = (re.search(r"(\w+)\W*$", text) for text in (before, of))
    return bool(said and wanted and said[1].lower() != wanted[1].lower())
