"""The dashboards' files: for Grafana, for the chart, and for the package.

Owns where they go. Called by `cli.generate`. What dashboards show is in
`elasticdl.dashboards`.
"""

from __future__ import annotations

from collections.abc import Iterator

from elasticdl.cli.generate_chart import CHART

# People import the first by hand; Helm reads only inside its chart, and Python only
# inside its package.
_FOLDERS = (
    "dashboards",
    f"{CHART}/files/dashboards",
    "python/elasticdl/dashboards/json",
)


def dashboard_files() -> Iterator[tuple[str, str]]:
    """Yield each dashboard's files, by path, with their text."""
    from elasticdl.dashboards.grafana import BOARDS, dashboard_json

    for name, board in BOARDS.items():
        text = dashboard_json(board)
        for folder in _FOLDERS:
            yield f"{folder}/{name}.json", text
