"""The dashboards' files, and the table of docs/monitoring.md that leads to them.

Owns where they go: for Grafana, for the chart, for the package. Called by
`cli.generate`. What dashboards show is in `elasticdl.dashboards`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from elasticdl.cli.generate_chart import CHART
from elasticdl.cli.markdown import row, table
from elasticdl.dashboards.questions import QUESTIONS

# People import the first by hand; Helm reads only inside its chart, and Python only
# inside its package.
_FOLDERS = (
    "dashboards",
    f"{CHART}/files/dashboards",
    "python/elasticdl/dashboards/json",
)
_PAGE = "docs/monitoring.md"
_BEGIN, _END = "<!-- questions -->\n", "<!-- end of questions -->"


def dashboard_files(root: Path) -> Iterator[tuple[str, str]]:
    """Yield each dashboard's files and the page, by path, with their text.

    Of the page in `root` only the table is made; where there is no page, nothing.
    """
    from elasticdl.dashboards.grafana import BOARDS, dashboard_json

    for name, board in BOARDS.items():
        text = dashboard_json(board)
        for folder in _FOLDERS:
            yield f"{folder}/{name}.json", text

    if not (root / _PAGE).exists():
        return
    page = (root / _PAGE).read_text(encoding="utf-8")
    before, _, rest = page.partition(_BEGIN)
    after = rest.partition(_END)[2]
    yield _PAGE, f"{before}{_BEGIN}\n{_questions()}\n{_END}{after}"


def _questions() -> str:
    from elasticdl.dashboards.grafana import BOARDS

    titles = {board.uid: board.title for board in BOARDS.values()}
    rows = [
        row((str(number), one.text, titles[one.dashboard], one.panel))
        for number, one in enumerate(QUESTIONS, 1)
    ]
    return table(("", "question", "dashboard", "panel"), rows)
