"""The metrics of the recorded job, as a Prometheus that scraped it would have them.

Owns the figures, made from the job's history, and the making of a Prometheus' blocks
of them. Used by tests of the dashboards that must not wait until a rate has data.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from elasticdl.job.history import History, HistorySample

JOB = {"namespace": "local", "training_job": "digits"}
Labels = Mapping[str, str]
Figure = tuple[str, Labels, float]


def write_blocks(
    history: History, data: Path, *, promtool: Path, shift_seconds: float
) -> None:
    """Make a Prometheus' data folder; times are moved by so many seconds."""
    lines = [
        f"{name}{_labels(labels)} {value} {sample.time + shift_seconds:.3f}"
        for sample in history.samples
        for name, labels, value in _figures(history, sample, shift_seconds)
    ]
    data.mkdir(parents=True)
    text = data.parent / "recorded.om"
    text.write_text("\n".join([*lines, "# EOF", ""]), encoding="utf-8")
    subprocess.run(
        [promtool, "tsdb", "create-blocks-from", "openmetrics", text, data],
        check=True,
        capture_output=True,
    )


def _labels(labels: Labels) -> str:
    inside = ",".join(f'{name}="{value}"' for name, value in labels.items())
    return "{" + inside + "}"


def _figures(history: History, sample: HistorySample, shift: float) -> Iterator[Figure]:
    for name, labels, value in (
        *_of_master(history, sample, shift),
        *_of_workers(sample),
        *_of_ps(sample),
        *_of_group(history, sample, shift),
    ):
        yield f"elasticdl_{name}", {**JOB, **labels}, value
    for name, labels, value in _of_cluster(sample):
        yield f"elasticdl_cluster_{name}", labels, value
    for name, labels, value in _of_controller(sample):
        yield f"elasticdl_controller_{name}", labels, value


