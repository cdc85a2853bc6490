"""Every derived name of a job: replicas, files, environment variables, labels.

Owns the only definition of each. Used by all roles, the runners and the CLI. Must not
read or write anything.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from pathlib import Path


class Role(enum.StrEnum):
    """What a replica is."""

    MASTER = "master"
    PS = "ps"
    WORKER = "worker"


# What a task's predictions are called (worker/uses/prediction_files.py).
PREDICTION_FILE = re.compile(r"part-[0-9]{6,}\.(parquet|jsonl)")

ZOO_NAME = "model_zoo"  # as a module may call its zoo, whatever its folder is called

# Environment of every role's process; read in `*/main.py` alone. Never in `argv`: other
# users of a machine can read that.
ENV_JOB_DIR = "ELASTICDL_JOB_DIR"
ENV_ROLE = "ELASTICDL_ROLE"
ENV_INDEX = "ELASTICDL_INDEX"
ENV_GENERATION = "ELASTICDL_GENERATION"
ENV_MASTER_ADDRESS = "ELASTICDL_MASTER_ADDRESS"
ENV_PLATFORM_ADDRESS = "ELASTICDL_PLATFORM_ADDRESS"
ENV_LIFELINE_FD = "ELASTICDL_LIFELINE_FD"
ENV_LAUNCH = "ELASTICDL_LAUNCH"  # one and the same for all masters of a launcher
ENV_JOBS_DIR = "ELASTICDL_JOBS_DIR"
ENV_MODELS_DIR = "ELASTICDL_MODELS_DIR"  # the registry of models that SQL trained
ENV_SQL_URL = "ELASTICDL_SQL_URL"  # where its tables are; may hold a password
ENV_TOKEN = "ELASTICDL_TOKEN"
# `off`: workers and PS of one machine send frames, as pods do; for measurements.
ENV_LENT_MEMORY = "ELASTICDL_LENT_MEMORY"
# Where calls are encrypted (docs/trust.md): whom to believe, and what a new replica has
# to show for its first certificate.
ENV_AUTHORITY = "ELASTICDL_AUTHORITY"
ENV_ENROLMENT = "ELASTICDL_ENROLMENT"
ENV_ENROLMENT_SEED = "ELASTICDL_ENROLMENT_SEED"
# What a reader of metrics brings, where those are encrypted too.
ENV_METRICS_TOKEN = "ELASTICDL_METRICS_TOKEN"
# The folder for temporary files that a process has for itself, and takes along.
ENV_TEMPORARY_DIR = "ELASTICDL_TEMPORARY_DIR"

# Set in pods alone, by the chart; local processes listen on loopback, on free ports.
ENV_PLATFORM = "ELASTICDL_PLATFORM"
ENV_HOST = "ELASTICDL_HOST"  # what to listen on
ENV_PORT = "ELASTICDL_PORT"
ENV_POD_IP = "ELASTICDL_POD_IP"  # what peers call
ENV_METRICS_PORT = "ELASTICDL_METRICS_PORT"
# The master's pod alone.
ENV_NAMESPACE = "ELASTICDL_NAMESPACE"
ENV_CONFIG_MAP = "ELASTICDL_CONFIG_MAP"
ENV_CONFIG_DIR = "ELASTICDL_CONFIG_DIR"  # where that ConfigMap is mounted
ENV_AUTHORITY_DIR = "ELASTICDL_AUTHORITY_DIR"  # where the job's authority is mounted
ENV_CERTIFICATE_HOURS = "ELASTICDL_CERTIFICATE_HOURS"  # how long certificates are good
ENV_PRIORITY_HIGH = "ELASTICDL_PRIORITY_HIGH"  # PriorityClasses behind the words
ENV_PRIORITY_LOW = "ELASTICDL_PRIORITY_LOW"  # `high` and `low` of a values file
ENV_CHART_VERSION = "ELASTICDL_CHART_VERSION"  # of the package that it was made for
ENV_RUN = "ELASTICDL_RUN"  # `run` of a values file, from 2 on
POD_ENVIRONMENT = (
    ENV_PLATFORM,
    ENV_HOST,
    ENV_PORT,
    ENV_POD_IP,
    ENV_METRICS_PORT,
    ENV_NAMESPACE,
    ENV_CONFIG_MAP,
    ENV_CONFIG_DIR,
    ENV_AUTHORITY,
    ENV_ENROLMENT,
    ENV_ENROLMENT_SEED,
    ENV_METRICS_TOKEN,
    ENV_AUTHORITY_DIR,
    ENV_CERTIFICATE_HOURS,
    ENV_PRIORITY_HIGH,
    ENV_PRIORITY_LOW,
    ENV_CHART_VERSION,
    ENV_RUN,
)

# Of the command that is run at the job's end (`onEnd.command`).
ENV_ENDED_JOB = "ELASTICDL_JOB"
ENV_ENDED_STATE = "ELASTICDL_STATE"
ENV_ENDED_MESSAGE = "ELASTICDL_MESSAGE"
ENV_ENDED_REPORT = "ELASTICDL_REPORT"

PLATFORM_LOCAL = "local"
NAMESPACE_LOCAL = "local"  # what a job of this machine says in its place
PLATFORM_KUBERNETES = "kubernetes"
CONFIG_DIR = "/etc/elasticdl"

LABEL_JOB = "elasticdl-job-name"
LABEL_ROLE = "elasticdl-replica-type"
LABEL_INDEX = "elasticdl-replica-index"
LABEL_GENERATION = "elasticdl-generation"
LABEL_COMPONENT = "app.kubernetes.io/component"
LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGED_BY_MASTER = "elasticdl-master"
# On a namespace: its pods may read the metrics of jobs (networkPolicy.metricsFrom).
LABEL_SCRAPES = "elasticdl.org/scrapes"
# On the job's ConfigMap: ends the job in good order; the value is the reason.
ANNOTATION_STOP = "elasticdl.org/stop"
# On the job's ConfigMap, by a controller: how many workers it is given.
ANNOTATION_WORKERS = "elasticdl.org/workers"
# On the master's batch Job, by the master: what a health check can read of the job.
ANNOTATION_STATE = "elasticdl.org/state"
ANNOTATION_MESSAGE = "elasticdl.org/message"

# Keys of the job's ConfigMap, and of those with its status and its history.
KEY_JOB = "job.yaml"
KEY_VALUES = "values.yaml"  # what it says in sections that a platform may say too
KEY_PLATFORM = "platform.yaml"  # what its platform said when it was rendered
# Behind the folder of the job's ConfigMap: that of the platform, where there is one.
PLATFORM_SUFFIX = "-platform"
KEY_STATUS = "status.json"
KEY_REPORT = "report.json"
KEY_HISTORY = "history.jsonl.gz"  # binary; lines of job/history.py
MAIN_CONTAINER = "main"


def replica_name(role: Role | str, index: int) -> str:
    """Return the name people use: `worker-3`, `ps-0`, `master-0`."""
    return f"{role}-{index}"


def role_of(replica: str) -> str:
    """Return the role of `worker-3`."""
    return replica.partition("-")[0]


def pod_name(job: str, role: Role, index: int) -> str:
    """Return the pod's name: `elasticdl-<job>-worker-3`, `elasticdl-<job>-master`."""
    if role is Role.MASTER:
        return f"elasticdl-{job}-master"
    return f"elasticdl-{job}-{role}-{index}"


