"""Claims about docs/sql.md: what it shows is right."""

from __future__ import annotations

import re
from pathlib import Path

from elasticdl.sql import models, planning, signatures
from elasticdl.sql.optimizers import OPTIMIZERS
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
