"""A plan that still holds: at rest the same question would get the same answer.

Owns when a plan need not be made again. Called by `controller.deciding`. Pure: `now` is
an argument. Must not know what a plan decides.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from elasticdl.planner.outcome import Plan
from elasticdl.planner.view import ClusterView, Job


@dataclass(frozen=True)
class Standing:
    """A plan, and the view that it was made for."""

    plan: Plan
    view: ClusterView
    at: float  # when it was made

    def renewed(self, view: ClusterView) -> Standing:
        """Keep a later view for which it holds: the next is compared with that."""
        return replace(self, view=view)

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
        old = self.view
        if old.nodes != view.nodes or old.pods != view.pods:
            return False
        if len(old.jobs) != len(view.jobs):
            return False
        pairs = zip(old.jobs, view.jobs, strict=True)
        return all(_alike(one, other, self.at, now) for one, other in pairs)


def _alike(old: Job, new: Job, at: float, now: float) -> bool:
    """Return whether two views of a job differ in the end of its grant at most."""
    if (old.until > at) != (new.until > now):
        return False
    return old is new or replace(old, until=new.until) == new
