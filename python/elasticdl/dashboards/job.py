"""The dashboard of one job: workers, goodput, queue, learning, speed, checkpoints.

Owns its panels. Called by `boards`.
"""

from __future__ import annotations

from elasticdl.dashboards.board import Board, Panel, PanelKind, Query, Row
from elasticdl.dashboards.selectors import mean, of_job, quantile, rate

_GOODPUT = of_job("elasticdl_goodput_seconds_total")
_CHANGED = "elasticdl_membership_last_change_timestamp_seconds"
# That a replacement joined is the end of a change, and hides why it was needed.
_LAST_CHANGE = "topk(1, max by (cause) (" + of_job(_CHANGED, 'cause!="joined"') + "))"
_STEP = of_job("elasticdl_workers_last_step_seconds")

_NOW = Row(
    "Now",
    (
        Panel(
            "State",
            PanelKind.STAT,
            "The state that the job is in.",
            shows_name=True,
            width=4,
            height=4,
            queries=(
                Query(
                    f"max by (state) ({of_job('elasticdl_job_state')} == 1)",
                    "{{state}}",
                ),
            ),
        ),
        Panel(
            "Progress",
            PanelKind.STAT,
            "Records done of those of all epochs. Empty for an endless job.",
            unit="percentunit",
            width=4,
            height=4,
            queries=(
                Query(
                    f"max({of_job('elasticdl_job_records_done')})"
                    f" / (max({of_job('elasticdl_job_records_wanted')}) > 0)",
                    "done",
                ),
            ),
        ),
        Panel(
            "Goodput",
            PanelKind.STAT,
            "Share of all worker seconds that trained, since the job began. Seconds in "
            "which a wanted worker was pending or preempted count too.",
            unit="percentunit",
            width=4,
            height=4,
            queries=(
                Query(
                    f"sum({of_job('elasticdl_goodput_seconds_total', cause='train')})"
                    f" / sum({_GOODPUT})",
                    "training",
                ),
            ),
        ),
        Panel(
            "Last membership change",
            PanelKind.STAT,
            "Why a replica last came or went, how long ago, and what that cost: "
            "seconds until it, or its replacement, worked. Without a cost it is not "
            "over, or nothing had to come, as when a job shrinks.",
            unit="s",
            width=6,
            height=4,
            queries=(
                Query(
                    f"max by (cause) "
                    f"({of_job('elasticdl_membership_last_change_cost_seconds')})"
                    f" and on (cause) {_LAST_CHANGE}",
                    "{{cause}}, cost",
                ),
                Query(f"time() - {_LAST_CHANGE}", "{{cause}}, ago"),
            ),
        ),
        Panel(
            "Newest checkpoint",
            PanelKind.STAT,
            "Its age, how long it took to write, and how often one is asked for.",
            unit="s",
            width=6,
            height=4,
            queries=(
                Query(
                    f"time() - max({of_job('elasticdl_checkpoint_timestamp_seconds')})",
                    "age",
                ),
                Query(
                    f"max({of_job('elasticdl_checkpoint_duration_seconds')})", "took"
                ),
                Query(
                    f"max({of_job('elasticdl_checkpoint_interval_seconds')})", "every"
                ),
            ),
        ),
    ),
)

