"""A transaction that a user's own statements begin and end, on a server.

Owns the connection that it is on, from BEGIN to COMMIT or ROLLBACK: any other one would
keep each statement at once, and a ROLLBACK would have nothing to do. Called by
`servers`. Must not know what the statements are.
"""

from __future__ import annotations

import re
from typing import Any

from elasticdl.errors import DataError

# No block, as BEGIN NOT ATOMIC of MariaDB.
_BEGINS = re.compile(
    r"(BEGIN\s*($|;|--|/\*|(TRAN|TRANSACTION|WORK|DEFERRED|IMMEDIATE|EXCLUSIVE|ISOLATION"
    r"|READ)\b)|START\s+TRANSACTION\b|SAVEPOINT\b)",
    re.IGNORECASE,
)
_ENDS = re.compile(r"(COMMIT|END|ROLLBACK(?!\s+(WORK\s+)?TO)|ABORT)\b", re.IGNORECASE)
_ROLLS_BACK = re.compile(r"(ROLLBACK(?!\s+(WORK\s+)?TO)|ABORT)\b", re.IGNORECASE)
_IN_TRANSACTION = 1  # Of MySQL's status.


def begins(sql: str) -> bool:
    """Whether a statement begins a transaction."""
    return _BEGINS.match(sql) is not None


class Transaction:
    """The one that is open on a server, if there is one."""

    def __init__(self) -> None:
        """Begin with none."""
        self._connection: Any = None

    def connection(self, engine: Any, sql: str) -> Any:
        """Return the connection of the open transaction, or that `sql` begins; or None.

        It leaves to the server what is kept, and when. Raises DataError where nothing
        is open to be rolled back, of which servers say nothing.
        """
        if self._connection is None and _ROLLS_BACK.match(sql):
            raise DataError(
                "there is nothing to roll back: no transaction is open, and what came "
                "before is kept; BEGIN comes before it, in the same session"
            )
        if self._connection is None and begins(sql):
            found = engine.connect()
            self._connection = found.execution_options(isolation_level="AUTOCOMMIT")
        return self._connection

    def after(self, sql: str) -> None:
        """Give the connection back where a statement has ended the transaction."""
        if self._connection is not None and not _is_open(self._connection, sql):
            self.close()

    def give_up(self) -> None:
        """Roll an open one back. Raises DataError that says so."""
        if self._connection is None:
            return
        self.close()
        raise DataError(
            "an earlier statement began a transaction, which is rolled back now; "
            "COMMIT it before the SELECT ... TO"
        )

    def close(self) -> None:
        """Roll back what is open."""
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.connection.driver_connection.rollback()
            finally:
                connection.close()


def _is_open(connection: Any, sql: str) -> bool:
    """Whether a transaction goes on, as the driver knows, behind a statement."""
    driver = connection.connection.driver_connection
    if hasattr(driver, "in_transaction"):  # sqlite3
        return bool(driver.in_transaction)
    if hasattr(driver, "server_status"):  # pymysql
        return bool(driver.server_status & _IN_TRANSACTION)
    status = getattr(getattr(driver, "info", None), "transaction_status", None)
    if status is not None:  # psycopg; 0 is idle
        return bool(status)
    return not _ENDS.match(sql)
