"""Whether a table that a statement reads would come back with less in it.

Owns how a target is found in a SELECT, which is not parsed, and in the views that the
SELECT names. Called by `predict`, `evaluate` and `gradients`, before the job and behind
it. Must not write anything.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

from elasticdl.errors import DataError
from elasticdl.sql.data import embedded
from elasticdl.sql.data.results import Names
from elasticdl.sql.data.source import Source
from elasticdl.sql.language.cut import without_comments
from elasticdl.sql.running.session import Session
from elasticdl.sql.statements import Name

FILE_ENDINGS = (".parquet", ".csv")


def refuse_loss(
    session: Session,
    select: str,
    table: Name | None,
    names: Sequence[str],
    num_rows: int,
    *,
    answer: Names | None = None,
) -> None:
    """Raise DataError where a table that is read would come back with less in it.

    As of `SELECT * FROM people WHERE age < 30 TO PREDICT people.guess`: what takes the
    table's place are the rows and the columns of the SELECT, called `names`. A
    probability right behind the prediction of an `answer` is of an answer before.
    """
    if table is None:
        return
    if table.text.endswith(FILE_ENDINGS):
        held = embedded.held_in_file(Path(table.text).expanduser())
    else:
        held = session.source.held(table.text)
    if held is None:
        return
    queries = with_views(session.source, select)
    if not any(reads(query, table.text) for query in queries):
        return
    kept = {name.lower() for name in (*names, *_of_before(held.names, answer))}
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
