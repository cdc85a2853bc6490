"""A plan that still holds: at rest the same question would get the same answer.

Owns when a plan need not be made again. Called by `controller.deciding`. Pure: `now` is
an argument. Must not know what a plan decides.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from elasticdl.planner.outcome import Plan
from elasticdl.planner.view import ClusterView


@dataclass(frozen=True)
class Standing:
    """A plan, and the view that it was made for."""

    plan: Plan
    view: ClusterView  # without the ends of grants
    at: float  # when it was made

    @staticmethod
    def of(plan: Plan, view: ClusterView, now: float) -> Standing:
        """Keep a plan."""
        return Standing(plan, _essence(view, now), now)

    def holds(self, view: ClusterView, now: float) -> bool:
        """Return whether nothing is under way, nothing changed, and no time is up."""
        memory, again_at = self.plan.memory, self.plan.again_at
        moves = memory.asked or memory.expected
        if moves or memory.fairness.open or memory.fairness.given:
            return False
        if again_at is not None and now >= again_at:
            return False
        if now < self.at:  # the clock was set back
            return False
        return self.view == _essence(view, now)


def _essence(view: ClusterView, now: float) -> ClusterView:
    """Return a view in which a grant that was only renewed is the same."""
    jobs = tuple(replace(job, until=float(job.until > now)) for job in view.jobs)
    return replace(view, jobs=jobs)