_WORKERS = Row(
    "Workers",
    (
        Panel(
            "Workers",
            PanelKind.TIMESERIES,
            "How many workers the job wants, may have and has, and how many it waits "
            "for, by the reason why. Without a maximum there is no line of it, and "
            "without a controller none of what is granted.",
            unit="short",
            steps=True,
            queries=(
                Query(f"max({of_job('elasticdl_workers_wanted')})", "wanted"),
                Query(f"max({of_job('elasticdl_workers_granted')})", "granted"),
                Query(f"max({of_job('elasticdl_workers_min')})", "minimum"),
                Query(f"max({of_job('elasticdl_workers_max')}) > 0", "maximum"),
                Query(
                    "sum("
                    + of_job(
                        "elasticdl_replicas", replica_role="worker", state="running"
                    )
                    + f") or max({of_job('elasticdl_workers_wanted')}) * 0",
                    "running",
                ),
                Query(
                    "sum by (reason) "
                    f"({of_job('elasticdl_pending_replicas', replica_role='worker')})",
                    "pending: {{reason}}",
                ),
            ),
        ),
        Panel(
            "Membership changes so far",
            PanelKind.TIMESERIES,
            "How often a replica came or went, by cause.",
            unit="short",
            steps=True,
            queries=(
                Query(
                    "sum by (replica_role, cause) "
                    f"({of_job('elasticdl_membership_changes_total')})",
                    "{{replica_role}} {{cause}}",
                ),
            ),
        ),
        Panel(
            "Membership changes by cause",
            PanelKind.TABLE,
            "The last change of each cause, and what it cost.",
            unit="s",
            columns=(("cause", "cause"),),
            queries=(
                Query(
                    f"time() - max by (cause) ({of_job(_CHANGED)})",
                    "ago",
                ),
                Query(
                    "max by (cause) "
                    f"({of_job('elasticdl_membership_last_change_cost_seconds')})",
                    "cost",
                ),
            ),
        ),
        Panel(
            "Preemptions and workers away for them",
            PanelKind.TIMESERIES,
            "Workers that were preempted so far, and how many the job lacks now for "
            "that: back at 0, the capacity was taken back.",
            unit="short",
            queries=(
                Query(
                    "sum("
                    + of_job("elasticdl_preemptions_total", replica_role="worker")
                    + ")",
                    "preempted so far",
                ),
                Query(
                    "sum("
                    + rate(of_job("elasticdl_goodput_seconds_total", cause="preempted"))
                    + f") or sum({_GOODPUT}) * 0",
                    "away now",
                ),
            ),
        ),
    ),
)

_TIME = Row(
    "Where time goes",
    (
        Panel(
            "Where worker seconds went",
            PanelKind.BARGAUGE,
            "Seconds of all workers since the job began, by cause. Pending and "
            "preempted are those of workers that could not run.",
            unit="s",
            queries=(Query(f"sum by (cause) ({_GOODPUT})", "{{cause}}"),),
        ),
        Panel(
            "Workers by what they do",
            PanelKind.TIMESERIES,
            "The same over time: worker seconds per second.",
            unit="short",
            stacked=True,
            queries=(Query(f"sum by (cause) ({rate(_GOODPUT)})", "{{cause}}"),),
        ),
        Panel(
            "Step time per worker",
            PanelKind.TIMESERIES,
            "Mean time of a training step of each worker, and their median.",
            unit="s",
            queries=(
                Query(
                    mean("elasticdl_worker_step_seconds", "index"), "worker {{index}}"
                ),
                Query(f"quantile(0.5, {_STEP})", "median"),
            ),
        ),
        Panel(
            "Stragglers",
            PanelKind.BARGAUGE,
            "Each worker's last step time over the median of all: 1 is as fast as the "
            "others, 2 takes twice as long.",
            unit="none",
            queries=(
                Query(
                    f"topk(10, max by (worker) ({_STEP}) / on () group_left () "
                    f"(quantile(0.5, {_STEP}) > 0))",
                    "worker {{worker}}",
                ),
            ),
        ),
        Panel(
            "Where a step goes",
            PanelKind.TIMESERIES,
            "Mean times of the parts of a step. Calls of the parameter servers run "
            "beside the next step in async mode.",
            unit="s",
            queries=tuple(
                Query(mean(f"elasticdl_worker_{part}_seconds", "training_job"), part)
                for part in ("compute", "convert", "pull", "push")
            ),
        ),
        Panel(
            "Step time, slow ones",
            PanelKind.TIMESERIES,
            "Step time of all workers that 50, 95 and 99 of 100 steps stay below. Far "
            "above the mean: some steps wait.",
            unit="s",
            queries=tuple(
                Query(quantile(share, "elasticdl_worker_step_seconds"), name)
                for share, name in ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"))
            ),
        ),
        Panel(
            "Journal commits",
            PanelKind.TIMESERIES,
            "Time of a write of the master's journal that 50, 95 and 99 of 100 stay "
            "below: a slow volume shows here first.",
            unit="s",
            queries=tuple(
                Query(quantile(share, "elasticdl_journal_commit_seconds"), name)
                for share, name in ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"))
            ),
        ),
        Panel(
            "Worker memory",
            PanelKind.TIMESERIES,
            "Resident memory of each worker, and the limit where one is set.",
            unit="bytes",
            queries=(
                Query(
                    f"max by (index) ({of_job('elasticdl_worker_memory_bytes')})",
                    "worker {{index}}",
                ),
                Query(
                    f"min({of_job('elasticdl_worker_memory_limit_bytes')} > 0)", "limit"
                ),
            ),
        ),
    ),
)