def _of_master(
    history: History, sample: HistorySample, shift: float
) -> Iterator[Figure]:
    role = {"role": "master", "index": "0"}
    yield (
        "job_info", {**role, "name": "digits", "type": "train",
        "strategy": "parameterServer"}, 1,
    )  # fmt: skip
    for state in ("starting", "running", "succeeded"):
        yield "job_state", {**role, "state": state}, float(state == sample.state)
    plain = {
        "workers_wanted": sample.workers_wanted,
        "workers_min": sample.workers_min,
        "workers_max": sample.workers_max,
        "job_records_done": sample.records_done,
        "job_records_wanted": sample.tasks_total * 64,
        "job_replayed_records_total": sample.replayed_records,
        "job_steps_done": sample.steps,
        "job_model_version": sample.version,
        "tasks_done": sample.tasks_done,
        "tasks_planned": sample.tasks_total,
        "tasks_leased": sample.tasks_leased,
        "tasks_waiting": sample.tasks_waiting,
        "job_loss": sample.loss,
        "job_eta_seconds": sample.eta_seconds,
        "job_epoch_eta_seconds": sample.eta_seconds and sample.eta_seconds / 4,
        "checkpoint_duration_seconds": sample.checkpoint_seconds,
        "checkpoint_interval_seconds": 40,
        "checkpoint_failures_total": 0,
        "rewinds_total": 0,
        "master_restarts_total": sum(
            one.kind == "master" and one.time <= sample.time
            for one in history.decisions
        ),
    }
    if sample.checkpoint_age_seconds is not None:
        plain["checkpoint_timestamp_seconds"] = (
            sample.time - sample.checkpoint_age_seconds + shift
        )
    for name, value in plain.items():
        if value is not None:
            yield name, role, value
    yield from _histogram("journal_commit_seconds", role, sample.steps // 5, 0.005)
    yield (
        "replicas",
        {"replica_role": "worker", "state": "running"},
        sample.workers_running,
    )
    if sample.workers_pending:
        labels = {"replica_role": "worker", "reason": "Unschedulable"}
        yield "pending_replicas", labels, sample.workers_pending
    yield "preemptions_total", {"replica_role": "worker"}, sample.preemptions
    for cause, seconds in sample.goodput_seconds.items():
        yield "goodput_seconds_total", {**role, "cause": cause}, seconds
    yield from _of_changes(history, sample, shift)
    done = [one for one in history.evaluations if one.time <= sample.time]
    for metric, figure in done[-1].metrics.items() if done else ():
        yield "evaluation_metric", {**role, "metric": metric}, figure


def _of_changes(
    history: History, sample: HistorySample, shift: float
) -> Iterator[Figure]:
    changes = [
        one
        for one in history.decisions
        if one.time <= sample.time and one.kind in ("ended", "relaunched")
    ]
    for kind, cause in (("ended", "preempted"), ("relaunched", "joined")):
        own = [one for one in changes if one.kind == kind]
        labels = {"replica_role": "worker", "cause": cause}
        yield "membership_changes_total", labels, len(own)
        if own:
            last = {"cause": cause}
            yield "membership_last_change_timestamp_seconds", last, own[-1].time + shift
            yield "membership_last_change_cost_seconds", last, own[-1].cost_seconds or 0
    replaced = sum(one.kind == "relaunched" for one in changes)
    yield (
        "relaunches_total",
        {"replica_role": "worker", "reason": "preempted"},
        replaced,
    )


def _of_workers(sample: HistorySample) -> Iterator[Figure]:
    second = sample.time % 10_000
    for index, worker in sample.workers.items():
        if not worker.step_seconds:
            continue
        labels = {"role": "worker", "index": index}
        steps = round(14 * second)
        yield "workers_last_step_seconds", {"worker": index}, worker.step_seconds
        yield "worker_step_seconds_count", labels, steps
        yield "worker_step_seconds_sum", labels, steps * worker.step_seconds
        yield from _histogram("worker_step_seconds", labels, steps, 0.065)
        for part, share in (
            ("compute", 0.7), ("convert", 0.05), ("pull", 0.1), ("push", 0.15),
        ):  # fmt: skip
            yield f"worker_{part}_seconds_count", labels, steps
            yield f"worker_{part}_seconds_sum", labels, steps * share * 0.065
        records = {**labels, "task": "training"}
        yield "worker_records_total", records, round(29 * second)
        yield "worker_memory_bytes", labels, worker.memory_bytes
        yield "worker_memory_limit_bytes", labels, 2**30


def _of_ps(sample: HistorySample) -> Iterator[Figure]:
    for index, ps in sample.ps.items():
        labels = {"role": "ps", "index": index}
        yield "ps_version", labels, ps.version
        yield "ps_parameter_bytes", labels, ps.parameter_bytes
        yield "ps_memory_bytes", labels, ps.memory_bytes
        yield "ps_memory_limit_bytes", labels, ps.memory_limit_bytes
        yield "ps_received_bytes_total", labels, ps.received_bytes
        yield "ps_sent_bytes_total", labels, ps.sent_bytes
        yield "ps_embedding_rows", {**labels, "table": "words"}, ps.embedding_rows
        for method, share in (("pull", 0.4), ("push", 0.6)):
            one = {**labels, "method": method}
            yield "ps_call_seconds_count", one, round(ps.calls / 2)
            yield "ps_call_seconds_sum", one, ps.call_seconds * share
            yield from _histogram("ps_call_seconds", one, round(ps.calls / 2), 0.005)
        yield "ps_apply_seconds_count", labels, ps.calls
        yield "ps_apply_seconds_sum", labels, ps.call_seconds / 3
        yield "ps_staleness_versions_count", labels, ps.calls
        yield "ps_staleness_versions_sum", labels, ps.calls * 1.7
        for answer, share in (("accepted", 0.97), ("stale", 0.03)):
            yield "ps_pushes_total", {**labels, "answer": answer}, ps.calls * share
        yield "ps_checkpoint_write_seconds_count", labels, sample.steps // 500
        yield "ps_checkpoint_write_seconds_sum", labels, sample.steps // 500 * 0.4


def _of_group(
    history: History, sample: HistorySample, shift: float
) -> Iterator[Figure]:
    """Yield what a group of the same workers would show; no job has that and PS."""
    master = {"role": "master", "index": "0"}
    began = [
        one.time
        for one in history.decisions
        if one.kind == "relaunched" and one.time <= sample.time
    ]
    number = 1 + len(began)
    since = began[-1] if began else history.samples[0].time
    yield "group_round", {**master, "cause": "joined"}, number
    yield "group_round_timestamp_seconds", master, since + shift
    yield "group_change_seconds", master, 0.4
    yield "group_changes_seconds_total", master, 0.4 * number
    yield "group_repairs_total", master, 0
    yield "group_out", {**master, "cause": "preparing"}, sample.workers_pending or 0
    for cause in ("waitPeers", "regroup"):
        seconds = 0.1 * (sample.time - history.samples[0].time)
        yield "goodput_seconds_total", {**master, "cause": cause}, seconds
    second = sample.time % 10_000
    for rank, (index, worker) in enumerate(sample.workers.items()):
        if not worker.step_seconds:
            continue
        of_worker = {**master, "worker": index}
        yield "group_member_rank", of_worker, rank
        yield "group_wait_seconds", of_worker, 0.01 * (1 + rank)
        yield "group_step_bytes", of_worker, 400_000
        own = {"role": "worker", "index": index}
        yield "worker_gradient_sent_bytes_total", own, round(5_600_000 * second)


def _histogram(
    name: str, labels: Labels, count: int, middle: float
) -> Iterator[Figure]:
    for bound, share in ((middle, 0.8), (2 * middle, 0.97), (4 * middle, 1.0)):
        yield f"{name}_bucket", {**labels, "le": f"{bound:g}"}, round(count * share)
    yield f"{name}_bucket", {**labels, "le": "+Inf"}, count


def _of_cluster(sample: HistorySample) -> Iterator[Figure]:
    training = {
        "class": "training",
        "training_job": "digits",
        "training_namespace": "ml",
    }
    serving = {"class": "serving", "training_job": "", "training_namespace": ""}
    other = {"class": "other", "training_job": "", "training_namespace": ""}
    taken = sample.workers_running
    yield "nodes", {}, 2
    for what, all_of_it, each in (
        ("cpu_cores", 16, 2), ("memory_bytes", 64 * 2**30, 6 * 2**30), ("gpus", 4, 1),
    ):  # fmt: skip
        yield f"allocatable_{what}", {}, all_of_it
        yield f"requested_{what}", training, (taken + 1) * each if each > 1 else 0
        yield f"requested_{what}", serving, (5 - taken) * each
        yield f"requested_{what}", other, each / 2
        if what != "gpus":
            yield f"used_{what}", training, 0.8 * (taken + 1) * each
            yield f"used_{what}", serving, 0.5 * (5 - taken) * each
            yield f"used_{what}", other, each / 4
    pending = {"training_job": "digits", "reason": "Unschedulable"}
    if sample.workers_pending:
        yield "pending_pods", pending, sample.workers_pending
    spent = sample.goodput_seconds.get("preempted", 0.0)
    yield "pending_seconds_total", {"training_job": "digits"}, spent


def _of_controller(sample: HistorySample) -> Iterator[Figure]:
    job = {"training_job": "digits", "training_namespace": "local"}
    taken = sample.workers_running
    yield "workers_granted", job, sample.workers_wanted
    yield "share", job, (taken + 1) / 8
    for resource, all_of_it in (("cpu", 16_000), ("memory", 64 * 2**30)):
        labels = {"resource": resource}
        yield "supply", labels, all_of_it
        yield "ceiling", labels, 0.97 * all_of_it
        for kind, part in (("training", taken + 1), ("serving", 5 - taken)):
            yield "held", {**labels, "class": kind}, part * all_of_it / 8
    yield "plan_age_seconds", {}, 2
    yield "view_age_seconds", {}, 1
    for cause, every in (("changed", 40), ("renewed", 600)):
        yield "grants_total", {"cause": cause}, sample.time % 10_000 // every
    yield "write_failures_total", {}, 0
