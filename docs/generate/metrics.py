"""The tables of docs/metrics.md: every metric of every role, as the code declares them.

Owns their form, and what is said of each role. Called by `main`. What the metrics are
is in `metrics.registry`; the rest of the page is written by hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from docs.generate.markdown import row, table

if TYPE_CHECKING:
    from elasticdl.metrics.catalogue import Declaration

_PAGE = "docs/metrics.md"
_BEGIN, _END = "<!-- metrics -->\n", "<!-- end of metrics -->"
_ROLES = {
    "master": (
        "Master",
        "The job as a whole. Figures are made when Prometheus asks; a master whose "
        "loop does not turn for three seconds answers with status 503.",
    ),
    "ps": ("Parameter servers", "Each PS for itself."),
    "worker": ("Workers", "Each worker process for itself."),
    "controller": (
        "Controller",
        "The sizes of all jobs, decided together: `controller.enabled` of a platform's "
        "release. Both replicas show their own; what is decided only the leader has.",
    ),
    "exporter": (
        "Platform exporter",
        "The cluster, whoever uses it: `monitoring.exporter.enabled` of the platform's "
        "release runs one Deployment that reads nodes, pods and Jobs, and writes "
        "nothing. Free is allocatable less requested. A pod counts as *training* by "
        "the label "
        "`elasticdl-job-name`, else as *serving* from the priority "
        "`monitoring.exporter.servingPriority` on (1: whatever has a PriorityClass "
        "above 0; 0 also takes what has none) or by "
        "`monitoring.exporter.servingLabels`; what runs the cluster itself is *other*, "
        "as is the rest.",
    ),
}


def metrics_files(root: Path) -> Iterator[tuple[str, str]]:
    """Yield the page with its tables; nothing where there is no page in `root`."""
    if not (root / _PAGE).exists():
        return
    page = (root / _PAGE).read_text(encoding="utf-8")
    before, _, rest = page.partition(_BEGIN)
    after = rest.partition(_END)[2]
    yield _PAGE, f"{before}{_BEGIN}\n{_tables()}\n{_END}{after}"


def _tables() -> str:
    from elasticdl.metrics.registry import ROLES

    parts = ["Made from `python/elasticdl/metrics` by `make docs`.\n"]
    for role, kind in ROLES.items():
        title, words = _ROLES[role]
        parts.append(f"## {title}\n\n{words}\n")
        parts.append(_table(kind().declared))
    return "\n".join(parts)


def _table(declared: Iterable[Declaration]) -> str:
    rows = []
    for made in sorted(declared, key=lambda made: made.name):
        labels = "; ".join(f"`{name}`: {of}" for name, of in made.labels.items())
        kind = made.kind + (", optional" if made.optional else "")
        rows.append(row((f"`{made.name}`", kind, labels, made.unit, made.help)))
    return table(("name", "type", "labels", "unit", "meaning"), rows)
