"""The names of a query's columns, of databases that tell no more without running it.

Owns how SQLite and MySQL are asked. Called by `servers`. Nothing here runs a query: an
engine reads it, and answers one of no rows around it.
"""

from __future__ import annotations

from typing import Any

from elasticdl.sql.data import tables

# What MySQL says where it prepares nothing of a kind, or nothing more.
_NOT_PREPARED = (1295, 1461)
_STATEMENT = "elasticdl_described"


def names(connection: Any, engine: str, select: str) -> list[str]:
    """Return the names; none where the engine does not tell them.

    Raises SQLAlchemy's error where the engine refuses the query itself.
    """
    from sqlalchemy import exc

    quiet = connection.execution_options(no_parameters=True)
    if engine == "sqlite":
        quiet.exec_driver_sql(f"EXPLAIN {select}").close()
    elif engine in tables.MYSQL:
        if not _prepared(connection, select):
            return []
    elif engine != "postgresql":  # with another driver than the one that tells types
        return []
    around = f"SELECT * FROM ({select}\n) AS described LIMIT 0"
    try:
        with quiet.exec_driver_sql(around) as found:
            return list(found.keys())
    except exc.SQLAlchemyError:  # Two columns of one name, FOR UPDATE.
        return []


def _prepared(connection: Any, select: str) -> bool:
    """Let MySQL read a query; whether it could be asked to."""
    from sqlalchemy import exc

    if connection.dialect.paramstyle not in ("format", "pyformat"):
        return True  # Of a driver to which a text is handed otherwise.
    try:
        connection.exec_driver_sql(f"PREPARE {_STATEMENT} FROM %s", (select,))
    except exc.DBAPIError as error:
        code = (getattr(error.orig, "args", None) or (0,))[0]
        if code in _NOT_PREPARED:
            return False
        raise
    connection.exec_driver_sql(f"DEALLOCATE PREPARE {_STATEMENT}")
    return True
