"""The metrics of the master: the job as a whole.

Owns their names. Filled by `master.telling.gauges` when somebody asks, and by the parts
of the master that observe durations. Knows nothing of where figures come from.
"""

from __future__ import annotations

from elasticdl.job.words import (
    MASTER_CAUSES,
    WORKER_CAUSES,
    ChangeCause,
    EndCause,
    OutCause,
    RoundCause,
)
from elasticdl.metrics.catalogue import ONE_OR_ZERO, Catalogue

JOURNAL_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
OUTCOMES = ("done", "failed", "returned", "expired", "late")
# Why a replica came or went; what else a platform may say is `other`.
MEMBERSHIP_CAUSES = (*ChangeCause, *EndCause)

# Of whom a figure is; `role` is the label of who shows it.
_ROLE = {"replica_role": "ps, worker"}
_CAUSE = {"cause": ", ".join(MEMBERSHIP_CAUSES)}


class MasterMetrics(Catalogue):
    """The master's metrics."""

    def __init__(self) -> None:
        """Create the metrics; every known series exists from the start."""
        super().__init__()
        self._job()
        self._tasks()
        self._replicas()
        self._membership()
        self._group()
        self._checkpoints()
        self._alerts()
        for outcome in OUTCOMES:
            self.task_reports.labels(outcome)
        for role in ("worker", "ps"):
            self.recovery_seconds.labels(role)

    def _job(self) -> None:
        self.job_info = self.series(
            "elasticdl_job_info",
            "Always 1; its labels say what kind of job it is.",
            unit="1",
            labels={
                "name": "of the job",
                "type": "train, evaluate, predict",
                "strategy": "parameterServer, allReduce, local",
            },
        )
        self.job_state = self.gauge(
            "elasticdl_job_state",
            "1 for the state the job is in, else 0.",
            unit=ONE_OR_ZERO,
            labels={
                "state": "starting, preparing, running, paused, finishing, succeeded, "
                "failed, stopped"
            },
        )
        self.epoch = self.gauge(
            "elasticdl_job_epoch",
            "Oldest epoch that is not done, from 0.",
            unit="epochs",
        )
        self.version = self.gauge(
            "elasticdl_job_model_version", "Model version of PS 0.", unit="versions"
        )
        self.steps = self.gauge(
            "elasticdl_job_steps_done",
            "Steps of all finished tasks; a rewind takes some back.",
            unit="steps",
        )
        self.last_step_time = self.series(
            "elasticdl_job_last_step_timestamp_seconds",
            "When the last training step of any worker was made, as heartbeats tell.",
        )
        self.records = self.gauge(
            "elasticdl_job_records_done",
            "Records done in all epochs, each counted once an epoch.",
            unit="records",
        )
        self.records_wanted = self.gauge(
            "elasticdl_job_records_wanted",
            "Records of all epochs; 0 when endless.",
            unit="records",
        )
        self.replayed = self.series(
            "elasticdl_job_replayed_records_total",
            "Records given out again because a lease was lost.",
            unit="records",
            optional=False,
        )
        self.loss = self.series(
            "elasticdl_job_loss", "Mean loss of the last finished task.", unit="loss"
        )
        self.nonfinite_losses = self.series(
            "elasticdl_job_nonfinite_losses_total",
            "Batches whose loss was NaN or infinite, skipped or fatal.",
            unit="batches",
            optional=False,
        )
        self.eta = self.series(
            "elasticdl_job_eta_seconds",
            "Time until all records are done, at the present speed; absent when not "
            "known.",
        )
        self.epoch_eta = self.series(
            "elasticdl_job_epoch_eta_seconds",
            "Time until the present epoch is done, at the present speed; absent when "
            "not known.",
        )
        self.evaluations = self.series(
            "elasticdl_evaluations_total",
            "Finished rounds of evaluation.",
            unit="rounds",
            optional=False,
        )
        self.evaluation_metric = self.series(
            "elasticdl_evaluation_metric",
            "Metrics of the last evaluation.",
            unit="the metric's own",
            labels={"metric": "names of the model's metrics, and loss"},
        )
        self.goodput = self.series(
            "elasticdl_goodput_seconds_total",
            "Seconds of all workers together, by cause; pending and preempted are "
            "those of workers that could not run.",
            labels={"cause": ", ".join((*WORKER_CAUSES, *MASTER_CAUSES))},
        )

    def _tasks(self) -> None:
        self.tasks_done = self.gauge(
            "elasticdl_tasks_done", "Tasks done in all epochs.", unit="tasks"
        )
        self.tasks_planned = self.gauge(
            "elasticdl_tasks_planned",
            "Tasks of all epochs; 0 when endless.",
            unit="tasks",
        )
        self.tasks_leased = self.gauge(
            "elasticdl_tasks_leased", "Tasks that workers hold now.", unit="tasks"
        )
        self.tasks_waiting = self.gauge(
            "elasticdl_tasks_waiting",
            "Tasks that came back and wait for a worker.",
            unit="tasks",
        )
        self.task_reports = self.counter(
            "elasticdl_task_reports_total",
            "Reports of tasks by outcome.",
            unit="reports",
            labels={"outcome": ", ".join(OUTCOMES)},
        )
        self.task_seconds = self.summary(
            "elasticdl_task_seconds",
            "Time from lease to report of a finished task.",
        )

    def _replicas(self) -> None:
        self.replicas = self.series(
            "elasticdl_replicas",
            "Replicas by role and state.",
            unit="replicas",
            labels={
                **_ROLE,
                "state": "scheduled, launched, pending, running, draining",
            },
        )
        self.pending_replicas = self.series(
            "elasticdl_pending_replicas",
            "Replicas that are wanted and do not run yet, and why.",
            unit="replicas",
            labels={
                **_ROLE,
                "reason": "the platform's first word, as Unschedulable; Starting while "
                "it is asked for, ReplicaPending for what no word is known of",
            },
        )
        self.workers_wanted = self.gauge(
            "elasticdl_workers_wanted", "Workers the job asks for.", unit="workers"
        )
        self.workers_granted = self.series(
            "elasticdl_workers_granted",
            "Workers that a controller gives the job; absent where none does.",
            unit="workers",
        )
        self.grants_refused = self.series(
            "elasticdl_grants_refused_total",
            "Grants that did not hold, or not as they were; the log says why.",
            unit="grants",
            optional=False,
        )
        self.workers_min = self.gauge(
            "elasticdl_workers_min",
            "Workers below which the job counts as short of them.",
            unit="workers",
        )
        self.workers_max = self.gauge(
            "elasticdl_workers_max",
            "Workers that the job may be scaled to; 0 is without a bound.",
            unit="workers",
        )
        self.worker_last_step = self.series(
            "elasticdl_workers_last_step_seconds",
            "Mean time of a worker's last steps, as the master hears it.",
            labels={"worker": "index of a worker that runs"},
        )

    def _membership(self) -> None:
        self.membership_changes = self.series(
            "elasticdl_membership_changes_total",
            "Replicas that came or went, by cause.",
            unit="replicas",
            labels={**_ROLE, **_CAUSE},
        )
        self.membership_time = self.series(
            "elasticdl_membership_last_change_timestamp_seconds",
            "When membership last changed for this cause; that a replica joined is "
            "told by why it was asked for.",
            labels=_CAUSE,
        )
        self.membership_cost = self.series(
            "elasticdl_membership_last_change_cost_seconds",
            "Time from the last change of this cause until the new replica worked; 0 "
            "where nobody had to come.",
            labels=_CAUSE,
        )
        self.preemptions = self.series(
            "elasticdl_preemptions_total",
            "Replicas whose capacity was taken for something more important.",
            unit="replicas",
            labels=_ROLE,
            optional=False,
        )
        self.master_restarts = self.series(
            "elasticdl_master_restarts_total",
            "Masters that took the place of one that was lost.",
            unit="restarts",
            optional=False,
        )
        self.relaunches = self.series(
            "elasticdl_relaunches_total",
            "Replicas that ended while they were needed, by role and reason.",
            unit="replicas",
            labels={**_ROLE, "reason": "as in the report: preempted, exit code 1, ..."},
        )
        self.recovery_seconds = self.summary(
            "elasticdl_recovery_seconds",
            "Time from the loss of a replica until its replacement worked.",
            labels=_ROLE,
        )
        self.rewinds = self.series(
            "elasticdl_rewinds_total",
            "Times that all PS and the queue went back to a checkpoint.",
            unit="rewinds",
            optional=False,
        )
        self.lost_updates = self.series(
            "elasticdl_lost_updates_total",
            "Updates lost with a PS that went on from an older checkpoint.",
            unit="updates",
            optional=False,
        )

    def _group(self) -> None:
        worker = {"worker": "index of a worker"}
        self.group_round = self.series(
            "elasticdl_group_round",
            "Number of the round in which workers make steps together (strategy "
            "allReduce).",
            unit="rounds",
            labels={"cause": "why it began: " + ", ".join(RoundCause)},
        )
        self.group_time = self.series(
            "elasticdl_group_round_timestamp_seconds", "When this round was formed."
        )
        self.group_rank = self.series(
            "elasticdl_group_member_rank",
            "Place by age of each member of the round; 0 leads.",
            unit="places",
            labels=worker,
        )
        self.group_out = self.series(
            "elasticdl_group_out",
            "Workers that run and are in no round, and why.",
            unit="workers",
            labels={"cause": ", ".join(OutCause)},
        )
        self.group_change = self.series(
            "elasticdl_group_change_seconds",
            "From the last step of the round before until the first one of this was "
            "made, as its leader saw it.",
        )
        self.group_changes = self.series(
            "elasticdl_group_changes_seconds_total",
            "The same of all rounds so far.",
        )
        self.group_repairs = self.series(
            "elasticdl_group_repairs_total",
            "Rounds that gave members the leader's values, because theirs differed.",
            unit="rounds",
        )
        self.group_wait = self.series(
            "elasticdl_group_wait_seconds",
            "Mean time of a step in which a member waits for others: whoever waits "
            "least is waited for.",
            labels=worker,
        )
        self.group_step_bytes = self.series(
            "elasticdl_group_step_bytes",
            "Sent by a member for the gradients of its last step.",
            labels=worker,
        )

    def _checkpoints(self) -> None:
        self.checkpoint_version = self.series(
            "elasticdl_checkpoint_version",
            "Version of the newest complete checkpoint.",
            unit="versions",
        )
        self.checkpoint_time = self.series(
            "elasticdl_checkpoint_timestamp_seconds",
            "When the newest checkpoint was completed, in Unix seconds.",
        )
        self.checkpoint_duration = self.series(
            "elasticdl_checkpoint_duration_seconds",
            "Time it took to complete the newest checkpoint of this master.",
        )
        self.checkpoint_interval = self.gauge(
            "elasticdl_checkpoint_interval_seconds",
            "Time between two checkpoints that is asked for; 0 when they are not made "
            "by time.",
        )
        self.checkpoint_failures = self.series(
            "elasticdl_checkpoint_failures_total",
            "Checkpoints that could not be written.",
            unit="checkpoints",
            optional=False,
        )
        self.journal_seconds = self.histogram(
            "elasticdl_journal_commit_seconds",
            "Time of one group commit of the journal.",
            JOURNAL_BUCKETS,
        )
        self.journal_bytes = self.gauge(
            "elasticdl_journal_bytes",
            "Size of the journal's segment that is being written.",
        )

    def _alerts(self) -> None:
        self.alert_thresholds = self.series(
            "elasticdl_job_alert_threshold",
            "Numbers that the job's own values say for alerts about it (`job.alerts`).",
            unit="the alert's own",
            labels={"threshold": "keys of job.alerts, as noStepSeconds"},
        )
        self.state_seconds = self.gauge(
            "elasticdl_job_state_seconds",
            "How long the job has been in its state, as this master's scrapes saw it.",
        )
        self.stalled_seconds = self.gauge(
            "elasticdl_job_stalled_seconds",
            "How long workers have run with training to do since the last step; 0 in a "
            "pause, an evaluation and an export. Time in which none runs does not "
            "count.",
        )
        self.unsaved_seconds = self.gauge(
            "elasticdl_checkpoint_unsaved_seconds",
            "Age of the oldest update that is in no complete checkpoint; 0 when all "
            "is saved.",
        )
        self.journal_blocked = self.gauge(
            "elasticdl_journal_blocked_seconds",
            "How long the journal has not been writable; 0 when it is.",
        )
        self.volume_free = self.series(
            "elasticdl_volume_free_bytes",
            "Room on the volume with the job's folder, as of the last write.",
        )
        self.volume_size = self.series(
            "elasticdl_volume_bytes", "Size of the volume with the job's folder."
        )