_PROGRESS = Row(
    "Data and learning",
    (
        Panel(
            "Task queue",
            PanelKind.STAT,
            "Tasks done, planned, leased to workers, and waiting after they came back; "
            "records that were given out again; and when the epoch and the job end, as "
            "it looks now.",
            unit="short",
            width=24,
            height=4,
            queries=(
                Query(f"max({of_job('elasticdl_tasks_done')})", "tasks done"),
                Query(f"max({of_job('elasticdl_tasks_planned')})", "of"),
                Query(f"max({of_job('elasticdl_tasks_leased')})", "leased"),
                Query(f"max({of_job('elasticdl_tasks_waiting')})", "waiting"),
                Query(
                    f"max({of_job('elasticdl_job_replayed_records_total')})",
                    "records replayed",
                ),
                Query(
                    f"min({of_job('elasticdl_job_epoch_eta_seconds')})",
                    "epoch ends in",
                    unit="s",
                ),
                Query(
                    f"min({of_job('elasticdl_job_eta_seconds')})",
                    "job ends in",
                    unit="s",
                ),
            ),
        ),
        Panel(
            "Queue over time",
            PanelKind.TIMESERIES,
            "Tasks that workers hold, and those that came back and wait for one.",
            unit="short",
            queries=(
                Query(f"max({of_job('elasticdl_tasks_leased')})", "leased"),
                Query(f"max({of_job('elasticdl_tasks_waiting')})", "waiting"),
            ),
        ),
        Panel(
            "Records per second",
            PanelKind.TIMESERIES,
            "Records that workers read, by the kind of task. Replayed ones count.",
            unit="short",
            queries=(
                Query(
                    f"sum by (task) ({rate(of_job('elasticdl_worker_records_total'))})",
                    "{{task}}",
                ),
            ),
        ),
        Panel(
            "Loss and evaluation",
            PanelKind.TIMESERIES,
            "The training loss, on the right, and the metrics of the last evaluation.",
            unit="short",
            width=24,
            queries=(
                Query(
                    f"max({of_job('elasticdl_job_loss')})", "training loss", right=True
                ),
                Query(
                    f"max by (metric) ({of_job('elasticdl_evaluation_metric')})",
                    "evaluation: {{metric}}",
                ),
            ),
        ),
    ),
)

_RECOVERY = Row(
    "Checkpoints and recovery",
    (
        Panel(
            "Checkpoint age",
            PanelKind.TIMESERIES,
            "Age of the newest complete checkpoint: what a loss of all parameter "
            "servers would cost.",
            unit="s",
            queries=(
                Query(
                    f"time() - max({of_job('elasticdl_checkpoint_timestamp_seconds')})",
                    "age",
                ),
                Query(
                    f"max({of_job('elasticdl_checkpoint_duration_seconds')})", "took"
                ),
            ),
        ),
        Panel(
            "Relaunches and restarts so far",
            PanelKind.TIMESERIES,
            "Replicas that were replaced, by reason; new masters; rewinds to a "
            "checkpoint; checkpoints that could not be written.",
            unit="short",
            steps=True,
            queries=(
                Query(
                    "sum by (replica_role, reason) "
                    f"({of_job('elasticdl_relaunches_total')})",
                    "{{replica_role}} {{reason}}",
                ),
                Query(f"max({of_job('elasticdl_master_restarts_total')})", "master"),
                Query(f"max({of_job('elasticdl_rewinds_total')})", "rewinds"),
                Query(
                    f"max({of_job('elasticdl_checkpoint_failures_total')})",
                    "checkpoints failed",
                ),
            ),
        ),
    ),
)

BOARD = Board(
    uid="elasticdl-job",
    title="ElasticDL / Job",
    description="One training job: its workers, where their time goes, how far it is.",
    rows=(_NOW, _WORKERS, _TIME, _PROGRESS, _RECOVERY),
)
