"""All charts of one job, in the sections of its report.

Owns which there are and their order. Called by `views.report.page`. Must not know HTML.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo

from elasticdl.job.history import History, thinned
from elasticdl.job.status import EvaluationResult
from elasticdl.views.figures import learning, ps, work, workers
from elasticdl.views.figures.look import Chart

# More points than pixels only make the file larger.
MOST_SAMPLES = 1000


@dataclass(frozen=True)
class ChartSection:
    """A heading with its charts."""

    title: str
    charts: Sequence[Chart]


def sections(
    history: History,
    *,
    goodput_seconds: Mapping[str, float],
    evaluations: Sequence[EvaluationResult],
    zone: tzinfo,
) -> list[ChartSection]:
    """Return the charts of a job; a chart without data has a note instead.

    `goodput_seconds`: of the whole job, by cause. `zone`: whose wall clock is shown.
    """
    shown = History(
        thinned(history.samples, MOST_SAMPLES), history.decisions, evaluations
    )
    return [
        ChartSection(
            "Workers",
            [workers.counts(shown, zone), workers.preemptions(shown, zone)],
        ),
        ChartSection(
            "Goodput", [work.goodput_sum(goodput_seconds), work.goodput(shown, zone)]
        ),
        ChartSection(
            "Progress",
            [
                work.queue(shown, zone),
                work.leases(shown, zone),
                work.speed(shown, zone),
                work.checkpoints(shown, zone),
            ],
        ),
        ChartSection(
            "Learning",
            [learning.loss(shown, zone), *learning.evaluations(evaluations, zone)],
        ),
        ChartSection(
            "Steps",
            [workers.step_times(shown, zone), workers.stragglers(shown)],
        ),
        ChartSection("Parameter servers", ps.charts(shown, zone)),
    ]
