"""What `elasticdl top` shows of parameter servers: load, latency, which one is hot.

Owns these rules. Called by `views.top.model`. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from elasticdl.job.history import HistorySample, PsSample
from elasticdl.job.status import ReplicaStatus
from elasticdl.job.words import ReplicaState

# A PS is hot, as for the alert, that moves more than so many times the mean of all PS,
HOT = 1.5
# and more than so many bytes a second.
HOT_BYTES = 100_000.0
# PS figures are means over so long: samples are seconds apart.
_PS_SECONDS = 15.0


@dataclass(frozen=True)
class PsLoad:
    """Recent activity of a PS; None is unknown."""

    bytes_per_second: float  # of tensors, pushed and pulled
    latency_seconds: float | None  # of one call
    staleness: float | None  # versions between a gradient and what it is applied to


@dataclass(frozen=True)
class Ps:
    """One PS that has not ended."""

    name: str
    state: str
    doing: str  # why it waits
    version: int
    memory_bytes: int
    memory_limit_bytes: int  # 0: not limited
    parameter_bytes: int  # 0: not known
    rows: int  # of embedding tables
    load: PsLoad | None
    share: float | None  # of the traffic of all PS, 0 to 1
    hot: bool


def ps_rows(
    replicas: Sequence[ReplicaStatus], samples: Sequence[HistorySample]
) -> list[Ps]:
    """Return the PS with the figures of the newest samples."""
    told = _told(samples)
    loads = {index: _load(ones) for index, ones in told.items()}
    traffic = {i: load.bytes_per_second for i, load in loads.items() if load}
    total, hot = sum(traffic.values()), hot_shards(traffic)
    rows = []
    for replica in replicas:
        index = str(replica.index)
        # Before a restarted master has heard of it, what was known holds on.
        one = told[index][-1][1] if index in told else PsSample(state="")
        rows.append(
            Ps(
                name=replica.name,
                state=replica.state,
                doing=replica.reason if replica.state != ReplicaState.RUNNING else "",
                version=replica.version,
                memory_bytes=replica.memory_bytes,
                memory_limit_bytes=one.memory_limit_bytes,
                parameter_bytes=one.parameter_bytes,
                rows=one.embedding_rows,
                load=loads.get(index),
                share=traffic[index] / total if total and index in traffic else None,
                hot=index in hot,
            )
        )
    return rows


def hot_shards(traffic: Mapping[str, float]) -> frozenset[str]:
    """Return the PS with over 1.5 times the mean traffic, if it is high."""
    if len(traffic) < 2:
        return frozenset()
    bound = max(HOT_BYTES, HOT * sum(traffic.values()) / len(traffic))
    return frozenset(index for index, rate in traffic.items() if rate > bound)


def _told(samples: Sequence[HistorySample]) -> dict[str, list[tuple[float, PsSample]]]:
    """Return by PS its non-empty samples, with their times."""
    told: dict[str, list[tuple[float, PsSample]]] = {}
    for sample in samples:
        for index, one in sample.ps.items():
            if one.calls:
                told.setdefault(index, []).append((sample.time, one))
    return told


def _load(told: Sequence[tuple[float, PsSample]]) -> PsLoad | None:
    """Return the activity of a PS between its last sample and an earlier one."""
    now, after = told[-1]
    earlier = [entry for entry in told[:-1] if entry[0] <= now - _PS_SECONDS]
    since, before = earlier[-1] if earlier else told[0]
    if now <= since:
        return None
    if after.calls < before.calls:
        before = PsSample(state="")  # another process, which counts from its start
    calls = after.calls - before.calls
    spent = after.call_seconds - before.call_seconds
    pushes = after.pushes - before.pushes
    stale = after.staleness_sum - before.staleness_sum
    return PsLoad(
        bytes_per_second=(_moved(after) - _moved(before)) / (now - since),
        latency_seconds=spent / calls if calls > 0 else None,
        staleness=stale / pushes if pushes > 0 else None,
    )


def _moved(one: PsSample) -> int:
    return one.received_bytes + one.sent_bytes