def master_job_name(job: str, run: int) -> str:
    """Return the batch Job of a run's master: `elasticdl-<job>-master`, `...-2`."""
    name = pod_name(job, Role.MASTER, 0)
    return name if run == 1 else f"{name}-{run}"


def config_map_name(job: str) -> str:
    """Return the ConfigMap of the job's specification and pod templates."""
    return f"elasticdl-{job}"


def status_config_map_name(job: str) -> str:
    """Return the ConfigMap in which the master shows the job's status."""
    return f"elasticdl-{job}-status"


def history_config_map_name(job: str) -> str:
    """Return the name of the ConfigMap in which a job's history is shown."""
    return f"{config_map_name(job)}-history"


def template_key(role: Role) -> str:
    """Return the key of a role's pod template in the job's ConfigMap: `ps.yaml`."""
    return f"{role}.yaml"


@dataclass(frozen=True)
class JobDir:
    """Layout of a job's folder: all of a job's files, named in one place."""

    root: Path

    @property
    def spec_file(self) -> Path:
        """The job's values file; edited to change a running job."""
        return self.root / "job.yaml"

    @property
    def in_force_file(self) -> Path:
        """The specification in force; PS and workers read it."""
        return self.root / "in-force.yaml"

    @property
    def run_file(self) -> Path:
        """Launcher's pid, addresses of platform and master (JSON), while it runs."""
        return self.root / "run.json"

    @property
    def journal_dir(self) -> Path:
        """The master's journal."""
        return self.root / "journal"

    @property
    def logs_dir(self) -> Path:
        """One file per replica: `worker-3.log`."""
        return self.root / "logs"

    @property
    def checkpoints_dir(self) -> Path:
        """Default place of checkpoints."""
        return self.root / "checkpoints"

    @property
    def model_dir(self) -> Path:
        """Model code from `model.files`."""
        return self.root / "model"

    @property
    def predictions_dir(self) -> Path:
        """Default place of predictions."""
        return self.root / "predictions"

    @property
    def owner_file(self) -> Path:
        """UID of the ConfigMap that the folder was last prepared for (clusters)."""
        return self.root / "owner"

    @property
    def report_file(self) -> Path:
        """The final report (JSON, job/status.py: JobReport)."""
        return self.root / "report.json"

    @property
    def history_file(self) -> Path:
        """Samples and decisions over time (job/history.py); appended while it runs."""
        return self.root / "history.jsonl"

    @property
    def tensorboard_dir(self) -> Path:
        """Event files for `tensorboard --logdir`."""
        return self.root / "tensorboard"

    @property
    def targets_file(self) -> Path:
        """Where Prometheus (file_sd) finds the roles' metrics while they run."""
        return self.root / "targets.json"

    def log_file(self, role: Role | str, index: int) -> Path:
        """Return the log of one replica."""
        return self.logs_dir / f"{replica_name(role, index)}.log"
