"""A job's history: samples over time, decisions and evaluations, for people to look at.

Owns the documents and how their file is read. Written by `master.telling.history`; read
by `elasticdl report`, `explain` and `top`. It is no journal: nothing is decided by it,
and lines may be missing. Must not know how any of it is displayed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from elasticdl.job.decision import Decision
from elasticdl.job.plain import plain_json
from elasticdl.job.status import EvaluationResult, Figures, JobStatus

T = TypeVar("T")


class _Document(BaseModel):
    # A history outlives versions: what an older reader does not know, it leaves out.
    model_config = ConfigDict(frozen=True, extra="ignore")


class WorkerSample(_Document):
    """One worker at one time."""

    state: str  # as in ReplicaStatus
    phase: str = ""
    step_seconds: float = 0.0
    memory_bytes: int = 0


class PsSample(_Document):
    """One PS at one time; counters count from the process's start."""

    state: str
    version: int = 0
    memory_bytes: int = 0
    memory_limit_bytes: int = 0  # 0: not limited
    parameter_bytes: int = 0
    embedding_rows: int = 0
    received_bytes: int = 0
    sent_bytes: int = 0
    calls: int = 0
    call_seconds: float = 0.0  # of all calls together
    pushes: int = 0  # gradients that it took
    staleness_sum: float = 0.0  # versions between each of them and its values


class HistorySample(_Document):
    """The job at one time. Counters cover the whole job so far."""

    time: float  # Unix seconds
    state: str
    workers_wanted: int
    workers_min: int
    workers_max: int
    workers_running: int
    workers_pending: int
    epoch: int = 0
    records_done: int = 0
    records_per_second: float = 0.0
    tasks_done: int = 0
    tasks_total: int = 0
    tasks_leased: int = 0
    tasks_waiting: int = 0
    replayed_records: int = 0
    steps: int = 0
    version: int = 0
    loss: float | None = None
    eta_seconds: float | None = None
    checkpoint_version: int | None = None
    checkpoint_age_seconds: float | None = None
    checkpoint_seconds: float | None = None  # how long the newest took
    preemptions: int = 0
    goodput_seconds: Figures = Field(default_factory=dict)
    workers: dict[str, WorkerSample] = Field(default_factory=dict)  # by index
    ps: dict[str, PsSample] = Field(default_factory=dict)


@dataclass(frozen=True)
class History:
    """A whole history, in the order of time."""

    samples: Sequence[HistorySample] = ()
    decisions: Sequence[Decision] = ()
    evaluations: Sequence[EvaluationResult] = field(default_factory=tuple)

    def with_newest(self, status: JobStatus) -> Sequence[Decision]:
        """Return the decisions, completed by newer ones from a status.

        In a cluster a history is published less often than a status.
        """
        known = {_key(one) for one in self.decisions}
        return [*self.decisions, *(d for d in status.happened if _key(d) not in known)]


def _key(decision: Decision) -> tuple[float, str, str]:
    return decision.time, decision.kind, decision.replica


def line(document: HistorySample | Decision | EvaluationResult) -> str:
    """Return a line of the history's file, without its end."""
    kind = {
        HistorySample: "sample",
        Decision: "decision",
        EvaluationResult: "evaluation",
    }
    # Not through json.dumps, whose NaN no other reader of JSON takes.
    text = document.model_dump_json(exclude_defaults=True)
    return f'{{"{kind[type(document)]}":{text}}}'


def parse(lines: Iterable[str]) -> History:
    """Return the history in some lines; unreadable lines are skipped."""
    samples: list[HistorySample] = []
    decisions: list[Decision] = []
    evaluations: list[EvaluationResult] = []
    for text in lines:
        try:
            entry = json.loads(plain_json(text))
            if "sample" in entry:
                samples.append(HistorySample.model_validate(entry["sample"]))
            elif "decision" in entry:
                decisions.append(Decision.model_validate(entry["decision"]))
            elif "evaluation" in entry:
                evaluations.append(EvaluationResult.model_validate(entry["evaluation"]))
        except (ValueError, TypeError, ValidationError):
            continue  # torn by the end of a master, or of another version
    return History(samples, decisions, evaluations)


def read(path: Path) -> History:
    """Return the history in a file; empty if there is none. Raises OSError."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return History()
    return parse(text.splitlines())


def thinned(items: Sequence[T], most: int) -> list[T]:
    """Return at most `most` of the items, evenly spread, first and last too."""
    if len(items) <= most:
        return list(items)
    step = (len(items) - 1) / (most - 1)
    return [items[round(number * step)] for number in range(most)]
