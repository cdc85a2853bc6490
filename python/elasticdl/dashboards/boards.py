"""The dashboards by the name of their file, in the order of their tabs.

Called by `views.dashboard`, which draws them, and by docs/generate, which writes them
for Grafana.
"""

from __future__ import annotations

from elasticdl.dashboards import cluster, group, job, ps
from elasticdl.dashboards.board import Board

BOARDS: dict[str, Board] = {
    "cluster": cluster.BOARD,
    "job": job.BOARD,
    "ps": ps.BOARD,
    "group": group.BOARD,
}
