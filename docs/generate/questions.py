"""What people ask of a job and a cluster, and the one panel that answers each.

Owns that table. Called by `dashboards` for docs/monitoring.md, and by tests. Must not
know how panels are made.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Question:
    """A question, the panel that answers it, and the uid of its dashboard."""

    text: str
    dashboard: str
    panel: str


QUESTIONS = (
    Question(
        "How many workers are wanted, minimum, maximum, running, pending, and why "
        "pending?",
        "elasticdl-job",
        "Workers",
    ),
    Question(
        "How full is the cluster, and with what: serving, training, nothing?",
        "elasticdl-cluster",
        "CPU by class",
    ),
    Question(
        "Where did each worker second go?", "elasticdl-job", "Where worker seconds went"
    ),
    Question(
        "What is done, leased, waiting, replayed; when will the epoch and the job end?",
        "elasticdl-job",
        "Task queue",
    ),
    Question(
        "What do the parameter servers hold and do: bytes, rows, request latency, "
        "staleness, which shard is hot, memory against its limit?",
        "elasticdl-ps",
        "Parameter servers",
    ),
    Question(
        "What was the last membership change, and what did it cost?",
        "elasticdl-job",
        "Last membership change",
    ),
    Question(
        "How long does a step take on each worker; who lags behind?",
        "elasticdl-job",
        "Step time per worker",
    ),
    Question(
        "How do loss and evaluation metrics go?", "elasticdl-job", "Loss and evaluation"
    ),
    Question(
        "How old is the newest checkpoint, and how long did it take?",
        "elasticdl-job",
        "Newest checkpoint",
    ),
    Question(
        "When were workers preempted, and was the capacity taken back?",
        "elasticdl-cluster",
        "Preemptions and capacity taken back",
    ),
)
