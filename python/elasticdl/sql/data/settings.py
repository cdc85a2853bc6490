"""What a user's statements set for their session, on each connection of a server.

Owns which statements these are, and that a connection which comes later has them, too:
a server ends one that idles while a job runs, and the next would read another
database's table of the same name. Called by `servers`, and by `sql.running.statements`
for what has no session. Temporary tables are not there again: what names them is
refused by the server.
"""

from __future__ import annotations

import re
from typing import Any

from elasticdl.errors import DataError

_SETS = re.compile(
    r"USE\b|ATTACH\b|DETACH\b|RESET\b|SET\s+(?!LOCAL\b|TRANSACTION\b|CONSTRAINTS\b"
    r"|GLOBAL\b|PERSIST|PASSWORD\b|@@GLOBAL|@@PERSIST)",
    re.IGNORECASE,
)
_HOLDS_BACK = re.compile(
    r"SET\s+(SESSION\s+|LOCAL\s+|@@)?(SESSION\s*\.\s*)?AUTOCOMMIT\s*(=|TO)\s*(0|OFF|FALSE)\b"
    r"|SET\s+IMPLICIT_TRANSACTIONS\s+ON\b",
    re.IGNORECASE,
)
_DONE = "statements of the session"  # How many a connection has had.


def sets(sql: str) -> bool:
    """Whether a statement sets something for those behind it in its session."""
    return _SETS.match(sql) is not None


class Settings:
    """The statements that set something, in order."""

    def __init__(self) -> None:
        """Begin with none."""
        self._said: list[str] = []

    def give_to(self, engine: Any) -> None:
        """Let each connection of an engine have them before it is used."""
        import sqlalchemy

        @sqlalchemy.event.listens_for(engine, "checkout")
        def give(connection: Any, record: Any, _: object) -> None:
            missing = self._said[record.info.get(_DONE, 0) :]
            if missing:
                cursor = connection.cursor()
                for sql in missing:
                    cursor.execute(sql)
                cursor.close()
                connection.commit()
            record.info[_DONE] = len(self._said)

    def after(self, connection: Any, sql: str) -> None:
        """Keep a statement that ran on a connection, where it sets something."""
        if sets(sql):
            self._said.append(sql)
            connection.info[_DONE] = len(self._said)


def refuse_held_back(sql: str) -> None:
    """Raise DataError for what would leave it to COMMIT whether statements are kept."""
    if _HOLDS_BACK.match(sql):
        raise DataError(
            "each statement is kept at once here, whatever the session says; write "
            "BEGIN before those that COMMIT is to keep"
        )
