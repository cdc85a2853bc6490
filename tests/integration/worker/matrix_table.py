"""The table of the matrix in docs/models.md, made of the cells that the test runs.

Run as a module it writes the table; test_matrix.py checks that it is current.
"""

from __future__ import annotations

from pathlib import Path

from tests.integration.worker.matrix import AS_KERAS, FORMS, STRATEGIES, Case
from tests.integration.worker.matrix_optimizers import CROSSED, USUAL
from tests.integration.worker.matrix_product import alone, cells_of_tests, product

DOCS = Path(__file__).parents[3] / "docs" / "models.md"
BEGIN = "<!-- made by tests/integration/worker/matrix_table.py: begin -->"
END = "<!-- end -->"


def table() -> str:
    """Return the rows: what a module says, and what becomes of it."""
    lines = [
        "| the module has | forms | `local` | PS, sync | PS, async |",
        "|---|---|---|---|---|",
    ]
    for case in alone():
        cells = " | ".join(_cell(case, strategy) for strategy in STRATEGIES)
        name = f"`{case.name}`" if "(" in case.name else case.name
        forms = "all three" if case.forms == FORMS else ", ".join(case.forms)
        lines.append(f"| {name} | {forms} | {cells} |")
    return "\n".join(["", *lines, "", _counts()])


def _counts() -> str:
    tested = cells_of_tests()
    beside = len(tested) - len(AS_KERAS) * len(STRATEGIES)
    rounds = len(AS_KERAS) * (len(USUAL) + len(CROSSED)) * len(STRATEGIES)
    return (
        f"The product is these {len(AS_KERAS)} features, each in its forms, with each "
        f"of {len(USUAL) + len(CROSSED)} optimizers (the {len(USUAL)} of the table,\n"
        "and the common options of `SGD` and `Adam` there with the others) in each "
        f"strategy: {len(product()):,} cells. `make test` runs {len(tested)}: each "
        "feature\nin each strategy and in two of its forms, "
        f"and {beside} in which each optimizer meets one of the features.\n"
        "`make soak` runs the product, in rounds "
        f"of {rounds:,}: the first has each feature with each optimizer in each "
        "strategy, all three in each form too.\nA cell is refused where its "
        "feature or its optimizer is."
    )


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
