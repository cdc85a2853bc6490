"""The table of the matrix in docs/models.md, made of the cells that the test runs.

Run as a module it writes the table; test_matrix.py checks that it is current.
"""

from __future__ import annotations

from pathlib import Path

from tests.integration.worker.matrix import STRATEGIES, Case, all_cases

DOCS = Path(__file__).parents[3] / "docs" / "models.md"
BEGIN = "<!-- made by tests/integration/worker/matrix_table.py: begin -->"
END = "<!-- end -->"


def table() -> str:
    """Return the rows: what a module says, and what becomes of it."""
    lines = [
        "| the module has | forms | `local` | PS, sync | PS, async |",
        "|---|---|---|---|---|",
    ]
    for case in all_cases():
        cells = " | ".join(_cell(case, strategy) for strategy in STRATEGIES)
        name = f"`{case.name}`" if "(" in case.name else case.name
        lines.append(f"| {name} | {', '.join(case.forms)} | {cells} |")
    return "\n".join(lines)


def _cell(case: Case, strategy: str) -> str:
    if strategy in case.refused:
        return "refused"
    return f"equal to {case.rtol:.0e}".replace("e-0", "e-")


def with_table(text: str) -> str:
    """Return the page with the table of today."""
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    DOCS.write_text(with_table(DOCS.read_text()))
