"""SQL: from a query to a trained elastic model and back into a table.

Owns the language around a SELECT, the plan that it makes, the module that comes of it,
and the way of the rows: source, shards, statistics, registry. Called by `cli`; jobs are
run by `client`. Must not import TensorFlow or Keras, and never parses the SELECT.

The package can be called: `elasticdl.sql("SELECT ...")` is `sql.notebook.sql`.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    """This package, which users call as a function."""

    def __call__(self, statements: str, **options: Any) -> Any:
        """Run statements; see `sql.notebook.sql`."""
        from elasticdl.sql.notebook import sql

        return sql(statements, **options)


sys.modules[__name__].__class__ = _Callable
