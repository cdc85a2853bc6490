"""Claims about docs/sql.md: what it shows is right."""

from __future__ import annotations

import re
from pathlib import Path

from elasticdl.sql import models, planning, signatures
from elasticdl.sql.data import types_duckdb, types_postgresql
from elasticdl.sql.optimizers import OPTIMIZERS
from elasticdl.sql.plan import Kind
from elasticdl.sql.statements import Plain

PAGE = (Path(__file__).parents[3] / "docs" / "sql.md").read_text(encoding="utf-8")


def test_every_statement_of_the_page_is_right() -> None:
    blocks = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
    assert blocks
    for block in blocks:
        statements = planning.read_statements(block, "duckdb")
        assert not any(isinstance(one, Plain) for one in statements)


def test_the_page_names_every_function_model_and_optimizer() -> None:
    for name in (*signatures.SIGNATURES, *signatures.SYNONYMS):
        assert name in PAGE
    for name in models.SYNONYMS:
        assert name.removesuffix("Regressor") in PAGE
    for name in OPTIMIZERS:
        assert f"`{name}`" in PAGE


def test_the_table_of_types_is_that_of_the_code() -> None:
    """What comes back, too: a type that is in neither table is refused or is text."""
    rows = re.findall(r"^\| (\w+) \| (.*?) \| .*? \| (.*?) \|", PAGE, re.MULTILINE)
    told = {row[0]: row[1:] for row in rows if row[0] in set(Kind)}
    zone = re.compile(" WITH(OUT)? TIME ZONE$")
    for place, kinds in enumerate((types_duckdb.KINDS, types_postgresql.KINDS)):
        for kind in Kind:
            names = {zone.sub("", k.upper()) for k, v in kinds.items() if v is kind}
            named = set(re.findall(r"`([A-Z_ ]+)`", told[kind][place]))
            if kind is Kind.ARRAY or (place and kind is Kind.OTHER):
                continue  # "of the above", and "all others"
            assert named - {"CHAR"} == names - {types_duckdb.UNTYPED}, kind
