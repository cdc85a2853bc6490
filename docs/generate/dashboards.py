"""The dashboards' files, and the table of docs/monitoring.md that leads to them.

Owns where they go: into the chart. Called by `main`. What dashboards show is in
`elasticdl.dashboards`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from elasticdl.dashboards.boards import BOARDS

from docs.generate.chart import CHART
from docs.generate.markdown import row, table
from docs.generate.questions import QUESTIONS

# Helm reads inside its chart alone; `dashboards`, to import by hand, is a link there.
_FOLDER = f"{CHART}/files/dashboards"
_PAGE = "docs/monitoring.md"
_BEGIN, _END = "<!-- questions -->\n", "<!-- end of questions -->"


def dashboard_files(root: Path) -> Iterator[tuple[str, str]]:
    """Yield each dashboard's files and the page, by path, with their text.

    Of the page in `root` only the table is made; where there is no page, nothing.
    """
    from docs.generate.grafana import dashboard_json

    for name, board in BOARDS.items():
        yield f"{_FOLDER}/{name}.json", dashboard_json(board)

    if not (root / _PAGE).exists():
        return
    page = (root / _PAGE).read_text(encoding="utf-8")
    before, _, rest = page.partition(_BEGIN)
    after = rest.partition(_END)[2]
    yield _PAGE, f"{before}{_BEGIN}\n{_questions()}\n{_END}{after}"


def _questions() -> str:
    titles = {board.uid: board.title for board in BOARDS.values()}
    rows = [
        row((str(number), one.text, titles[one.dashboard], one.panel))
        for number, one in enumerate(QUESTIONS, 1)
    ]
    return table(("", "question", "dashboard", "panel"), rows)
