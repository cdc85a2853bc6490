"""Something that happened to a job, as a document for people and programs.

Owns the form in which a job's history, its status and all that shows either have what
happened. Made by `master.telling.sentences`. Must not know how it is displayed.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from elasticdl.job.words import EndCause, end_cause_of


class Decision(BaseModel):
    """Something that happened to the job or a replica, and what was done about it."""

    # A history outlives versions: what an older reader does not know, it leaves out.
    model_config = ConfigDict(frozen=True, extra="ignore")

    time: float
    kind: str  # a `Happening`
    replica: str = ""  # worker-3; empty is the whole job
    cause: str = ""  # in words: exit code 1, Unschedulable, worker.replicas 2 -> 4 ...
    end: str = ""  # of a replica that ended: an `EndCause`
    text: str = ""  # one sentence for people
    detail: str = ""  # the platform's own words, or the last lines of its log
    replacement: str = ""  # who came for it
    cost_seconds: float | None = None  # until it, or its replacement, worked

    @property
    def end_cause(self) -> EndCause:
        """Why the replica ended; `OTHER` if the decision is about no end."""
        return EndCause(self.end) if self.end else end_cause_of(self.cause)
